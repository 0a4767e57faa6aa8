"""Figures in words: cells, the best peer, ratios; for the terminal and for the page."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from benchmarks.peers.results import Cell, Results, Work
from benchmarks.peers.roster import BARE, ENGINES, OURS
from benchmarks.peers.spread import Spread, compute_spread
from benchmarks.peers.workloads import WORKS


def format_figure(figure: float, work: Work) -> str:
    """A figure for people."""
    if work.unit == "per second":
        return f"{figure:,.0f}/s"
    if work.unit == "bytes":
        return f"{figure:,.0f} B" if abs(figure) < 10_000 else f"{figure / 1000:,.0f} kB"
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if figure * factor >= 1:
            return f"{figure * factor:.3g} {unit}"
    return f"{figure * 1e6:.0f} µs"


def format_ratio(ratio: float) -> str:
    """A ratio for people."""
    if ratio < 0.1:
        return f"{ratio:.2g}"
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:,.0f}"


def compare_with_bare(results: Results, label: str, work: Work) -> Spread | None:
    """A peer's figures through the bare driver's; bytes are counted, and stand for themselves."""
    bare = f"{label.partition(' · ')[0]} · {BARE}"
    if label == bare or work.unit == "bytes":
        return None
    return compute_spread(results.ratios(label, work.key, to=bare))


def format_cell(results: Results, label: str, work: Work) -> str:
    """The figure with its spread, and what was lost or refused on the way; or the word instead."""
    cell = results.cells.get(label, {}).get(work.key, Cell())
    if not any(cell.figures):
        if cell.refused:
            return f"– all refused ({_refusals(cell)})"
        if not cell.figures:
            return f"– {cell.word}" if cell.word else ""
    assert cell.median is not None
    text = format_figure(cell.median, work)
    if (ratio := compare_with_bare(results, label, work)) is not None:
        low, high = format_ratio(ratio.low), format_ratio(ratio.high)
        text += f" · {format_ratio(ratio.middle)}× ({low} – {high})"
    elif cell.spread:
        text += (
            f" ({format_figure(cell.spread.low, work)} – {format_figure(cell.spread.high, work)})"
        )
    if cell.lost:
        text += f", **{cell.lost:,} of {cell.acknowledged:,} lost**"
    if cell.refused:
        text += f", {sum(cell.refused.values()):,} refused ({_refusals(cell)})"
    if cell.word:
        text += f", **{cell.word}**"
    return text


def _refusals(cell: Cell) -> str:
    return ", ".join(sorted(cell.refused))


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """indelible in one work on one engine: beside the bare driver and the best of the others."""

    work: Work
    bare: float | None
    ours: float
    # Which of the two shells, by label.
    ours_label: str
    best: float | None
    best_name: str
    # Ratios taken within rounds; bytes are counted, and have no such ratio.
    to_bare: Spread | None
    to_best: Spread | None

    @property
    def bare_text(self) -> str:
        """The ratio to the bare driver, for people."""
        return self._text(self.to_bare, self.bare)

    @property
    def best_text(self) -> str:
        """The ratio to the best peer, for people."""
        return self._text(self.to_best, self.best)

    def _text(self, ratio: Spread | None, other: float | None) -> str:
        if ratio is not None:
            low, high = format_ratio(ratio.low), format_ratio(ratio.high)
            return f"{format_ratio(ratio.middle)} ({low} – {high})"
        return format_ratio(self.ours / other) if other is not None and other > 0 else ""

    @property
    def ahead(self) -> bool | None:
        """Whether nobody is better; unknown if nobody does it."""
        if self.best is None:
            return None
        ratio = self.to_best.middle if self.to_best else self.ours / self.best if self.best else 1
        return ratio >= 1 if self.work.more_is_better else ratio <= 1


def list_standings(results: Results, engine: str) -> list[Standing]:
    """Every work that indelible did on an engine, with the better of its two shells."""
    found = []
    for work in WORKS.values():
        ours = _best(results, [f"{engine} · {name}" for name in OURS], work)
        if ours is None:
            continue
        others = [
            label
            for label, peer in results.peers.items()
            if peer["engine"] == engine and peer["name"] not in (BARE, *OURS) and peer["synced"]
        ]
        best, bare = _best(results, others, work), f"{engine} · {BARE}"
        timed = best is not None and work.unit != "bytes"
        found.append(
            Standing(
                work=work,
                bare=results.cell(bare, work.key).median,
                ours=results.cell(ours, work.key).median or 0.0,
                ours_label=ours,
                best=results.cell(best, work.key).median if best else None,
                best_name=results.peers[best]["name"] if best else "",
                to_bare=compare_with_bare(results, ours, work),
                to_best=compute_spread(results.ratios(ours, work.key, to=best or ""))
                if timed
                else None,
            )
        )
    return found


def _best(results: Results, labels: list[str], work: Work) -> str | None:
    """Who is best of those who did it whole: a store that loses messages is not fast."""
    figures = {}
    for label in labels:
        cell = results.cells.get(label, {}).get(work.key, Cell())
        if any(cell.figures) and not cell.lost and not cell.word:
            figures[label] = statistics.median(cell.figures)
    if not figures:
        return None
    choose = max if work.more_is_better else min
    return choose(figures, key=lambda label: figures[label])


def list_spreads(results: Results) -> Iterator[tuple[str, Spread]]:
    """Everything that is printed with a spread, and what it is."""
    for label, cells in results.cells.items():
        for key, cell in cells.items():
            work = WORKS[key]
            if ratio := compare_with_bare(results, label, work):
                yield f"{label}, {work.title}, × bare driver", ratio
            elif cell.spread:
                yield f"{label}, {work.title}", cell.spread
    for engine in results.engines:
        for each in list_standings(results, engine):
            if each.to_best:
                yield f"{engine}, {each.work.title}, indelible × best peer", each.to_best


def print_results(results: Results, console: Console) -> None:
    """The ratios, in a table for each engine."""
    for engine in (each for each in ENGINES if each in results.engines):
        told = results.engines[engine]
        durability = told["durability"].replace("`", "")
        table = Table(title=f"{told['version']} · {durability} · {told['rounds']} rounds")
        for heading in ("", "bare", "indelible", "× bare", "best peer", "", "× best peer"):
            table.add_column(heading, justify="left" if heading == "" else "right")
        for each in list_standings(results, engine):
            table.add_row(
                each.work.title.replace("`", ""),
                format_figure(each.bare, each.work) if each.bare is not None else "",
                format_figure(each.ours, each.work),
                each.bare_text,
                format_figure(each.best, each.work) if each.best is not None else "–",
                each.best_name,
                each.best_text,
                style="red" if each.ahead is False else None,
            )
        console.print(table)
