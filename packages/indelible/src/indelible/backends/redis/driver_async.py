"""The backend: performs plans, with all retries of their requests; async.

redis-py knows the servers, keeps the connections and parses replies. Requests that wait for the
same server share a round trip.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, TypeVar

from redis.exceptions import (
    BusyLoadingError,
    MovedError,
    RedisClusterException,
    RedisError,
    ResponseError,
)

from indelible.backends.redis import (  # noqa: F401 (each registers its handlers)
    append,
    audit,
    maintenance,
    read,
    sessions,
    stages,
    views,
)
from indelible.backends.redis.connection_io import (
    disconnect_async,
    get_owner_async,
    get_pool_async,
    has_ended_async,
    is_past_async,
    open_cluster_async,
    open_connection_async,
    set_timeout_async,
)
from indelible.backends.redis.errors import (
    build_no_cluster_error,
    build_unreachable_error,
    find_reason,
    is_ask,
    is_final,
)
from indelible.backends.redis.options import (
    CLUSTER_SLOTS,
    READ_CONNECTIONS,
    TIMEOUT_S_MIN,
    WRITE_CONNECTIONS,
    RedisOptions,
    build_client,
)
from indelible.backends.redis.request_batch import (
    BATCH_BYTES_MAX,
    BATCH_MAX,
    PendingRequest,
    RequestBatch,
)
from indelible.backends.redis.requests import (
    HANDLERS,
    CommandRequest,
    CountServers,
    LostError,
    RedisContext,
    Request,
    ScriptCall,
    SendCommands,
    Wait,
    choose_error,
    find_problem,
    note_lost,
)
from indelible.backends.redis.risks import read_claims
from indelible.backends.redis.schema import prepare
from indelible.core.backend import UnreachedError
from indelible.core.batcher import AsyncBatcher
from indelible.core.deadline import Deadline, limit_time_async
from indelible.core.limits import FIRST_CONTACT_S
from indelible.core.plan import Operation, Plan, run_plan_async
from indelible.errors import BusyError, ClosedError, OutcomeUnknownError, UnavailableError
from indelible.model import Claims

R = TypeVar("R")

# How often a store that is being closed looks whether its calls have ended.
CLOSE_CHECK_S: Final = 0.001


class AsyncRedisBackend:
    """Performs operations on Redis, Valkey or a cluster of them, async."""

    def __init__(self, options: RedisOptions) -> None:
        self._options = options
        self._context = RedisContext(options)
        # By their owner: an event loop, or a process if the calls are blocking.
        self._servers: dict[Any, AsyncServers] = {}
        self._closed = False

    def __repr__(self) -> str:
        return f"AsyncRedisBackend({self._options.shown!r})"

    async def prepare(self) -> None:
        """Reach the servers, and refuse those that give less than was demanded."""
        await self._reach()
        await self._run(prepare(self._context))

    async def perform(self, op: Operation[R]) -> R:
        """Perform one operation: one call of a script, or several inside one state."""
        return await self._run(HANDLERS.plan(self._context, op))

    async def claims(self) -> Claims:
        """Return what is promised on the servers as they are configured right now."""
        return await self._run(read_claims(self._context))

    def owns(self, path: Path) -> bool:  # noqa: ARG002 (no file is)
        """Whether a file is part of the store itself."""
        return False

    async def close(self) -> None:
        """Release the connections; a client that was handed in stays open."""
        self._closed = True
        servers = self._servers.pop(get_owner_async(), None)
        if servers is not None:
            await servers.close()

    def find_servers(self) -> AsyncServers:
        """Return the servers of the caller's event loop or process."""
        owner = get_owner_async()
        servers = self._servers.get(owner)
        if servers is None:
            for each in list(self._servers):
                if is_past_async(each):
                    self._servers.pop(each, None)
            kind = AsyncCluster if self._context.is_cluster else AsyncServers
            # Another thread may be as far; nothing is connected yet.
            servers = self._servers.setdefault(owner, kind(self._options, self._context))
            self._refuse_if_closed()
        return servers

    async def _reach(self) -> None:
        """Make the first contact. What refuses to talk is tried for a short time only.

        A cluster is reached if one of its servers says where the keys are. A server that reads its
        file is reached, too.
        """
        context = self._context
        tried = Deadline(min(context.timeout_s, FIRST_CONTACT_S))
        while True:
            contact = context.count_servers() if context.is_cluster else context.send(0, ("PING",))
            try:
                await self._attempt(contact)
            except LostError as lost:
                error = lost.error
            else:
                return
            problem = build_unreachable_error(error, shown=context.shown)
            if isinstance(error, BusyLoadingError) or isinstance(problem, BusyError):
                # There is a server; every connection of the client may be in use.
                return
            if not isinstance(problem, UnavailableError):
                raise problem
            wait_s = tried.next_wait_s()
            if wait_s is None:
                raise UnreachedError(find_reason(error)) from error
            await asyncio.sleep(wait_s)

    async def _run(self, plan: Plan[R]) -> R:
        self._refuse_if_closed()
        return await run_plan_async(plan, self._execute)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ClosedError("the store is closed")

    async def _execute(self, op: Any) -> Any:
        """Perform an operation of a plan until its outcome is known, or the time is up."""
        if isinstance(op, Wait):
            await asyncio.sleep(op.seconds)
            return None
        while True:
            try:
                replies = await self._attempt(op)
            except LostError as lost:
                problem = note_lost(self._context, op, lost)
            except ClosedError as closed:
                error = choose_error(self._context, op, closed)
                raise error from (None if error is closed else closed)
            else:
                found = find_problem(self._context, op, replies)
                if found is None:
                    return replies if isinstance(op, SendCommands) else replies[-1]
                if isinstance(op, ScriptCall) and op.by_text:
                    # Right away, to where the digest went.
                    continue
                problem = found
            wait_s = op.deadline.next_wait_s()
            if wait_s is None or is_final(problem.__cause__):
                raise problem
            await asyncio.sleep(wait_s)

    async def _attempt(self, request: Request) -> list[Any]:
        """Send a request once; returns the reply to each of its commands, errors among them."""
        servers = self.find_servers()
        try:
            if isinstance(request, CountServers):
                return [await servers.count()]
            channel = await servers.find_channel(request)
        except RedisClusterException as error:
            # What kept the client from reading the map of slots.
            cause = error.__cause__
            if isinstance(cause, RedisClusterException):
                raise build_no_cluster_error(cause, shown=self._context.shown) from error
            raise LostError(cause or error) from error
        except (RedisError, OSError) as error:
            raise LostError(error) from error
        # A store that is closed from here on knows the channel, and closes it.
        self._refuse_if_closed()
        return await channel.send(request)


