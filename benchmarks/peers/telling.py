"""Figures in words: cells, the best peer, ratios; for the terminal and for the page."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from benchmarks.peers.results import Cell, Results, Work
from benchmarks.peers.roster import BARE, ENGINES, OURS
from benchmarks.peers.works import WORKS


def shown(figure: float, work: Work) -> str:
    """A figure for people."""
    if work.unit == "per second":
        return f"{figure:,.0f}/s"
    if work.unit == "bytes":
        return f"{figure:,.0f} B" if abs(figure) < 10_000 else f"{figure / 1000:,.0f} kB"
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if figure * factor >= 1:
            return f"{figure * factor:.3g} {unit}"
    return f"{figure * 1e6:.0f} µs"


def cell_text(cell: Cell, work: Work, *, spread: bool = True) -> str:
    """Median, spread, and what was lost or refused on the way; or the word instead."""
    if cell.median is None:
        if cell.refused:
            return f"– all refused ({_refusals(cell)})"
        return f"– {cell.word}" if cell.word else ""
    text = shown(cell.median, work)
    if spread and cell.spread and len(cell.figures) > 1:
        low, high = (shown(figure, work) for figure in cell.spread)
        text += f" ({low} – {high})"
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
    # Medians of ratios taken within rounds.
    to_bare: float | None
    to_best: float | None

    @property
    def ahead(self) -> bool | None:
        """Whether nobody is better; unknown if nobody does it."""
        if self.to_best is None:
            return None
        return self.to_best >= 1 if self.work.more_is_better else self.to_best <= 1


def standings(results: Results, engine: str) -> list[Standing]:
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
        found.append(
            Standing(
                work=work,
                bare=results.cell(bare, work.key).median,
                ours=results.cell(ours, work.key).median or 0.0,
                ours_label=ours,
                best=results.cell(best, work.key).median if best else None,
                best_name=results.peers[best]["name"] if best else "",
                to_bare=_median(results.ratios(ours, work.key, to=bare)),
                to_best=_median(results.ratios(ours, work.key, to=best)) if best else None,
            )
        )
    return found


def _median(ratios: list[float]) -> float | None:
    return statistics.median(ratios) if ratios else None


def _best(results: Results, labels: list[str], work: Work) -> str | None:
    """Who is best of those who did it whole: a store that loses messages is not fast."""
    figures = {}
    for label in labels:
        cell = results.cells.get(label, {}).get(work.key, Cell())
        if cell.median is not None and not cell.lost and not cell.word:
            figures[label] = cell.median
    if not figures:
        return None
    choose = max if work.more_is_better else min
    return choose(figures, key=lambda label: figures[label])


def printed(results: Results, console: Console) -> None:
    """The ratios, in a table for each engine."""
    for engine in (each for each in ENGINES if each in results.engines):
        told = results.engines[engine]
        table = Table(title=f"{told['version']} · {told['durability'].replace('`', '')}")
        for heading in ("", "bare", "indelible", "× bare", "best peer", "", "× best peer"):
            table.add_column(heading, justify="left" if heading == "" else "right")
        for each in standings(results, engine):
            table.add_row(
                each.work.title.replace("`", ""),
                shown(each.bare, each.work) if each.bare is not None else "",
                shown(each.ours, each.work),
                f"{each.to_bare:.2f}" if each.to_bare is not None else "",
                shown(each.best, each.work) if each.best is not None else "–",
                each.best_name,
                f"{each.to_best:.2f}" if each.to_best is not None else "",
                style="red" if each.ahead is False else None,
            )
        console.print(table)
