"""What is asked of every peer in a round: groups of works that belong side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.peers.bounds import Bounds
from benchmarks.peers.databases import Databases
from benchmarks.peers.results import Results, Work
from benchmarks.peers.roster import Entry
from benchmarks.peers.worker import TEXT
from benchmarks.peers.worker_process import WorkerProcess
from benchmarks.peers.workloads import (
    APPEND,
    APPEND_LONGEST,
    FIRST_OPEN,
    LAST_LONG,
    LAST_LONGEST,
    LOAD,
    LONG,
    LONGEST,
    MESSAGE_BYTES,
    NEWEST,
    PROCESSES_MANY,
    PROCESSES_ONE,
    RECOVERY,
    ROLLBACKS,
    SHORT,
    SNAPSHOT_BYTES,
    SNAPSHOTS,
    TASKS_MANY,
    TASKS_ONE,
    TURN,
)

# The stores that a worker has open: with long sessions, to be weighed, for tasks.
LENGTHS, WEIGHED, TASKS = "lengths", "weighed", "tasks"
# What is counted as a message's own bytes: its text, for every peer.
OWN_BYTES = len(f"m000-000000 {TEXT}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A work, how a peer is asked for it, and how long a session has to be for it."""

    work: Work
    ask: Callable[[Entry], float]
    size: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Works that a peer is asked for one right after the other, so many times in a round."""

    name: str
    passes: int
    questions: tuple[Question, ...]


@dataclass(kw_only=True)
class Asking:
    """The workers of an engine's peers, and the orders that are given to them."""

    places: Databases
    bounds: Bounds
    results: Results
    served: dict[Entry, WorkerProcess] = field(default_factory=dict)
    crowds: dict[Entry, WorkerProcess] = field(default_factory=dict)
    # Where each store of a worker is.
    at: dict[tuple[Entry, str], str] = field(default_factory=dict)
    # Where its processes meet.
    meeting: dict[Entry, str] = field(default_factory=dict)

    def groups(self) -> list[Group]:
        """All works; those that are compared with each other stand in one group."""
        bounds = self.bounds
        batch = {"batch_s": bounds.batch_s}
        short: dict[str, Any] = {
            "session": f"s{SHORT}",
            "fresh": SHORT,
            "calls": bounds.calls,
            **batch,
        }
        longest: dict[str, Any] = {"session": f"s{LONGEST}", "calls": bounds.calls, **batch}
        reads = {"calls": bounds.reads, "count": NEWEST, **batch}
        return [
            self._group("first open", Question(work=FIRST_OPEN, ask=self._first)),
            self._group(
                "appends",
                self._timed(APPEND, "append", each=1, **short),
                self._timed(TURN, "append", each=2, **short),
                self._timed(APPEND_LONGEST, "append", size=LONGEST, each=1, **longest),
            ),
            self._group(
                "last 20",
                self._timed(LAST_LONG, "last", size=LONG, session=f"s{LONG}", **reads),
                self._timed(LAST_LONGEST, "last", size=LONGEST, session=f"s{LONGEST}", **reads),
            ),
            self._group(
                "load",
                self._timed(LOAD, "load", size=LONG, session=f"s{LONG}", calls=1, **batch),
            ),
            self._back("snapshot", SNAPSHOTS),
            self._back("rollback", ROLLBACKS),
            self._group("bytes", *self._weighings(), passes=1),
            self._group(
                "tasks",
                self._crowded(TASKS_ONE, "tasks", many=False),
                self._crowded(TASKS_MANY, "tasks", many=True),
                passes=1,
            ),
            self._group(
                "processes",
                self._crowded(PROCESSES_ONE, "processes", many=False),
                self._crowded(PROCESSES_MANY, "processes", many=True),
                passes=1,
            ),
            self._group("kill", Question(work=RECOVERY, ask=self._killed), passes=1),
        ]

    def _group(self, name: str, *questions: Question, passes: int | None = None) -> Group:
        return Group(name=name, passes=passes or self.bounds.passes, questions=questions)

    def _back(self, verb: str, works: dict[int, Work]) -> Group:
        given = {"calls": self.bounds.calls, "batch_s": self.bounds.batch_s}
        questions = [
            self._timed(works[size], verb, size=size, session=f"s{size}", **given)
            for size in self.bounds.sizes
        ]
        return self._group(verb, *questions)

    def _timed(self, work: Work, do: str, *, size: int | None = None, **order: Any) -> Question:
        """Seconds of a call, at the store with sessions of all lengths."""

        def ask(entry: Entry) -> float:
            return float(self.served[entry].ask(do, at=LENGTHS, **order)[0])

        return Question(work=work, ask=ask, size=size)

    def _first(self, entry: Entry) -> float:
        return float(self.crowds[entry].ask("first", place=self.places.fresh(entry)))

    def _weighings(self) -> list[Question]:
        """How much a place grows; nobody else writes meanwhile, since servers are shared."""
        given = {"calls": self.bounds.weighed, "limit_s": self.bounds.weighed_s}
        # Bytes and calls of all rounds so far: a database grows by pages, a round is a few of them.
        sums: dict[tuple[Entry, str], tuple[int, int]] = {}

        def grown(entry: Entry, at: str, do: str, session: str) -> float:
            place = self.at[entry, at]
            before = self.places.size(place)
            times = self.served[entry].ask(do, at=at, session=session, **given)
            size, calls = sums.get((entry, session), (0, 0))
            size, calls = size + self.places.size(place) - before, calls + times
            sums[entry, session] = size, calls
            return float(size / calls)

        def snapshot(size: int) -> Callable[[Entry], float]:
            return lambda entry: grown(entry, LENGTHS, "back_and_forth", f"s{size}")

        def message(entry: Entry) -> float:
            return grown(entry, WEIGHED, "say", "weighed") - OWN_BYTES

        return [
            Question(work=MESSAGE_BYTES, ask=message),
            *(
                Question(work=SNAPSHOT_BYTES[size], ask=snapshot(size), size=size)
                for size in self.bounds.sizes
            ),
        ]

    def _crowded(self, work: Work, do: str, *, many: bool) -> Question:
        """Messages per second, while what is lost and refused is added up."""
        order = {"many": many, "each": self.bounds.each, "limit_s": self.bounds.crowd_s}

        def ask(entry: Entry) -> float:
            if do == "tasks":
                came = self.served[entry].ask(do, at=TASKS, **order)
            else:
                came = self.crowds[entry].ask(do, place=self.meeting[entry], **order)
            self._count(entry, work, came)
            return float(came["kept"] / came["seconds"])

        return Question(work=work, ask=ask)

    def _killed(self, entry: Entry) -> float:
        came = self.crowds[entry].ask("killed", place=self.places.fresh(entry))
        self._count(entry, RECOVERY, came)
        return float(came["seconds"])

    def _count(self, entry: Entry, work: Work, came: dict[str, Any]) -> None:
        cell = self.results.cell(entry.label, work.key)
        cell.acknowledged += came["kept"]
        cell.lost += came["lost"]
        for name, count in came["errors"].items():
            cell.refused[name] = cell.refused.get(name, 0) + count