class AsyncServers:
    """A server that has every key, with connections that only their owner uses."""

    def __init__(self, options: RedisOptions, context: RedisContext) -> None:
        self._options = options
        self._context = context
        self._client: Any = None if context.owned else options.target
        if context.owned and not context.is_cluster:
            self._client = build_client(options, awaited=True)
        # By the name of the server, and whether they write.
        self.channels: dict[tuple[str, bool], AsyncChannel] = {}

    async def count(self) -> int:
        """Count the primaries."""
        return 1

    async def find_channel(self, request: CommandRequest) -> AsyncChannel:
        """Return the channel to the server that a request goes to."""
        return self._get_channel("", self._client.connection_pool, writes=request.write)

    def _get_channel(self, name: str, pool: Any, *, writes: bool) -> AsyncChannel:
        channel = self.channels.get((name, writes))
        if channel is None:
            channel = AsyncChannel(pool, self._context, writes=writes)
            channel = self.channels.setdefault((name, writes), channel)
        return channel

    async def close(self) -> None:
        """Wait for what was sent; close the connections, if they are ours."""
        for channel in list(self.channels.values()):
            await channel.close()
        if self._context.owned and self._client is not None:
            await self._client.aclose()


class AsyncCluster(AsyncServers):
    """The servers of a cluster, by the client's own map of slots."""

    def __init__(self, options: RedisOptions, context: RedisContext) -> None:
        super().__init__(options, context)
        # The map is read once at a time; the client's own lock does not cover a refresh. Taken by
        # `with` alone, which cannot be interrupted halfway.
        self._lock = asyncio.Lock()

    async def count(self) -> int:
        """Count the primaries."""
        return len(self._list_primaries(await self._connect()))

    async def find_channel(self, request: CommandRequest) -> AsyncChannel:
        """Return the channel to the server that a request goes to."""
        client = await self._connect()
        failed = request.failed
        node = None
        if is_ask(failed):
            # The slot is on the move; the map stays as it is.
            node = client.get_node(failed.host, failed.port)
        elif failed is not None:
            await self._learn(client, failed)
        if node is None and isinstance(request.to, int):
            primaries = self._list_primaries(client)
            node = primaries[min(request.to, len(primaries) - 1)]
        elif node is None:
            node = client.get_node_from_key(request.to)
        return self._get_channel(node.name, get_pool_async(client, node), writes=request.write)

    async def _connect(self) -> Any:
        """Return the client, after it has read the map of slots."""
        client = self._client
        if client is None or not client.nodes_manager.slots_cache:
            async with self._lock:
                client = self._client = await open_cluster_async(self._options, self._client)
        return client

    async def _learn(self, client: Any, failed: BaseException) -> None:
        """Update the map of slots after a failed attempt."""
        manager = client.nodes_manager
        if isinstance(failed, MovedError) and failed.slot_id in manager.slots_cache:
            await manager.move_slot(failed)
        else:
            async with self._lock:
                await manager.initialize()

    def _list_primaries(self, client: Any) -> list[Any]:
        """List them by their first slots: after a failover, the new one takes the old place."""
        slots = client.nodes_manager.slots_cache
        served = (slots[slot][0] for slot in range(CLUSTER_SLOTS) if slots.get(slot))
        return list(dict.fromkeys(served))


