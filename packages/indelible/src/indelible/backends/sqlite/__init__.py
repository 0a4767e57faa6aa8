"""SQLite through apsw: the embedded default. See DESIGN.md beside this file."""

from indelible.backends.sqlite.driver import AsyncSqliteBackend, SqliteBackend
from indelible.backends.sqlite.engine import SqliteOptions

__all__ = ["AsyncSqliteBackend", "SqliteBackend", "SqliteOptions"]
