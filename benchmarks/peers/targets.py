"""What indelible aims at, as ratios within one run, and whether it gets there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.peers.figure_text import list_standings
from benchmarks.peers.results import Results, Work
from benchmarks.peers.roster import BARE, OURS, POSTGRES, REDIS, SQLITE
from benchmarks.peers.spread import Spread, compute_spread
from benchmarks.peers.workloads import (
    APPEND,
    APPEND_LONGEST,
    LAST_LONGEST,
    LOAD,
    LONG,
    MESSAGE_BYTES,
    ROLLBACKS,
    SNAPSHOT_BYTES,
    SNAPSHOTS,
    TASKS_ONE,
)

# The rounds of a figure.
Figures = Callable[[Results, str], Sequence[float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A figure on an engine, and where it should be."""

    engine: str
    name: str
    figures: Figures
    bound: Literal["at most", "at least"]
    target: float
    unit: str = "×"

    def met(self, figure: float) -> bool:
        """Whether it is on the right side."""
        return figure <= self.target if self.bound == "at most" else figure >= self.target

    def verdict(self, spread: Spread) -> str:
        """Met or missed; or missed by less than another run may differ."""
        if self.met(spread.middle):
            return "met"
        near = self.met(spread.low if self.bound == "at most" else spread.high)
        return "missed, within the spread" if near else "**missed**"


def _ours(engine: str) -> str:
    return f"{engine} · {OURS[0]}"


def _to_bare(work: Work) -> Figures:
    return lambda results, engine: results.ratios(_ours(engine), work.key, to=f"{engine} · {BARE}")


def _to_best(work: Work) -> Figures:
    def figures(results: Results, engine: str) -> Sequence[float]:
        for each in list_standings(results, engine):
            if each.work == work and each.best_name:
                best = f"{engine} · {each.best_name}"
                return results.ratios(each.ours_label, work.key, to=best)
        return []

    return figures


def _longest_to_short(results: Results, engine: str) -> Sequence[float]:
    ours = _ours(engine)
    return results.ratios(ours, APPEND_LONGEST.key, to=ours, of=APPEND.key)


def _counted(work: Work) -> Figures:
    return lambda results, engine: results.cell(_ours(engine), work.key).figures


def _all() -> Iterator[Target]:
    for engine, append, tasks in ((SQLITE, 1.3, 5), (REDIS, 1.3, 2), (POSTGRES, 1.25, 2)):
        rows: list[tuple[str, Figures, Literal["at most", "at least"], float]] = [
            ("append, against the bare driver", _to_bare(APPEND), "at most", append),
            ("64 tasks appending, against the best peer", _to_best(TASKS_ONE), "at least", tasks),
            ("append at 100,000, against 10", _longest_to_short, "at most", 1.1),
            ("last 20 of 100,000, against the best peer", _to_best(LAST_LONGEST), "at most", 1),
            ("load all 10,000, against the bare driver", _to_bare(LOAD), "at most", 2),
            ("snapshot at 10,000, against a bare row", _to_bare(SNAPSHOTS[LONG]), "at most", 2),
            ("rollback at 10,000, against a bare row", _to_bare(ROLLBACKS[LONG]), "at most", 2),
        ]
        for name, figures, bound, target in rows:
            yield Target(engine=engine, name=name, figures=figures, bound=bound, target=target)
    for name, work, target in (
        ("on disk for a message, beyond its text", MESSAGE_BYTES, 120),
        ("on disk for a snapshot and a rollback, at 10,000", SNAPSHOT_BYTES[LONG], 4096),
    ):
        yield Target(
            engine=SQLITE,
            name=name,
            figures=_counted(work),
            bound="at most",
            target=target,
            unit=" B",
        )


TARGETS = tuple(_all())


def judge_targets(results: Results, engine: str) -> Iterator[tuple[Target, Spread]]:
    """Every target of an engine that was measured, with its figure."""
    for target in TARGETS:
        if target.engine == engine:
            spread = compute_spread(target.figures(results, engine))
            if spread is not None:
                yield target, spread


def list_target_spreads(results: Results) -> Iterator[tuple[str, Spread]]:
    """Figures of targets, and what they are."""
    for engine in results.engines:
        for target, spread in judge_targets(results, engine):
            yield f"{engine}, target: {target.name}", spread
