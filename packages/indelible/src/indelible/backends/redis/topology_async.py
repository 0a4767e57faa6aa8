"""Which server has a key, as redis-py knows it, and the pool of its connections; async."""

from __future__ import annotations

import asyncio
from typing import Any

from redis.exceptions import MovedError, RedisClusterException

from indelible.backends.redis.calls import Request
from indelible.backends.redis.connection_io import get_pool_async, open_cluster_async
from indelible.backends.redis.connections import (
    CLUSTER_SLOTS,
    RedisOptions,
    build_client,
    is_cluster,
)
from indelible.backends.redis.errors import build_no_cluster_error, is_ask


class AsyncSingleServer:
    """A server that has every key."""

    def __init__(self, options: RedisOptions) -> None:
        self.owned = isinstance(options.target, str)
        self._client = build_client(options, awaited=True) if self.owned else options.target

    async def count(self) -> int:
        """Count the primaries."""
        return 1

    async def locate(self, _request: Request) -> tuple[str, Any]:
        """Return the name of the server that a request goes to, and its pool."""
        return "", self._client.connection_pool

    async def close(self) -> None:
        """Close the connections, if they are ours."""
        if self.owned:
            await self._client.aclose()


class AsyncCluster:
    """The servers of a cluster, by the client's own map of slots."""

    def __init__(self, options: RedisOptions) -> None:
        self.owned = isinstance(options.target, str)
        self._options = options
        self._client: Any = None if self.owned else options.target
        # The map is read once at a time; the client's own lock does not cover a refresh. Taken by
        # `with` alone, which cannot be interrupted halfway.
        self._lock = asyncio.Lock()

    async def count(self) -> int:
        """Count the primaries."""
        return len(self._list_primaries(await self._connect()))

    async def locate(self, request: Request) -> tuple[str, Any]:
        """Return the name of the server that a request goes to, and its pool."""
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
        return node.name, get_pool_async(client, node)

    async def close(self) -> None:
        """Close the connections, if they are ours."""
        client, self._client = self._client, None
        if self.owned and client is not None:
            await client.aclose()

    async def _connect(self) -> Any:
        """Return the client, after it has read the map of slots."""
        client = self._client
        if client is None or not client.nodes_manager.slots_cache:
            async with self._lock:
                try:
                    client = await open_cluster_async(self._options, self._client)
                except RedisClusterException as error:
                    raise self._find_cause(error) from error
                self._client = client
        return client

    async def _learn(self, client: Any, failed: BaseException) -> None:
        """Update the map of slots after a failed attempt."""
        manager = client.nodes_manager
        if isinstance(failed, MovedError) and failed.slot_id in manager.slots_cache:
            await manager.move_slot(failed)
        else:
            async with self._lock:
                try:
                    await manager.initialize()
                except RedisClusterException as error:
                    raise self._find_cause(error) from error

    def _find_cause(self, error: RedisClusterException) -> BaseException:
        """Return what kept the client from reading the map."""
        cause = error.__cause__
        if isinstance(cause, RedisClusterException):
            return build_no_cluster_error(cause, shown=self._options.shown)
        return cause or error

    def _list_primaries(self, client: Any) -> list[Any]:
        """List them by their first slots: after a failover, the new one takes the old place."""
        slots = client.nodes_manager.slots_cache
        served = (slots[slot][0] for slot in range(CLUSTER_SLOTS) if slots.get(slot))
        return list(dict.fromkeys(served))


def build_topology_async(options: RedisOptions) -> AsyncSingleServer | AsyncCluster:
    """Return the servers that a URL or a client stands for."""
    return AsyncCluster(options) if is_cluster(options.target) else AsyncSingleServer(options)
