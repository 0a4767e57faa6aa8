"""The async driver: tasks whose calls share round trips."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import deque
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from redis.exceptions import NoScriptError, RedisError, ResponseError

from indelible.backends.redis.calls import Context
from indelible.backends.redis.cluster import Address
from indelible.backends.redis.connection_slots import (
    GROUP_MAX,
    ConnectionSlot,
    PendingRequest,
    RequestBatch,
    longest_s,
    take,
)
from indelible.backends.redis.connections import (
    READ_LANES,
    WRITE_LANES,
    ConnectionSource,
    origin_of,
)
from indelible.backends.redis.errors import WaitedError
from indelible.backends.redis.options import RedisOptions
from indelible.backends.redis.router import Replies, Router, SendCommands, Wait
from indelible.backends.redis.shortcut import Part, Shortcut
from indelible.core.deadline import Deadline
from indelible.core.leases import Lease, Slots
from indelible.core.operations import Append, AppendResult
from indelible.core.plan import Operation, Plan, run_plan_async
from indelible.core.uncancellable import UncancellableFuture
from indelible.errors import ClosedError
from indelible.model import Claims

R = TypeVar("R")


class AsyncRedisBackend:
    """Performs the waist on Redis, Valkey or a cluster of them, awaited."""

    def __init__(self, options: RedisOptions) -> None:
        self._options = options
        self._origin = origin_of(options, awaited=True)
        context = Context(
            namespace=options.namespace,
            clock=options.clock,
            durability=options.durability,
            shown=options.shown,
        )
        context.simulated = self._origin.simulated
        self._network = Router(context, timeout_s=options.timeout_s, seeds=self._origin.seeds)
        self._shortcut = Shortcut(context, cluster=self._network.is_cluster)
        # A connection belongs to the event loop that it was opened in.
        self._servers: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, dict[Address | None, Server]
        ] = weakref.WeakKeyDictionary()
        # The last of them, found without a look at all.
        self._latest: tuple[asyncio.AbstractEventLoop, dict[Address | None, Server]] | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"AsyncRedisBackend({self._options.shown!r})"

    async def prepare(self) -> None:
        """Reach the servers, and refuse those that give less than was demanded."""
        await self._drive(self._network.prepare())

    async def perform(self, op: Operation[R]) -> R:
        """Do one step: one script call, or several inside one state. A write is waited for."""
        if type(op) is Append:
            return cast(R, await self._append(op))
        return cast(R, await self._drive(self._network.perform(op)))

    async def _append(self, op: Append) -> AppendResult:
        """Append by the shortcut if it fits, else by the way that fits all."""
        lost: BaseException | None = None
        started = time.monotonic()
        shortcut = self._shortcut
        part = shortcut.part(op) if shortcut.usable and not self._closed else None
        if part is not None:
            reply, lost = await self._send(part)
            if isinstance(reply, NoScriptError):
                reply, lost = await self._send(part._replace(by_text=True))
            appended = shortcut.appended(op, reply)
            if appended is not None:
                return appended
            op = replace(op, fresh=op.fresh and lost is None)
        left_s = max(0.0, self._options.timeout_s - (time.monotonic() - started))
        done: AppendResult = await self._drive(self._network.append(op, lost=lost, left_s=left_s))
        shortcut.learn(op)
        return done

    async def _send(self, part: Part) -> tuple[Any, BaseException | None]:
        """The reply to a shortcut; or what became of it, if it was sent and none came."""
        carry = SendCommands(None, (), Deadline(self._options.timeout_s), write=True, part=part)
        carried = await self._server(None).carry(carry)
        if carried.lost is None:
            return carried.replies[-1], None
        return None, carried.lost if carried.sent else None

    async def claims(self) -> Claims:
        """What is promised on the servers as they are configured right now."""
        return await self._drive(self._network.claims())

    def owns(self, path: Path) -> bool:  # noqa: ARG002 (no file is)
        """Whether a file is part of the store itself."""
        return False

    async def close(self) -> None:
        """Let go of the connections; a client that was handed in stays open."""
        self._closed = True
        self._latest = None
        servers = self._servers.pop(asyncio.get_running_loop(), {})
        for server in servers.values():
            await server.close(owned=self._origin.owned)

    async def _drive(self, plan: Plan[R]) -> R:
        if self._closed:
            raise ClosedError("the store is closed")
        return await run_plan_async(plan, self._execute)

    async def _execute(self, op: Operation[Any]) -> Any:
        if type(op) is SendCommands:
            return await self._server(op.address).carry(op)
        assert isinstance(op, Wait)
        await asyncio.sleep(op.seconds)
        return None

    def _server(self, address: Address | None) -> Server:
        loop = asyncio.get_running_loop()
        if self._latest is None or self._latest[0] is not loop:
            self._latest = loop, self._servers.setdefault(loop, {})
        servers = self._latest[1]
        server = servers.get(address)
        if server is None:
            if self._closed:
                raise ClosedError("the store is closed")
            server = servers[address] = Server(self._origin, address, self._network)
        return server


class Server:
    """One server: a lane for those who write, and some for those who read."""

    def __init__(self, origin: ConnectionSource, address: Address | None, network: Router) -> None:
        self._pool = origin.pool(address)
        self._writers = Lanes(self._pool, WRITE_LANES, network, origin)
        self._readers = Lanes(self._pool, READ_LANES, network, origin)

    async def carry(self, carry: SendCommands) -> Replies:
        """Take commands there and bring their replies."""
        return await (self._writers if carry.write else self._readers).run(carry)

    async def close(self, *, owned: bool) -> None:
        """Let go of the connections."""
        await self._writers.close()
        await self._readers.close()
        if owned:
            await self._pool.disconnect()


class Lanes:
    """A few connections, and the tasks that wait for them; each lane carries all that waits."""

    def __init__(
        self, pool: Any, lanes_max: int, network: Router, origin: ConnectionSource
    ) -> None:
        self._pool = pool
        self._keeps = origin.keeps(pool)
        self._network = network
        self._slots = Slots(ConnectionSlot() for _ in range(lanes_max))
        self._waiting: deque[PendingRequest] = deque()
        # A task that nobody keeps may be collected before it ends.
        self._running: set[asyncio.Task[None]] = set()

    def run(self, carry: SendCommands) -> asyncio.Future[Replies]:
        """Have a parcel carried."""
        loop = asyncio.get_running_loop()
        settle: asyncio.Future[Replies] = (
            UncancellableFuture(loop=loop) if carry.write else loop.create_future()
        )
        parcel = PendingRequest(carry, settle)
        self._waiting.append(parcel)
        if not self._begin_work() and len(self._waiting) > GROUP_MAX:
            # The next group is sent before the time of any of its calls is up, since whoever is
            # on the way now began earlier. Those behind it may have to give up.
            timer = loop.call_later(carry.patience.left_s(), self._give_up, parcel)
            settle.add_done_callback(lambda _: timer.cancel())
        return settle

    def _begin_work(self) -> bool:
        """Start a task that carries what waits, if a lane is free."""
        if self._slots.held == len(self._slots.things):
            return False
        lease = Lease()
        task = asyncio.get_running_loop().create_task(self._work(lease))
        # Not before there is a task that lets go of it.
        self._slots.try_take(lease)
        self._running.add(task)
        task.add_done_callback(partial(self._after_work, lease))
        return True

    def _after_work(self, lease: Lease, task: asyncio.Task[None]) -> None:
        """See to those who wait still, if a task was cancelled or interrupted."""
        self._running.discard(task)
        # A task that was cancelled before its first step has not done so itself.
        lease.held = False
        if self._waiting:
            self._begin_work()

    def _give_up(self, parcel: PendingRequest) -> None:
        if parcel in self._waiting:
            self._waiting.remove(parcel)
            _tell(parcel, Replies([], WaitedError("no connection became free in time")))

    async def _work(self, lease: Lease) -> None:
        """Carry group after group until nobody waits."""
        try:
            lane = lease.slot or self._slots.try_take(lease)
            if lane is None:
                return
            try:
                while self._waiting:
                    await self._carry_next(lane, lease)
            finally:
                if not self._keeps:
                    await self._give_back(lane)
                lane.used_at = time.monotonic()
        finally:
            lease.held = False

    async def _carry_next(self, lane: ConnectionSlot, lease: Lease) -> None:
        group: list[PendingRequest] = []
        try:
            take(group, self._waiting, lease)
            # Whoever was cancelled before it was sent is not sent.
            live = [each for each in group if not each.settle.done()]
            for late in [each for each in live if not each.carry.patience.left_s()]:
                live.remove(late)
                late.carried = Replies([], WaitedError("no connection became free in time"))
            if live:
                await self._carry(lane, live)
        finally:
            for parcel in group:
                _tell(parcel, parcel.outcome())

    async def _carry(self, lane: ConnectionSlot, group: list[PendingRequest]) -> None:
        trip = RequestBatch(group)
        sent = False
        try:
            async with asyncio.timeout(longest_s(group)):
                connection = await self._connected(lane)
                commands = trip.commands(disks=self._network.waits_for_disks)
                sent = lane.busy = True
                await connection.send_packed_command([b"".join(commands)], check_health=False)
                for _ in commands:
                    try:
                        trip.take(await connection.read_response(disable_decoding=True))
                    except ResponseError as error:
                        trip.take(error)
                lane.busy = False
            trip.settle()
            if trip.met_a_replica():
                await self._drop(lane)
        except (RedisError, OSError) as error:
            await self._drop(lane)
            trip.lose(error, sent=sent)
        except BaseException as error:
            await self._drop(lane)
            trip.lose(error, sent=sent)
            raise

    async def _connected(self, lane: ConnectionSlot) -> Any:
        """The lane's connection, looked at if it rested."""
        if lane.busy:
            await self._drop(lane)
        if lane.connection is not None and lane.rested:
            try:
                stale = await lane.connection.can_read()
            except (RedisError, OSError):
                stale = True
            if stale:
                await self._drop(lane)
        if lane.connection is None:
            lane.box = [await self._pool.get_connection()]
        return lane.connection

    async def _drop(self, lane: ConnectionSlot) -> None:
        connection = lane.clear()
        if connection is not None:
            with suppress(RedisError, OSError):
                await connection.disconnect(nowait=True)
            await self._pool.release(connection)

    async def close(self) -> None:
        """Finish what is under way, and give every connection back."""
        while running := [task for task in self._running if not task.done()]:
            await asyncio.wait(running)
        for lane in self._slots.idle():
            await self._give_back(lane)

    async def _give_back(self, lane: ConnectionSlot) -> None:
        if lane.busy:
            await self._drop(lane)
        connection = lane.clear()
        if connection is not None:
            await self._pool.release(connection)


def _tell(parcel: PendingRequest, carried: Replies) -> None:
    if not parcel.settle.done():
        parcel.settle.set_result(carried)
