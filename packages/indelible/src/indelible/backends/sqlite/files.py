"""The files of a database: the database itself, and its log and index beside it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from indelible.errors import UsageError

SIDE_FILE_ENDINGS = ("-wal", "-shm", "-journal")


def list_files(path: Path) -> tuple[Path, ...]:
    """List the files of the database at a path, whether they exist now or not."""
    # SQLite follows symbolic links first: its log is beside the real file.
    real = Path(os.path.realpath(path))
    return (real, *(real.with_name(real.name + ending) for ending in SIDE_FILE_ENDINGS))


def is_one_of(path: Path, files: tuple[Path, ...]) -> bool:
    """Return whether a path leads to one of the files, however it is spelled or linked."""
    names = (path, Path(os.path.realpath(path)))
    return any(_is_same(name, file) for name in names for file in files)


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


def _is_same(path: Path, file: Path) -> bool:
    """Compare by device and inode; a file that does not exist, by its folder and its name."""
    with suppress(OSError):
        if path.samefile(file):
            return True
    # Some file systems do not distinguish case. To refuse a name too many does no harm.
    same_name = path.name.casefold() == file.name.casefold()
    with suppress(OSError):
        return same_name and path.parent.samefile(file.parent)
    return False
