"""Pools of connections: the store's own, and that of an application.

The store's own pool opens a connection in the call that needs it. So the caller gets the reason if
that fails, the next attempt finds a server that is back, and there is no background thread that a
fork would lose. `psycopg_pool` has such threads, and loses a connection for good if Ctrl-C comes
while it hands one out (see DESIGN.md). An application's pool is used through its public interface.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, Final

import psycopg
import psycopg_pool
from psycopg.pq import Ping

from indelible.backends.postgres.connection import (
    BorrowedConnection,
    DriverConnection,
    PostgresConnection,
)
from indelible.backends.postgres.errors import (
    build_exhausted_error,
    build_none_to_spare_error,
    build_refused_error,
    build_unreachable_error,
)
from indelible.backends.postgres.options import (
    CONNECT_ATTEMPTS,
    choose_connect_timeout,
    lacks_password,
    ping,
)
from indelible.backends.postgres.statements import PostgresContext
from indelible.core.deadline import Deadline
from indelible.core.leases import Lease, Slots
from indelible.core.limits import LOOK_AGAIN_S
from indelible.errors import ClosedError, MemoryStoreError

# Two per core of a small server. By default, a server accepts a hundred from all its clients.
CONNECTIONS_MAX: Final = 8


class PoolSlot:
    """A slot for one connection."""

    __slots__ = ("busy", "connection")

    def __init__(self) -> None:
        self.connection: PostgresConnection | None = None
        # Whether a call uses it. If this is still set when the slot is free, the call was
        # interrupted: an answer may be in flight, and the connection is not used again.
        self.busy = False

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        connection, self.connection = self.connection, None
        self.busy = False
        if connection is not None:
            connection.close()


class OwnPool:
    """The store's own connections, each opened by the first call that needs it."""

    def __init__(
        self, conninfo: str, *, servers: int, place: str, context: PostgresContext
    ) -> None:
        self._conninfo = conninfo
        self._servers = servers
        self._place = place
        self._context = context
        self._slots = Slots(PoolSlot() for _ in range(CONNECTIONS_MAX))
        # Connections of a parent process, which must be neither used nor closed here.
        self._inherited: list[Slots[PoolSlot]] = []
        self._closed = False
        # Whether a connection was ever opened, so that user, password and database are right.
        self._known = False

    @property
    def held(self) -> int:
        """How many connections are in use."""
        return self._slots.held

    @property
    def idle(self) -> list[PostgresConnection]:
        """Connections that no call uses."""
        slots = [slot for slot in self._slots.idle() if not slot.busy]
        return [slot.connection for slot in slots if slot.connection is not None]

    def borrow(self, lease: Lease, deadline: Deadline) -> PostgresConnection:
        """Return an idle connection that is alive, or a new one."""
        # In a pool of threads, a call may have waited for its thread until the deadline.
        slot = self._slots.take(lease, deadline.left_s) if deadline.left_s() > 0 else None
        if slot is None:
            raise build_exhausted_error(CONNECTIONS_MAX, place=self._place)
        if self._closed:
            raise ClosedError("the store is closed")
        connection = slot.connection
        if connection is None or slot.busy or not connection.is_alive():
            slot.close()
            connection = slot.connection = self._connect(deadline)
        slot.busy = True
        connection.begin_call(deadline)
        return connection

    def _connect(self, deadline: Deadline) -> PostgresConnection:
        timeout_s = choose_connect_timeout(deadline, self._servers)
        failure: MemoryStoreError
        for _ in range(CONNECT_ATTEMPTS):
            try:
                driver = DriverConnection.connect(
                    self._conninfo,
                    autocommit=True,
                    prepare_threshold=None,
                    connect_timeout=timeout_s,
                )
            except psycopg.Error as error:
                failure = build_refused_error(error, place=self._place)
                if lacks_password(error):
                    break
                answer = Ping.NO_RESPONSE
                if not self._known and not isinstance(error, psycopg.errors.ConnectionTimeout):
                    answer = ping(self._conninfo)
                if answer is not Ping.OK or self._servers > 1:
                    answered = answer in (Ping.OK, Ping.REJECT)
                    failure = build_unreachable_error(error, place=self._place, answered=answered)
                    break
            else:
                self._known = True
                connection = PostgresConnection(driver, self._context, place=self._place)
                connection.begin_call(deadline)
                try:
                    connection.allow_prepared_statements()
                except BaseException:
                    connection.close()
                    raise
                return connection
        # Outside of the handler, so that the driver's error is not its context.
        raise failure

    def give_back(self, lease: Lease, *, healthy: bool) -> None:
        """Keep it for the next call, unless it is broken or the store was closed."""
        slot: PoolSlot | None = lease.slot
        if slot is not None:
            if healthy and not self._closed:
                slot.busy = False
            else:
                slot.close()

    def wake(self) -> None:
        """Tell a waiting call that a lease was released."""
        self._slots.wake()

    def after_fork(self) -> None:
        """In a forked child: leave the parent's connections alone."""
        self._inherited.append(self._slots)
        self._slots = Slots(PoolSlot() for _ in range(CONNECTIONS_MAX))

    def close(self) -> None:
        """Close the idle connections; those in use are closed when they are given back."""
        self._closed = True
        leases = [Lease() for _ in self._slots.things]
        try:
            for lease in leases:
                slot = self._slots.try_take(lease)
                if slot is not None:
                    slot.close()
        finally:
            for lease in leases:
                lease.held = False
            self._slots.wake_all()


