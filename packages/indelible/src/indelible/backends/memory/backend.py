"""A store in plain dicts: the reference that the other engines are compared with.

It keeps encoded envelopes, so what goes in and what comes out are copies. It lives and dies with
its process, and says so.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

from indelible.backends.memory.transaction import MemoryDatabase, MemoryTransaction
from indelible.core import fork
from indelible.core.clock import Clock
from indelible.core.cursors import create_secret
from indelible.core.handlers import READS, WRITES, perform_operation
from indelible.core.limits import BATCH_ENTRIES_MAX, ENTRY_BYTES_MAX
from indelible.core.operations import (
    CheckEngine,
    FindRisks,
    Identify,
    ReadCursorKey,
    Scrub,
)
from indelible.core.plan import Operation
from indelible.errors import ClosedError
from indelible.model import Claims, Durability, Gravity, Risk

R = TypeVar("R")

RISKS = (
    Risk(
        severity=Gravity.NOTE,
        subject="plain memory",
        risk="every session ends with this process",
        remedy="open a file, or a server, to keep them",
    ),
)


class MemoryBackend:
    """Performs operations on plain Python values, under one lock."""

    def __init__(self, *, clock: Clock) -> None:
        self._renew_lock()
        self._database = MemoryDatabase(clock)
        self._cursor_key = create_secret()
        self._closed = False
        # A thread that held the lock does not exist in a forked child.
        fork.register(after_in_child=self._renew_lock)

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()

    def perform(self, op: Operation[R]) -> R:
        """Perform one operation, atomically."""
        with self._lock:
            if self._closed:
                raise ClosedError("the store is closed")
            tx = MemoryTransaction(self._database)
            if type(op) in READS:
                return perform_operation(tx, op)
            if type(op) in WRITES:
                result = perform_operation(tx, op)
                tx.commit()
                return result
            own: R = self._perform_own(op)
            return own

    def _perform_own(self, op: Operation[Any]) -> Any:
        """Perform an operation that concerns no session."""
        match op:
            case Scrub() | CheckEngine():
                return ()
            case FindRisks():
                return RISKS
            case ReadCursorKey():
                return self._cursor_key
        assert isinstance(op, Identify), op
        return f"memory {id(self)}"

    def prepare(self) -> None:
        """Do nothing: there is no server."""

    def claims(self) -> Claims:
        """Return what memory promises: order and exactly-once. It survives nothing."""
        return Claims(
            engine="memory",
            engine_version="",
            durability=Durability.NONE,
            multi_process=False,
            ttl_clock="caller",
            entry_bytes_max=ENTRY_BYTES_MAX,
            batch_entries_max=BATCH_ENTRIES_MAX,
        )

    def close(self) -> None:
        """Drop everything."""
        with self._lock:
            self._closed = True
            self._database.sessions.clear()
            self._database.audit.clear()


class AsyncMemoryBackend:
    """The same, awaited; nothing in it suspends."""

    def __init__(self, *, clock: Clock) -> None:
        self._backend = MemoryBackend(clock=clock)

    async def perform(self, op: Operation[R]) -> R:
        """Perform one operation, atomically."""
        return self._backend.perform(op)

    async def prepare(self) -> None:
        """Do nothing: there is no server."""

    async def claims(self) -> Claims:
        """Return what memory promises: order and exactly-once. It survives nothing."""
        return self._backend.claims()

    async def close(self) -> None:
        """Drop everything."""
        self._backend.close()
