"""A store on a PostgreSQL server."""

from indelible.backends.postgres.driver import PostgresBackend
from indelible.backends.postgres.driver_async import AsyncPostgresBackend
from indelible.backends.postgres.options import PostgresOptions

__all__ = ["AsyncPostgresBackend", "PostgresBackend", "PostgresOptions"]
