"""The writing connection. If Ctrl-C left a transaction open, the next batch closes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import apsw

from indelible.backends.sqlite.connection import BEGIN_WRITE, COMMIT, ROLLBACK, SqliteConnection
from indelible.backends.sqlite.transaction import SqliteTransaction
from indelible.core.embedded import BatchWriter
from indelible.errors import BusyError, ClosedError, MemoryStoreError

T = TypeVar("T")


class SqliteWriter(BatchWriter):
    """The only connection that writes."""

    engine_error = apsw.Error

    def __init__(
        self,
        connect: Callable[[], SqliteConnection],
        connection: SqliteConnection,
        *,
        refuse_if_moved: Callable[[], None],
    ) -> None:
        super().__init__()
        self._connect = connect
        self._refuse_if_moved = refuse_if_moved
        # None after a failure, or a fork, until the next write.
        self._connection: SqliteConnection | None = connection
        self._closed = False
        self._inherited: SqliteConnection | None = None

    def begin(self) -> SqliteTransaction:
        """Begin a transaction that holds the write lock of the file."""
        connection = self._get_connection()
        connection.execute(BEGIN_WRITE)
        return SqliteTransaction(connection)

    def commit(self) -> None:
        """Commit, and sync as the durability asks for."""
        assert self._connection is not None
        self._connection.execute(COMMIT)

    def run_outside(self, work: Callable[[SqliteConnection], T]) -> T:
        """Run something on the writing connection, outside of any transaction."""
        with self._lock:
            try:
                return work(self._get_connection())
            except BaseException as error:
                self.abandon(error)
                raise

    def close(self) -> None:
        """Wait for the running commit, then close."""
        with self._lock:
            self._closed = True
            self._disconnect(checkpoint=True)

    def pause(self) -> None:
        """Before a fork: wait for the running commit and close the file."""
        super().pause()
        self._disconnect(checkpoint=False)

    def resume(self, *, in_child: bool) -> None:
        """After a fork: let writes continue."""
        if in_child:
            # If Ctrl-C came before the file was closed, this is the parent's connection, which a
            # child must not use or close.
            self._inherited, self._connection = self._connection, None
        super().resume(in_child=in_child)

    def _get_connection(self) -> SqliteConnection:
        """Return the connection, outside of any transaction."""
        if self._closed:
            raise ClosedError("the store is closed")
        self._refuse_if_moved()
        connection = self._connection
        if connection is not None and connection.in_transaction:
            # The thread that began it was interrupted before it could clean up.
            self._disconnect(checkpoint=False)
            connection = None
        if connection is None:
            connection = self._connection = self._connect()
        return connection

    def abandon(self, error: BaseException) -> None:
        """Roll back, and close a connection that may be in a bad state."""
        connection = self._connection
        if connection is None:
            return
        try:
            if connection.in_transaction:
                connection.execute(ROLLBACK)
        except MemoryStoreError as second:
            error = second
        # A file that was moved or deleted can be read as long as it stays open.
        if not isinstance(error, BusyError) and not getattr(error, "moved", False):
            self._disconnect(checkpoint=False)

    def _disconnect(self, *, checkpoint: bool) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(checkpoint=checkpoint)
