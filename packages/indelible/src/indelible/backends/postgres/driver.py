"""The blocking backend. The calling thread does the work."""

from __future__ import annotations

from indelible.backends.postgres.client import PostgresClient
from indelible.backends.postgres.options import PostgresOptions
from indelible.core import fork


class PostgresBackend(PostgresClient):
    """Performs operations on a PostgreSQL server, blocking."""

    def __init__(self, options: PostgresOptions) -> None:
        super().__init__(options)
        # Parent and child would read each other's answers: the child opens its own connections.
        fork.register(after_in_child=self.after_fork)

    def close(self) -> None:
        """Close the connections."""
        self.batcher.close()
        self.pool.close()

    def after_fork(self) -> None:
        """In a forked child: start without connections."""
        self.pool.after_fork()
        self.batcher.reset()
