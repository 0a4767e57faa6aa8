"""Sessions in a SQLite file. DESIGN.md, beside this file, says why it is built like this."""

from indelible.backends.sqlite.connection import SqliteOptions
from indelible.backends.sqlite.driver import SqliteBackend
from indelible.backends.sqlite.driver_async import AsyncSqliteBackend

__all__ = ["AsyncSqliteBackend", "SqliteBackend", "SqliteOptions"]
