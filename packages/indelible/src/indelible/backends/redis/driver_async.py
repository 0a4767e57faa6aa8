"""The backend: performs plans and retries their requests; async.

redis-py finds the servers, opens connections and parses replies. Requests that wait for the same
server share a round trip.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, Final, TypeVar

from redis.exceptions import (
    AskError,
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
    disconnect_all_async,
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
    LostError,
    build_no_cluster_error,
    build_unreachable_error,
    find_reason,
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
    RedisContext,
    Request,
    ScriptCall,
    SendCommands,
    Wait,
    find_problem,
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

# How often `close` checks whether the calls of a store have ended.
CLOSE_CHECK_S: Final = 0.001


class AsyncRedisBackend:
    """Performs operations on Redis, Valkey or a cluster of them, async."""

    def __init__(self, options: RedisOptions) -> None:
        self._options = options
        self._context = RedisContext(options)
        # By owner: an event loop, or a process if the calls are blocking.
        self._servers: dict[Any, AsyncServers] = {}
        self._closed = False

    async def prepare(self) -> None:
        """Connect, and refuse servers that cannot promise the demanded durability."""
        await self._reach()
        await self._run(prepare(self._context))

    async def perform(self, op: Operation[R]) -> R:
        """Perform one operation, with its retries."""
        return await self._run(HANDLERS.plan(self._context, op))

    async def claims(self) -> Claims:
        """Return what is promised on the servers as they are configured now."""
        return await self._run(read_claims(self._context))

    async def close(self) -> None:
        """Close the connections; a client of the application stays open."""
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
            # Another thread may do the same; nothing is connected yet.
            servers = self._servers.setdefault(owner, kind(self._options, self._context))
            self._refuse_if_closed()
        return servers

    async def _reach(self) -> None:
        """Connect for the first time; give up soon if nothing there answers as a server.

        A cluster answers if one of its servers returns the map of slots. A server that is still
        loading its file answers, too.
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
                # There is a server, which is loading, or every connection of the client is in use.
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
        """Perform an operation of a plan, with attempts until it succeeds or at its deadline."""
        if isinstance(op, Wait):
            await asyncio.sleep(op.seconds)
            return None
        while True:
            try:
                replies = await self._attempt(op)
            except (LostError, ClosedError) as error:
                replies = [error]
            problem = find_problem(self._context, op, replies)
            if problem is None:
                return replies if isinstance(op, SendCommands) else replies[-1]
            if isinstance(op, ScriptCall) and op.by_text:
                # The server does not know the script; send its text without a pause.
                continue
            wait_s = op.deadline.next_wait_s()
            if wait_s is None:
                raise problem
            await asyncio.sleep(wait_s)

    async def _attempt(self, request: Request) -> list[Any]:
        """Send a request once; return the replies to its commands, which may be errors."""
        servers = self.find_servers()
        try:
            if isinstance(request, CountServers):
                return [await servers.count()]
            channel = await servers.find_channel(request)
        except RedisClusterException as error:
            # The reason why the client could not read the map of slots.
            cause = error.__cause__
            if isinstance(cause, RedisClusterException):
                raise build_no_cluster_error(cause, shown=self._context.shown) from error
            raise LostError(cause or error) from error
        except (RedisError, OSError) as error:
            raise LostError(error) from error
        # If the store is closed after this check, it also closes the channel.
        self._refuse_if_closed()
        return await channel.send(request)


class AsyncServers:
    """A single server, and the channels to it that belong to one owner."""

    def __init__(self, options: RedisOptions, context: RedisContext) -> None:
        self._options = options
        self._context = context
        self._client: Any = None if context.owned else options.target
        if context.owned and not context.is_cluster:
            self._client = build_client(options, awaited=True)
        # By the name of the server, and whether the channel writes.
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
        # A server that left a cluster and came back has another one.
        channel.pool = pool
        return channel

    async def close(self) -> None:
        """Wait for requests in flight, and close the connections that are ours."""
        for channel in list(self.channels.values()):
            await channel.close()
        if self._context.owned and self._client is not None:
            await self._client.aclose()


