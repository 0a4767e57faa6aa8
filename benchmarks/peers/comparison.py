"""Whether two runs agree within the spread that they print."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from rich.console import Console

from benchmarks.peers.figure_text import format_ratio, list_spreads
from benchmarks.peers.results import Results
from benchmarks.peers.spread import Spread
from benchmarks.peers.targets import list_target_spreads


@dataclass(frozen=True, kw_only=True, slots=True)
class Disagreement:
    """A figure of two runs whose spreads do not meet."""

    name: str
    one: Spread
    other: Spread


def compare_runs(one: Results, other: Results) -> tuple[int, list[Disagreement], list[str]]:
    """How many figures both print with a spread, those apart, and those that one has alone.

    Engines that were measured in one of the runs only are not looked at.
    """
    engines = one.engines.keys() & other.engines.keys()
    first, second = (_printed(run, engines) for run in (one, other))
    both = first.keys() & second.keys()
    apart = [
        Disagreement(name=name, one=first[name], other=second[name])
        for name in sorted(both)
        if not first[name].meets(second[name])
    ]
    return len(both), apart, sorted(first.keys() ^ second.keys())


def _printed(run: Results, engines: Collection[str]) -> dict[str, Spread]:
    every = [*list_spreads(run), *list_target_spreads(run)]
    return {name: spread for name, spread in every if name.startswith(tuple(engines))}


def print_comparison(one: Results, other: Results, console: Console) -> int:
    """Say it; 1 if a figure lies apart, or if there was nothing to compare."""
    both, apart, alone = compare_runs(one, other)
    for name in alone:
        console.print(f"in one run only: {name}")
    for each in apart:
        console.print(f"apart: {each.name}: {_text(each.one)} and {_text(each.other)}")
    if not both:
        console.print("the runs have no figure in common")
        return 1
    console.print(f"{both - len(apart):,} of {both:,} figures agree within their spreads")
    return 1 if apart else 0


def _text(spread: Spread) -> str:
    return (
        f"{format_ratio(spread.middle)} ({format_ratio(spread.low)} – {format_ratio(spread.high)})"
    )
