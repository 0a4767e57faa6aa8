"""A wall clock that jumps, for one process and for as long as it lives."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass
class JumpingClock:
    """Moves what `time.time` says. Whoever asks the system in another way is not deceived."""

    ahead_s: float = 0.0
    _asked: int = 0

    def install(self) -> None:
        """Stand before the clock."""
        true_s, true_ns = time.time, time.time_ns

        def told_s() -> float:
            self._asked += 1
            return true_s() + self.ahead_s

        def told_ns() -> int:
            self._asked += 1
            return true_ns() + int(self.ahead_s * 1e9)

        time.time, time.time_ns = told_s, told_ns

    def jump(self, ahead_s: float) -> None:
        """Be ahead of the true time by this much, or behind it."""
        self.ahead_s = ahead_s

    def times_asked(self) -> int:
        """How often anyone wanted to know the time."""
        return self._asked