class ApplicationPool:
    """The pool of an application. Its connections are given back unchanged."""

    def __init__(
        self,
        pool: psycopg_pool.ConnectionPool[Any] | AwaitedPool,
        *,
        place: str,
        context: PostgresContext,
    ) -> None:
        self._pool = pool
        self._place = place
        self._context = context
        self._closed = False

    def borrow(self, lease: Lease, deadline: Deadline) -> PostgresConnection:
        """Return a connection that is alive, as soon as the pool has a free one."""
        for left in range(self._pool.max_size, -1, -1):
            if self._closed:
                raise ClosedError("the store is closed")
            # From here on `give_back` returns it, even if the call is interrupted.
            loan = lease.slot = self._take(deadline)
            connection = loan.open(self._place, self._context)
            connection.begin_call(deadline)
            # If all connections of the pool were dead, the last one may be used: it fails.
            if not left or connection.is_alive():
                return connection
            self.give_back(lease, healthy=False)
        raise AssertionError("the last one is always taken")

    def _take(self, deadline: Deadline) -> Loan:
        # In a pool of threads, a call may have waited for its thread until the deadline.
        left_s = deadline.left_s()
        failure: MemoryStoreError = build_none_to_spare_error(
            self._pool.max_size, place=self._place
        )
        with suppress(psycopg_pool.PoolTimeout, psycopg_pool.TooManyRequests):
            try:
                if left_s > 0:
                    return Loan(self._pool.getconn(timeout=left_s))
            except psycopg_pool.PoolClosed as error:
                failure = build_unreachable_error(error, place=self._place)
        raise failure

    def give_back(self, lease: Lease, *, healthy: bool) -> None:
        """Return the connection; the pool replaces one that is closed."""
        loan: Loan | None = lease.slot
        if loan is None:
            return
        try:
            loan.end(healthy=healthy)
            self._pool.putconn(loan.connection)
        except BaseException:
            # Interrupted: try again. The pool refuses a connection that it already has.
            with suppress(Exception):
                loan.end(healthy=False)
                self._pool.putconn(loan.connection)
            raise
        finally:
            lease.slot = None

    def wake(self) -> None:
        """Do nothing: the pool wakes waiting calls itself."""

    def after_fork(self) -> None:
        """Do nothing: the application must give a forked child a pool of its own."""

    def close(self) -> None:
        """Stop using the pool. The application closes it."""
        self._closed = True


class AwaitedPool:
    """An async pool of an application, for threads: its event loop hands out the connections."""

    def __init__(self, pool: psycopg_pool.AsyncConnectionPool[Any]) -> None:
        self._pool = pool
        # Set when the store is opened.
        self.loop: asyncio.AbstractEventLoop | None = None

    @property
    def max_size(self) -> int:
        """How many connections the pool has at most."""
        return self._pool.max_size

    def getconn(self, timeout: float) -> psycopg.AsyncConnection[Any]:
        """Get a connection, as long as the event loop runs."""
        assert self.loop is not None, "it is set when the store is opened"
        lent: Future[psycopg.AsyncConnection[Any]] = Future()
        if not self._schedule(self._lend(lent, timeout)):
            raise psycopg_pool.PoolClosed("the event loop of the pool is closed")
        while not wait([lent], LOOK_AGAIN_S).done:
            if not self.loop.is_running() and lent.cancel():
                raise psycopg_pool.PoolClosed("the event loop of the pool has stopped")
        return lent.result()

    def putconn(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Return a connection, as soon as the event loop runs.

        It does not wait and cannot fail: what the call has done is done.
        """
        if not self._schedule(self._pool.putconn(connection)):
            connection.pgconn.finish()

    async def _lend(self, lent: Future[psycopg.AsyncConnection[Any]], wait_s: float) -> None:
        """Get a connection for a thread; if that has given up, the pool has it back."""
        try:
            connection = await self._pool.getconn(timeout=wait_s)
        except Exception as error:  # noqa: BLE001 (the thread gets it)
            if lent.set_running_or_notify_cancel():
                lent.set_exception(error)
            return
        except BaseException:
            if lent.set_running_or_notify_cancel():
                stopped = psycopg_pool.PoolClosed("the event loop of the pool has stopped")
                lent.set_exception(stopped)
            raise
        if lent.set_running_or_notify_cancel():
            lent.set_result(connection)
        else:
            await self._pool.putconn(connection)

    def _schedule(self, work: Coroutine[Any, Any, None]) -> bool:
        """Give work to the event loop; return whether that is possible."""
        assert self.loop is not None, "it is set when the store is opened"
        try:
            asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError:
            # The loop is closed.
            work.close()
            return False
        return True


class Loan:
    """A connection of an application's pool, used through a second object with deadlines.

    Both share one connection of libpq, so the application's object keeps its settings, its handlers
    and its prepared statements.
    """

    def __init__(self, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
        self.connection: Any = connection
        pgconn = connection.pgconn
        self._handlers = pgconn.notice_handler, pgconn.notify_handler

    def open(self, place: str, context: PostgresContext) -> PostgresConnection:
        """Return the second object."""
        driver = BorrowedConnection(self.connection.pgconn)
        # Their names would clash with those that the application's object has prepared.
        driver.prepare_threshold = None
        driver.set_autocommit(True)
        return PostgresConnection(driver, context, place=place)

    def end(self, *, healthy: bool) -> None:
        """Leave the connection as it was, or close it."""
        pgconn = self.connection.pgconn
        pgconn.notice_handler, pgconn.notify_handler = self._handlers
        if not healthy:
            pgconn.finish()
