"""Connections that a blocking store lends to its calls: bounded in number, and in waiting."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any, Final, Protocol

import psycopg
import psycopg_pool
from psycopg.conninfo import make_conninfo

from indelible.backends.postgres.connection import Link, Seam
from indelible.backends.postgres.errors import exhausted, none_to_spare, not_connected, refused
from indelible.core.deadline import Deadline
from indelible.core.leases import Lease, Slots, call_into
from indelible.errors import ClosedError, MemoryStoreError

# Two per core of a small server. Servers allow about a hundred, for all processes together.
CONNECTIONS_MAX: Final = 8
# How often a server that is up must refuse before it is believed to mean it.
ATTEMPTS_AT_THE_DOOR: Final = 2


def connect_s_of(patience: Deadline, servers: int) -> int:
    """How long to try each of several servers: one that is silent must not take all the time."""
    return max(1, math.ceil(patience.left_s() / servers))


def lacks_password(error: psycopg.Error) -> bool:
    """Whether the server asked for a password and there was none to give."""
    return error.pgconn is not None and error.pgconn.needs_password


def is_up(conninfo: str, connect_s: int) -> bool:
    """Whether the only server lets clients in, whoever they are.

    A failed connection carries no code. But libpq knows the code, and tells by it whether a server
    that answered is only starting or ending.
    """
    asked = make_conninfo(conninfo, connect_timeout=connect_s).encode()
    return psycopg.pq.PGconn.ping(asked) == psycopg.pq.Ping.OK


class Pool(Protocol):
    """Lends connections, one call at a time."""

    def borrow(self, lease: Lease, patience: Deadline) -> Link:
        """A connection, within the deadline, or an error that says why not."""
        ...

    def give_back(self, lease: Lease, *, healthy: bool) -> None:
        """Take back what was lent, if anything was; one that is not healthy is closed."""
        ...

    def wake(self) -> None:
        """A lease was let go: whoever waits may have its slot."""
        ...

    def close(self) -> None:
        """Close every connection that is ours."""
        ...


class Place:
    """A place for one connection."""

    __slots__ = ("busy", "link")

    def __init__(self) -> None:
        self.link: Link | None = None
        # Whether a call is under way on it. Where it still says so when nobody has it, that call
        # was interrupted: there may be an answer on the way, and the connection is not used again.
        self.busy = False

    def close(self) -> None:
        """Hang up; the next call opens another."""
        link, self.link = self.link, None
        self.busy = False
        if link is not None:
            link.close()


class OwnPool:
    """Connections of our own, opened when they are needed, by whoever needs them.

    So the reason why none comes about reaches the caller, and no thread of ours reconnects behind
    its back.
    """

    def __init__(
        self, conninfo: str, *, servers: int, place: str, seam: Seam | None = None
    ) -> None:
        self._conninfo = conninfo
        self._servers = servers
        self._place = place
        self._seam = seam
        # Connections of a parent process: not ours to close, and never to be used here.
        self._inherited: list[Link] = []
        self._slots = Slots(Place() for _ in range(CONNECTIONS_MAX))
        self._closed = False
        # Whether the user, the password and the database were ever right.
        self._known = False

    @property
    def idle(self) -> list[Link]:
        """Connections that the next call may have."""
        places = [place for place in self._slots.idle() if not place.busy]
        return [place.link for place in places if place.link is not None]

    def after_fork(self) -> None:
        """In a forked child: leave the parent's connections alone."""
        for place in self._slots.things:
            if place.link is not None:
                self._inherited.append(place.link)
            place.link = None
            place.busy = False
        self._slots.reset()

    def borrow(self, lease: Lease, patience: Deadline) -> Link:
        """An idle connection that is alive, or a new one."""
        place = self._slots.take(lease, patience.left_s)
        if place is None:
            raise exhausted(CONNECTIONS_MAX, place=self._place)
        if self._closed:
            raise ClosedError("the store is closed")
        link = place.link
        if link is None or place.busy or not link.is_alive():
            place.close()
            link = place.link = self._connect(patience)
        place.busy = True
        link.begin(patience)
        return link

    def _connect(self, patience: Deadline) -> Link:
        connect_s = connect_s_of(patience, self._servers)
        failure: MemoryStoreError
        # Twice, since a server may have come up between an attempt and the look at it.
        for _ in range(ATTEMPTS_AT_THE_DOOR):
            try:
                connection = psycopg.connect(
                    self._conninfo,
                    autocommit=True,
                    prepare_threshold=None,
                    connect_timeout=connect_s,
                )
            except psycopg.Error as error:
                failure = refused(error, place=self._place)
                if lacks_password(error):
                    break
                if self._known or self._servers > 1 or not is_up(self._conninfo, connect_s):
                    failure = not_connected(error, place=self._place)
                    break
            else:
                self._known = True
                link = Link(connection, place=self._place, seam=self._seam, named=True)
                link.begin(patience)
                return link
        # Outside of the handler, so that the driver's error does not come along as its context.
        raise failure

    def give_back(self, lease: Lease, *, healthy: bool) -> None:
        """Keep it for the next call, unless it is unwell or the store was closed."""
        place: Place | None = lease.slot
        if place is not None:
            if healthy and not self._closed:
                place.busy = False
            else:
                place.close()

    def wake(self) -> None:
        """A lease was let go: whoever waits may have its slot."""
        self._slots.wake()

    def close(self) -> None:
        """Close what is idle; what is lent closes when it comes back."""
        self._closed = True
        leases = [Lease() for _ in self._slots.things]
        try:
            for lease in leases:
                place = self._slots.try_take(lease)
                if place is not None:
                    place.close()
        finally:
            for lease in leases:
                lease.held = False
            self._slots.wake_all()


