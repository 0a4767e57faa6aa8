"""The run: all peers of an engine side by side, round by round, work by work."""

from __future__ import annotations

import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers.bounds import Bounds
from benchmarks.peers.databases import Databases
from benchmarks.peers.figure_text import format_figure
from benchmarks.peers.questions import LENGTHS, TASKS, WEIGHED, Asking, Group, Question
from benchmarks.peers.results import Cell, Results, Work
from benchmarks.peers.roster import Entry
from benchmarks.peers.worker_process import RefusedError, TooSlowError, WorkerProcess
from benchmarks.peers.workloads import (
    LAST_LONG,
    LAST_LONGEST,
    MESSAGE_BYTES,
    ROLLBACKS,
    SHORT,
    SNAPSHOT_BYTES,
    SNAPSHOTS,
    TASKS_MANY,
    TASKS_ONE,
)

# Importing frameworks and filling long sessions keep a core busy; nothing is measured meanwhile.
AT_ONCE = 2
NOT_THE_NEWEST = "not the newest"


@dataclass(kw_only=True)
class Runner:
    """One engine with all its peers."""

    places: Databases
    entries: list[Entry]
    bounds: Bounds
    results: Results
    folder: Path
    # Told of each thing before it is done; there are `steps` of them, as far as is known.
    tell: Callable[[str], None]
    rounds: int = 0
    _about: dict[Entry, dict[str, Any]] = field(default_factory=dict)
    # How many messages a prepared session really has.
    _filled: dict[tuple[Entry, int], int] = field(default_factory=dict)
    _why: dict[tuple[Entry, int], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Know what will be asked."""
        self._asking = Asking(places=self.places, bounds=self.bounds, results=self.results)
        self._groups = self._asking.groups()

    @property
    def steps(self) -> int:
        """How often it tells what it does, if there are no more rounds than have begun."""
        passes = sum(group.passes for group in self._groups)
        rounds = max(self.bounds.rounds, self.rounds)
        return len(self.entries) * (2 + len(self.bounds.sizes) + passes * rounds)

    def run(self) -> None:
        """Every work in every round: a round sees the machine in one mood, the rounds in many."""
        began = time.monotonic()
        engine = self.entries[0].engine
        try:
            self._start()
            self._prepare()
            longest = 0.0
            while self.rounds < self.bounds.rounds_max:
                now = time.monotonic()
                late = now + longest > began + self.bounds.engine_s[engine]
                if late and self.rounds >= self.bounds.rounds:
                    break
                self.rounds += 1
                for group in self._groups:
                    self.one_round(group)
                longest = max(longest, time.monotonic() - now)
            self.results.engines[engine]["rounds"] = self.rounds
        finally:
            self._stop()

    def _stop(self) -> None:
        for hand in (*self._asking.served.values(), *self._asking.crowds.values()):
            hand.stop()

    def _each(self, work: Callable[[Entry], None]) -> None:
        """Two peers at a time; whoever interrupts that does not wait for them."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            try:
                list(pool.map(work, self.entries))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self._stop()
                raise

    def _start(self) -> None:
        served, crowds = self._asking.served, self._asking.crowds
        for entry in self.entries:
            served[entry] = WorkerProcess(entry, "serve", cwd=self.folder)
            crowds[entry] = WorkerProcess(entry, "crowd", cwd=self.folder)

        def start(entry: Entry) -> None:
            self.tell(f"starting: {entry.name}")
            self._about[entry] = served[entry].ask("about", packages=list(entry.packages))
            self._asking.meeting[entry] = self.places.fresh(entry)
            crowds[entry].ask("warm", place=self._asking.meeting[entry])

        self._each(start)
        for entry in self.entries:
            self.results.peers[entry.label] = {
                "engine": entry.engine,
                "name": entry.name,
                "environment": entry.environment,
                **self._about[entry],
            }

    def _prepare(self) -> None:
        self._each(self._fill)
        self.places.settle(self._asking.at.values())
        for entry in self.entries:
            about = self._about[entry]
            if about["keeps"] is not None:
                self._say(entry, [MESSAGE_BYTES], f"keeps {about['keeps']}")
            if not about["snapshots"]:
                works = (SNAPSHOTS, ROLLBACKS, SNAPSHOT_BYTES)
                self._say(entry, [each for work in works for each in work.values()], "not offered")
            elif about["snapshot_is"]:
                self._say(entry, [*SNAPSHOTS.values()], about["snapshot_is"])

    def _fill(self, entry: Entry) -> None:
        """Open what is asked later, and fill it: whoever writes first finds nothing new."""
        served, keeps = self._asking.served[entry], self._about[entry]["keeps"]
        for at in (LENGTHS, WEIGHED, TASKS):
            self._asking.at[entry, at] = self.places.fresh(entry)
            served.ask("open", place=self._asking.at[entry, at], at=at)
        for size in (SHORT, *self.bounds.sizes):
            self.tell(f"preparing: {size:,} messages of {entry.name}")
            self._filled[entry, size] = 0
            if keeps is not None and size > SHORT:
                continue
            try:
                order = {"session": f"s{size}", "count": size, "limit_s": self.bounds.fill_s}
                self._filled[entry, size] = served.ask("fill", at=LENGTHS, **order)
            except (RefusedError, TooSlowError) as error:
                self._why[entry, size] = str(error)
        with self._noted(entry, MESSAGE_BYTES):
            given = {"calls": self.bounds.weighed, "limit_s": self.bounds.weighed_s}
            served.ask("say", at=WEIGHED, session="weighed", **given)
        with self._noted(entry, TASKS_ONE, TASKS_MANY):
            # Threads get their connections, and a log its length.
            order = {"each": self.bounds.each, "limit_s": self.bounds.crowd_s}
            served.ask("tasks", at=TASKS, many=True, **order)
        if keeps is None:
            with self._noted(entry, LAST_LONG, LAST_LONGEST):
                if not served.ask("newest", at=LENGTHS, session="order"):
                    self._say(entry, [LAST_LONG, LAST_LONGEST], NOT_THE_NEWEST)

    def one_round(self, group: Group) -> None:
        """Ask every peer for short batches, each time in another order; their middle is kept."""
        self.places.calm()
        found: dict[tuple[Entry, str], list[float]] = defaultdict(list)
        spent: dict[tuple[Entry, str], float] = defaultdict(float)
        for _ in range(group.passes):
            for entry in random.sample(self.entries, len(self.entries)):
                self.tell(f"round {self.rounds}: {group.name}, {entry.name}")
                for question in random.sample(group.questions, len(group.questions)):
                    key = entry, question.work.key
                    if spent[key] > self.bounds.limit_s or self._unasked(entry, question):
                        continue
                    began = time.monotonic()
                    with self._noted(entry, question.work):
                        found[key].append(question.ask(entry))
                    spent[key] += time.monotonic() - began
                    self._tell_slow(entry, question.work, found[key], spent[key])
        for (entry, work), figures in found.items():
            if figures:
                self.results.cell(entry.label, work).figures.append(statistics.median(figures))

    def _tell_slow(self, entry: Entry, work: Work, figures: list[float], spent_s: float) -> None:
        """A call that takes seconds is asked once: five rounds of it would tell no more."""
        if self.rounds > 1 or work.unit == "per second" or not figures:
            return
        took_s = figures[-1] if work.unit == "seconds" else spent_s
        if took_s > self.bounds.slow_s:
            self._say(entry, [work], f"{format_figure(figures.pop(), work)}, asked once")

    def _unasked(self, entry: Entry, question: Question) -> bool:
        """Whether a peer cannot be asked, and why."""
        cell, size = self._cell(entry, question.work), question.size
        if cell.word and cell.word != NOT_THE_NEWEST:
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
