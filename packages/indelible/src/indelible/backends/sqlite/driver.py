"""The two backends of SQLite, blocking and async."""

from __future__ import annotations

from indelible.backends.sqlite.connection import SqliteOptions
from indelible.backends.sqlite.database import SqliteDatabase
from indelible.core.embedded import AsyncEmbeddedBackend, EmbeddedBackend


class SqliteBackend(EmbeddedBackend):
    """Performs operations on a SQLite file, blocking."""

    def __init__(self, options: SqliteOptions) -> None:
        super().__init__(SqliteDatabase(options))


class AsyncSqliteBackend(AsyncEmbeddedBackend):
    """Performs operations on a SQLite file, async."""

    def __init__(self, options: SqliteOptions) -> None:
        super().__init__(SqliteDatabase(options))
