"""The async backend. A write is finished even if its task is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar, cast

from indelible.backends.postgres.client_async import AsyncPostgresClient
from indelible.backends.postgres.options import PostgresOptions
from indelible.backends.postgres.transaction import is_write
from indelible.core.deadline import Deadline
from indelible.core.operations import Append
from indelible.core.plan import Operation
from indelible.core.uncancellable import UncancellableFuture
from indelible.errors import ClosedError, OutcomeUnknownError
from indelible.model import Claims

R = TypeVar("R")


class AsyncPostgresBackend:
    """Performs operations on a PostgreSQL server, async. Each event loop has its connections."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        if isinstance(options.target, str):
            # Raise now if it is not a URL.
            options.build_conninfo()
        self._servers: dict[asyncio.AbstractEventLoop, AsyncPostgresClient] = {}
        # Writes that are finished even if their callers are cancelled.
        self._writing: set[asyncio.Future[Any]] = set()
        self._closed = False

    def _server(self) -> AsyncPostgresClient:
        if self._closed:
            raise ClosedError("the store is closed")
        loop = asyncio.get_running_loop()
        server = self._servers.get(loop)
        if server is None:
            # Loops that have ended left their connections open.
            for ended in [loop for loop in self._servers if loop.is_closed()]:
                self._servers.pop(ended).pool.close()
            server = self._servers[loop] = AsyncPostgresClient(self._options)
        return server

    async def prepare(self) -> None:
        """Connect, and create or migrate the tables."""
        await self._server().prepare()

    async def perform(self, op: Operation[R]) -> R:
        """Perform one operation, with all its retries; a cancelled write is waited for."""
        server = self._server()
        if isinstance(op, Append):
            return cast(R, await self._append(server, op))
        if is_write(op):
            return await self._finish(server.perform(op))
        return await server.perform(op)

    async def _append(self, server: AsyncPostgresClient, op: Append) -> Any:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self._writing.add(done)
            return await server.perform(op)
        except asyncio.CancelledError:
            # Its group may have failed, or it waited for its next attempt. The key makes it safe to
            # send it again.
            with suppress(Exception):
                await self._finish(server.perform(replace(op, fresh=False)))
            raise
        finally:
            done.cancel()
            self._writing.discard(done)

    async def claims(self) -> Claims:
        """Return what is promised on the server as it runs now."""
        return await self._server().claims()

    async def close(self) -> None:
        """Wait for the writes in progress, then close the connections."""
        self._closed = True
        loop = asyncio.get_running_loop()
        # Each has its own deadline, but a task whose loop was stopped by Ctrl-C never ends.
        deadline = Deadline(self._options.timeout_s)
        while (left_s := deadline.left_s()) > 0 and (
            running := [
                each for each in self._writing if each.get_loop() is loop and not each.done()
            ]
        ):
            await asyncio.wait(running, timeout=left_s)
        for server in list(self._servers.values()):
            server.pool.close()

    async def _finish(self, work: Coroutine[Any, Any, R]) -> R:
        """Wait for the outcome of a write, even if the waiting task is cancelled."""
        outcome: UncancellableFuture[R] = UncancellableFuture(loop=asyncio.get_running_loop())
        task = asyncio.ensure_future(work)
        self._writing.add(task)

        def settle(done: asyncio.Task[R]) -> None:
            self._writing.discard(done)
            if done.cancelled():
                outcome.set_exception(asyncio.CancelledError())
            elif isinstance(error := done.exception(), Exception):
                outcome.set_exception(error)
            elif error is not None:
                # The event loop raises Ctrl-C itself; it must not be raised twice.
                outcome.set_exception(
                    OutcomeUnknownError(
                        "it was interrupted while it was sent: it may have landed. The same call"
                        " with the same key makes sure"
                    )
                )
            else:
                outcome.set_result(done.result())

        task.add_done_callback(settle)
        return await outcome
