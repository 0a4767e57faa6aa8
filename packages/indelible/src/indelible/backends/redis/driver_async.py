"""The async driver: tasks whose requests share round trips."""

from __future__ import annotations

import asyncio
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from redis.exceptions import RedisClusterException, RedisError, ResponseError

from indelible.backends.redis.calls import HANDLERS, RedisContext
from indelible.backends.redis.connections import (
    READ_CONNECTIONS,
    WRITE_CONNECTIONS,
    keeps_connections,
)
from indelible.backends.redis.options import RedisOptions
from indelible.backends.redis.plans import build_context, prepare, read_claims
from indelible.backends.redis.request_batch import (
    BATCH_BYTES_MAX,
    BATCH_MAX,
    ConnectionSlot,
    PendingRequest,
    RequestBatch,
    compute_size,
)
from indelible.backends.redis.requests import Replies, SendCommands, Wait
from indelible.backends.redis.topology_async import AsyncCluster, AsyncSingleServer, build_topology
from indelible.core.batcher import AsyncBatcher
from indelible.core.leases import Lease, Slots
from indelible.core.plan import Operation, Plan, run_plan_async
from indelible.errors import BusyError, ClosedError, OutcomeUnknownError
from indelible.model import Claims

R = TypeVar("R")


class LoopState:
    """What belongs to one event loop: connections cannot be used in another."""

    def __init__(self, options: RedisOptions) -> None:
        self.topology: AsyncSingleServer | AsyncCluster = build_topology(options)
        self.servers: dict[str, AsyncNode] = {}


class AsyncRedisBackend:
    """Performs operations on Redis, Valkey or a cluster of them, async."""

    def __init__(self, options: RedisOptions) -> None:
        self._options = options
        self._context = build_context(options)
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopState] = (
            weakref.WeakKeyDictionary()
        )
        self._closed = False

    def __repr__(self) -> str:
        return f"AsyncRedisBackend({self._options.shown!r})"

    async def prepare(self) -> None:
        """Reach the servers, and refuse those that give less than was demanded."""
        await self._run(prepare(self._context))

    async def perform(self, op: Operation[R]) -> R:
        """Perform one operation: one call of a script, or several inside one state."""
        return await self._run(HANDLERS.plan(self._context, op))

    async def claims(self) -> Claims:
        """What is promised on the servers as they are configured right now."""
        return await self._run(read_claims(self._context))

    def owns(self, path: Path) -> bool:  # noqa: ARG002 (no file is)
        """Whether a file is part of the store itself."""
        return False

    async def close(self) -> None:
        """Release the connections; a client that was handed in stays open."""
        self._closed = True
        state = self._loops.pop(asyncio.get_running_loop(), None)
        if state is not None:
            for server in state.servers.values():
                await server.close()
            await state.topology.close()

    async def _run(self, plan: Plan[R]) -> R:
        if self._closed:
            raise ClosedError("the store is closed")
        return await run_plan_async(plan, self._execute)

    async def _execute(self, op: Operation[Any]) -> Any:
        if isinstance(op, Wait):
            await asyncio.sleep(op.seconds)
            return None
        state = self._find_state()
        try:
            if not isinstance(op, SendCommands):
                return await state.topology.count()
            name, pool = await state.topology.locate(op)
        except (RedisError, RedisClusterException, OSError) as error:
            return Replies([], error) if isinstance(op, SendCommands) else error
        return await self._find_server(state, name, pool).send(op)

    def _find_state(self) -> LoopState:
        loop = asyncio.get_running_loop()
        state = self._loops.get(loop)
        if state is None:
            if self._closed:
                raise ClosedError("the store is closed")
            state = self._loops[loop] = LoopState(self._options)
        return state

    def _find_server(self, state: LoopState, name: str, pool: Any) -> AsyncNode:
        server = state.servers.get(name)
        if server is None:
            keeps = keeps_connections(pool, owned=state.topology.owned)
            server = state.servers[name] = AsyncNode(pool, self._context, keeps=keeps)
        return server


