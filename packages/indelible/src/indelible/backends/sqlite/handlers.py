"""The tables of handlers: each module registers its own.

A handler runs inside a transaction of the connection that it gets. One that writes checks before it
writes its first row; once it has written it cannot refuse.
"""

from __future__ import annotations

from typing import Final

from indelible.backends.sqlite.connection import SqliteConnection
from indelible.core.backend import Handlers

# In a transaction that holds the write lock.
WRITES: Final = Handlers[SqliteConnection]()
# In a transaction of a reader: one committed state.
READS: Final = Handlers[SqliteConnection]()
