"""The blocking driver of PostgreSQL. The calling thread does the work."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import TypeVar

from indelible.backends.postgres.engine import PostgresOptions
from indelible.backends.postgres.server import Server
from indelible.core.plan import Operation
from indelible.model import Claims

R = TypeVar("R")


class PostgresBackend:
    """Performs operations on a PostgreSQL server, blocking."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._server = Server(options)
        _backends.add(self)

    def prepare(self) -> None:
        """Connect, and create or migrate the tables."""
        self._server.prepare()

    def perform(self, op: Operation[R]) -> R:
        """Perform one operation, in one transaction, with all its retries."""
        return self._server.perform(op)

    def claims(self) -> Claims:
        """Return what is promised on the server as it runs now."""
        return self._server.claims()

    def owns(self, path: Path) -> bool:  # noqa: ARG002 (the signature of a backend)
        """Return whether a file is part of the store: none is."""
        return False

    def close(self) -> None:
        """Close the connections."""
        _backends.discard(self)
        self._server.batcher.close()
        self._server.pool.close()

    def after_fork(self) -> None:
        """In a forked child: begin with no connections."""
        self._server.pool.after_fork()
        self._server.batcher.reset()


# Connections must not be used on both sides of a fork: parent and child would read each other's
# answers. The child leaves them alone, and opens its own.
_backends: weakref.WeakSet[PostgresBackend] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for backend in list(_backends):
        backend.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
