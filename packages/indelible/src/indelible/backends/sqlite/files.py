"""The files that SQLite keeps beside a database: its log and its index."""

from __future__ import annotations

import os
from pathlib import Path

from indelible.errors import UsageError

SIDE_FILE_ENDINGS = ("-wal", "-shm", "-journal")


def refuse_side_file(path: Path) -> None:
    """Refuse to open a file that belongs to another database, such as its log."""
    real = Path(os.path.realpath(path))
    for ending in SIDE_FILE_ENDINGS:
        database = real.with_name(real.name.removesuffix(ending) or real.name)
        if database != real and database.exists():
            raise UsageError(
                f"{path} belongs to the database {database}, which SQLite keeps it for: nothing"
                " was opened. Name the database, or another file",
                value=str(path),
            )
