"""The blocking driver of PostgreSQL. The calling thread does the work."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from indelible.backends.postgres.client import PostgresClient
from indelible.backends.postgres.engine import PostgresOptions
from indelible.core import fork
from indelible.core.plan import Operation
from indelible.model import Claims

R = TypeVar("R")


class PostgresBackend:
    """Performs operations on a PostgreSQL server, blocking."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._server = PostgresClient(options)
        # Connections must not be used on both sides of a fork: parent and child would read each
        # other's answers. The child leaves them alone, and opens its own.
        fork.register(after_in_child=self.after_fork)

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
        self._server.batcher.close()
        self._server.pool.close()

    def after_fork(self) -> None:
        """In a forked child: begin with no connections."""
        self._server.pool.after_fork()
        self._server.batcher.reset()
