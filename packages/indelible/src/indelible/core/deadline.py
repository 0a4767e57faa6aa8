"""The deadline of a call, and the waits between its attempts.

It computes the waits; the sync and async callers sleep.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from indelible.core.observer import OBSERVER

# The first wait is about one round trip to a server in the same data centre.
WAIT_S_FIRST: Final = 0.005
# A server that is back is noticed within this time.
WAIT_S_MAX: Final = 0.5

_LOGGER: Final = logging.getLogger("indelible.retries")


class Deadline:
    """A deadline, and exponential backoff towards it."""

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
        """Return the time left, at least zero."""
        return max(0.0, self._ends - self._now())

    def expire(self) -> None:
        """End it now: the caller has gone."""
        self._ends = self._now()

    def next_wait_s(self) -> float | None:
        """Return how long to wait before the next attempt; None if the deadline comes first.

        Waits double, with jitter: callers that failed together must not retry together.
        """
        longest = min(WAIT_S_MAX, WAIT_S_FIRST * 2.0 ** min(self._attempts, 20))
        self._attempts += 1
        wait_s = longest * (0.5 + self._jitter() / 2)
        if wait_s >= self.left_s():
            return None
        observer = OBSERVER.get()
        if observer is not None:
            observer.count_retry()
        _LOGGER.debug("the next attempt begins in %.3f s", wait_s)
        return wait_s


# A context manager that cancels what it awaits after some seconds.
limit_time_async = asyncio.timeout
_NO_LIMIT: Final[AbstractContextManager[None]] = nullcontext()


def limit_time(_seconds: float) -> AbstractContextManager[None]:
    """Do nothing: a thread cannot be stopped from outside, so its sockets have timeouts."""
    return _NO_LIMIT
