"""Group commit: writes that wait at the same time are sent together, and each gets its own answer.

A caller that finds a free sender sends its own request together with all that wait. The others
wait for the end of the batch that took theirs. There is no thread of its own: the blocking
`Batcher` sends in the calling thread, the `AsyncBatcher` in a task of the event loop.

**Interrupts.** Python raises `KeyboardInterrupt` when a function begins, after a call has returned,
at the end of a loop's body and in calls that block, but never between two assignments. So
what takes a slot by a call can be interrupted between the call and the record of it. Here a sender
belongs to a `Lease`, which is released by one assignment, and a request is taken out of the queue
by assignments alone. Waking others is an optimisation: a thread that was not woken looks again.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final, Generic, TypeVar

from indelible.core.deadline import Deadline
from indelible.core.leases import Latch, Lease
from indelible.core.limits import LOOK_AGAIN_S
from indelible.core.observer import OBSERVER
from indelible.core.uncancellable import OnCancel, UncancellableFuture
from indelible.errors import BusyError, ClosedError, OutcomeUnknownError

Q = TypeVar("Q")
R = TypeVar("R")
# What `send` returns.
S = TypeVar("S")


class Pending(Generic[Q, R]):
    """A request that waits in a batcher, and its outcome."""

    __slots__ = ("_error", "_result", "deadline", "future", "gone", "latch", "lease", "request")

    def __init__(self, request: Q, deadline: Deadline) -> None:
        self.request: Final = request
        self.deadline: Final = deadline
        self._result: tuple[R] | None = None
        self._error: BaseException | None = None
        # The lease of the sender that took it. When it is released, the request is over.
        self.lease: Lease | None = None
        # The caller was interrupted or gave up: the request must not be sent later.
        self.gone = False
        # How to wake the caller: a thread by its latch, a task by its future.
        self.latch: Latch | None = None
        self.future: asyncio.Future[None] | None = None

    def succeed(self, result: R) -> None:
        """Set the result."""
        self._result = (result,)

    def fail(self, error: BaseException) -> None:
        """Set the error that the caller gets."""
        self._error = error

    @property
    def answered(self) -> bool:
        """Whether there is a result or an error: not if the sender was interrupted."""
        return self._result is not None or self._error is not None

    @property
    def over(self) -> bool:
        """Whether the batch that took it has ended, or was interrupted."""
        return self.lease is not None and not self.lease.held

    def outcome(self) -> R:
        """Return the result or raise the error."""
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise OutcomeUnknownError(
                "the thread that sent this write was interrupted: it may have landed. The same"
                " call with the same key makes sure"
            )
        return self._result[0]


class _Queue(Generic[Q, R, S]):
    """What both batchers share: who waits, who sends, and how much goes into one batch."""

    def __init__(
        self,
        send: Callable[[list[Pending[Q, R]]], S],
        *,
        senders: int,
        requests_max: int,
        bytes_max: float = math.inf,
        measure: Callable[[Q], int] = lambda _: 0,
    ) -> None:
        self._send = send
        self._senders_max = senders
        self._requests_max = requests_max
        self._bytes_max = bytes_max
        self._measure = measure
        self._closed = False
        self.reset()

    def reset(self) -> None:
        """Begin without senders and requests, also in a forked child."""
        self._waiting: deque[Pending[Q, R]] = deque()
        self._leases: list[Lease] = []

    @property
    def waiting(self) -> int:
        """How many requests wait for a sender."""
        return len(self._waiting)

    @property
    def sending(self) -> int:
        """How many batches are on their way."""
        return sum(lease.held for lease in self._leases)

    def _acquire(self, lease: Lease) -> bool:
        """Become a sender, unless there are enough."""
        held = [other for other in self._leases if other.held]
        if len(held) >= self._senders_max:
            return False
        held.append(lease)
        # No call in between: both happen or neither.
        self._leases = held
        lease.held = True
        return True

    def _take(self, batch: list[Pending[Q, R]], lease: Lease) -> None:
        """Move the next requests from the queue into a batch, in the order in which they came."""
        size = 0
        while self._waiting and len(batch) < self._requests_max:
            pending = self._waiting[0]
            if not pending.gone:
                size += self._measure(pending.request)
                if batch and size > self._bytes_max:
                    break
                batch.append(pending)
                # Assignments alone from here on: it is taken and out of the queue, or neither.
                pending.lease = lease
            del self._waiting[0]

    def _observe(self, batch: list[Pending[Q, R]]) -> None:
        """Tell telemetry of a batch that is about to be sent."""
        observer = OBSERVER.get()
        if observer is not None:
            observer.record_batch(len(batch), len(self._waiting))

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ClosedError("the store is closed")


def build_busy_error() -> BusyError:
    """Build the error for a request whose deadline came before a sender was free."""
    return BusyError(
        "other writes of this process were before it until the deadline; nothing was written, so it"
        " is safe to try again"
    )


class Batcher(_Queue[Q, R, None]):
    """Group commit for threads.

    `send` gets a batch and calls `succeed` or `fail` on every request in it; it may be interrupted
    at any point. What it raises by itself goes to the caller whose thread it used, and the other
    requests of the batch are reported as `OutcomeUnknownError`.
    """

    def reset(self) -> None:
        """Begin without senders and requests, also in a forked child."""
        super().reset()
        # Taken by `with` alone, which cannot be interrupted halfway.
        self._lock = threading.Lock()

    def run(self, request: Q, deadline: Deadline, *, cancellable: bool = False) -> R:  # noqa: ARG002
        """Send a request, together with whatever else is waiting, and return its result.

        `cancellable` concerns tasks alone.
        """
        pending: Pending[Q, R] = Pending(request, deadline)
        try:
            self._refuse_if_closed()
            self._waiting.append(pending)
            while not pending.over:
                if self._lead(pending) or pending.over:
                    continue
                if pending.latch is None:
                    # Look once more: without a latch, this thread could not be woken.
                    pending.latch = Latch()
                    continue
                left_s = deadline.left_s()
                if left_s <= 0 and self._withdraw(pending):
                    pending.fail(build_busy_error())
                    break
                # A batch that is on its way ends: its sender has a deadline, too.
                pending.latch.wait(left_s if left_s > 0 else LOOK_AGAIN_S)
        except BaseException:
            pending.gone = True
            raise
        return pending.outcome()

    def close(self) -> None:
        """Refuse further requests; those that wait are still sent."""
        self._closed = True

    def _lead(self, pending: Pending[Q, R]) -> bool:
        """Send the next batch, if there may be one more sender and `pending` is not taken yet."""
        lease = Lease()
        batch: list[Pending[Q, R]] = []
        try:
            with self._lock:
                leads = pending.lease is None and self._acquire(lease)
                if leads:
                    self._take(batch, lease)
            if batch:
                self._observe(batch)
                self._send(batch)
            return leads
        finally:
            if lease.held:
                lease.held = False
                self._wake(batch)

    def _withdraw(self, pending: Pending[Q, R]) -> bool:
        """Take back a request that no batch has taken."""
        with self._lock:
            if pending.lease is not None:
                return False
            pending.gone = True
            with suppress(ValueError):
                self._waiting.remove(pending)
            return True

    def _wake(self, batch: list[Pending[Q, R]]) -> None:
        """Tell a batch that it is over, and the first that waits that it may send."""
        for pending in batch:
            if pending.latch is not None:
                pending.latch.open()
        if self._waiting:
            with suppress(IndexError):
                latch = self._waiting[0].latch
                if latch is not None:
                    latch.open()


class AsyncBatcher(_Queue[Q, R, Awaitable[None]]):
    """Group commit for the tasks of one event loop.

    A request that was taken is finished, whatever becomes of its task: a cancelled caller learns of
    its cancellation when the write has landed or failed. `send` is as for `Batcher`, awaited.
    """

    def reset(self) -> None:
        """Begin without senders and requests, in the running event loop."""
        super().reset()
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        # Fires at the earliest deadline of the requests that wait.
        self._alarm: asyncio.TimerHandle | None = None

    async def run(
        self,
        request: Q,
        deadline: Deadline,
        *,
        cancellable: bool = False,
        on_cancel: OnCancel | None = None,
    ) -> R:
        """Send a request, together with whatever else is waiting, and return its result.

        A `cancellable` caller, such as a read, does not wait for its request when it is cancelled.
        With `on_cancel`, a cancellation is passed to it when the request is over, and the result is
        returned all the same.
        """
        self._refuse_if_closed()
        pending: Pending[Q, R] = Pending(request, deadline)
        loop = self._loop
        pending.future = loop.create_future() if cancellable else UncancellableFuture(loop=loop)
        try:
            self._waiting.append(pending)
            self._start_sender()
            self._set_alarm(deadline)
            await pending.future
        except asyncio.CancelledError as error:
            pending.gone = True
            if on_cancel is None:
                raise
            on_cancel(error)
        except BaseException:
            pending.gone = True
            raise
        return pending.outcome()

    async def close(self) -> None:
        """Refuse further requests, and wait for those that came before."""
        self._closed = True
        while tasks := {task for task in self._tasks if not task.done()}:
            await asyncio.wait(tasks)
        if self._alarm is not None:
            self._alarm.cancel()

    def _start_sender(self) -> None:
        lease = Lease()
        batch: list[Pending[Q, R]] = []
        started = False
        try:
            if not self._acquire(lease):
                return
            task = self._loop.create_task(self._send_all(lease, batch))
            started = True
            self._tasks.add(task)
            task.add_done_callback(partial(self._after_sender, lease, batch))
        finally:
            if not started:
                lease.held = False

    def _after_sender(
        self, lease: Lease, batch: list[Pending[Q, R]], task: asyncio.Task[None]
    ) -> None:
        """Clean up after a sender, and start another if this one was interrupted or cancelled."""
        self._tasks.discard(task)
        # A task that was cancelled before its first step did not release it.
        lease.held = False
        self._wake(batch)
        if self._waiting:
            self._start_sender()

    async def _send_all(self, lease: Lease, batch: list[Pending[Q, R]]) -> None:
        """Send batch after batch, while anything waits."""
        try:
            while self._waiting:
                try:
                    self._take(batch, lease)
                    if batch:
                        self._observe(batch)
                        await self._send(batch)
                finally:
                    self._wake(batch)
        finally:
            # Before the task is found to be done: a request that comes in between must not take it
            # for a sender.
            lease.held = False

    def _wake(self, batch: list[Pending[Q, R]]) -> None:
        """Tell a batch that it is over; if that is interrupted, the rest stays in the list."""
        # The loop was closed in the middle of a batch: no task waits for it any more.
        while batch and not self._loop.is_closed():
            future = batch[0].future
            if future is not None and not future.done():
                future.set_result(None)
            del batch[0]

    def _set_alarm(self, deadline: Deadline) -> None:
        when = self._loop.time() + deadline.left_s()
        if when == math.inf:
            # A timer would keep this object until the loop ends.
            return
        if self._alarm is not None:
            if self._alarm.when() <= when:
                return
            self._alarm.cancel()
        self._alarm = self._loop.call_at(when, self._expire)

    def _expire(self) -> None:
        """Give up the requests that waited until their deadline."""
        self._alarm = None
        late = [pending for pending in self._waiting if pending.deadline.left_s() == 0]
        for pending in late:
            self._waiting.remove(pending)
            pending.fail(build_busy_error())
            if pending.future is not None and not pending.future.done():
                pending.future.set_result(None)
        if self._waiting:
            earliest = min(self._waiting, key=lambda pending: pending.deadline.left_s())
            self._set_alarm(earliest.deadline)
