"""The reading connections: each read is one transaction, which sees one committed state."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from indelible.backends.sqlite.connection import BEGIN_READ, END_READ, ROLLBACK, SqliteConnection
from indelible.core.connection_pool import ConnectionPool
from indelible.errors import BusyError, ClosedError, MemoryStoreBackendError, MemoryStoreError

R = TypeVar("R")

# Two per core of a small server; each holds a file handle and a page cache.
READERS_MAX = 8


class Reader:
    """A place for one connection, which the first read in it opens."""

    __slots__ = ("connection", "lock")

    def __init__(self) -> None:
        self.connection: SqliteConnection | None = None
        # Held by each read. Reads take it by `with` alone, which cannot be interrupted halfway.
        self.lock = threading.Lock()

    def abandon(self, error: BaseException) -> None:
        """End a read that failed; close a connection that may be in a bad state."""
        connection = self.connection
        if isinstance(error, Exception) and not isinstance(error, MemoryStoreBackendError):
            with suppress(MemoryStoreError):
                if connection is not None and connection.in_transaction:
                    connection.execute(ROLLBACK)
                return
        self.close(checkpoint=False)

    def close(self, *, checkpoint: bool) -> None:
        """Close the connection; the next read opens another."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close(checkpoint=checkpoint)


class Readers:
    """A bounded pool; waiting for a reader ends in a `BusyError`."""

    def __init__(self, connect: Callable[[], SqliteConnection], *, wait_s: float) -> None:
        self._connect = connect
        self._wait_s = wait_s
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        """Begin without connections, also in a forked child."""
        self._readers = [Reader() for _ in range(READERS_MAX)]
        self._pool = ConnectionPool(self._readers)
        # Those whose lock is held because this process forks.
        self._paused: list[Reader] = []

    def run(self, work: Callable[[SqliteConnection], R]) -> R:
        """Run something that only reads, in one state of the file."""
        try:
            return self._run(self._pool, work)
        except BaseException as error:
            if not isinstance(error, Exception):
                # Other threads may still use readers of the old pool: the locks keep them apart.
                self._pool = ConnectionPool(self._readers)
            raise

    def _run(self, pool: ConnectionPool[Reader], work: Callable[[SqliteConnection], R]) -> R:
        reader = pool.take(self._wait_s)
        if reader is None:
            raise BusyError(f"all {READERS_MAX} readers stayed in use; nothing was read")
        try:
            with reader.lock:
                return self._read(reader, work)
        finally:
            pool.give_back(reader)

    def _read(self, reader: Reader, work: Callable[[SqliteConnection], R]) -> R:
        if self._closed:
            raise ClosedError("the store is closed")
        connection = reader.connection
        if connection is None or connection.in_transaction:
            # The thread that began the transaction was interrupted again, before it could clean up.
            reader.close(checkpoint=False)
            connection = reader.connection = self._connect()
        try:
            connection.execute(BEGIN_READ)
            result = work(connection)
            connection.execute(END_READ)
        except BaseException as error:
            reader.abandon(error)
            raise
        return result

    def close(self) -> None:
        """Wait for the reads that are running, then close."""
        self._closed = True
        for reader in self._readers:
            with reader.lock:
                reader.close(checkpoint=True)

    def pause(self) -> None:
        """Before a fork: wait for the reads that are running, and close the file."""
        for reader in self._readers:
            reader.lock.acquire()
            self._paused.append(reader)
            reader.close(checkpoint=False)

    def resume(self, *, in_child: bool) -> None:
        """After a fork: let reads continue."""
        if in_child:
            # A thread of the parent may have been about to take or give back a reader.
            self._begin()
        else:
            while self._paused:
                self._paused.pop().lock.release()
