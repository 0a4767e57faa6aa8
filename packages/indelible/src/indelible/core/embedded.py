"""The two backends of an embedded engine: group commit on top of a database in this process.

The blocking one works in the calling thread. The async one has a thread that writes and some that
read, so that an operation is one hop to a thread and back.
"""

from __future__ import annotations

import asyncio
import math
import threading
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol, TypeVar

from indelible.core import fork
from indelible.core.batcher import Batcher, Pending
from indelible.core.deadline import Deadline
from indelible.core.handlers import WRITES, perform_operation
from indelible.core.plan import Operation
from indelible.core.threads import WorkerThreads
from indelible.core.transaction import Transaction
from indelible.errors import (
    ClosedError,
    MemoryStoreError,
    OutcomeUnknownError,
    UnavailableError,
)
from indelible.model import Claims

R = TypeVar("R")
Write = Pending[Operation[Any], Any]

# A batch is one transaction: long enough to share a sync, short enough to be fair.
GROUP_MAX = 256
# Writes wait for other writes of their process as long as it takes. The engine limits the time that
# a batch waits for other processes.
NO_DEADLINE = Deadline(math.inf)


class EmbeddedDatabase(Protocol):
    """What an embedded engine implements, beside its `Transaction`."""

    # How many reads may run at the same time.
    readers_max: int

    def write(self, batch: list[Write]) -> None:
        """Perform operations of `WRITES` in one transaction (`BatchWriter.write`)."""

    def read(self, op: Operation[Any]) -> Any:
        """Perform an operation that is not in `WRITES`.

        Those of `READS` are performed by `perform_operation`, in a transaction that reads; the
        others are `Scrub`, `CheckEngine`, `FindRisks`, `Identify` and `ReadCursorKey`.
        """

    def claims(self) -> Claims:
        """Return what is promised."""
        ...

    def close(self) -> None:
        """Wait for running operations, then close."""


class BatchWriter(ABC):
    """Writes to an embedded database, one batch at a time, in one transaction each.

    Ctrl-C may come between any two calls. The lock is taken by `with` alone, which cannot be
    interrupted halfway. An interrupt may leave a transaction open, which the next `begin` ends,
    perhaps in another thread.

    The database calls `pause` before a fork and `resume` after it: another thread may hold the
    lock, and there is no such thread in the child.
    """

    # An error of ours with such a cause is one of the engine, which the whole batch fails with.
    engine_error: ClassVar[type[Exception]]

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Whether the lock is held because this process forks.
        self._paused = False

    @abstractmethod
    def begin(self) -> Transaction:
        """Begin a transaction that holds the write lock."""

    @abstractmethod
    def commit(self) -> None:
        """Commit it; `OutcomeUnknownError` if it failed and may have landed."""

    @abstractmethod
    def abandon(self, error: BaseException) -> None:
        """Roll back what was begun, if anything was; do not raise a `MemoryStoreError`."""

    def pause(self) -> None:
        """Before a fork: wait for the running batch."""
        self._lock.acquire()
        self._paused = True

    def resume(self, *, in_child: bool) -> None:
        """After a fork: let writes continue."""
        if in_child:
            self._lock = threading.Lock()
            self._paused = False
        elif self._paused:
            self._paused = False
            self._lock.release()

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
                tx = self.begin()
                for pending in batch:
                    current = pending
                    outcomes.append(self._perform(tx, pending.request))
                current, committing = None, True
                self.commit()
            except MemoryStoreError as error:
                self.abandon(error)
                for pending in batch:
                    pending.fail(error.copy())
            except BaseException as error:
                # A bug in one handler, or Ctrl-C in this thread: not the error of the other writes.
                self.abandon(error)
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

    def _perform(self, tx: Transaction, op: Operation[Any]) -> Any:
        """Return the result of a handler, or its refusal; raise what concerns the whole batch."""
        try:
            return perform_operation(tx, op)
        except MemoryStoreError as error:
            if isinstance(error.__cause__, self.engine_error):
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


class EmbeddedBackend:
    """Performs operations on an embedded engine, blocking."""

    def __init__(self, database: EmbeddedDatabase) -> None:
        self._database = database
        self._closed = False
        self._batcher: Batcher[Operation[Any], Any] = Batcher(
            database.write, senders=1, requests_max=GROUP_MAX
        )
        fork.register(after_in_child=self._batcher.reset)

    def perform(self, op: Operation[R]) -> R:
        """Perform one operation, in one transaction."""
        if self._closed:
            raise ClosedError("the store is closed")
        write = type(op) in WRITES
        result: R = self._batcher.run(op, NO_DEADLINE) if write else self._database.read(op)
        return result

    def prepare(self) -> None:
        """Do nothing: the database was opened and prepared when this was created."""

    def claims(self) -> Claims:
        """Return what is promised on this database."""
        return self._database.claims()

    def close(self) -> None:
        """Wait for running operations, then close."""
        self._closed = True
        self._database.close()


class AsyncEmbeddedBackend:
    """Performs operations on an embedded engine, async. Any number of event loops may use it."""

    def __init__(self, database: EmbeddedDatabase) -> None:
        self._database = database
        self._closed = False
        self._threads: WorkerThreads[Operation[Any], Any] = WorkerThreads(
            database.write, senders=1, callers=database.readers_max, requests_max=GROUP_MAX
        )

    async def perform(self, op: Operation[R]) -> R:
        """Perform one operation, in one transaction; a cancelled write is waited for."""
        if self._closed:
            raise ClosedError("the store is closed")
        result: R
        if type(op) in WRITES:
            result = await self._threads.send(op, NO_DEADLINE)
        else:
            result = await self._threads.call(self._database.read, op)
        return result

    async def prepare(self) -> None:
        """Do nothing: the database was opened and prepared when this was created."""

    async def claims(self) -> Claims:
        """Return what is promised on this database."""
        return self._database.claims()

    async def close(self) -> None:
        """Finish the operations that were begun before, then close."""
        self._closed = True
        await self._threads.close()
        await asyncio.get_running_loop().run_in_executor(None, self._database.close)