class GivenPool:
    """The pool of an application. Connections go back as they came."""

    def __init__(
        self,
        pool: psycopg_pool.ConnectionPool[Any],
        *,
        place: str,
        seam: Seam | None = None,
    ) -> None:
        self._pool = pool
        self._place = place
        self._seam = seam
        self._closed = False

    def borrow(self, lease: Lease, patience: Deadline) -> Link:
        """A connection that is alive, as soon as the pool has one to spare."""
        for left in range(self._pool.max_size, -1, -1):
            if self._closed:
                raise ClosedError("the store is closed")
            # What came out of the pool is noted at once: if this is interrupted, it goes back.
            taken: list[psycopg.Connection[Any]] = []
            lease.slot = taken
            self._take(taken, patience)
            link = Link(taken[0], place=self._place, seam=self._seam)
            lease.slot = link
            link.begin(patience)
            # After as many as there can be, the last one has to do.
            if not left or link.is_alive():
                link.connection.autocommit = True
                return link
            self.give_back(lease, healthy=False)
        raise AssertionError("the last one is always taken")

    def _take(self, taken: list[psycopg.Connection[Any]], patience: Deadline) -> None:
        failure: MemoryStoreError
        wait_s = max(0.001, patience.left_s())
        try:
            call_into(taken, lambda: self._pool.getconn(timeout=wait_s))
        except psycopg_pool.PoolClosed as error:
            failure = not_connected(error, place=self._place)
        except (psycopg_pool.PoolTimeout, psycopg_pool.TooManyRequests):
            failure = none_to_spare(self._pool.max_size, place=self._place)
        else:
            return
        raise failure

    def give_back(self, lease: Lease, *, healthy: bool) -> None:
        """Hand it back; the pool replaces one that is closed."""
        lent: Link | list[psycopg.Connection[Any]] | None = lease.slot
        try:
            self._hand_back(lent, healthy=healthy)
        except BaseException:
            # Once more, since nobody else will. The pool refuses what it has back already.
            with suppress(Exception):
                self._hand_back(lent, healthy=False)
            raise
        finally:
            lease.slot = None

    def _hand_back(
        self, lent: Link | list[psycopg.Connection[Any]] | None, *, healthy: bool
    ) -> None:
        if isinstance(lent, Link):
            connection = lent.connection
            if not healthy:
                lent.close()
            else:
                with suppress(psycopg.Error):
                    connection.autocommit = lent.was_autocommit
            lent.release()
            self._pool.putconn(connection)
        elif lent:
            self._pool.putconn(lent[0])

    def wake(self) -> None:
        """The pool sees to those who wait for it."""

    def after_fork(self) -> None:
        """Forked children are the application's to provide for, with a pool of their own."""

    def close(self) -> None:
        """Use it no more. It is the application's to close."""
        self._closed = True
