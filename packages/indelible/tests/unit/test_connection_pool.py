"""A pool of connections: bounded, the last used first, and replaced after an interrupt."""

from __future__ import annotations

import itertools
import math
import threading

from indelible.core.connection_pool import ConnectionPool
from tests.support.interrupts import HANGS_S, Interrupter, Thread


class Owner:
    """Lends what is in its pool, and replaces the pool as the module says."""

    def __init__(self):
        self.pool = ConnectionPool("ab")

    def run(self, work):
        pool = self.pool
        try:
            connection = pool.take(HANGS_S)
            try:
                return work(connection)
            finally:
                pool.give_back(connection)
        except BaseException as error:
            if not isinstance(error, Exception):
                self.pool = ConnectionPool("ab")
            raise


def test_one_thread_uses_one_connection():
    pool = ConnectionPool("abc")
    for _ in range(10):
        assert pool.take(HANGS_S) == "c"
        pool.give_back("c")
    assert pool.idle == ["a", "b", "c"]


def test_none_is_lent_twice_and_waiting_ends_at_the_deadline():
    pool = ConnectionPool("abc")
    assert {pool.take(0) for _ in range(3)} == {"a", "b", "c"}
    for timeout_s in (-1.0, 0.0, 0.01):
        assert pool.take(timeout_s) is None
    pool.give_back("b")
    assert pool.take(0) == "b"


def test_a_thread_that_waits_without_end_gets_the_one_that_is_given_back():
    pool = ConnectionPool("ab")
    pool.take(0)
    pool.take(0)
    waiting = Thread("waiting").begin(pool.take, math.inf)
    pool.give_back("a")
    assert waiting() == "a"


def test_wherever_a_call_is_interrupted_the_next_and_those_that_wait_are_served():
    for at in itertools.count(1):
        owner = Owner()
        held, go = threading.Event(), threading.Event()

        def hold(connection, held=held, go=go):
            held.set()
            assert go.wait(HANGS_S)
            return connection

        # One connection stays in use: others wait for that of the interrupted call, or for its end.
        holder = Thread("holder").begin(owner.run, hold)
        assert held.wait(HANGS_S)
        waiting = []

        def begin_waiting(_, owner=owner, waiting=waiting):
            waiting.extend(Thread(f"waiting {n}").begin(owner.run, str.upper) for n in range(3))

        with Interrupter(at, beneath=False) as point:
            try:
                owner.run(begin_waiting)
            except KeyboardInterrupt:
                assert point.fired
        assert owner.run(str.upper) in "AB"
        go.set()
        assert holder() in "ab"
        assert {each() for each in waiting} <= {"A", "B"}
        assert sorted(owner.pool.idle) == ["a", "b"], point.where
        if not point.fired:
            break
    assert at > 3
