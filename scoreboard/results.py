"""Results of scoreboard runs: plain values, kept in a compressed JSON file."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What came of one case in one mode."""

    gate: str
    case: str
    mode: str
    verdict: str
    reason: str = ""
    seed: int = 0
    # How often which anomaly was seen in the deciding run; the kit tells of thirty at most.
    anomalies: dict[str, int] = field(default_factory=dict)
    # The proof of the first of them, as a report shows it.
    proof: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one store."""

    # `langchain-core 1.7.2, langchain-community 0.4.2`.
    versions: str = ""
    notes: tuple[str, ...] = ()
    duration_s: float = 0.0
    seen: tuple[Seen, ...] = ()
    # Why it could not be tried.
    not_run: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run over all stores, or some of them; by their ids."""

    date: str
    contract: str
    seed: int
    budget_s: float
    rounds: int = 1
    machine: str
    outcomes: dict[str, Outcome]


def outcome_of(found: dict[str, Any]) -> Outcome:
    """An outcome from JSON."""
    seen = tuple(
        Seen(**{**each, "proof": tuple(each.get("proof", ()))}) for each in found.get("seen", ())
    )
    return Outcome(**{**found, "notes": tuple(found.get("notes", ())), "seen": seen})


def read(path: Path) -> list[Run]:
    """Read all runs in a file, oldest first; none if there is no file."""
    if not path.exists():
        return []
    return [
        Run(**{**run, "outcomes": {k: outcome_of(v) for k, v in run["outcomes"].items()}})
        for run in json.loads(gzip.decompress(path.read_bytes()))
    ]


def write(path: Path, runs: Iterable[Run]) -> None:
    """Write the runs; equal runs give equal bytes."""
    text = json.dumps([asdict(run) for run in runs], separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def merged(run: Run, newer: Run, gate: str = "") -> Run:
    """A run with some of its stores tried again, in all gates or in one."""
    outcomes = dict(newer.outcomes)
    for store, found in outcomes.items() if gate else ():
        before = run.outcomes.get(store, Outcome())
        others = tuple(seen for seen in before.seen if seen.gate != gate)
        outcomes[store] = replace(found, seen=(*others, *found.seen))
    return replace(newer, outcomes={**run.outcomes, **outcomes})
