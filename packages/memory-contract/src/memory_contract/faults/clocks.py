"""A wall clock that jumps, in one process."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass
class JumpingClock:
    """Moves what `time.time` returns. Other ways to read the clock are not affected."""

    ahead_s: float = 0.0
    _asked: int = 0

    def install(self) -> None:
        """Replace the functions of `time`."""
        true_s, true_ns = time.time, time.time_ns

        def told_s() -> float:
            self._asked += 1
            return true_s() + self.ahead_s

        def told_ns() -> int:
            self._asked += 1
            return true_ns() + int(self.ahead_s * 1e9)

        time.time, time.time_ns = told_s, told_ns

    def jump(self, ahead_s: float) -> None:
        """Set the clock ahead of the true time, or behind it."""
        self.ahead_s = ahead_s

    def times_asked(self) -> int:
        """Return the number of times that the clock was read."""
        return self._asked
