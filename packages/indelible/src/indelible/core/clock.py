"""Where times come from. Tests that must repeat pass a clock of their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from indelible.core.limits import MILLISECONDS_MAX
from indelible.errors import FormatError, UsageError

# Seconds since the epoch.
Clock = Callable[[], float]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def system_clock() -> float:
    """Return the machine's time. It stamps and expires entries; it never orders them."""
    return time.time()


def read_clock_ms(clock: Clock) -> int:
    """Return the time in whole milliseconds, as engines store it."""
    now_s = clock()
    if isinstance(now_s, (int, float)) and 0 <= now_s * 1000 <= MILLISECONDS_MAX:
        return int(now_s * 1000)
    raise UsageError(f"the clock says {now_s!r}, which is no time of a date", value=now_s)


def to_datetime(at_ms: int) -> datetime:
    """Convert a stored time to a datetime in UTC."""
    try:
        return _EPOCH + timedelta(milliseconds=at_ms)
    except OverflowError:
        raise FormatError(f"a stored time is damaged: {at_ms} ms") from None
