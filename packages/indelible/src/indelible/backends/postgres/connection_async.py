"""The async twin of `link`: it differs by its awaits, and by how it waits for the socket."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Awaitable, Callable, Generator
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeVar

import psycopg
from psycopg.rows import tuple_row
from psycopg.waiting import Ready, Wait, wait_async

from indelible.backends.postgres.calls import Caller
from indelible.backends.postgres.connection import (
    SYNC_WAIT,
    bind_arrays,
    give_up,
    interrupt_behind,
    not_replicated,
)
from indelible.backends.postgres.errors import TimeLimitError, translate_error
from indelible.backends.postgres.statements import (
    BEGIN_READ,
    BEGIN_WRITE,
    BOUNDS,
    FIX_SEARCH_PATH,
    All,
    Begin,
    Call,
    Commit,
    Do,
    DoAlone,
    Fetch,
    Rows,
    Script,
    Sql,
    bounds,
)
from indelible.core.deadline import Deadline
from indelible.core.plan import Operation

T = TypeVar("T")

AsyncSeam = Callable[[Operation[Any], Callable[[], Awaitable[Any]]], Awaitable[Any]]


class AsyncLink:
    """A connection with a deadline, and its errors translated. One task uses it at a time."""

    def __init__(
        self,
        connection: psycopg.AsyncConnection[Any],
        *,
        place: str,
        seam: AsyncSeam | None = None,
        named: bool = False,
    ) -> None:
        self.connection = connection
        self._place = place
        self._seam = seam
        self._patience = Deadline(0)
        self._stack = AsyncExitStack()
        self._warned = False
        self._pipelined = False
        self._pipeline: psycopg.AsyncPipeline | None = None
        self._caller = Caller(connection, named=named)
        # What its owner had set, and gets back.
        self.was_autocommit = connection.autocommit
        connection.add_notice_handler(self._on_notice)
        # The driver has no deadline for a statement; all its waiting goes through this method.
        vars(connection)["wait"] = self._wait

    def begin(self, patience: Deadline) -> None:
        """From now on, this deadline counts."""
        self._patience = patience
        self._warned = False

    async def execute(self, op: Operation[Any]) -> Any:
        """Do one step."""
        try:
            if self._seam is not None:
                answer = await self._seam(op, lambda: self._execute(op))
            else:
                answer = await self._execute(op)
        except (psycopg.Error, TimeLimitError) as error:
            interrupt = interrupt_behind(error)
            if interrupt is not None:
                raise interrupt from None
            committing = isinstance(op, (Call, Commit, DoAlone))
            raise translate_error(error, place=self._place, committing=committing) from error
        if self._warned and isinstance(op, (Call, Commit, DoAlone)):
            raise not_replicated(self._place)
        return answer

    async def _execute(self, op: Operation[Any]) -> Any:
        if isinstance(op, Call):
            return await self._wait(self._caller.call(op))
        if isinstance(op, Fetch):
            return await self._wait(self._caller.fetch(op))
        if isinstance(op, Sql) and self._is_outside_transaction():
            return (await self._all(All((op,))))[0]
        if isinstance(op, (Sql, DoAlone)):
            return await (await self._run(op.text, op.params)).fetchall()
        if isinstance(op, Do):
            await self._run(op.text, op.params)
        elif isinstance(op, All):
            return await self._all(op)
        elif isinstance(op, Begin):
            await self._begin(BEGIN_WRITE)
            await self._run(BOUNDS, bounds(self._patience.left_s()))
        elif isinstance(op, Commit):
            await self._run("COMMIT")
            await self._end_pipeline()
        elif isinstance(op, Script):
            # Several statements in one message need the simple protocol, outside of a pipeline.
            await self.connection.execute(op.text.encode())
        return None

    def _is_outside_transaction(self) -> bool:
        idle = psycopg.pq.TransactionStatus.IDLE
        return not self._pipelined and self.connection.info.transaction_status is idle

    async def _begin(self, how: str) -> None:
        self._pipeline = await self._stack.enter_async_context(self.connection.pipeline())
        self._pipelined = True
        await self._run(how)

    async def _end_pipeline(self) -> None:
        self._pipelined = False
        await self._stack.aclose()

    async def _run(self, text: str, params: tuple[Any, ...] = ()) -> psycopg.AsyncRawCursor[Any]:
        cursor = psycopg.AsyncRawCursor(self.connection, row_factory=tuple_row)
        params = bind_arrays(cursor, params)
        # Never a named statement: behind a pooler the next one may go to another server process.
        return await cursor.execute(text.encode(), params, prepare=False, binary=True)

    async def _all(self, op: All) -> list[Rows]:
        alone = not self._pipelined
        if alone:
            await self._begin(BEGIN_READ)
            await self._run(FIX_SEARCH_PATH)
        cursors = [await self._run(query.text, query.params) for query in op.queries]
        if alone:
            await self._run("COMMIT")
            await self._end_pipeline()
        return [await cursor.fetchall() for cursor in cursors]

    async def roll_back(self) -> None:
        """Leave nothing behind of a transaction that was given up."""
        with suppress(psycopg.Error):
            await self._end_pipeline()
        if self.connection.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE:
            await self._run("ROLLBACK")

    def is_alive(self) -> bool:
        """Whether the server has said nothing since: an idle connection only ever hears its end."""
        if self.connection.closed:
            return False
        poll = select.poll()
        poll.register(self.connection.pgconn.socket, select.POLLIN)
        return not poll.poll(0)

    def release(self) -> None:
        """Give the connection back to its owner as it was."""
        vars(self.connection).pop("wait", None)
        self.connection.remove_notice_handler(self._on_notice)

    def close(self) -> None:
        """Hang up. What the server is doing, it may still finish."""
        self.connection.pgconn.finish()
        if self._pipeline is not None:
            vars(self._pipeline)["_conn"] = Gone()
            self._pipeline.result_queue.clear()
        self._stack.pop_all()
        vars(self.connection).pop("wait", None)

    def _on_notice(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.source_function == SYNC_WAIT:
            self._warned = True

    async def _wait(self, waits: Generator[Wait, Ready | int, T], *_: Any, **__: Any) -> T:
        """Let the driver go on whenever its socket is ready, until the deadline."""
        left_s = self._patience.left_s()
        try:
            async with asyncio.timeout(left_s):
                return await wait_async(waits, self.connection.pgconn.socket, left_s + 1)
        except TimeoutError:
            give_up(self.connection, waits)
            raise TimeLimitError from None
        except asyncio.CancelledError:
            # Else the driver would go on waiting for what is left of a pipeline.
            give_up(self.connection, waits)
            raise


class Gone:
    """Stands in for a connection that is gone, in a pipeline that nobody left: see its twin."""

    async def wait(self, waits: object) -> None:
        """Nothing comes any more."""
