"""The async driver of PostgreSQL. Writes go on in a task of their own, which nobody can cancel."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar, cast

from indelible.backends.postgres.engine import (
    Join,
    Pause,
    PostgresOptions,
    Run,
    answered,
    claimed,
    prepared,
    writes,
)
from indelible.backends.postgres.errors import is_usable_after
from indelible.backends.postgres.groups import (
    LEADERS_MAX,
    Job,
    in_order,
    soonest,
    take,
    wait_s_of,
    waited_too_long,
)
from indelible.backends.postgres.link_async import AsyncLink
from indelible.backends.postgres.pools_async import AsyncGivenPool, AsyncOwnPool
from indelible.backends.postgres.sending import statement_of, versions_of
from indelible.core.outcome import Outcome
from indelible.core.patience import Patience
from indelible.core.plan import Plan, Step, ask, drive_async
from indelible.errors import ClosedError, MemoryStoreError
from indelible.model import Claims

R = TypeVar("R")


class AsyncPostgresBackend:
    """Performs the waist on a PostgreSQL server, awaited. Each event loop has its own room."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        # Refuse what is no URL here already.
        self._how = options.conninfo() if isinstance(options.target, str) else None
        self._rooms: dict[asyncio.AbstractEventLoop, _Room] = {}
        # Writes that go on whatever becomes of those who asked for them.
        self._writing: set[asyncio.Task[Any]] = set()
        self._closed = False

    def _room(self) -> _Room:
        if self._closed:
            raise ClosedError("the store is closed")
        loop = asyncio.get_running_loop()
        room = self._rooms.get(loop)
        if room is None:
            # Loops that ended have left their connections behind.
            for ended in [loop for loop in self._rooms if loop.is_closed()]:
                self._rooms.pop(ended).pool.close()
            room = self._rooms[loop] = _Room(self._options, self._how)
        return room

    async def prepare(self) -> None:
        """Reach the server, and see to the tables."""
        await drive_async(prepared(self._options), self._room().do)

    async def perform(self, step: Step[R]) -> R:
        """Do one step, with all its retries; a cancelled write is waited for."""
        room = self._room()
        work = drive_async(answered(self._options, room.context, step), room.do)
        return cast(R, await (self._to_outcome(work) if writes(step) else work))

    async def claims(self) -> Claims:
        """What is promised on the server as it runs now."""
        return await drive_async(claimed(self._options), self._room().do)

    def owns(self, path: Path) -> bool:  # noqa: ARG002 (no file is)
        """Whether a file is part of the store itself."""
        return False

    async def close(self) -> None:
        """Finish what was asked before, then let go of the server."""
        self._closed = True
        loop = asyncio.get_running_loop()
        if running := [task for task in self._writing if task.get_loop() is loop]:
            await asyncio.wait(running)
        for room in list(self._rooms.values()):
            room.pool.close()

    async def _to_outcome(self, work: Coroutine[Any, Any, R]) -> R:
        """Wait for what becomes of a write, even if the waiting task is cancelled."""
        outcome: Outcome[R] = Outcome(loop=asyncio.get_running_loop())
        task = asyncio.ensure_future(work)
        self._writing.add(task)

        def settle(done: asyncio.Task[R]) -> None:
            self._writing.discard(done)
            if done.cancelled():
                outcome.set_exception(asyncio.CancelledError())
            elif (error := done.exception()) is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(done.result())

        task.add_done_callback(settle)
        return await outcome


class _Room:
    """Connections and waiting appends of one event loop."""

    def __init__(self, options: PostgresOptions, how: tuple[str, int] | None) -> None:
        self.context = options.context()
        self.pool: AsyncOwnPool | AsyncGivenPool
        if how is not None:
            conninfo, servers = how
            self.pool = AsyncOwnPool(
                conninfo, servers=servers, place=options.shown, seam=options.seam
            )
        else:
            self.pool = AsyncGivenPool(options.target, place=options.shown, seam=options.seam)
        self._waiting: deque[Job] = deque()
        self._leaders: set[asyncio.Task[None]] = set()

    async def do(self, step: Step[Any]) -> Any:
        """One part of an attempt."""
        if isinstance(step, Join):
            return await self._join(step)
        if isinstance(step, Run):
            return await self._run(step.plan(), step.patience)
        assert isinstance(step, Pause)
        await asyncio.sleep(step.seconds)
        return None

    async def _join(self, step: Join) -> str | None:
        if step.alone:
            job = Job(step.append, step.patience)
            await self._append([job], alone=True)
            return job.outcome()
        job = Job(step.append, step.patience, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        if len(self._leaders) < LEADERS_MAX:
            leader = asyncio.ensure_future(self._lead())
            self._leaders.add(leader)
            leader.add_done_callback(self._leaders.discard)
        await asyncio.wait([job.settle], timeout=step.patience.left_s())
        if not job.settle.done() and job in self._waiting:
            self._waiting.remove(job)
            raise waited_too_long()
        # It is on its way; whoever leads it has a deadline too.
        await job.settle
        return job.outcome()

    async def _lead(self) -> None:
        """Send group after group, while anyone waits."""
        while self._waiting:
            group = take(self._waiting, [])
            try:
                await self._append(group)
            finally:
                for job in group:
                    if not job.settle.done():
                        job.settle.set_result(None)

    async def _append(self, group: list[Job], *, alone: bool = False) -> None:
        """Send a group; each job has its outcome afterwards."""
        try:
            ordered, patience = in_order(group), soonest(group)
            wait_s = wait_s_of(patience, alone=alone)
            steps = [job.append for job in ordered]
            statement = statement_of(self.context, steps, wait_s=wait_s)
            answer = await self._run(ask(statement), patience)
            for job, version in zip(ordered, versions_of(steps, answer), strict=True):
                job.version = version
        except MemoryStoreError as error:
            for job in group:
                job.error = error.copy()
        except Exception as error:  # noqa: BLE001 (a caller's clock: told to each)
            for job in group:
                job.error = error

    async def _run(self, plan: Plan[Any], patience: Patience) -> Any:
        link = await self.pool.borrow(patience)
        healthy = True
        try:
            return await drive_async(plan, link.execute)
        except BaseException as error:
            healthy = is_usable_after(error) and await _rolled_back(link)
            raise
        finally:
            await self.pool.give_back(link, healthy=healthy)


async def _rolled_back(link: AsyncLink) -> bool:
    try:
        await link.roll_back()
    except Exception:  # noqa: BLE001 (whatever it is, the connection is not used again)
        return False
    return True
