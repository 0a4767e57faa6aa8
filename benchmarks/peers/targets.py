"""What indelible aims at, as ratios within one run, and whether it gets there."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from benchmarks.peers.results import Cell, Results, Work
from benchmarks.peers.roster import BARE, OURS, POSTGRES, REDIS, SQLITE
from benchmarks.peers.telling import standings
from benchmarks.peers.works import (
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

Figure = Callable[[Results, str], float | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A figure on an engine, and where it should be."""

    engine: str
    name: str
    figure: Figure
    bound: Literal["at most", "at least"]
    target: float
    unit: str = "×"

    def met(self, figure: float) -> bool:
        """Whether it is on the right side."""
        return figure <= self.target if self.bound == "at most" else figure >= self.target


def _to_bare(work: Work) -> Figure:
    def figure(results: Results, engine: str) -> float | None:
        bare = f"{engine} · {BARE}"
        ratios = results.ratios(f"{engine} · {OURS[0]}", work.key, to=bare)
        return statistics.median(ratios) if ratios else None

    return figure


def _to_best(work: Work) -> Figure:
    def figure(results: Results, engine: str) -> float | None:
        return next((e.to_best for e in standings(results, engine) if e.work == work), None)

    return figure


def _cell(results: Results, engine: str, work: Work) -> Cell:
    return results.cells.get(f"{engine} · {OURS[0]}", {}).get(work.key, Cell())


def _longest_to_short(results: Results, engine: str) -> float | None:
    long, short = (_cell(results, engine, work).median for work in (APPEND_LONGEST, APPEND))
    return long / short if long and short else None


def _median(work: Work) -> Figure:
    return lambda results, engine: _cell(results, engine, work).median


def _all() -> Iterator[Target]:
    for engine, append, tasks in ((SQLITE, 1.3, 5), (REDIS, 1.3, 2), (POSTGRES, 1.25, 2)):
        rows: list[tuple[str, Figure, Literal["at most", "at least"], float]] = [
            ("append, against the bare driver", _to_bare(APPEND), "at most", append),
            ("64 tasks appending, against the best peer", _to_best(TASKS_ONE), "at least", tasks),
            ("append at 100,000, against 10", _longest_to_short, "at most", 1.1),
            ("last 20 of 100,000, against the best peer", _to_best(LAST_LONGEST), "at most", 1),
            ("load all 10,000, against the bare driver", _to_bare(LOAD), "at most", 2),
            ("snapshot at 10,000, against a bare row", _to_bare(SNAPSHOTS[LONG]), "at most", 2),
            ("rollback at 10,000, against a bare row", _to_bare(ROLLBACKS[LONG]), "at most", 2),
        ]
        for name, figure, bound, target in rows:
            yield Target(engine=engine, name=name, figure=figure, bound=bound, target=target)
    for name, work, target in (
        ("on disk for a message, beyond its text", MESSAGE_BYTES, 120),
        ("on disk for a snapshot and a rollback, at 10,000", SNAPSHOT_BYTES[LONG], 4096),
    ):
        yield Target(
            engine=SQLITE,
            name=name,
            figure=_median(work),
            bound="at most",
            target=target,
            unit=" B",
        )


TARGETS = tuple(_all())


def judged(results: Results, engine: str) -> Iterator[tuple[Target, float]]:
    """Every target of an engine that was measured, with its figure."""
    for target in TARGETS:
        if target.engine == engine:
            figure = target.figure(results, engine)
            if figure is not None:
                yield target, figure
