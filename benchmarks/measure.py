"""Two pieces of work side by side, interleaved, and the ratio of their medians."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Work = Callable[[], object]

ROUNDS = 15


@dataclass(frozen=True, kw_only=True)
class Result:
    """A measured figure, and whether it meets its target."""

    name: str
    subject: str
    baseline: str
    figure: float
    target: float
    bound: Literal["at most", "at least"]
    unit: str = "×"

    @property
    def met(self) -> bool:
        """Whether the figure is on the right side of the target."""
        if self.bound == "at most":
            return self.figure <= self.target
        return self.figure >= self.target


def interleaved(
    subject: Work, baseline: Work, *, calls: int, rounds: int = ROUNDS
) -> tuple[float, float, float]:
    """Seconds per call of both (medians), and the ratio; whatever slows the machine slows both."""
    times: dict[Work, list[float]] = {subject: [], baseline: []}
    for work in (subject, baseline):
        work()
    for _ in range(rounds):
        for work in (baseline, subject):
            started = time.perf_counter()
            for _ in range(calls):
                work()
            times[work].append((time.perf_counter() - started) / calls)
    mine, theirs = statistics.median(times[subject]), statistics.median(times[baseline])
    return mine, theirs, mine / theirs


def shown(seconds: float) -> str:
    """A duration for people."""
    return f"{seconds * 1e6:.1f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"
