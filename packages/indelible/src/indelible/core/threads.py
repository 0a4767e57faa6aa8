"""The threads of an async backend: an operation is one hop to a thread and back.

Any number of event loops may use them at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, Generic, TypeVar

from indelible.core import fork
from indelible.core.batcher import AsyncBatcher, Pending
from indelible.core.deadline import Deadline
from indelible.core.uncancellable import OnCancel, wait_for_end
from indelible.errors import ClosedError, MemoryStoreError, UnavailableError

A = TypeVar("A")
Q = TypeVar("Q")
R = TypeVar("R")
T = TypeVar("T")


class WorkerThreads(Generic[Q, R]):
    """Threads that send batches of requests, and threads for all other calls.

    `senders` and the options of batches are those of `AsyncBatcher`; each event loop has one.
    """

    def __init__(
        self,
        send: Callable[[list[Pending[Q, R]]], None],
        *,
        senders: int,
        callers: int,
        **batches: Any,
    ) -> None:
        self._send = send
        self._senders = senders
        self._callers = callers
        self._batches = batches
        self._closed = False
        self._lock: threading.Lock
        self._batchers: dict[asyncio.AbstractEventLoop, AsyncBatcher[Q, R]]
        self._sending: ThreadPoolExecutor
        self._calling: ThreadPoolExecutor
        self._reset()
        fork.register(after_in_child=self._reset)

    def send(
        self, request: Q, deadline: Deadline, on_cancel: OnCancel | None = None
    ) -> Coroutine[Any, Any, R]:
        """Send a request in a batch; a cancelled caller is released when it has ended.

        With `on_cancel`, it is told of the cancellation, and the caller gets the outcome.
        """
        return self._get_batcher().run(request, deadline, on_cancel=on_cancel)

    async def call(self, function: Callable[[A], T], argument: A) -> T:
        """Call a function; a cancelled caller is released at once, and the function goes on."""
        return await asyncio.wrap_future(self._submit(self._calling, function, argument))

    async def finish(
        self, function: Callable[[A], T], argument: A, on_cancel: OnCancel | None = None
    ) -> T:
        """Call a function; a cancelled caller is released when it has ended, as by `send`."""
        outcome = self._submit(self._calling, function, argument)
        try:
            await wait_for_end(outcome)
        except asyncio.CancelledError as error:
            if on_cancel is None:
                raise
            on_cancel(error)
        return outcome.result()

    async def close(self, *, wait: bool = True) -> None:
        """Finish the calls that were begun before. Later ones are a `ClosedError`.

        Without `wait`, calls of cancelled callers and of other event loops go on meanwhile.
        """
        loop = asyncio.get_running_loop()
        batcher = self._batchers.get(loop)
        if batcher is not None:
            await batcher.close()
        self._closed = True
        for threads in (self._sending, self._calling):
            if wait:
                await loop.run_in_executor(None, threads.shutdown)
            else:
                threads.shutdown(wait=False)

    def _reset(self) -> None:
        """Begin without threads: they start when they are needed, also in a forked child."""
        self._lock = threading.Lock()
        self._batchers = {}
        self._sending = ThreadPoolExecutor(self._senders, thread_name_prefix="indelible-write")
        self._calling = ThreadPoolExecutor(self._callers, thread_name_prefix="indelible-call")

    def _get_batcher(self) -> AsyncBatcher[Q, R]:
        loop = asyncio.get_running_loop()
        batcher = self._batchers.get(loop)
        if batcher is None:
            batcher = AsyncBatcher(self._send_batch, senders=self._senders, **self._batches)
            with self._lock:
                open_ = {each: b for each, b in self._batchers.items() if not each.is_closed()}
                self._batchers = {**open_, loop: batcher}
        return batcher

    async def _send_batch(self, batch: list[Pending[Q, R]]) -> None:
        """Send a batch in a thread, and wait for it even if a caller is cancelled."""
        try:
            # A copy: if Ctrl-C interrupts this thread, the batcher goes on without the batch.
            sent = self._submit(self._sending, self._send, list(batch))
        except MemoryStoreError as error:
            for pending in batch:
                pending.fail(error.copy())
        else:
            await wait_for_end(sent)

    def _submit(
        self, threads: ThreadPoolExecutor, function: Callable[[A], T], argument: A
    ) -> Future[T]:
        """Call a function in a thread, with the context variables of the caller."""
        outcome: Future[T] = Future()
        work = partial(copy_context().run, function, argument)
        try:
            threads.submit(_perform, outcome, work)
        except RuntimeError as error:
            # The executor queues a call before it starts a thread for it. Unless another thread has
            # begun it already, it is taken back.
            if outcome.cancel():
                if self._closed:
                    # By another event loop, meanwhile.
                    raise ClosedError("the store is closed") from None
                raise UnavailableError(
                    f"no thread can be started ({error}); nothing was written, so it is safe to try"
                    " again"
                ) from error
        return outcome


def _perform(outcome: Future[T], work: Callable[[], T]) -> None:
    """Do the work of a call, unless it was taken back."""
    if outcome.set_running_or_notify_cancel():
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 (its caller gets it)
            outcome.set_exception(error)
        finally:
            # The traceback of an error holds this frame.
            del outcome
