"""Connections that are kept, and what differs between blocking and async ones of redis-py."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from indelible.backends.redis.connections import (
    TIMEOUT_S_MIN,
    RedisOptions,
    build_cluster_client,
    limit_connect_time,
)
from indelible.core.leases import call_into

# A connection that was idle for this long may have been closed by the server.
IDLE_S_MAX = 0.05


class ConnectionSlot:
    """A connection that is kept for one batch after the other."""

    __slots__ = ("box", "busy", "is_simulated", "timeout_s", "used_at")

    def __init__(self, *, is_simulated: bool) -> None:
        # A simulated connection has no socket that waits.
        self.is_simulated = is_simulated
        # The connection, if there is one.
        self.box: list[Any] = []
        # Whether a batch is under way. If it still is when the slot is taken again, that batch was
        # interrupted: its replies may still come, and the connection is not used again.
        self.busy = False
        self.used_at = 0.0
        # How long its socket waits; None if that was not set.
        self.timeout_s: float | None = None

    @property
    def connection(self) -> Any:
        """Return the connection; None if there is none."""
        return self.box[0] if self.box else None

    def clear(self) -> Any:
        """Give away the connection, if there is one."""
        connection = self.connection
        self.box = []
        self.busy = False
        self.timeout_s = None
        return connection


def open_cluster(options: RedisOptions, client: Any) -> Any:
    """Return the client of a cluster, made now if there is none. It has read the map of slots."""
    return build_cluster_client(options, awaited=False) if client is None else client


async def open_cluster_async(options: RedisOptions, client: Any) -> Any:
    """Return the client of a cluster, made now if there is none. It has read the map of slots."""
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
    """The connections of one server of a cluster, in the way that other pools give them."""

    def __init__(self, node: Any) -> None:
        self._node = node
        self.max_connections: int = node.max_connections

    async def get_connection(self) -> Any:
        connection = self._node.acquire_connection()
        try:
            await connection.connect()
        except BaseException:
            self._node.release(connection)
            raise
        return connection

    async def release(self, connection: Any) -> None:
        self._node.release(connection)


# Who owns connections: they cannot be used in another event loop, and both sides of a fork would
# read each other's replies.
get_owner = os.getpid
get_owner_async = asyncio.get_running_loop


def has_ended(process: int) -> bool:
    """Whether an owner uses its connections no more here: a forked child leaves them alone."""
    return process != os.getpid()


def has_ended_async(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether an owner uses its connections no more."""
    return loop.is_closed()


def connect_slot(slot: ConnectionSlot, pool: Any, left_s: float) -> Any:
    """Return the connection of a slot, taken from the pool if there is none.

    Its socket waits for as long as there is time left.
    """
    left_s = max(left_s, TIMEOUT_S_MIN)
    if not slot.box:
        with limit_connect_time(left_s):
            call_into(slot.box, pool.get_connection)
    connection, timeout_s = slot.box[0], slot.timeout_s
    # Not if it waits about as long already. A simulated connection has no socket.
    waits = timeout_s is not None and 0.95 * timeout_s < left_s < 1.05 * timeout_s
    if not waits and not slot.is_simulated:
        connection.update_current_socket_timeout(left_s)
        slot.timeout_s = left_s
    return connection


async def connect_slot_async(slot: ConnectionSlot, pool: Any, _left_s: float) -> Any:
    """Return the connection of a slot, taken from the pool if there is none."""
    if not slot.box:
        slot.box = [await pool.get_connection()]
    return slot.box[0]


def read_reply(connection: Any, _left_s: float) -> Any:
    """Read one reply, undecoded even if the client has `decode_responses`."""
    return connection.read_response(disable_decoding=True)


async def read_reply_async(connection: Any, left_s: float) -> Any:
    """Read one reply, undecoded even if the client has `decode_responses`."""
    return await connection.read_response(disable_decoding=True, timeout=left_s)


def disconnect(connection: Any) -> None:
    """Close a connection."""
    connection.disconnect()


async def disconnect_async(connection: Any) -> None:
    """Close a connection, without waiting for the other side."""
    await connection.disconnect(nowait=True)


def release(slot: ConnectionSlot, pool: Any) -> None:
    """Give a connection that works back to its pool, with the timeout that it came with."""
    is_changed = slot.timeout_s is not None
    connection = slot.clear()
    if connection is not None:
        if is_changed:
            connection.update_current_socket_timeout(-1)
        pool.release(connection)


async def release_async(slot: ConnectionSlot, pool: Any) -> None:
    """Give a connection that works back to its pool."""
    connection = slot.clear()
    if connection is not None:
        await pool.release(connection)
