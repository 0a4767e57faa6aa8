"""Whether two runs agree within the spread that they print."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console

from benchmarks.peers.results import Results
from benchmarks.peers.roster import BARE
from benchmarks.peers.works import WORKS

# Of all pairs, that many may lie apart: with five rounds a spread is itself a guess.
APART_MAX = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Apart:
    """Two spreads that do not meet."""

    label: str
    work: str
    one: tuple[float, float]
    other: tuple[float, float]


def compared(one: Results, other: Results) -> tuple[int, list[Apart]]:
    """How many figures both have, and those whose spreads do not meet.

    Figures are ratios to the bare driver within a round where there is one: a machine that is
    slower on another day is so for both.
    """
    both, apart = 0, []
    for label, cells in one.cells.items():
        for work in cells:
            spreads = [_spread(run, label, work) for run in (one, other)]
            first, second = spreads
            if first is None or second is None:
                continue
            both += 1
            if max(first[0], second[0]) > min(first[1], second[1]):
                apart.append(Apart(label=label, work=work, one=first, other=second))
    return both, apart


def _spread(run: Results, label: str, work: str) -> tuple[float, float] | None:
    bare = f"{label.partition(' · ')[0]} · {BARE}"
    ratios = run.ratios(label, work, to=bare) if label != bare else []
    if len(ratios) > 1:
        return min(ratios), max(ratios)
    cell = run.cells.get(label, {}).get(work)
    # A single figure has no spread to agree within; the bare driver is the measure itself.
    if cell is None or len(cell.figures) < 2 or label == bare:
        return None
    return cell.spread


def printed(one: Results, other: Results, console: Console) -> int:
    """Say it; 1 if too many lie apart."""
    both, apart = compared(one, other)
    for each in apart:
        spreads = " and ".join(f"{low:.3g} – {high:.3g}" for low, high in (each.one, each.other))
        console.print(f"apart: {each.label}, {WORKS[each.work].title}: {spreads}")
    console.print(f"{both - len(apart):,} of {both:,} figures agree within their spreads")
    return 1 if len(apart) > APART_MAX * both else 0