class AsyncCluster(AsyncServers):
    """The servers of a cluster, found by the client's map of slots."""

    def __init__(self, options: RedisOptions, context: RedisContext) -> None:
        super().__init__(options, context)
        # One call reads the map at a time; the client's own lock does not cover that. Only used by
        # `with`, which Ctrl-C cannot interrupt halfway.
        self._lock = asyncio.Lock()
        self._closed = False

    async def count(self) -> int:
        """Count the primaries."""
        return len(self._list_primaries(await self._connect()))

    async def find_channel(self, request: CommandRequest) -> AsyncChannel:
        """Return the channel to the server that a request goes to."""
        client = await self._connect()
        if request.failed is not None:
            await self._learn(client, request.failed, request.slots)
        request.slots = client.nodes_manager.slots_cache
        if isinstance(request.to, int):
            primaries = self._list_primaries(client)
            node = primaries[min(request.to, len(primaries) - 1)]
        else:
            node = client.get_node_from_key(request.to)
        return self._get_channel(node.name, get_pool_async(client, node), writes=request.write)

    async def _connect(self) -> Any:
        """Return the client, after it has read the map of slots."""
        client = self._client
        if client is None or not client.nodes_manager.slots_cache:
            async with self._lock:
                if self._closed:
                    raise ClosedError("the store is closed")
                client = self._client = await open_cluster_async(self._options, self._client)
        return client

    async def _learn(self, client: Any, failed: BaseException, slots: Any) -> None:
        """Update the map of slots after an attempt with this map failed."""
        manager = client.nodes_manager
        if isinstance(failed, MovedError) and failed.slot_id in manager.slots_cache:
            await manager.move_slot(failed)
            return
        if type(failed) is AskError:
            # The map does not change before the slot has arrived.
            return
        async with self._lock:
            # Another request of the same batch may have had it read again.
            if slots is manager.slots_cache:
                await manager.initialize()

    async def close(self) -> None:
        """Wait for requests in flight, and close the connections that are ours."""
        # Behind a call that opens the client at this moment.
        async with self._lock:
            self._closed = True
        await super().close()

    def _list_primaries(self, client: Any) -> list[Any]:
        """List them by their first slots, so that a new primary has the number of the old one."""
        slots = client.nodes_manager.slots_cache
        served = map(itemgetter(0), filter(None, map(slots.get, range(CLUSTER_SLOTS))))
        # Hashing a node runs Python code: once for each range of slots, not for each slot.
        return list(dict.fromkeys(node for node, _ in groupby(served)))


class AsyncChannel:
    """Sends writes or reads to one server, several batches at a time.

    Each batch in flight uses one connection. Our own are kept here: a pool of redis-py would add a
    fifth to the time of an append. Those of the application are taken from its pool.
    """

    def __init__(self, pool: Any, context: RedisContext, *, writes: bool) -> None:
        self.pool = pool
        self._context = context
        # Connections of our own: all that are open, and those that no batch uses. One that Ctrl-C
        # kept from being given back is closed with the store.
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
            # Before the batcher checks whether it is closed: either `close` waits for this call, or
            # the call is refused.
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
        pool, connection = self.pool, None
        sent = reusable = False
        try:
            async with limit_time_async(batch.left_s):
                connection = await self._take(pool, batch)
                sent = True
                await connection.send_packed_command(batch.pack(), check_health=False)
                for _ in batch.commands:
                    try:
                        # Undecoded, even if the client has `decode_responses`.
                        reply = await connection.read_response(
                            disable_decoding=True,
                            timeout=max(batch.left_s, TIMEOUT_S_MIN),
                            disconnect_on_error=False,
                        )
                        batch.replies.append(reply)
                    except (ResponseError, BusyLoadingError) as error:
                        # While a server loads its file, it may take the next command.
                        batch.replies.append(error)
            batch.settle()
            # A new connection from a pool of Sentinel leads to the new primary.
            reusable = not batch.met_replica
        except (RedisError, OSError) as error:
            batch.lose(error, sent=sent)
        except BaseException as error:
            # Ctrl-C or a cancelled sender: the other requests of the batch may have landed.
            batch.lose(error, sent=sent)
            raise
        finally:
            if connection is not None:
                await self._give_back(pool, connection, reusable=reusable)

    async def _take(self, pool: Any, batch: RequestBatch) -> Any:
        """Return a connection that is alive."""
        if self._context.owned:
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = None
            if connection is not None and await has_ended_async(connection):
                await self._give_back(pool, connection, reusable=False)
                connection = None
            if connection is None:
                connection = await open_connection_async(pool, batch.left_s)
                self._opened.append(connection)
        else:
            connection = await pool.get_connection()
        # A simulated connection has no socket.
        if not self._context.simulated:
            set_timeout_async(connection, batch.left_s)
        return connection

    async def _give_back(self, pool: Any, connection: Any, *, reusable: bool) -> None:
        """Keep a connection for the next batch; close it if replies may still arrive."""
        if self._closed and self._context.owned:
            reusable = False
        if not reusable:
            with suppress(RedisError, OSError):
                await disconnect_async(connection)
        if not self._context.owned:
            if reusable and not self._context.simulated:
                set_timeout_async(connection, None)
            await pool.release(connection)
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
        # Otherwise one of them would be used, and redis-py would connect it again.
        self._idle.clear()
        await disconnect_all_async(list(self._opened))
