"""The async twins of `pools`: bounded in number, and in waiting. A pool belongs to one loop."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any, Protocol

import psycopg
import psycopg_pool

from indelible.backends.postgres.connection_async import AsyncLink, AsyncSeam
from indelible.backends.postgres.connection_pool import (
    ATTEMPTS_AT_THE_DOOR,
    CONNECTIONS_MAX,
    connect_s_of,
    is_up,
    lacks_password,
)
from indelible.backends.postgres.errors import exhausted, none_to_spare, not_connected, refused
from indelible.core.deadline import Deadline
from indelible.core.leases import Lease, Slots
from indelible.core.limits import LOOK_AGAIN_S
from indelible.errors import ClosedError, MemoryStoreError


class AsyncPool(Protocol):
    """Lends connections, one call at a time."""

    async def borrow(self, lease: Lease, patience: Deadline) -> AsyncLink:
        """A connection, within the deadline, or an error that says why not."""
        ...

    async def give_back(self, lease: Lease, *, healthy: bool) -> None:
        """Take back what was lent, if anything was; one that is not healthy is closed."""
        ...

    def wake(self) -> None:
        """A lease was let go: whoever waits may have its slot."""
        ...

    def close(self) -> None:
        """Close every connection that is ours."""
        ...


class AsyncPlace:
    """A place for one connection; see its twin."""

    __slots__ = ("busy", "link")

    def __init__(self) -> None:
        self.link: AsyncLink | None = None
        self.busy = False

    def close(self) -> None:
        """Hang up; the next call opens another."""
        link, self.link = self.link, None
        self.busy = False
        if link is not None:
            link.close()


class AsyncOwnPool:
    """Connections of our own, opened when they are needed, by whoever needs them."""

    def __init__(
        self, conninfo: str, *, servers: int, place: str, seam: AsyncSeam | None = None
    ) -> None:
        self._conninfo = conninfo
        self._servers = servers
        self._place = place
        self._seam = seam
        self._slots = Slots(AsyncPlace() for _ in range(CONNECTIONS_MAX))
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False
        # Whether the user, the password and the database were ever right.
        self._known = False

    @property
    def idle(self) -> list[AsyncLink]:
        """Connections that the next call may have."""
        places = [place for place in self._slots.idle() if not place.busy]
        return [place.link for place in places if place.link is not None]

    async def borrow(self, lease: Lease, patience: Deadline) -> AsyncLink:
        """An idle connection that is alive, or a new one."""
        place = None if self._waiting else self._slots.try_take(lease)
        while place is None:
            await self._wait(patience)
            place = self._slots.try_take(lease)
        if self._closed:
            raise ClosedError("the store is closed")
        link = place.link
        if link is None or place.busy or not link.is_alive():
            place.close()
            link = place.link = await self._connect(patience)
        place.busy = True
        link.begin(patience)
        return link

    async def _wait(self, patience: Deadline) -> None:
        """Wait until a slot may be free."""
        left_s = patience.left_s()
        if left_s == 0:
            raise exhausted(CONNECTIONS_MAX, place=self._place)
        woken = asyncio.get_running_loop().create_future()
        try:
            self._waiting.append(woken)
            async with asyncio.timeout(min(left_s, LOOK_AGAIN_S)):
                await woken
        except TimeoutError:
            pass
        except BaseException:
            # What it was woken for is the next one's.
            if woken.done():
                self.wake()
            raise
        finally:
            with suppress(ValueError):
                self._waiting.remove(woken)

    def wake(self) -> None:
        """A lease was let go: whoever waits may have its slot."""
        while self._waiting:
            woken = self._waiting.popleft()
            if not woken.done():
                woken.set_result(None)
                break

    async def _connect(self, patience: Deadline) -> AsyncLink:
        connect_s = connect_s_of(patience, self._servers)
        failure: MemoryStoreError
        # Twice, since a server may have come up between an attempt and the look at it.
        for _ in range(ATTEMPTS_AT_THE_DOOR):
            try:
                async with asyncio.timeout(patience.left_s()):
                    connection = await psycopg.AsyncConnection.connect(
                        self._conninfo,
                        autocommit=True,
                        prepare_threshold=None,
                        connect_timeout=connect_s,
                    )
            except psycopg.Error as error:
                failure = refused(error, place=self._place)
                if lacks_password(error):
                    break
                if self._known or self._servers > 1 or not await self._is_up(connect_s):
                    failure = not_connected(error, place=self._place)
                    break
            except TimeoutError:
                late = psycopg.OperationalError("no connection before the deadline")
                failure = not_connected(late, place=self._place)
                break
            else:
                self._known = True
                link = AsyncLink(connection, place=self._place, seam=self._seam, named=True)
                link.begin(patience)
                return link
        # Outside of the handler, so that the driver's error does not come along as its context.
        raise failure

    async def _is_up(self, connect_s: int) -> bool:
        return await asyncio.to_thread(is_up, self._conninfo, connect_s)

    async def give_back(self, lease: Lease, *, healthy: bool) -> None:
        """Keep it for the next call, unless it is unwell or the store was closed."""
        place: AsyncPlace | None = lease.slot
        if place is not None:
            if healthy and not self._closed:
                place.busy = False
            else:
                place.close()

    def close(self) -> None:
        """Close what is idle; what is lent closes when it comes back."""
        self._closed = True
        for place in self._slots.idle():
            place.close()


class AsyncGivenPool:
    """The pool of an application. Connections go back as they came."""

    def __init__(
        self,
        pool: psycopg_pool.AsyncConnectionPool[Any],
        *,
        place: str,
        seam: AsyncSeam | None = None,
    ) -> None:
        self._pool = pool
        self._place = place
        self._seam = seam
        self._closed = False

    async def borrow(self, lease: Lease, patience: Deadline) -> AsyncLink:
        """A connection that is alive, as soon as the pool has one to spare."""
        for left in range(self._pool.max_size, -1, -1):
            if self._closed:
                raise ClosedError("the store is closed")
            link = AsyncLink(await self._take(patience), place=self._place, seam=self._seam)
            # From here on it goes back, also if the task is cancelled.
            lease.slot = link
            link.begin(patience)
            # After as many as there can be, the last one has to do.
            if not left or link.is_alive():
                await link.connection.set_autocommit(True)
                return link
            await self.give_back(lease, healthy=False)
        raise AssertionError("the last one is always taken")

    async def _take(self, patience: Deadline) -> psycopg.AsyncConnection[Any]:
        failure: MemoryStoreError
        try:
            connection: psycopg.AsyncConnection[Any] = await self._pool.getconn(
                timeout=max(0.001, patience.left_s())
            )
        except psycopg_pool.PoolClosed as error:
            failure = not_connected(error, place=self._place)
        except (psycopg_pool.PoolTimeout, psycopg_pool.TooManyRequests):
            failure = none_to_spare(self._pool.max_size, place=self._place)
        else:
            return connection
        raise failure

    async def give_back(self, lease: Lease, *, healthy: bool) -> None:
        """Hand it back; the pool replaces one that is closed."""
        link: AsyncLink | None = lease.slot
        if link is None:
            return
        lease.slot = None
        if not healthy:
            link.close()
        else:
            with suppress(psycopg.Error):
                await link.connection.set_autocommit(link.was_autocommit)
        link.release()
        await self._pool.putconn(link.connection)

    def wake(self) -> None:
        """The pool sees to those who wait for it."""

    def close(self) -> None:
        """Use it no more. It is the application's to close."""
        self._closed = True
