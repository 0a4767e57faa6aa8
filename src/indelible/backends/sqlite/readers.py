"""Readers beside the writer: a few connections that see one committed state each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from indelible.backends.sqlite.connection import ROLLBACK, Connection, in_one_state
from indelible.core.plan import Plan, drive
from indelible.errors import BusyError, ClosedError, MemoryStoreBackendError

# Two per core of a small server; each holds a file handle and a page cache.
READERS_MAX = 8


class Readers:
    """A bounded pool; a reader that is not there in time is an error that says so."""

    def __init__(self, connect: Callable[[], Connection], *, wait_s: float) -> None:
        self._connect = connect
        self._wait_s = wait_s
        self._changed = threading.Condition()
        self._idle: list[Connection] = []
        self._lent = 0
        self._closed = False
        self._paused = False

    def run(self, plan: Plan[Any]) -> Any:
        """Run a plan that only reads, in one state of the file."""
        connection = self._borrow()
        healthy = False
        try:
            result = drive(in_one_state(plan), connection.execute)
            healthy = True
            return result
        except MemoryStoreBackendError:
            raise
        except Exception:
            healthy = True
            raise
        finally:
            self._give_back(connection, healthy=healthy)

    def close(self) -> None:
        """Close every idle reader; those in use close when they come back."""
        with self._changed:
            self._closed = True
            self._close_idle(checkpoint=True)
            self._changed.notify_all()

    def pause(self) -> None:
        """Before a fork: wait until all are back, and let go of the file."""
        with self._changed:
            self._paused = True
            while self._lent:
                self._changed.wait()
            self._close_idle(checkpoint=False)
        self._changed.acquire()

    def resume(self) -> None:
        """After a fork, in parent and child alike."""
        self._paused = False
        self._changed.notify_all()
        self._changed.release()

    def _borrow(self) -> Connection:
        with self._changed:
            deadline = time.monotonic() + self._wait_s
            while (not self._idle and self._lent >= READERS_MAX) or self._paused:
                if not self._changed.wait(deadline - time.monotonic()):
                    raise BusyError(f"all {READERS_MAX} readers stayed in use; nothing was read")
            if self._closed:
                raise ClosedError("the store is closed")
            self._lent += 1
            if self._idle:
                return self._idle.pop()
        try:
            return self._connect()
        except BaseException:
            with self._changed:
                self._lent -= 1
                self._changed.notify_all()
            raise

    def _give_back(self, connection: Connection, *, healthy: bool) -> None:
        if healthy and connection.in_transaction:
            connection.execute(ROLLBACK)
        with self._changed:
            self._lent -= 1
            if healthy and not self._closed:
                self._idle.append(connection)
            else:
                connection.close(checkpoint=healthy)
            self._changed.notify_all()

    def _close_idle(self, *, checkpoint: bool) -> None:
        while self._idle:
            self._idle.pop().close(checkpoint=checkpoint)
