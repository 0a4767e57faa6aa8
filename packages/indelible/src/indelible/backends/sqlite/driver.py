"""The blocking driver of SQLite: the calling thread does the work."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, TypeVar

from indelible.backends.sqlite.connection import SqliteOptions
from indelible.backends.sqlite.database import Database
from indelible.backends.sqlite.writer import GROUP_MAX, NEVER
from indelible.core import fork
from indelible.core.batcher import Batcher
from indelible.core.handlers import WRITES
from indelible.core.plan import Operation
from indelible.errors import ClosedError
from indelible.model import Claims

R = TypeVar("R")

# Batches are bounded by the number of writes alone: nothing is copied to put one together.
BATCH_LIMITS: dict[str, Any] = {
    "senders": 1,
    "requests_max": GROUP_MAX,
    "bytes_max": math.inf,
    "size_of": lambda _: 0,
}


class SqliteBackend:
    """Performs operations on a SQLite file, blocking."""

    def __init__(self, options: SqliteOptions) -> None:
        self._database = Database(options)
        self._closed = False
        self._batcher: Batcher[Operation[Any], Any] = Batcher(
            self._database.writer.write, **BATCH_LIMITS
        )
        fork.register(after_in_child=self._batcher.reset)

    def perform(self, op: Operation[R]) -> R:
        """Perform one operation, in one transaction."""
        if self._closed:
            raise ClosedError("the store is closed")
        write = type(op) in WRITES
        result: R = self._batcher.run(op, NEVER) if write else self._database.read(op)
        return result

    def prepare(self) -> None:
        """Do nothing: the file was opened and prepared when this was created."""

    def claims(self) -> Claims:
        """Return what is promised on this file."""
        return self._database.claims()

    def owns(self, path: Path) -> bool:
        """Return whether a file is part of the store itself."""
        return self._database.owns(path)

    def close(self) -> None:
        """Wait for what is running, then close."""
        self._closed = True
        self._database.close()
