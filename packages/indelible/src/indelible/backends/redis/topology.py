"""Which server has a key, as redis-py knows it, and the pool of its connections."""

from __future__ import annotations

import threading
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


class SingleServer:
    """A server that has every key."""

    def __init__(self, options: RedisOptions) -> None:
        self.owned = isinstance(options.target, str)
        self._client = build_client(options, awaited=False) if self.owned else options.target

    def count(self) -> int:
        """How many primaries there are."""
        return 1

    def locate(self, _request: SendCommands) -> tuple[str, Any]:
        """The name of the server that a request goes to, and its pool."""
        return "", self._client.connection_pool

    def close(self) -> None:
        """Close the connections, if they are ours."""
        if self.owned:
            self._client.close()


class Cluster:
    """The servers of a cluster, by the client's own map of slots."""

    def __init__(self, options: RedisOptions) -> None:
        self.owned = isinstance(options.target, str)
        self._options = options
        self._client: Any = None if self.owned else options.target
        # Taken by `with` alone, which cannot be interrupted halfway.
        self._lock = threading.Lock()

    def count(self) -> int:
        """How many primaries there are."""
        return len(self._list_primaries(self._connect()))

    def locate(self, request: SendCommands) -> tuple[str, Any]:
        """The name of the server that a request goes to, and its pool."""
        client = self._connect()
        failed = request.failed
        if failed is not None:
            self._learn(client, failed)
        if isinstance(request.to, int):
            primaries = self._list_primaries(client)
            node = primaries[min(request.to, len(primaries) - 1)]
        else:
            node = client.get_node_from_key(request.to)
        if isinstance(failed, (AskError, MovedError)):
            # Where the server sent us, whatever the map says.
            node = client.get_node(failed.host, failed.port) or node
        return node.name, client.get_redis_connection(node).connection_pool

    def close(self) -> None:
        """Close the connections, if they are ours."""
        client, self._client = self._client, None
        if self.owned and client is not None:
            client.close()

    def _connect(self) -> Any:
        """The client. It reads the map of slots when it is made."""
        client = self._client
        if client is None:
            with self._lock:
                if self._client is None:
                    try:
                        self._client = build_cluster_client(self._options, awaited=False)
                    except RedisClusterException as error:
                        raise self._find_cause(error) from error
                client = self._client
        return client

    def _learn(self, client: Any, failed: BaseException) -> None:
        """Update the map of slots after a failed attempt."""
        manager = client.nodes_manager
        if isinstance(failed, AskError):
            # It says where one key is while its slot is on the move.
            return
        if isinstance(failed, MovedError) and failed.slot_id in manager.slots_cache:
            manager.move_slot(failed)
        else:
            try:
                manager.initialize()
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


def build_topology(options: RedisOptions) -> SingleServer | Cluster:
    """The servers that a URL or a client stands for."""
    return Cluster(options) if is_cluster(options.target) else SingleServer(options)
