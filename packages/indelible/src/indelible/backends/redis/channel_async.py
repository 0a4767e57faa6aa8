"""Connections to one server, async. Requests that wait for a connection share round trips."""

from __future__ import annotations

import time
from contextlib import suppress
from operator import attrgetter
from typing import Any

from redis.exceptions import RedisError, ResponseError

from indelible.backends.redis.calls import Lost, RedisContext, Replies, Request
from indelible.backends.redis.connection_io import (
    IDLE_S_MAX,
    ConnectionSlot,
    connect_slot_async,
    disconnect_async,
    read_reply_async,
    release_async,
)
from indelible.backends.redis.connections import READ_CONNECTIONS, WRITE_CONNECTIONS
from indelible.backends.redis.request_batch import (
    BATCH_BYTES_MAX,
    BATCH_MAX,
    PendingRequest,
    RequestBatch,
)
from indelible.core.batcher import AsyncBatcher
from indelible.core.deadline import limit_time_async
from indelible.core.leases import Lease, Slots
from indelible.errors import BusyError, OutcomeUnknownError


class AsyncChannel:
    """One connection to a server for writes, or some for reads.

    A pool of redis-py does not survive an interrupt: Ctrl-C inside of its `get_connection` or
    `release`, or right after they returned, leaves a connection on its books that nothing uses. So
    a connection is taken once and kept in a slot, which is leased by assignments alone.
    """

    def __init__(self, pool: Any, context: RedisContext, *, writes: bool, keeps: bool) -> None:
        connections = WRITE_CONNECTIONS if writes else READ_CONNECTIONS
        self._pool = pool
        self._context = context
        # Whether connections are kept: they are ours, or the application has many.
        self._keeps = keeps
        self.slots = Slots(
            ConnectionSlot(is_simulated=context.simulated) for _ in range(connections)
        )
        self.batcher: AsyncBatcher[Request, Replies] = AsyncBatcher(
            self._send,
            senders=connections,
            requests_max=BATCH_MAX,
            bytes_max=BATCH_BYTES_MAX,
            measure=attrgetter("size"),
        )
        self._closed = False

    async def send(self, request: Request) -> Replies:
        """Send a request, with others that wait, and return the replies.

        A write is waited for even by a cancelled task.
        """
        try:
            return await self.batcher.run(request, request.deadline, cancellable=not request.write)
        except BusyError as error:
            return Lost(error)
        except OutcomeUnknownError as error:
            # The sender of the batch was interrupted.
            return Lost(error, sent=True)

    async def close(self) -> None:
        """Release every idle connection; those in use follow."""
        self._closed = True
        await self.batcher.close()
        leases = [Lease() for _ in self.slots.things]
        try:
            for lease in leases:
                slot = self.slots.try_take(lease)
                if slot is not None:
                    await self._release(slot)
        finally:
            for lease in leases:
                lease.held = False

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
                if self._closed or not self._keeps:
                    await self._release(slot)
        finally:
            lease.held = False

    async def _exchange(self, slot: ConnectionSlot, pendings: list[PendingRequest]) -> None:
        batch = RequestBatch(pendings, self._context)
        left_s = batch.left_s
        sent = False
        try:
            async with limit_time_async(left_s):
                is_idle = time.monotonic() - slot.used_at > IDLE_S_MAX
                if slot.box and (slot.busy or is_idle):
                    await self._drop_if_stale(slot)
                connection = await connect_slot_async(slot, self._pool, left_s)
                sent = slot.busy = True
                await connection.send_packed_command(batch.pack(), check_health=False)
                for _ in batch.commands:
                    try:
                        batch.replies.append(await read_reply_async(connection, left_s))
                    except ResponseError as error:
                        batch.replies.append(error)
                slot.busy = False
            batch.settle()
            if batch.met_replica:
                await self._drop(slot)
        except (RedisError, OSError) as error:
            await self._drop(slot)
            batch.lose(error, sent=sent)
        except BaseException as error:
            # Ctrl-C or a cancelled sender: the other requests of the batch may have landed.
            await self._drop(slot)
            batch.lose(error, sent=sent)
            raise

    async def _drop_if_stale(self, slot: ConnectionSlot) -> None:
        """Close a connection that was interrupted, or that the server has closed meanwhile."""
        stale = slot.busy
        if not stale:
            try:
                stale = await slot.connection.can_read()
            except (RedisError, OSError):
                stale = True
        if stale:
            await self._drop(slot)

    async def _drop(self, slot: ConnectionSlot) -> None:
        """Close the connection of a slot, and give it back to the pool."""
        connection = slot.clear()
        if connection is not None:
            with suppress(RedisError, OSError):
                await disconnect_async(connection)
            await self._pool.release(connection)

    async def _release(self, slot: ConnectionSlot) -> None:
        if slot.busy:
            await self._drop(slot)
        await release_async(slot, self._pool)
