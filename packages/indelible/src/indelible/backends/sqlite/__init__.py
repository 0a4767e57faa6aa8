"""Sessions in a SQLite file. DESIGN.md, beside this file, says why it is built like this."""

from indelible.backends.sqlite.connection import SqliteOptions
from indelible.backends.sqlite.database import SqliteDatabase

__all__ = ["SqliteDatabase", "SqliteOptions"]