class AsyncNode:
    """One server: a connection for those who write, and some for those who read."""

    def __init__(self, pool: Any, context: RedisContext, *, keeps: bool) -> None:
        self.writers = AsyncChannel(pool, WRITE_CONNECTIONS, context, keeps=keeps)
        self.readers = AsyncChannel(pool, READ_CONNECTIONS, context, keeps=keeps)

    async def send(self, request: SendCommands) -> Replies:
        """Send a request, and return the replies."""
        return await (self.writers if request.write else self.readers).run(request)

    async def close(self) -> None:
        """Release the connections."""
        await self.writers.close()
        await self.readers.close()


class AsyncChannel:
    """A few connections to one server. Requests that wait for them share round trips."""

    def __init__(self, pool: Any, connections: int, context: RedisContext, *, keeps: bool) -> None:
        self._pool = pool
        self._context = context
        # Whether connections are kept: they are ours, or the application has many.
        self._keeps = keeps
        self.slots = Slots(ConnectionSlot() for _ in range(connections))
        self.batcher: AsyncBatcher[SendCommands, Replies] = AsyncBatcher(
            self._send,
            senders=connections,
            requests_max=BATCH_MAX,
            bytes_max=BATCH_BYTES_MAX,
            size_of=compute_size,
        )

    async def run(self, request: SendCommands) -> Replies:
        """Send a request, with others that wait, and return its replies."""
        try:
            # A write is waited for, come what may.
            return await self.batcher.run(request, request.deadline, cancellable=not request.write)
        except BusyError as error:
            return Replies([], error)
        except OutcomeUnknownError as error:
            # Whoever sent it was interrupted.
            return Replies([], error, sent=True)

    async def close(self) -> None:
        """Wait for what is under way, and release every connection."""
        await self.batcher.close()
        for slot in self.slots.idle():
            await self._release(slot)

    async def _send(self, pendings: list[PendingRequest]) -> None:
        lease = Lease()
        try:
            # There are as many slots as senders.
            slot = self.slots.try_take(lease)
            assert slot is not None
            try:
                await self._exchange(slot, pendings)
            finally:
                slot.used_at = time.monotonic()
                if not self._keeps:
                    await self._release(slot)
        finally:
            lease.held = False

    async def _exchange(self, slot: ConnectionSlot, pendings: list[PendingRequest]) -> None:
        batch = RequestBatch(pendings, self._context)
        sent = False
        try:
            async with asyncio.timeout(batch.left_s):
                connection = await self._connect(slot)
                sent = slot.busy = True
                await connection.send_packed_command(batch.pack(), check_health=False)
                for _ in batch.commands:
                    try:
                        batch.replies.append(
                            await connection.read_response(
                                disable_decoding=True, timeout=batch.left_s
                            )
                        )
                    except ResponseError as error:
                        batch.replies.append(error)
                slot.busy = False
            batch.settle()
            if batch.met_replica():
                await self._drop(slot)
        except (RedisError, OSError) as error:
            await self._drop(slot)
            batch.lose(error, sent=sent)
        except BaseException as error:
            await self._drop(slot)
            batch.lose(error, sent=sent)
            raise

    async def _connect(self, slot: ConnectionSlot) -> Any:
        """The connection of a slot, checked if it was idle."""
        if slot.busy:
            await self._drop(slot)
        if slot.box and slot.is_stale:
            try:
                stale = await slot.connection.can_read()
            except (RedisError, OSError):
                stale = True
            if stale:
                await self._drop(slot)
        if not slot.box:
            slot.box = [await self._pool.get_connection()]
        return slot.connection

    async def _drop(self, slot: ConnectionSlot) -> None:
        """Close the connection of a slot, and give it back to the pool."""
        connection = slot.clear()
        if connection is not None:
            with suppress(RedisError, OSError):
                await connection.disconnect(nowait=True)
            await self._pool.release(connection)

    async def _release(self, slot: ConnectionSlot) -> None:
        """Give a connection that is well back to the pool."""
        if slot.busy:
            await self._drop(slot)
        connection = slot.clear()
        if connection is not None:
            await self._pool.release(connection)
