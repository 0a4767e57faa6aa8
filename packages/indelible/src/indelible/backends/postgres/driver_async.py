"""The async driver of PostgreSQL. Writes go on in a task of their own, which nobody can cancel."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from indelible.backends.postgres.append import build_result
from indelible.backends.postgres.connection_async import AsyncLink
from indelible.backends.postgres.connection_pool_async import AsyncGivenPool, AsyncOwnPool
from indelible.backends.postgres.engine import (
    Pause,
    PostgresOptions,
    Run,
    Send,
    append_with_retries,
    prepare_schema,
    read_claims,
    run_with_retries,
    writes,
)
from indelible.backends.postgres.errors import is_usable_after
from indelible.backends.postgres.groups import (
    LEADERS_MAX,
    Job,
    in_order,
    interrupted_write,
    soonest,
    take,
    wait_s_of,
    waited_too_long,
)
from indelible.backends.postgres.sending import statement_of, versions_of
from indelible.core.deadline import Deadline
from indelible.core.leases import Lease
from indelible.core.operations import Append, AppendResult
from indelible.core.plan import Operation, Plan, perform, run_plan_async
from indelible.core.uncancellable import UncancellableFuture
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
            room = self._rooms[loop] = _Room(self._options, self._how, loop)
        return room

    async def prepare(self) -> None:
        """Reach the server, and see to the tables."""
        await run_plan_async(prepare_schema(self._options), self._room().do)

    async def perform(self, op: Operation[R]) -> R:
        """Do one step, with all its retries; a cancelled write is waited for."""
        room = self._room()
        if isinstance(op, Append):
            return cast(R, await self._append(room, op))
        work = run_plan_async(run_with_retries(self._options, room.context, op), room.do)
        return cast(R, await (self._to_outcome(work) if writes(op) else work))

    async def _append(self, room: _Room, op: Append) -> AppendResult:
        """Go with a group; what does not land there at once goes on in a task of its own."""
        patience = Deadline(self._options.timeout_s)
        job = Job(op, patience, UncancellableFuture(loop=room.loop))
        room.join(job)
        try:
            await job.settle
        except asyncio.CancelledError:
            if job.version is None:
                with suppress(Exception):
                    await self._go_on(room, job)
            raise
        if job.version is None:
            return await self._go_on(room, job)
        return build_result(op, job.version)

    async def _go_on(self, room: _Room, job: Job) -> AppendResult:
        """Whatever follows on a first attempt, within its deadline."""
        plan = append_with_retries(
            self._options, room.context, job.append, job.patience, job.outcome
        )
        return await self._to_outcome(run_plan_async(plan, room.do))

    async def claims(self) -> Claims:
        """What is promised on the server as it runs now."""
        return await run_plan_async(read_claims(self._options), self._room().do)

    def owns(self, path: Path) -> bool:  # noqa: ARG002 (no file is)
        """Whether a file is part of the store itself."""
        return False

    async def close(self) -> None:
        """Finish what was asked before, then let go of the server."""
        self._closed = True
        loop = asyncio.get_running_loop()
        # Again, since what did not land in a group goes on by itself.
        while running := self._running(loop):
            await asyncio.wait(running)
        for room in list(self._rooms.values()):
            room.pool.close()

    def _running(self, loop: asyncio.AbstractEventLoop) -> list[asyncio.Task[Any]]:
        room = self._rooms.get(loop)
        leaders = room.leaders if room is not None else ()
        ours = [*leaders, *(task for task in self._writing if task.get_loop() is loop)]
        return [task for task in ours if not task.done()]

    async def _to_outcome(self, work: Coroutine[Any, Any, R]) -> R:
        """Wait for what becomes of a write, even if the waiting task is cancelled."""
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
                # Ctrl-C has left the event loop already; it need not do so twice.
                outcome.set_exception(interrupted_write())
            else:
                outcome.set_result(done.result())

        task.add_done_callback(settle)
        return await outcome


class _Room:
    """Connections and waiting appends of one event loop."""

    def __init__(
        self,
        options: PostgresOptions,
        how: tuple[str, int] | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.context = options.context()
        self.loop = loop
        self.pool: AsyncOwnPool | AsyncGivenPool
        if how is not None:
            conninfo, servers = how
            self.pool = AsyncOwnPool(
                conninfo, servers=servers, place=options.shown, seam=options.seam
            )
        else:
            self.pool = AsyncGivenPool(options.target, place=options.shown, seam=options.seam)
        self._waiting: deque[Job] = deque()
        self.leaders: set[asyncio.Task[None]] = set()
        self._leads: list[Lease] = []
        # Rings at the deadline of whoever waits longest, and again while anyone waits.
        self._alarm: asyncio.TimerHandle | None = None

    async def do(self, op: Operation[Any]) -> Any:
        """One part of an attempt."""
        if isinstance(op, Send):
            job = Job(op.append, op.patience)
            await self._append([job], alone=True)
            return job.outcome()
        if isinstance(op, Run):
            return await self._run(op.plan(), op.patience)
        assert isinstance(op, Pause)
        await asyncio.sleep(op.seconds)
        return None

    def join(self, job: Job) -> None:
        """Let a job go with the next group. It is settled then, or at its deadline."""
        self._waiting.append(job)
        self._start_leader()
        if self._alarm is None:
            self._alarm = self.loop.call_later(job.patience.left_s(), self._ring)

    def _start_leader(self) -> None:
        """Start a task that leads, if there may be one more."""
        self._leads = [lease for lease in self._leads if lease.held]
        if len(self._leads) < LEADERS_MAX:
            lease = Lease()
            leader = self.loop.create_task(self._lead(lease))
            # Not before there is a task that lets go of it.
            lease.held = True
            self._leads = [*self._leads, lease]
            self.leaders.add(leader)
            leader.add_done_callback(partial(self._after_leader, lease))

    def _after_leader(self, lease: Lease, leader: asyncio.Task[None]) -> None:
        """See to those who wait still, if a leader was cancelled or interrupted."""
        self.leaders.discard(leader)
        # A task that was cancelled before its first step has not done so itself.
        lease.held = False
        if self._waiting:
            self._start_leader()

    def _ring(self) -> None:
        """Tell those who waited until their deadline; they came in its order."""
        while self._waiting and self._waiting[0].patience.left_s() == 0:
            late = self._waiting.popleft()
            late.fail(waited_too_long())
            late.settle.set_result(None)
        self._alarm = None
        if self._waiting:
            self._alarm = self.loop.call_later(self._waiting[0].patience.left_s(), self._ring)

    async def _lead(self, lease: Lease) -> None:
        """Send group after group, while anyone waits."""
        try:
            while self._waiting:
                await self._send(lease)
        finally:
            # Not when the task is found to be done, which is later: whoever joins in between would
            # take it for a leader, and wait for nobody.
            lease.held = False

    async def _send(self, lease: Lease) -> None:
        group: list[Job] = []
        try:
            take(group, self._waiting, lease)
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
            answer = await self._run(perform(statement), patience)
            for job, version in zip(ordered, versions_of(steps, answer), strict=True):
                job.answer(version)
        except MemoryStoreError as error:
            for job in group:
                job.fail(error.copy())
        except Exception as error:  # noqa: BLE001 (a caller's clock: told to each)
            for job in group:
                job.fail(error)

    async def _run(self, plan: Plan[Any], patience: Deadline) -> Any:
        lease = Lease()
        healthy = False
        try:
            link = await self.pool.borrow(lease, patience)
            try:
                answer = await run_plan_async(plan, link.execute)
                healthy = True
            except BaseException as error:
                healthy = is_usable_after(error) and await _rolled_back(link)
                raise
            return answer
        finally:
            try:
                await self.pool.give_back(lease, healthy=healthy)
            finally:
                lease.held = False
                self.pool.wake()


async def _rolled_back(link: AsyncLink) -> bool:
    try:
        await link.roll_back()
    except Exception:  # noqa: BLE001 (whatever it is, the connection is not used again)
        return False
    return True
