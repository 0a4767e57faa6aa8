"""Where times and ids come from. Tests that must repeat hand in their own."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from indelible.errors import FormatError

# Seconds since the epoch.
Clock = Callable[[], float]
# A new id, different from every other: for keys, snapshots and operations.
Ids = Callable[[], str]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# A key that the store made begins with this; a caller that passes one is retrying its append.
MADE_PREFIX = "~"


def system_clock() -> float:
    """The machine's clock. It stamps and expires; it never orders."""
    return time.time()


# Our own generator: whoever seeds Python's shared one must not make two processes draw one id. It
# is seeded from the system, in a forked child once more, and saves a system call for each append.
_random = random.Random()  # noqa: S311 (ids are no secrets)
# Ids that were drawn already: to take one from a list costs an append less than to draw it.
_drawn: list[str] = []
_DRAWN_AT_ONCE = 64
_ID_BITS = 64


def _begin_anew() -> None:
    """In a forked child: not one id that its parent may use too."""
    _drawn.clear()
    _random.seed()


os.register_at_fork(after_in_child=_begin_anew)


def random_ids() -> str:
    """64 random bits: an id is looked up only inside its own session."""
    try:
        return _drawn.pop()
    except IndexError:
        # Threads that come here together each draw their own.
        _drawn.extend([f"{_random.getrandbits(_ID_BITS):016x}" for _ in range(_DRAWN_AT_ONCE)])
        return f"{_random.getrandbits(_ID_BITS):016x}"


def read_clock_ms(clock: Clock) -> int:
    """The time in whole milliseconds, as stores keep it."""
    return int(clock() * 1000)


def to_datetime(at_ms: int) -> datetime:
    """A stored time as people read it, in UTC."""
    try:
        return _EPOCH + timedelta(milliseconds=at_ms)
    except OverflowError:
        raise FormatError(f"a stored time is damaged: {at_ms} ms") from None
