"""How long a call may take, and how long to wait before it is tried again. It waits for nobody.

The blocking and the async loops of a server's backend both ask it; only they sleep.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final

# The first wait is about one round trip to a server near by.
WAIT_S_FIRST: Final = 0.005
# A server that comes back is noticed within this time.
WAIT_S_MAX: Final = 0.5


class Deadline:
    """A deadline, and waits that grow towards it."""

    __slots__ = ("_attempts", "_ends", "_jitter", "_now")

    def __init__(
        self,
        seconds: float,
        *,
        now: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._now = now
        self._jitter = jitter
        self._ends = now() + seconds
        self._attempts = 0

    def left_s(self) -> float:
        """The time that is left, never below zero."""
        return max(0.0, self._ends - self._now())

    def next_wait_s(self) -> float | None:
        """How long to wait before the next attempt; None if the deadline comes first.

        Waits double, and each is a random part of that: callers who failed at the same moment must
        not come back at the same moment.
        """
        longest = min(WAIT_S_MAX, WAIT_S_FIRST * 2.0 ** min(self._attempts, 20))
        self._attempts += 1
        wait_s = longest * (0.5 + self._jitter() / 2)
        return wait_s if wait_s < self.left_s() else None
