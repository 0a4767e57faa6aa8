"""The writing connection: each batch of writes is one transaction.

Ctrl-C may come between any two calls. The lock is taken by `with` alone, which cannot be
interrupted halfway. If an interrupt left a transaction open, the next batch closes the connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import apsw

from indelible.backends.sqlite.connection import BEGIN_WRITE, COMMIT, ROLLBACK, SqliteConnection
from indelible.backends.sqlite.transaction import SqliteTransaction
from indelible.core.embedded import Write
from indelible.core.handlers import perform_blocking
from indelible.core.plan import Operation
from indelible.errors import (
    BusyError,
    ClosedError,
    MemoryStoreError,
    OutcomeUnknownError,
    UnavailableError,
)

T = TypeVar("T")


class Writer:
    """The only connection that writes."""

    def __init__(
        self,
        connect: Callable[[], SqliteConnection],
        connection: SqliteConnection,
        *,
        refuse_if_moved: Callable[[], None],
    ) -> None:
        self._connect = connect
        self._refuse_if_moved = refuse_if_moved
        # None after a failure, or a fork, until the next write.
        self._connection: SqliteConnection | None = connection
        self._lock = threading.Lock()
        self._closed = False
        # Whether the lock is held because this process forks.
        self._paused = False
        self._inherited: SqliteConnection | None = None

    def write(self, batch: list[Write]) -> None:
        """Perform writes in one transaction, and answer each.

        A refusal concerns its own caller alone. If the engine fails, the whole batch is rolled
        back, and every caller is told.
        """
        with self._lock:
            committing = False
            current: Write | None = None
            outcomes: list[Any] = []
            try:
                connection = self._get_connection()
                connection.execute(BEGIN_WRITE)
                tx = SqliteTransaction(connection)
                for pending in batch:
                    current = pending
                    outcomes.append(_perform(tx, pending.request))
                current, committing = None, True
                connection.execute(COMMIT)
            except MemoryStoreError as error:
                self._abandon(error)
                for pending in batch:
                    pending.fail(error.copy())
            except BaseException as error:
                # A bug in one handler, or Ctrl-C in this thread: not the error of the other writes.
                self._abandon(error)
                for pending in batch:
                    own = pending is current and isinstance(error, Exception)
                    pending.fail(error if own else _build_interrupted_error(committing=committing))
                if not isinstance(error, Exception):
                    raise
            else:
                for pending, outcome in zip(batch, outcomes, strict=True):
                    if isinstance(outcome, MemoryStoreError):
                        pending.fail(outcome)
                    else:
                        pending.succeed(outcome)

    def run_outside(self, work: Callable[[SqliteConnection], T]) -> T:
        """Run something on the writing connection, outside of any transaction."""
        with self._lock:
            return work(self._get_connection())

    def close(self) -> None:
        """Wait for the running commit, then close."""
        with self._lock:
            self._closed = True
            self._disconnect(checkpoint=True)

    def pause(self) -> None:
        """Before a fork: wait for the running commit and close the file."""
        self._lock.acquire()
        self._paused = True
        self._disconnect(checkpoint=False)

    def resume(self, *, in_child: bool) -> None:
        """After a fork: go on."""
        if in_child:
            # If Ctrl-C came before the file was closed, this is the parent's connection, which a
            # child must not use or close; and one of the parent's threads may hold the lock.
            self._inherited, self._connection = self._connection, None
            self._lock = threading.Lock()
            self._paused = False
        elif self._paused:
            self._paused = False
            self._lock.release()

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

    def _abandon(self, error: BaseException) -> None:
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


def _perform(tx: SqliteTransaction, op: Operation[Any]) -> Any:
    """Return the result of a handler, or its refusal; raise what concerns the whole batch."""
    try:
        return perform_blocking(tx, op)
    except MemoryStoreError as error:
        if isinstance(error.__cause__, apsw.Error):
            raise
        return error


def _build_interrupted_error(*, committing: bool) -> MemoryStoreError:
    """Build the error for writes that were rolled back because of another one of their batch."""
    if committing:
        return OutcomeUnknownError("the commit was interrupted: it may have landed")
    return UnavailableError(
        "another write of the same group was interrupted, and the group was rolled back: nothing"
        " was written, so it is safe to try again"
    )