class AsyncChannel:
    """Requests to one server: one batch at a time of those that write, some of those that read.

    So many connections are used at once, and no more. Our own are kept here: to take one from a
    pool of redis-py and to give it back takes a fifth of an append. Those of the application are
    its pool's.
    """

    def __init__(self, pool: Any, context: RedisContext, *, writes: bool) -> None:
        self._pool = pool
        self._context = context
        # Connections of our own: all that are open, and those between two batches. Ctrl-C may keep
        # one from coming back, which is closed with the others.
        self._opened: list[Any] = []
        self._idle: list[Any] = []
        self._closed = False
        # One token for each call of `send` that has not returned.
        self._calls: set[object] = set()
        self.batcher: AsyncBatcher[CommandRequest, list[Any]] = AsyncBatcher(
            self._send,
            senders=WRITE_CONNECTIONS if writes else READ_CONNECTIONS,
            requests_max=BATCH_MAX,
            bytes_max=BATCH_BYTES_MAX,
            measure=attrgetter("size"),
        )

    async def send(self, request: CommandRequest) -> list[Any]:
        """Send a request, with others that wait, and return the replies.

        A write is waited for even by a cancelled task.
        """
        call = object()
        try:
            # Before the batcher looks whether it is closed: `close` waits for this call, or the
            # call is refused.
            self._calls.add(call)
            return await self.batcher.run(request, request.deadline, cancellable=not request.write)
        except BusyError as error:
            raise LostError(error) from error
        except OutcomeUnknownError as error:
            # The sender of the batch was interrupted.
            raise LostError(error, sent=True) from error
        finally:
            self._calls.discard(call)

    async def _send(self, pendings: list[PendingRequest]) -> None:
        batch = RequestBatch(pendings, self._context)
        connection = None
        sent = reusable = False
        try:
            async with limit_time_async(batch.left_s):
                connection = await self._take(batch.left_s)
                sent = True
                await connection.send_packed_command(batch.pack(), check_health=False)
                for _ in batch.commands:
                    try:
                        # Undecoded, even if the client has `decode_responses`.
                        reply = await connection.read_response(
                            disable_decoding=True, timeout=max(batch.left_s, TIMEOUT_S_MIN)
                        )
                        batch.replies.append(reply)
                    except ResponseError as error:
                        batch.replies.append(error)
            batch.settle()
            # From a pool of Sentinel, the next connection leads to the new primary.
            reusable = not batch.met_replica
        except (RedisError, OSError) as error:
            batch.lose(error, sent=sent)
        except BaseException as error:
            # Ctrl-C or a cancelled sender: the other requests of the batch may have landed.
            batch.lose(error, sent=sent)
            raise
        finally:
            if connection is not None:
                await self._give_back(connection, reusable=reusable)

    async def _take(self, left_s: float) -> Any:
        """Return a connection that is alive."""
        if self._context.owned:
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = None
            if connection is not None and await has_ended_async(connection):
                await self._give_back(connection, reusable=False)
                connection = None
            if connection is None:
                connection = await open_connection_async(self._pool, left_s)
                self._opened.append(connection)
        else:
            connection = await self._pool.get_connection()
        # A simulated connection has no socket.
        if not self._context.simulated:
            set_timeout_async(connection, left_s)
        return connection

    async def _give_back(self, connection: Any, *, reusable: bool) -> None:
        """Keep a connection for the next batch, or close it if replies may still come."""
        if self._closed and self._context.owned:
            reusable = False
        if not reusable:
            with suppress(RedisError, OSError):
                await disconnect_async(connection)
        if not self._context.owned:
            if reusable and not self._context.simulated:
                set_timeout_async(connection, None)
            await self._pool.release(connection)
        elif reusable:
            self._idle.append(connection)
        else:
            self._opened.remove(connection)

    async def close(self) -> None:
        """Refuse further requests, wait for those that came before, and close the connections."""
        await self.batcher.close()
        deadline = Deadline(self._context.timeout_s)
        while self._calls:
            if deadline.left_s() == 0:
                break
            await asyncio.sleep(CLOSE_CHECK_S)
        self._closed = True
        # redis-py would open one of them again.
        self._idle.clear()
        for connection in list(self._opened):
            with suppress(RedisError, OSError):
                await disconnect_async(connection)
