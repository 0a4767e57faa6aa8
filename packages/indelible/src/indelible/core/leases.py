"""Slots that are released reliably when `KeyboardInterrupt` interrupts their holder.

Python raises `KeyboardInterrupt` when a function begins, after a call has returned, at the end of a
loop's body, and in calls that block, but never between two assignments. A slot that is taken or
released by a call can be lost if the interrupt comes between the call and the record of it, also in
a `finally`. Here a slot belongs to a `Lease`, which is released by one assignment:

    lease = Lease()
    try:
        slot = slots.take(lease, deadline.left_s)
        ...
    finally:
        lease.held = False  # first, before any call
        slots.wake()

Waking other threads is an optimisation: a thread that was not woken looks again by itself.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from indelible.core.limits import LOOK_AGAIN_S

T = TypeVar("T")


class Lease:
    """The ownership of one slot. A lease is used once."""

    __slots__ = ("held", "slot")

    def __init__(self) -> None:
        self.held = False
        self.slot: Any = None


class Latch:
    """An event for one waiting thread. Opening it twice is the same as once.

    It is a lock, since `threading.Event` is written in Python: an interrupt in its `set` leaves the
    internal lock of the event locked.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self, seconds: float) -> None:
        """Wait until it is opened or the time is over; it may also return early."""
        self._lock.acquire(timeout=max(0.0, min(seconds, LOOK_AGAIN_S)))

    def open(self) -> None:
        """Wake the waiting thread."""
        try:
            self._lock.release()
        except RuntimeError:
            # It is open already.
            return


class Slots(Generic[T]):
    """A fixed number of things, each leased by at most one thread, which others can wait for.

    None is no thing: it is the answer if none is free.
    A forked child makes another: its threads hold no lease.
    """

    def __init__(self, things: Iterable[T]) -> None:
        self.things = list(things)
        self._leases = [Lease() for _ in self.things]
        # Only used by `with`, which cannot be interrupted halfway.
        self._lock = threading.Lock()
        self._waiting: deque[Latch] = deque()

    @property
    def held(self) -> int:
        """The number of leased things."""
        return sum(lease.held for lease in self._leases)

    def idle(self) -> list[T]:
        """Return the things that are not leased."""
        pairs = zip(self.things, self._leases, strict=True)
        return [thing for thing, lease in pairs if not lease.held]

    def try_take(self, lease: Lease) -> T | None:
        """Take a free slot for a lease; None if there is none."""
        with self._lock:
            return self._free(lease)

    def _free(self, lease: Lease) -> T | None:
        # Not inside of the `with`: an interrupt at the end of a loop's body would leave the lock
        # locked on Python 3.12.
        for number, other in enumerate(self._leases):
            if not other.held:
                # Assignments only, so that no interrupt comes in between.
                lease.slot = self.things[number]
                lease.held = True
                self._leases[number] = lease
                return self.things[number]
        return None

    def take(self, lease: Lease, left_s: Callable[[], float]) -> T | None:
        """Wait for a free slot and take it; None if none is free before the deadline."""
        thing = self.try_take(lease)
        if thing is not None:
            return thing
        latch = Latch()
        try:
            while True:
                if latch not in self._waiting:
                    self._waiting.append(latch)
                # After the latch was queued, so that no release in between is missed.
                thing = self.try_take(lease)
                left = left_s()
                if thing is not None or left <= 0:
                    return thing
                latch.wait(left)
        finally:
            with suppress(ValueError):
                self._waiting.remove(latch)

    def wake(self) -> None:
        """Wake one waiting thread, after a slot was released."""
        if self._waiting:
            with suppress(IndexError):
                self._waiting.popleft().open()

    def wake_all(self) -> None:
        """Wake all waiting threads."""
        for latch in list(self._waiting):
            latch.open()
