"""The reading connections: each read is one transaction, which sees one committed state."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from indelible.backends.sqlite.connection import BEGIN_READ, END_READ, ROLLBACK, SqliteConnection
from indelible.core.leases import Lease, Slots
from indelible.errors import BusyError, ClosedError, MemoryStoreBackendError, MemoryStoreError

R = TypeVar("R")

# Two per core of a small server; each holds a file handle and a page cache.
READERS_MAX = 8


class Reader:
    """A slot for one connection."""

    __slots__ = ("busy", "connection")

    def __init__(self) -> None:
        self.connection: SqliteConnection | None = None
        # Whether a read is under way; if so in a free slot, it was interrupted.
        self.busy = False

    def close(self, *, checkpoint: bool) -> None:
        """Close the connection; the next read opens another."""
        connection, self.connection = self.connection, None
        self.busy = False
        if connection is not None:
            connection.close(checkpoint=checkpoint)


class Readers:
    """A bounded pool; waiting for a reader ends in a `BusyError`."""

    def __init__(self, connect: Callable[[], SqliteConnection], *, wait_s: float) -> None:
        self._connect = connect
        self._wait_s = wait_s
        self._slots = Slots(Reader() for _ in range(READERS_MAX))
        # All of them, while this process forks.
        self._pausing: list[Lease] = []
        # Connections of a parent process.
        self._inherited: list[SqliteConnection | None] = []
        self._closed = False

    def run(self, work: Callable[[SqliteConnection], R]) -> R:
        """Run something that only reads, in one state of the file."""
        lease = Lease()
        try:
            reader = self._borrow(lease)
            try:
                return self._read(reader, work)
            finally:
                if reader.busy or self._closed:
                    reader.close(checkpoint=not reader.busy)
        finally:
            lease.held = False
            self._slots.wake()

    def _read(self, reader: Reader, work: Callable[[SqliteConnection], R]) -> R:
        connection = reader.connection
        if reader.busy or connection is None:
            reader.close(checkpoint=False)
            connection = reader.connection = self._connect()
        reader.busy = True
        try:
            connection.execute(BEGIN_READ)
            result = work(connection)
            connection.execute(END_READ)
        except MemoryStoreBackendError:
            # The connection may be in a bad state: it stays marked, and is closed.
            raise
        except Exception:
            with suppress(MemoryStoreError):
                if connection.in_transaction:
                    connection.execute(ROLLBACK)
                reader.busy = False
            raise
        reader.busy = False
        return result

    def _borrow(self, lease: Lease) -> Reader:
        deadline = time.monotonic() + self._wait_s
        reader = self._slots.take(lease, lambda: deadline - time.monotonic())
        if reader is None:
            raise BusyError(f"all {READERS_MAX} readers stayed in use; nothing was read")
        if self._closed:
            raise ClosedError("the store is closed")
        return reader

    def close(self) -> None:
        """Close every idle reader; those in use are closed when they are returned."""
        self._closed = True
        leases = [Lease() for _ in self._slots.things]
        try:
            for lease in leases:
                reader = self._slots.try_take(lease)
                if reader is not None:
                    reader.close(checkpoint=True)
        finally:
            for lease in leases:
                lease.held = False
            self._slots.wake_all()

    def pause(self) -> None:
        """Before a fork: wait until all are returned, and close them."""
        self._pausing = [Lease() for _ in self._slots.things]
        for lease in self._pausing:
            reader = self._slots.take(lease, lambda: math.inf)
            assert reader is not None
            reader.close(checkpoint=False)

    def resume(self, *, in_child: bool) -> None:
        """After a fork; no thread of the child has a reader."""
        for lease in self._pausing:
            lease.held = False
        if in_child:
            # If Ctrl-C came before all were closed, these are the parent's: a child must not use or
            # close them.
            self._inherited += [reader.connection for reader in self._slots.things]
            self._slots = Slots(Reader() for _ in range(READERS_MAX))
        self._slots.wake_all()
