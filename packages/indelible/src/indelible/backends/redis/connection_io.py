"""The differences between blocking and async connections of redis-py, and their owners."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from redis.exceptions import RedisError

from indelible.backends.redis.options import (
    TIMEOUT_S_MIN,
    RedisOptions,
    build_cluster_client,
)

# The owner of connections. They cannot be used in another event loop, or on both sides of a fork,
# where each would read replies of the other.
get_owner = os.getpid
get_owner_async = asyncio.get_running_loop

# What `can_read` raises if the connection was closed; the last two if another thread closed it.
_ENDED: Final = (RedisError, OSError, TypeError, ValueError)


def is_past(process: int) -> bool:
    """Return whether connections belong to another process, the parent of a forked child."""
    return process != os.getpid()


def is_past_async(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether connections belong to a loop that was closed."""
    return loop.is_closed()


def open_cluster(options: RedisOptions, client: Any) -> Any:
    """Return the client of a cluster, or create it, after it has read the map of slots."""
    return build_cluster_client(options, awaited=False) if client is None else client


async def open_cluster_async(options: RedisOptions, client: Any) -> Any:
    """Return the client of a cluster, or create it, after it has read the map of slots."""
    client = build_cluster_client(options, awaited=True) if client is None else client
    await client.initialize()
    return client


def get_pool(client: Any, node: Any) -> Any:
    """Return the pool of one server of a cluster."""
    return client.get_redis_connection(node).connection_pool


def get_pool_async(_client: Any, node: Any) -> Any:
    """Return the pool of one server of a cluster."""
    return _NodePool(node)


class _NodePool:
    """The connections of one server of a cluster, with the interface of a pool."""

    def __init__(self, node: Any) -> None:
        self._node = node
        self.connection_class = node.connection_class
        self.connection_kwargs = node.connection_kwargs

    async def get_connection(self) -> Any:
        connection = self._node.acquire_connection()
        try:
            await connection.connect()
            if await has_ended_async(connection):
                await disconnect_async(connection)
                await connection.connect()
        except BaseException:
            self._node.release(connection)
            raise
        return connection

    async def release(self, connection: Any) -> None:
        self._node.release(connection)


def open_connection(pool: Any, left_s: float) -> Any:
    """Open a connection with the settings of a pool, in the time that is left."""
    connection = pool.connection_class(**pool.connection_kwargs)
    left_s = max(left_s, TIMEOUT_S_MIN)
    connection.socket_connect_timeout = min(connection.socket_connect_timeout or left_s, left_s)
    # For the replies to AUTH and SELECT; every batch sets its own timeout.
    connection.socket_timeout = min(connection.socket_timeout or left_s, left_s)
    connection.connect()
    return connection


async def open_connection_async(pool: Any, _left_s: float) -> Any:
    """Open a connection with the settings of a pool."""
    connection = pool.connection_class(**pool.connection_kwargs)
    try:
        await connection.connect()
    except BaseException:
        await disconnect_async(connection)
        raise
    return connection


def has_ended(connection: Any) -> bool:
    """Whether the server has closed a connection: it sends nothing else to an idle one."""
    try:
        return bool(connection.can_read())
    except _ENDED:
        return True


async def has_ended_async(connection: Any) -> bool:
    """Whether the server has closed a connection: it sends nothing else to an idle one."""
    try:
        return bool(await connection.can_read())
    except _ENDED:
        return True


def set_timeout(connection: Any, left_s: float | None) -> None:
    """Set the timeout of the socket to the time that is left; None for its configured timeout."""
    connection.update_current_socket_timeout(-1 if left_s is None else max(left_s, TIMEOUT_S_MIN))


def set_timeout_async(_connection: Any, _left_s: float | None) -> None:
    """Do nothing: the caller limits the time of what it awaits."""


def disconnect(connection: Any) -> None:
    """Close a connection."""
    connection.disconnect()


async def disconnect_async(connection: Any) -> None:
    """Close a connection without waiting for the other side."""
    await connection.disconnect(nowait=True)


def disconnect_all(connections: Sequence[Any]) -> None:
    """Close connections, whatever state they are in."""
    for connection in connections:
        with suppress(RedisError, OSError):
            connection.disconnect()


async def disconnect_all_async(connections: Sequence[Any]) -> None:
    """Close connections, and wait until they are closed: the event loop may end next.

    With TLS, the other side answers to that. redis-py limits the wait by the time for connecting.
    """
    closing = (connection.disconnect() for connection in connections)
    for error in await asyncio.gather(*closing, return_exceptions=True):
        if error is not None and not isinstance(error, (RedisError, OSError)):
            raise error
