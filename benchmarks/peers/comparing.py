"""Whether two runs agree within the spread that they print."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console

from benchmarks.peers.results import Results
from benchmarks.peers.spread import Spread
from benchmarks.peers.targets import target_spreads
from benchmarks.peers.telling import spreads, times


@dataclass(frozen=True, kw_only=True, slots=True)
class Apart:
    """A figure of two runs whose spreads do not meet."""

    name: str
    one: Spread
    other: Spread


def compared(one: Results, other: Results) -> tuple[int, list[Apart]]:
    """How many figures both print with a spread, and those whose spreads do not meet."""
    first, second = (dict([*spreads(run), *target_spreads(run)]) for run in (one, other))
    both = first.keys() & second.keys()
    apart = [
        Apart(name=name, one=first[name], other=second[name])
        for name in sorted(both)
        if not first[name].meets(second[name])
    ]
    return len(both), apart


def printed(one: Results, other: Results, console: Console) -> int:
    """Say it; 1 if a figure lies apart, or if there was nothing to compare."""
    both, apart = compared(one, other)
    for each in apart:
        console.print(f"apart: {each.name}: {_text(each.one)} and {_text(each.other)}")
    if not both:
        console.print("the runs have no figure in common")
        return 1
    console.print(f"{both - len(apart):,} of {both:,} figures agree within their spreads")
    return 1 if apart else 0


def _text(spread: Spread) -> str:
    return f"{times(spread.middle)} ({times(spread.low)} – {times(spread.high)})"
