"""The clock of an exploring loop: it advances with steps and waits, not with the machine's load.

So a timer comes due at the same place of each run. It never runs ahead of real time: who waits for
a thread with a timeout has all of it.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable
from typing import Any, Final

# Any number would do; a fixed one is added to in the same way, to the last bit, in each run.
_BEGIN_S: Final = float(2**20)
# What a step counts for. Less than any step takes, so that real time is always further.
STEP_S: Final = 2e-6


class Clock:
    """A clock that advances only when told to, until it is set free."""

    def __init__(self) -> None:
        self._now_s = _BEGIN_S
        self._offset_s: float | None = None

    def now(self) -> float:
        """Return the time in seconds."""
        return self._now_s if self._offset_s is None else self._offset_s + time.monotonic()

    def tick(self) -> None:
        """Advance by one step."""
        self._now_s += STEP_S

    def waited(self, seconds: float) -> None:
        """Advance by a wait."""
        self._now_s += seconds

    def set_free(self) -> None:
        """Follow real time from now on: something outside the loop took part."""
        if self._offset_s is None:
            self._offset_s = self._now_s - time.monotonic()


class WatchedSelector(selectors.DefaultSelector):
    """A selector that advances the clock by each wait and reports what is waited for."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        # Called when something beside the loop's own wake-up pipe is to be waited for.
        self.watching: Callable[[], None] | None = None

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Register a file."""
        if self.watching is not None:
            self.watching()
        return super().register(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait until a file is ready or the time is over."""
        began = time.monotonic()
        found = super().select(timeout)
        # A signal can end a wait before its time: then the loop waits again.
        if timeout and not found and time.monotonic() - began >= timeout:
            self._clock.waited(timeout)
        return found
