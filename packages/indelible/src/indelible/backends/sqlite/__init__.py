"""Sessions in a SQLite file. DESIGN.md, beside this file, says why it is built like this."""

from indelible.backends.sqlite.connection import SqliteOptions
from indelible.backends.sqlite.driver import AsyncSqliteBackend, SqliteBackend

__all__ = ["AsyncSqliteBackend", "SqliteBackend", "SqliteOptions"]
