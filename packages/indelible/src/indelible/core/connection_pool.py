"""A bounded pool of connections, which is replaced when `KeyboardInterrupt` interrupts a call.

Python raises `KeyboardInterrupt` between any two calls, so what was taken can be lost before it is
recorded, also in a `finally`. The pool does not try to prevent that:

    pool = self._pool
    try:
        connection = pool.take(timeout_s)
        try:
            ...
        finally:
            pool.give_back(connection)
    except BaseException as error:
        if not isinstance(error, Exception):
            self._pool = ConnectionPool(...)  # what was lost, was lost in the old one
        raise

An interrupt loses at most one, so threads that wait in the old pool still get the others.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


class ConnectionPool(Generic[T]):
    """Two or more connections, each used by one thread at a time; the last used is the next."""

    def __init__(self, connections: Iterable[T]) -> None:
        self._idle = deque(connections)
        # Written in C: an interrupt cannot leave a lock of it locked.
        self._permits: SimpleQueue[None] = SimpleQueue()
        for _ in self._idle:
            self._permits.put(None)

    @property
    def idle(self) -> list[T]:
        """Those that no thread uses."""
        return list(self._idle)

    def take(self, timeout_s: float) -> T | None:
        """Wait for one that is idle; None if there is none before the time is over."""
        try:
            self._permits.get(timeout=max(0.0, min(timeout_s, threading.TIMEOUT_MAX)))
        except Empty:
            return None
        return self._idle.pop()

    def give_back(self, connection: T) -> None:
        """Make it idle."""
        self._idle.append(connection)
        self._permits.put(None)
