"""Connections that a blocking store lends to its calls: bounded in number, and in waiting."""

from __future__ import annotations

import math
import threading
from contextlib import suppress
from typing import Any, Final, Protocol

import psycopg
import psycopg_pool
from psycopg.conninfo import make_conninfo

from indelible.backends.postgres.errors import exhausted, none_to_spare, not_connected, refused
from indelible.backends.postgres.link import Link, Seam
from indelible.core.patience import Patience
from indelible.errors import ClosedError, MemoryStoreError

# Two per core of a small server. Servers allow about a hundred, for all processes together.
CONNECTIONS_MAX: Final = 8
# How often a server that is up must refuse before it is believed to mean it.
ATTEMPTS_AT_THE_DOOR: Final = 2


def connect_s_of(patience: Patience, servers: int) -> int:
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

    def borrow(self, patience: Patience) -> Link:
        """A connection, within the deadline, or an error that says why not."""
        ...

    def give_back(self, link: Link, *, healthy: bool) -> None:
        """Take it back; one that is not healthy is closed."""
        ...

    def close(self) -> None:
        """Close every connection that is ours."""
        ...


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
        self._idle: list[Link] = []
        self._changed = threading.Condition()
        self._waiting = 0
        self._lent = 0
        self._closed = False
        # Whether the user, the password and the database were ever right.
        self._known = False

    def after_fork(self) -> None:
        """In a forked child: leave the parent's connections alone."""
        self._inherited += self._idle
        self._idle = []
        self._changed = threading.Condition()
        self._waiting = self._lent = 0

    def borrow(self, patience: Patience) -> Link:
        """An idle connection that is alive, or a new one."""
        with self._changed:
            while not self._closed and self._lent >= CONNECTIONS_MAX:
                self._wait(patience)
            if self._closed:
                raise ClosedError("the store is closed")
            self._lent += 1
            while self._idle:
                link = self._idle.pop()
                if link.is_alive():
                    link.begin(patience)
                    return link
                link.close()
        try:
            return self._connect(patience)
        except BaseException:
            with self._changed:
                self._lent -= 1
                self._changed.notify()
            raise

    def _wait(self, patience: Patience) -> None:
        if patience.left_s() == 0:
            raise exhausted(CONNECTIONS_MAX, place=self._place)
        self._waiting += 1
        try:
            self._changed.wait(patience.left_s())
        finally:
            self._waiting -= 1

    def _connect(self, patience: Patience) -> Link:
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

    def give_back(self, link: Link, *, healthy: bool) -> None:
        """Keep it for the next call, unless it is unwell or the store was closed."""
        with self._changed:
            if healthy and not self._closed:
                self._idle.append(link)
            else:
                link.close()
            self._lent -= 1
            if self._waiting:
                self._changed.notify()

    def close(self) -> None:
        """Close what is idle; what is lent closes when it comes back."""
        with self._changed:
            self._closed = True
            while self._idle:
                self._idle.pop().close()
            self._changed.notify_all()


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

    def borrow(self, patience: Patience) -> Link:
        """A connection that is alive, as soon as the pool has one to spare."""
        for left in range(self._pool.max_size, -1, -1):
            if self._closed:
                raise ClosedError("the store is closed")
            link = Link(self._take(patience), place=self._place, seam=self._seam)
            link.begin(patience)
            # After as many as there can be, the last one has to do.
            if not left or link.is_alive():
                link.connection.autocommit = True
                return link
            self.give_back(link, healthy=False)
        raise AssertionError("the last one is always taken")

    def _take(self, patience: Patience) -> psycopg.Connection[Any]:
        failure: MemoryStoreError
        try:
            connection: psycopg.Connection[Any] = self._pool.getconn(
                timeout=max(0.001, patience.left_s())
            )
        except psycopg_pool.PoolClosed as error:
            failure = not_connected(error, place=self._place)
        except (psycopg_pool.PoolTimeout, psycopg_pool.TooManyRequests):
            failure = none_to_spare(self._pool.max_size, place=self._place)
        else:
            return connection
        raise failure

    def give_back(self, link: Link, *, healthy: bool) -> None:
        """Hand it back; the pool replaces one that is closed."""
        if not healthy:
            link.close()
        else:
            with suppress(psycopg.Error):
                link.connection.autocommit = link.was_autocommit
        link.release()
        self._pool.putconn(link.connection)

    def after_fork(self) -> None:
        """Forked children are the application's to provide for, with a pool of their own."""

    def close(self) -> None:
        """Use it no more. It is the application's to close."""
        self._closed = True
