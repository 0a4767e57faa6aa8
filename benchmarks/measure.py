"""Two pieces of work side by side, interleaved: the ratio, and how far it can be trusted."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Work = Callable[[], object]

# How long a pair is measured: however slow a machine is, it takes no longer, and is less sure.
SECONDS = 2.0
ROUNDS_MIN = 15
# What two runs on one machine differ by, even where each is sure of itself.
NOISE_MIN = 0.05
# A figure that may be off by more than this share of itself was taken on a machine that was busy.
UNSURE = 0.2


class Measured(NamedTuple):
    """Seconds per call of both (medians), their ratio, and its noise."""

    mine_s: float
    theirs_s: float
    ratio: float
    noise: float


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
    # How far the figure may be off, by chance; zero for what is counted and not timed.
    noise: float = 0.0

    @property
    def unsure(self) -> bool:
        """Whether the machine did so much else that the figure says little."""
        return self.noise > UNSURE * self.figure

    @property
    def met(self) -> bool:
        """Whether the figure is on the right side of the target."""
        if self.bound == "at most":
            return self.figure <= self.target
        return self.figure >= self.target

    @property
    def missed(self) -> bool:
        """Whether it is on the wrong side by more than its noise."""
        return not self.met and abs(self.figure - self.target) > self.noise


def measure_interleaved(
    subject: Work, baseline: Work, *, calls: int, seconds: float = SECONDS
) -> Measured:
    """Both in turns: whatever slows the machine slows both, and the ratio is that of neighbours."""
    mine: list[float] = []
    theirs: list[float] = []
    for work in (subject, baseline):
        work()
    ends = time.perf_counter() + seconds
    while len(mine) < ROUNDS_MIN or time.perf_counter() < ends:
        theirs.append(_timed(baseline, calls))
        mine.append(_timed(subject, calls))
    ratios = [one / other for one, other in zip(mine, theirs, strict=True)]
    ratio = statistics.median(ratios)
    return Measured(
        statistics.median(mine), statistics.median(theirs), ratio, compute_noise(ratios)
    )


def _timed(work: Work, calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        work()
    return (time.perf_counter() - started) / calls


def compute_noise(ratios: Sequence[float]) -> float:
    """How far the median may be off: the notch of a box plot, and never less than two runs differ.

    1.57 times the distance of the quartiles, by the root of the number of rounds: where the notches
    of two runs do not overlap, their medians differ at a level of about 95 %.
    """
    low, median, high = statistics.quantiles(ratios, n=4)
    return float(max(NOISE_MIN * median, 1.57 * (high - low) / len(ratios) ** 0.5))


def compare(
    name: str,
    subject: Work,
    baseline: Work,
    *,
    at_most: float,
    calls: int = 10,
    seconds: float = SECONDS,
) -> Result:
    """What one piece of work may cost, as so many of another."""
    found = measure_interleaved(subject, baseline, calls=calls, seconds=seconds)
    return Result(
        name=name,
        subject=format_seconds(found.mine_s),
        baseline=format_seconds(found.theirs_s),
        figure=found.ratio,
        noise=found.noise,
        target=at_most,
        bound="at most",
    )


def format_seconds(seconds: float) -> str:
    """A duration for people."""
    return f"{seconds * 1e6:.1f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"
