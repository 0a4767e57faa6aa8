"""What a cancelled task keeps waiting for."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

# Is told of the cancellation of a task that goes on nevertheless.
OnCancel = Callable[[asyncio.CancelledError], None]


class UncancellableFuture(asyncio.Future[T]):
    """The outcome of a write in progress. It cannot be cancelled.

    A task that is cancelled while it awaits this future keeps waiting until the write has succeeded
    or failed, and is cancelled then. So it leaves no write behind that may still happen, and no
    connection in the middle of one.
    """

    def cancel(self, msg: Any | None = None) -> bool:  # noqa: ARG002 (the base class's signature)
        """Refuse. The task remembers its cancellation."""
        return False


async def wait_for_end(outcome: concurrent.futures.Future[Any] | asyncio.Future[Any]) -> None:
    """Wait for the end of a call in a thread, even if the caller is cancelled."""
    loop = asyncio.get_running_loop()
    done: UncancellableFuture[None] = UncancellableFuture(loop=loop)

    def wake(_: object) -> None:
        # A loop that was closed meanwhile has no callers left.
        with suppress(RuntimeError):
            # A built-in function: Python code in the event loop could be interrupted by Ctrl-C.
            loop.call_soon_threadsafe(done.set_result, None)

    outcome.add_done_callback(wake)
    await done


async def call_in_thread(work: Callable[[], T]) -> T:
    """Call in a thread. A cancelled caller still waits until the outcome is known."""
    work = partial(copy_context().run, work)
    outcome = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        await wait_for_end(outcome)
    finally:
        # Otherwise asyncio logs the error of a call whose caller was cancelled.
        outcome.exception()
    return outcome.result()
