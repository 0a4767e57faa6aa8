"""Readers beside the writer: a few connections that see one committed state each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from indelible.backends.sqlite.connection import BEGIN_READ, END_READ, ROLLBACK, Connection
from indelible.core.plan import Plan, drive
from indelible.errors import BusyError, ClosedError, MemoryStoreBackendError

# Two per core of a small server; each holds a file handle and a page cache.
READERS_MAX = 8


class Readers:
    """A bounded pool; a reader that is not there in time is an error that says so."""

    def __init__(self, connect: Callable[[], Connection], *, wait_s: float) -> None:
        self._connect = connect
        self._wait_s = wait_s
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._idle: list[Connection] = []
        self._lent = 0
        # How many wait for a reader to come back, or for all of them.
        self._waiting = 0
        self._closed = False
        self._paused = False

    def run(self, plan: Plan[Any]) -> Any:
        """Run a plan that only reads, in one state of the file."""
        connection = self._borrow()
        healthy = False
        try:
            connection.execute(BEGIN_READ)
            result = drive(plan, connection.execute)
            connection.execute(END_READ)
            healthy = True
            return result
        except MemoryStoreBackendError:
            raise
        except Exception:
            if connection.in_transaction:
                connection.execute(ROLLBACK)
            healthy = True
            raise
        finally:
            self._give_back(connection, healthy=healthy)

    def close(self) -> None:
        """Close every idle reader; those in use close when they come back."""
        with self._lock:
            self._closed = True
            self._close_idle(checkpoint=True)
            self._changed.notify_all()

    def pause(self) -> None:
        """Before a fork: wait until all are back, and let go of the file."""
        with self._lock:
            self._paused = True
            self._waiting += 1
            while self._lent:
                self._changed.wait()
            self._waiting -= 1
            self._close_idle(checkpoint=False)
        self._lock.acquire()

    def resume(self) -> None:
        """After a fork, in parent and child alike."""
        self._paused = False
        self._changed.notify_all()
        self._lock.release()

    def _borrow(self) -> Connection:
        with self._lock:
            if self._paused or not self._idle:
                self._wait_for_one()
            self._lent += 1
            if self._idle:
                return self._idle.pop()
        try:
            return self._connect()
        except BaseException:
            with self._lock:
                self._lent -= 1
                self._changed.notify_all()
            raise

    def _wait_for_one(self) -> None:
        """Wait until a reader may be had, idle or new."""
        deadline = time.monotonic() + self._wait_s
        self._waiting += 1
        try:
            while (not self._idle and self._lent >= READERS_MAX) or self._paused:
                if not self._changed.wait(deadline - time.monotonic()):
                    raise BusyError(f"all {READERS_MAX} readers stayed in use; nothing was read")
        finally:
            self._waiting -= 1
        if self._closed:
            raise ClosedError("the store is closed")

    def _give_back(self, connection: Connection, *, healthy: bool) -> None:
        with self._lock:
            self._lent -= 1
            if healthy and not self._closed:
                self._idle.append(connection)
            else:
                connection.close(checkpoint=healthy)
            if self._waiting:
                self._changed.notify_all()

    def _close_idle(self, *, checkpoint: bool) -> None:
        while self._idle:
            self._idle.pop().close(checkpoint=checkpoint)
