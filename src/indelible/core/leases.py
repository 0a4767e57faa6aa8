"""Slots that stay usable when Ctrl-C interrupts whoever holds one.

Python raises `KeyboardInterrupt` when a function begins, after a call has returned, when a loop goes
back, and inside calls that block; never between two assignments. So whatever takes a slot or gives
it back by a call can be interrupted between the call and the record of it, also in a `finally`. Here
a slot belongs to a `Lease`, which is let go by one assignment:

    lease = Lease()
    try:
        slot = slots.take(lease, patience.left_s)
        ...
    finally:
        lease.held = False  # first, before any call
        slots.wake()

All else is a courtesy: a thread that was not woken looks again by itself.
"""

from __future__ import annotations

import operator
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from indelible.core.limits import LOOK_AGAIN_S

T = TypeVar("T")


class Lease:
    """Whether somebody holds the slot that it was taken for. Each is for one slot, once."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held = False


class Latch:
    """What one thread waits for and others open. To open it twice is to open it once.

    A lock, since `threading.Event` is written in Python: whoever is interrupted in its `set` leaves
    its own lock taken.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self, seconds: float) -> None:
        """Wait until it is opened, but not for longer; spurious returns are possible."""
        self._lock.acquire(timeout=max(0.0, min(seconds, LOOK_AGAIN_S)))

    def open(self) -> None:
        """Let the waiting thread go on."""
        with suppress(RuntimeError):
            self._lock.release()


class Slots(Generic[T]):
    """A fixed number of things that threads lease, one thread at a time."""

    def __init__(self, things: Iterable[T]) -> None:
        self.things = list(things)
        self._leases = [Lease() for _ in self.things]
        self._lock = threading.Lock()
        self._waiting: deque[Latch] = deque()

    @property
    def held(self) -> int:
        """How many are leased."""
        return sum(lease.held for lease in self._leases)

    def try_take(self, lease: Lease) -> T | None:
        """A free slot, which is the lease's from now on; None if there is none."""
        with self._lock:
            for number, other in enumerate(self._leases):
                if not other.held:
                    # No call in between: both happen or neither.
                    lease.held = True
                    self._leases[number] = lease
                    return self.things[number]
        return None

    def take(self, lease: Lease, left_s: Callable[[], float]) -> T | None:
        """Wait for a free slot; None if there is none before the time is up."""
        thing = self.try_take(lease)
        if thing is not None:
            return thing
        latch = Latch()
        try:
            while True:
                if latch not in self._waiting:
                    self._waiting.append(latch)
                # After the latch was put down, so that nobody gives back in between unnoticed.
                thing = self.try_take(lease)
                left = left_s()
                if thing is not None or left <= 0:
                    return thing
                latch.wait(left)
        finally:
            with suppress(ValueError):
                self._waiting.remove(latch)

    def wake(self) -> None:
        """Tell one thread that waits that a slot was given back."""
        if self._waiting:
            with suppress(IndexError):
                self._waiting.popleft().open()

    def wake_all(self) -> None:
        """Tell every thread that waits to look again."""
        for latch in list(self._waiting):
            latch.open()

    def reset(self) -> None:
        """In a forked child: nobody holds anything, and nobody waits."""
        self._leases = [Lease() for _ in self.things]
        self._lock = threading.Lock()
        self._waiting = deque()


def call_into(box: list[Any], function: Callable[[], Any]) -> None:
    """Put what a function returns into a list.

    `box.append(function())` can be interrupted after the function has returned and before its result
    is stored anywhere. Here both happen inside of one call.
    """
    box.extend(map(operator.call, (function,)))
