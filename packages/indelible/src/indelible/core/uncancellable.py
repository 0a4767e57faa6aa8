"""What a cancelled task keeps waiting for."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable
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


async def call_in_thread(work: Callable[[], T]) -> T:
    """Call in a thread. A cancelled caller still waits until the outcome is known."""
    loop = asyncio.get_running_loop()
    outcome: UncancellableFuture[T] = UncancellableFuture(loop=loop)
    context = contextvars.copy_context()
    future = loop.run_in_executor(None, functools.partial(context.run, work))

    def copy_outcome(done: asyncio.Future[T]) -> None:
        error = done.exception()
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(done.result())

    future.add_done_callback(copy_outcome)
    return await outcome
