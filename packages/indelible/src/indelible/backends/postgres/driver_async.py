"""The async backend. Threads do the work, and the event loop makes the pauses between attempts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from indelible.backends.postgres.client import (
    GROUPS,
    Attempt,
    Pause,
    PostgresClient,
    SendInGroup,
)
from indelible.backends.postgres.connection_pool import CONNECTIONS_MAX, AwaitedPool
from indelible.backends.postgres.options import PostgresOptions
from indelible.backends.postgres.transaction import is_write
from indelible.core import fork
from indelible.core.deadline import Deadline
from indelible.core.operations import Append
from indelible.core.plan import Operation, Plan, run_plan_async
from indelible.core.threads import WorkerThreads
from indelible.core.uncancellable import OnCancel
from indelible.errors import ClosedError
from indelible.model import Claims

R = TypeVar("R")


class AsyncPostgresBackend:
    """Performs operations on a PostgreSQL server, async. Event loops share its connections."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._pool: AwaitedPool | None = None
        if not isinstance(options.target, str):
            self._pool = AwaitedPool(options.target)
            options = replace(options, target=self._pool)
        self._client = PostgresClient(options)
        self._threads: WorkerThreads[Append, str | None] = WorkerThreads(
            self._client.send_group, callers=CONNECTIONS_MAX, **GROUPS
        )
        self._closed = False
        # Done when a call has ended.
        self._running: set[asyncio.Future[None]] = set()
        # Parent and child would read each other's answers: the child opens its own connections.
        fork.register(after_in_child=self._after_fork)

    async def prepare(self) -> None:
        """Connect, and create or migrate the tables."""
        if self._pool is not None:
            self._pool.loop = asyncio.get_running_loop()
        await self._run(self._client.prepare())

    def perform(self, op: Operation[R]) -> Coroutine[Any, Any, R]:
        """Perform one operation, with all its retries; a cancelled write is waited for."""
        return self._run(self._client.perform(op), writes=is_write(op))

    async def claims(self) -> Claims:
        """Return what is promised on the server as it runs now."""
        return await self._run(self._client.claims())

    async def close(self) -> None:
        """Wait for the calls of this event loop, each until its deadline; close the connections.

        Those of calls whose callers have gone are closed when they are given back.
        """
        self._closed = True
        loop = asyncio.get_running_loop()
        # Each has its own deadline, but a task whose loop was stopped by Ctrl-C never ends.
        deadline = Deadline(self._options.timeout_s)
        try:
            while (left_s := deadline.left_s()) > 0 and (
                running := [each for each in list(self._running) if each.get_loop() is loop]
            ):
                await asyncio.wait(running, timeout=left_s)
            await self._threads.close(wait=False)
        finally:
            self._client.close()

    def _after_fork(self) -> None:
        """In a forked child: start without connections and calls."""
        self._client.after_fork()
        self._running = set()

    async def _run(self, plan: Plan[R], *, writes: bool = False) -> R:
        """Run a plan.

        One that writes learns the outcome of an attempt during which the task is cancelled. Then it
        makes another only to find out about one that may have landed.
        """
        cancelled: asyncio.CancelledError | None = None

        def on_cancel(error: asyncio.CancelledError) -> None:
            nonlocal cancelled
            cancelled = error

        async def execute(op: Operation[Any]) -> Any:
            if cancelled is not None and isinstance(op, Pause) and not op.may_have_landed:
                # Nothing was written, and nothing will be.
                raise cancelled
            return await self._begin(op, on_cancel if writes else None)

        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self._running.add(ended)
            if self._closed:
                raise ClosedError("the store is closed")
            return await run_plan_async(plan, execute)
        finally:
            ended.cancel()
            self._running.discard(ended)
            if cancelled is not None:
                raise cancelled

    def _begin(self, op: Operation[Any], on_cancel: OnCancel | None) -> Awaitable[Any]:
        """Begin an operation of a plan; a write goes on when it is cancelled, and tells so."""
        match op:
            case SendInGroup():
                return self._threads.send(op.append, op.deadline, on_cancel)
            case Attempt() if on_cancel is not None:
                return self._threads.finish(self._client.attempt, op, on_cancel)
            case Attempt():
                return self._attempt_read(op)
            case Pause():
                return _pause(op, on_cancel)
        raise AssertionError(f"{op} is not an operation of a client's plan")

    async def _attempt_read(self, attempt: Attempt[R]) -> R:
        try:
            return await self._threads.call(self._client.attempt, attempt)
        except asyncio.CancelledError:
            # Otherwise the thread waits for the server, and the end of the process for the thread.
            attempt.deadline.expire()
            raise


async def _pause(pause: Pause, on_cancel: OnCancel | None) -> None:
    """Wait; a cancellation ends the wait, and the call unless an attempt may have landed."""
    try:
        await asyncio.sleep(pause.seconds)
    except asyncio.CancelledError as error:
        if on_cancel is None or not pause.may_have_landed:
            raise
        on_cancel(error)
