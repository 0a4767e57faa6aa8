"""The run: all peers of an engine side by side, round by round, work by work."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.peers.hands import Hand, RefusedError, TooSlowError
from benchmarks.peers.places import Places
from benchmarks.peers.results import Cell, Results, Work
from benchmarks.peers.roster import Entry
from benchmarks.peers.worker import TEXT
from benchmarks.peers.works import (
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
    SIZES,
    SNAPSHOT_BYTES,
    SNAPSHOTS,
    TASKS_MANY,
    TASKS_ONE,
    TURN,
)

# A call that takes longer is measured in two rounds, not in all.
SLOW_S = 1.0
SLOW_ROUNDS = 2
# Importing frameworks keeps a core busy for seconds.
STARTED_AT_ONCE = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """How much is done in a round; a limit ends a round early, after one call at least."""

    rounds: int = 5
    # Appends are cheap and wait for the disk, which is moody: more rounds of them.
    append_rounds: int = 10
    calls: int = 20
    limit_s: float = 0.5
    fill_s: float = 15.0
    each_task: int = 16
    each_process: int = 25
    crowd_s: float = 1.0
    kills: int = 2
    weighed: int = 400
    weighed_s: float = 1.5
    sizes: tuple[int, ...] = SIZES
    # A work that has taken longer, with all peers, ends after its round: a busy machine is slow.
    work_s: float = 25.0

    def with_rounds(self, rounds: int) -> Bounds:
        """The same in other numbers of rounds."""
        return replace(self, rounds=rounds, append_rounds=2 * rounds)


QUICK = Bounds(
    rounds=2,
    append_rounds=2,
    calls=5,
    limit_s=0.1,
    fill_s=10,
    each_task=1,
    each_process=3,
    crowd_s=0.3,
    kills=1,
    weighed=50,
    weighed_s=0.5,
    sizes=SIZES[:2],
    work_s=10.0,
)


@dataclass(kw_only=True)
class Runner:
    """One engine with all its peers."""

    places: Places
    entries: list[Entry]
    bounds: Bounds
    results: Results
    folder: Path
    # Told of each thing before it is done; there are `steps` of them.
    tell: Callable[[str], None]
    _served: dict[Entry, Hand] = field(default_factory=dict)
    _crowds: dict[Entry, Hand] = field(default_factory=dict)
    _about: dict[Entry, dict[str, Any]] = field(default_factory=dict)
    # How many messages a prepared session really has.
    _filled: dict[tuple[Entry, int], int] = field(default_factory=dict)
    _why: dict[tuple[Entry, int], str] = field(default_factory=dict)
    # Where the sessions of all sizes are.
    _places: dict[Entry, str] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """How often it tells what it does."""
        sizes, bounds = len(self.bounds.sizes), self.bounds
        works = 5 + 2 * sizes + 4
        each = 1 + sizes + works * bounds.rounds + 2 * bounds.append_rounds + 1 + bounds.kills
        return len(self.entries) * each

    def run(self) -> None:
        """Every work, in an order in which none spoils another."""
        try:
            self._start()
            self._prepare()
            self._append()
            self._read()
            self._go_back()
            self._weigh()
            self._crowd()
        finally:
            for hand in (*self._served.values(), *self._crowds.values()):
                hand.stop()

    def _start(self) -> None:
        for entry in self.entries:
            self._served[entry] = Hand(entry, "serve", cwd=self.folder)
            self._crowds[entry] = Hand(entry, "crowd", cwd=self.folder)

        def start(entry: Entry) -> None:
            asked = {"packages": list(entry.packages)}
            self._about[entry] = self._served[entry].ask("about", **asked)
            self._crowds[entry].ask("warm", place=self.places.fresh(entry))

        with ThreadPoolExecutor(STARTED_AT_ONCE) as pool:
            list(pool.map(start, self.entries))
        for entry in self.entries:
            self.results.peers[entry.label] = {
                "engine": entry.engine,
                "name": entry.name,
                "environment": entry.environment,
                **self._about[entry],
            }

    def _prepare(self) -> None:
        for entry in self.entries:
            served = self._served[entry]
            self._places[entry] = self.places.fresh(entry)
            served.ask("open", place=self._places[entry])
            for size in (SHORT, *self.bounds.sizes):
                self.tell(f"preparing {size:,} messages: {entry.name}")
                self._filled[entry, size] = 0
                if self._about[entry]["keeps"] is not None and size > SHORT:
                    continue
                try:
                    order = {"session": f"s{size}", "count": size, "limit_s": self.bounds.fill_s}
                    self._filled[entry, size] = served.ask("fill", **order)
                except (RefusedError, TooSlowError) as error:
                    self._why[entry, size] = str(error)

    def _append(self) -> None:
        do = "append"
        bounds = self.bounds
        self._rounds(
            FIRST_OPEN,
            lambda entry: self._crowds[entry].ask("first", place=self.places.fresh(entry)),
        )
        given = {"calls": bounds.calls, "limit_s": bounds.limit_s}
        for work, each in ((APPEND, 1), (TURN, 2)):
            order = {"session": f"s{SHORT}", "each": each, **given}
            self._rounds(work, self._timed(do, order), rounds=bounds.append_rounds)
        order = {"session": f"s{LONGEST}", "each": 1, **given}
        self._rounds(APPEND_LONGEST, self._timed(do, order), size=LONGEST)

    def _read(self) -> None:
        given = {"calls": self.bounds.calls, "limit_s": self.bounds.limit_s}
        for entry in self.entries:
            if self._about[entry]["keeps"] is None:
                with self._noted(entry, LAST_LONG, LAST_LONGEST):
                    newest = self._served[entry].ask("newest", session="order")
                    if not newest:
                        self._say(entry, [LAST_LONG, LAST_LONGEST], "not the newest")
        for work, size in ((LAST_LONG, LONG), (LAST_LONGEST, LONGEST)):
            order = {"session": f"s{size}", "count": NEWEST, **given}
            self._rounds(work, self._timed("last", order), size=size)
        order = {"session": f"s{LONG}", "calls": 1, "limit_s": self.bounds.limit_s}
        self._rounds(LOAD, self._timed("load", order), size=LONG)

    def _go_back(self) -> None:
        given = {"calls": self.bounds.calls, "limit_s": self.bounds.limit_s}
        for entry in self.entries:
            if not self._about[entry]["snapshots"]:
                works = (SNAPSHOTS, ROLLBACKS, SNAPSHOT_BYTES)
                self._say(entry, [each for work in works for each in work.values()], "not offered")
            elif self._about[entry]["snapshot_is"]:
                self._say(entry, [*SNAPSHOTS.values()], self._about[entry]["snapshot_is"])
        for size in self.bounds.sizes:
            order = {"session": f"s{size}", **given}
            self._rounds(SNAPSHOTS[size], self._timed("snapshot", order), size=size)
            self._rounds(ROLLBACKS[size], self._timed("rollback", order), size=size)

    def _weigh(self) -> None:
        """How much a place grows: one peer after the other, since servers are shared."""
        own = len(f"m000-000000 {TEXT}")
        given = {"calls": self.bounds.weighed, "limit_s": self.bounds.weighed_s}
        for entry in self.entries:
            self.tell(f"weighing: {entry.name}")
            if self._about[entry]["keeps"] is not None:
                self._say(entry, [MESSAGE_BYTES], f"keeps {self._about[entry]['keeps']}")
                continue
            served = self._served[entry]
            place = self.places.fresh(entry)
            for size in self.bounds.sizes:
                if self._unasked(entry, SNAPSHOT_BYTES[size], size):
                    continue
                with self._noted(entry, SNAPSHOT_BYTES[size]):
                    lengths = self._places[entry]
                    before = self.places.size(lengths)
                    times = served.ask("back_and_forth", session=f"s{size}", **given)
                    grown = (self.places.size(lengths) - before) / times
                    self._cell(entry, SNAPSHOT_BYTES[size]).figures.append(grown)
            with self._noted(entry, MESSAGE_BYTES):
                served.ask("open", place=place)
                served.ask("append", session="weighed", each=1, **given)
                before = self.places.size(place)
                _, times = served.ask("append", session="weighed", each=1, **given)
                grown = (self.places.size(place) - before) / times
                self._cell(entry, MESSAGE_BYTES).figures.append(grown - own)

    def _crowd(self) -> None:
        bounds = self.bounds
        for entry in self.entries:
            with self._noted(entry, TASKS_ONE, TASKS_MANY):
                self._served[entry].ask("open", place=self.places.fresh(entry))
        for work, many in ((TASKS_ONE, False), (TASKS_MANY, True)):
            order = {"many": many, "each": bounds.each_task, "limit_s": bounds.crowd_s}
            self._rounds(work, self._counted(work, "tasks", order, self._served))
        places = {entry: self.places.fresh(entry) for entry in self.entries}
        for work, many in ((PROCESSES_ONE, False), (PROCESSES_MANY, True)):
            order = {"many": many, "each": bounds.each_process, "limit_s": bounds.crowd_s}
            self._rounds(work, self._counted(work, "processes", order, self._crowds, places))
        killed = self._counted(RECOVERY, "killed", {}, self._crowds)
        self._rounds(RECOVERY, killed, rounds=bounds.kills)

    def _timed(self, do: str, order: dict[str, Any]) -> Callable[[Entry], float]:
        return lambda entry: float(self._served[entry].ask(do, **order)[0])

    def _counted(
        self,
        work: Work,
        do: str,
        order: dict[str, Any],
        hands: dict[Entry, Hand],
        places: dict[Entry, str] | None = None,
    ) -> Callable[[Entry], float | None]:
        """Messages per second (or seconds), while what is lost and refused is added up."""

        def ask(entry: Entry) -> float | None:
            place = {}
            if hands is self._crowds:
                place = {"place": places[entry] if places else self.places.fresh(entry)}
            came = hands[entry].ask(do, **order, **place)
            cell = self._cell(entry, work)
            cell.acknowledged += came["kept"]
            cell.lost += came["lost"]
            for name, count in came["errors"].items():
                cell.refused[name] = cell.refused.get(name, 0) + count
            if work.unit == "seconds":
                return float(came["seconds"])
            return came["kept"] / came["seconds"] if came["kept"] else None

        return ask

    def _rounds(
        self,
        work: Work,
        measure: Callable[[Entry], float | None],
        *,
        rounds: int | None = None,
        size: int | None = None,
    ) -> None:
        """Ask every peer once in each round, in another order each time.

        Who comes next may wait for what the disk has still to do for the one before.
        """
        rounds = rounds or self.bounds.rounds
        deadline = time.monotonic() + self.bounds.work_s
        for number in range(rounds):
            if number >= SLOW_ROUNDS and time.monotonic() > deadline:
                self.results.engines[self.entries[0].engine]["ended early"] += 1
                break
            order = random.Random(f"{work.key} {number}")
            for entry in order.sample(self.entries, len(self.entries)):
                cell = self._cell(entry, work)
                self.tell(f"{work.title}: {entry.name} ({number + 1}/{rounds})")
                if self._unasked(entry, work, size):
                    continue
                slow = work.unit == "seconds" and any(each > SLOW_S for each in cell.figures)
                if slow and number >= SLOW_ROUNDS:
                    continue
                with self._noted(entry, work):
                    figure = measure(entry)
                    if figure is not None:
                        cell.figures.append(figure)

    def _unasked(self, entry: Entry, work: Work, size: int | None) -> bool:
        """Whether a peer cannot be asked, and why."""
        cell = self._cell(entry, work)
        if cell.word and cell.word != "not the newest":
            return True
        if size is not None and size not in self.bounds.sizes:
            return True
        if size is not None and self._filled[entry, size] < size:
            keeps = self._about[entry]["keeps"]
            short = f"{self._filled[entry, size]:,} after {self.bounds.fill_s:.0f} s"
            cell.word = self._why.get((entry, size), short) if keeps is None else f"keeps {keeps}"
            return True
        return False

    @contextmanager
    def _noted(self, entry: Entry, *works: Work) -> Iterator[None]:
        """What a peer could not do is written into its cells; the others go on."""
        try:
            yield
        except (RefusedError, TooSlowError) as error:
            self._say(entry, list(works), str(error))

    def _say(self, entry: Entry, works: list[Work], word: str) -> None:
        for work in works:
            self._cell(entry, work).word = word

    def _cell(self, entry: Entry, work: Work) -> Cell:
        return self.results.cell(entry.label, work.key)
