"""How far a figure may lie elsewhere in another run: what is printed behind it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# Processes that are started again differ by as much, however steady their rounds were: a ratio of
# two of them is off by some per cent, and hundreds of ratios must agree.
LEAST: float = 0.08
# The distance of the lowest and the highest round, by the number of rounds, so often: half of it
# at five. Then two runs of one machine lie apart by chance in about one figure of ten thousand.
BEYOND: float = 2.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """The middle of the rounds, and the range in which that of another run is expected."""

    middle: float
    low: float
    high: float

    def meets(self, other: Spread) -> bool:
        """Whether both could be figures of one thing."""
        return max(self.low, other.low) <= min(self.high, other.high)


def compute_spread(figures: Sequence[float]) -> Spread | None:
    """The spread of what was measured in each round, if anything was."""
    if not figures:
        return None
    middle, low, high = statistics.median(figures), min(figures), max(figures)
    beyond = BEYOND / len(figures)
    if low > 0:
        # Of times and ratios the half is as far as the double.
        wider = (high / low) ** beyond
        low, high = low / wider, high * wider
    else:
        low, high = low - beyond * (high - low), high + beyond * (high - low)
    least = LEAST * abs(middle)
    return Spread(middle=middle, low=min(low, middle - least), high=max(high, middle + least))
