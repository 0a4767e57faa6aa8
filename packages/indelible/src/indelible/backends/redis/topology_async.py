"""Which server has a key, as redis-py knows it, and the pool of its connections; async."""

from __future__ import annotations

import asyncio
from typing import Any

from redis.exceptions import AskError, MovedError, RedisClusterException

from indelible.backends.redis.connections import (
    CLUSTER_SLOTS,
    build_client,
    build_cluster_client,
    is_cluster,
)
from indelible.backends.redis.errors import build_no_cluster_error
from indelible.backends.redis.options import RedisOptions
from indelible.backends.redis.requests import SendCommands


class AsyncSingleServer:
    """A server that has every key."""

    def __init__(self, options: RedisOptions) -> None:
        self.owned = isinstance(options.target, str)
        self._client = build_client(options, awaited=True) if self.owned else options.target

    async def count(self) -> int:
        """How many primaries there are."""
        return 1

    async def locate(self, _request: SendCommands) -> tuple[str, Any]:
        """The name of the server that a request goes to, and its pool."""
        return "", self._client.connection_pool

    async def close(self) -> None:
        """Close the connections, if they are ours."""
        if self.owned:
            await self._client.aclose()


class NodePool:
    """The connections of one server of a cluster, in the way that other pools give them."""

    def __init__(self, node: Any) -> None:
        self._node = node
        self.max_connections: int = node.max_connections

    async def get_connection(self) -> Any:
        """Take a connection, and connect it if it is new."""
        connection = self._node.acquire_connection()
        try:
            await connection.connect()
        except BaseException:
            self._node.release(connection)
            raise
        return connection

    async def release(self, connection: Any) -> None:
        """Give a connection back."""
        self._node.release(connection)


class AsyncCluster:
    """The servers of a cluster, by the client's own map of slots."""

    def __init__(self, options: RedisOptions) -> None:
        self.owned = isinstance(options.target, str)
        self._options = options
        self._client: Any = options.target
        if self.owned:
            self._client = build_cluster_client(options, awaited=True)
        # One task at a time reads the map; the client's own lock does not cover a refresh.
        self._lock = asyncio.Lock()

    async def count(self) -> int:
        """How many primaries there are."""
        return len(self._list_primaries(await self._connect()))

    async def locate(self, request: SendCommands) -> tuple[str, Any]:
        """The name of the server that a request goes to, and its pool."""
        client = await self._connect()
        failed = request.failed
        if failed is not None:
            await self._learn(client, failed)
        if isinstance(request.to, int):
            primaries = self._list_primaries(client)
            node = primaries[min(request.to, len(primaries) - 1)]
        else:
            node = client.get_node_from_key(request.to)
        if isinstance(failed, (AskError, MovedError)):
            # Where the server sent us, whatever the map says.
            node = client.get_node(failed.host, failed.port) or node
        return node.name, NodePool(node)

    async def close(self) -> None:
        """Close the connections, if they are ours."""
        if self.owned:
            await self._client.aclose()

    async def _connect(self) -> Any:
        """The client, after it has read the map of slots."""
        client = self._client
        if not client.nodes_manager.slots_cache:
            async with self._lock:
                try:
                    await client.initialize()
                except RedisClusterException as error:
                    raise self._find_cause(error) from error
        return client

    async def _learn(self, client: Any, failed: BaseException) -> None:
        """Update the map of slots after a failed attempt."""
        manager = client.nodes_manager
        if isinstance(failed, AskError):
            # It says where one key is while its slot is on the move.
            return
        if isinstance(failed, MovedError) and failed.slot_id in manager.slots_cache:
            await manager.move_slot(failed)
        else:
            async with self._lock:
                try:
                    await manager.initialize()
                except RedisClusterException as error:
                    raise self._find_cause(error) from error

    def _find_cause(self, error: RedisClusterException) -> BaseException:
        """What kept the client from reading the map."""
        cause = error.__cause__
        if isinstance(cause, RedisClusterException):
            return build_no_cluster_error(cause, shown=self._options.shown)
        return cause or error

    def _list_primaries(self, client: Any) -> list[Any]:
        """In the order of their first slots: after a failover, the new one takes the old place."""
        slots = client.nodes_manager.slots_cache
        served = (slots[slot][0] for slot in range(CLUSTER_SLOTS) if slots.get(slot))
        return list(dict.fromkeys(served))


def build_topology(options: RedisOptions) -> AsyncSingleServer | AsyncCluster:
    """The servers that a URL or a client stands for."""
    return AsyncCluster(options) if is_cluster(options.target) else AsyncSingleServer(options)
