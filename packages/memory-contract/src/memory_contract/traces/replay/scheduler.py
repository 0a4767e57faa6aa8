"""The scheduler of a replay: rounds of calls, each of them a race.

A trace says which operations were over before another began, and which overlapped. So does a
replay: it makes a call only when all are back that were back before it in the trace, and calls that
may overlap begin together. What comes next depends on what came of every call before it, such as
the store's id of a snapshot: so a round is raced, and its logs are read, before the next one.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Final, Literal

from memory_contract.calls import Log, Program, format_error, run
from memory_contract.handles import Loop, close, open_handle
from memory_contract.runner import StoreUnderTest
from memory_contract.traces.format import ReplayLevel, TraceOperation
from memory_contract.traces.replay.plan import FINAL, ReplayPlan, ReplayStep, WorkerMode
from memory_contract.workers.pool import StoreRaised, Worker
from memory_contract.workers.races import race_tasks, race_threads

# The process of the caller was killed, or its task was cancelled.
ReplayFault = Literal["kill", "cancel"]

# In repeated runs, the calls of a round begin up to this far apart, drawn for each run. Calls on a
# quick store are over in microseconds.
JITTERS_S: Final = (0.0, 0.0, 5e-5, 3e-4, 1.5e-3)
# The share of calls that repeated runs make one round later than possible: a call that overlapped
# calls of two rounds then overlaps those of the other round.
LATER: Final = 0.25
# Shorter pauses between two calls on a session that expires are not repeated.
PAUSE_S_MIN: Final = 0.01
# In repeated runs, a call is cancelled, or its process killed, at most so long after it began.
STRIKE_S_MAX: Final = 0.002
# Processes start a round at a common moment, late enough for all to have received their calls.
TOLD_NS: Final = 1_000_000
TELLING_NS: Final = 500_000
# The time for which a thread gives way, and the most calls within the store's code before that.
GIVE_WAY_S: Final = 0.001
CALLS_IN_MAX: Final = 10


@dataclass(slots=True)
class ReplayRun:
    """The result of one run."""

    lines: list[TraceOperation] = field(default_factory=list)
    # The line that each step became.
    by_step: dict[int, TraceOperation] = field(default_factory=dict)
    # Errors of the store where the trace has none.
    surprises: list[str] = field(default_factory=list)
    struck: int = 0
    # Faults of the trace that could not be made here: which, why, and how many.
    unmade: Counter[tuple[str, str]] = field(default_factory=Counter)
    skipped: int = 0


class Scheduler:
    """Runs a plan against a store, in a workspace of its own."""

    def __init__(
        self,
        plan: ReplayPlan,
        subject: StoreUnderTest,
        workspace: Path,
        way: WorkerMode,
        *,
        level: ReplayLevel,
        jitter: Random | None,
    ) -> None:
        self._plan = plan
        self._adapter = subject.adapter
        self._worker_pool = subject.worker_pool
        self._workspace = workspace
        self._way = way
        self._level = level
        self._jitter = jitter
        # For draws that the first run needs, too.
        self._random = jitter or Random(0)  # noqa: S311 -- runs must repeat
        self._apart_s = jitter.choice(JITTERS_S) if jitter is not None else 0.0
        self._loop = Loop() if way.flavour == "async" and way.workers != "processes" else None
        # By owner: a handle in this process, or a process that has opened one.
        self._open: dict[str, Any] = {}
        everything = (*plan.setup, *plan.steps, *plan.final)
        self._left = Counter(map(self._get_owner, everything))
        # The store's ids of the snapshots of the trace.
        self._names: dict[str, Any] = {}
        self._last_ns: dict[str, tuple[int, int]] = {}
        self.run = ReplayRun()

    def run_plan(self) -> ReplayRun:
        """Run all steps, then read every session."""
        later = LATER if self._jitter is not None else 0.0
        rounds = plan_rounds(self._plan.steps, self._random, later)
        if self._level == "sequential":
            rounds = [[step] for step in self._plan.steps]
        try:
            for steps in (
                *([step] for step in self._plan.setup),
                *rounds,
                *([step] for step in self._plan.final),
            ):
                self._run_round(steps)
        finally:
            self._close_all()
        return self.run

    def _run_round(self, steps: Sequence[ReplayStep]) -> None:
        """Make some calls at the same moment."""
        ready: list[ReplayStep] = []
        for step in steps:
            if self._is_possible(step):
                self._pause(step)
                # Opened before the moment: what takes time must not take it from the others.
                self._open_owner(step)
                ready.append(step)
            else:
                self.run.skipped += 1
        began_ns = time.monotonic_ns()
        for step, log in zip(ready, self._race(ready) if ready else (), strict=True):
            self._add_log(step, log, began_ns)
        for owner, count in Counter(map(self._get_owner, steps)).items():
            self._left[owner] -= count
            if not self._left[owner] and owner in self._open:
                self._close_owner(owner)

    def _is_possible(self, step: ReplayStep) -> bool:
        """Return whether the snapshot of a step exists here; no store forks from one."""
        if step.call.op == "rollback":
            return step.call.snapshot in self._names
        return step.call.op != "fork" or step.recorded.snapshot is None

    def _pause(self, step: ReplayStep) -> None:
        """Wait as long as the trace did before a call on a session that expires."""
        known = self._last_ns.get(step.call.session)
        if step.call.session not in self._plan.expiring or known is None or step.number < 0:
            return
        before_ns, ended_ns = known
        gap_s = (step.recorded.invoke_ns - before_ns) / 1e9 / self._plan.speed
        left_s = gap_s - (time.monotonic_ns() - ended_ns) / 1e9
        if left_s > PAUSE_S_MIN:
            time.sleep(left_s)

    def _add_log(self, step: ReplayStep, log: Log | None, began_ns: int) -> None:
        """Add the line of a call; without a log, its process was killed."""
        if log is not None and not log.operations:
            # It was never made, so it changed nothing and no fault struck it.
            self.run.unmade["calls that were not made", "they were cancelled before"] += 1
            self.run.struck -= self._find_fault(step) == "cancel"
            return
        line, raised = replace(step.line, invoke_ns=began_ns), ""
        if log is not None:
            self._names |= log.names
            (done,) = log.operations
            raised = log.errors[0][1] if log.errors else ""
            line = replace(
                step.line,
                invoke_ns=done.invoke_ns,
                complete_ns=done.complete_ns,
                outcome=done.outcome,
                value=done.value,
                error=raised.partition(":")[0],
            )
        self.run.lines.append(line)
        self.run.by_step[step.number] = line
        # An error is fair where nothing was written, and where faults are made.
        fair = self._level == "faults" or line.outcome == "fail" or step.recorded.outcome != "ok"
        if raised and (step.number < 0 or not fair):
            self.run.surprises.append(f"{step.call.op} raised {raised}")
        before = step.recorded.complete_ns or step.recorded.invoke_ns
        self._last_ns[step.call.session] = (before, line.complete_ns or time.monotonic_ns())

    # Handles

    def _get_owner(self, step: ReplayStep) -> str:
        """Return the owner of the handle on which a step is made; workers may share one."""
        if self._adapter.reach == "handle":
            return ""
        if step.number < 0:
            return f"{step.lane} of the replay"
        shared = self._way.flavour == "async" or self._adapter.thread_safe
        return step.group if shared else step.lane

    def _open_owner(self, step: ReplayStep) -> None:
        owner = self._get_owner(step)
        if owner in self._open:
            return
        # The last reads are made by a fresh process where the store allows it.
        is_last = step.lane == FINAL and step.number < 0 and self._adapter.reach == "machine"
        if self._worker_pool is not None and (self._way.workers == "processes" or is_last):
            self._open[owner] = worker = self._worker_pool.start_worker()
            worker.ask("open", self._workspace, self._way.flavour)
            return
        try:
            self._open[owner] = open_handle(
                self._adapter, self._workspace, self._way.flavour, self._loop
            )
        except Exception as error:
            raise StoreRaised(format_error(error)) from error

    def _close_owner(self, owner: str) -> None:
        found = self._open.pop(owner)
        # Errors while closing are judged by cases, not by replays.
        with contextlib.suppress(Exception):
            if isinstance(found, Worker):
                found.end()
            else:
                close(found, self._loop)

    def _close_all(self) -> None:
        for owner in list(self._open):
            self._close_owner(owner)
        if self._loop is not None:
            self._loop.close()

    # One round

    def _race(self, steps: Sequence[ReplayStep]) -> Sequence[Log | None]:
        programs = [
            replace(step.program, delay_s=self._draw(self._apart_s) if len(steps) > 1 else 0.0)
            for step in steps
        ]
        handles = [self._open[self._get_owner(step)] for step in steps]
        cancels = {step.lane: self._draw(STRIKE_S_MAX) for step in steps if self._cancels(step)}
        if isinstance(handles[0], Worker):
            return self._race_processes(steps, programs, handles, cancels)
        for step in steps:
            if self._find_fault(step) == "kill":
                why = "they have no process of their own"
                self.run.unmade["callers that could not be killed", why] += 1
        if self._loop is not None:
            race = race_tasks(programs, self._names, handles, cancels=cancels)
            found: list[Log] = self._loop.settle(race)
            return found
        if len(steps) == 1:
            log = Log()
            run(handles[0], programs[0], dict(self._names), log)
            return [log]
        handles = [_PreemptedHandle(each, self._random) for each in handles]
        return race_threads(programs, self._names, handles=handles)

    def _race_processes(
        self,
        steps: Sequence[ReplayStep],
        programs: Sequence[Program],
        workers: Sequence[Worker],
        cancels: dict[str, float],
    ) -> list[Log | None]:
        start_ns = time.monotonic_ns() + TOLD_NS + TELLING_NS * len(steps) if steps[1:] else 0
        names = {each: self._names[each] for s in steps if (each := s.call.snapshot) in self._names}
        theirs: dict[Worker, list[Program]] = {}
        for worker, program in zip(workers, programs, strict=True):
            theirs.setdefault(worker, []).append(program)
        for worker, some in theirs.items():
            worker.tell("race", some, names, start_ns, cancels)
        killed = set()
        for step, worker in zip(steps, workers, strict=True):
            if self._find_fault(step) == "kill":
                time.sleep(max(0.0, (start_ns - time.monotonic_ns()) / 1e9))
                time.sleep(self._draw(STRIKE_S_MAX))
                worker.strike()
                self.run.struck += 1
                killed.add(worker)
        logs: dict[str, Log] = {}
        for worker, some in theirs.items():
            # The answer of a killed process, if there is one, does not count.
            if worker not in killed:
                lanes = (program.worker for program in some)
                logs |= zip(lanes, worker.answer(), strict=True)
        for owner in [owner for owner, opened in self._open.items() if opened in killed]:
            self._open.pop(owner).kill()
        return [logs.get(step.lane) for step in steps]

    def _draw(self, seconds: float) -> float:
        """Draw a time of at most so long; none in the first run."""
        return self._jitter.random() * seconds if self._jitter is not None else 0.0

    def _find_fault(self, step: ReplayStep) -> ReplayFault | None:
        return find_fault(step) if self._level == "faults" and step.number >= 0 else None

    def _cancels(self, step: ReplayStep) -> bool:
        """Return whether a call must be cancelled; count those that cannot be."""
        if self._find_fault(step) != "cancel":
            return False
        if self._way.flavour != "async":
            why = "the store is not awaited"
            self.run.unmade["calls that could not be cancelled", why] += 1
            return False
        self.run.struck += 1
        return True


# Python refuses to install a profile function while another thread does.
_installing = threading.Lock()


class _PreemptedHandle:
    """A handle whose calls let other threads run once, somewhere in the store's own code.

    Threads may at any time, but calls of a store in memory are over before they do.
    """

    def __init__(self, handle: Any, random: Random) -> None:
        self._handle = handle
        self._left = random.randrange(1, CALLS_IN_MAX)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._handle, name)

        def call(*arguments: Any, **options: Any) -> Any:
            before = sys.getprofile()
            with _installing:
                sys.setprofile(self._count)
            try:
                return method(*arguments, **options)
            finally:
                with _installing:
                    sys.setprofile(before)

        return call

    def _count(self, _: object, event: str, __: object) -> None:
        if event in ("call", "c_call"):
            self._left -= 1
            if self._left == 0:
                time.sleep(GIVE_WAY_S)


def plan_rounds(
    steps: Sequence[ReplayStep], random: Random, later: float = 0.0
) -> list[list[ReplayStep]]:
    """Spread steps over rounds: after all that were over before them, and after their own worker's.

    `later` is the share of them that come a round later than they could.
    """
    rounds: list[list[ReplayStep]] = []
    place: dict[int, int] = {}
    lanes: dict[str, int] = {}
    over = -1
    for step, begins in _iter_events(steps):
        if begins:
            at = max(over, lanes.get(step.lane, -1)) + 1
            at += random.random() < later
            place[step.number] = lanes[step.lane] = at
            rounds += ([] for _ in range(at + 1 - len(rounds)))
            rounds[at].append(step)
        else:
            over = max(over, place[step.number])
    return [each for each in rounds if each]


def _iter_events(steps: Sequence[ReplayStep]) -> Iterator[tuple[ReplayStep, bool]]:
    """Yield every start (True) and end of a step in order; at one moment, starts come first."""
    found = [(step.recorded.invoke_ns, 0, step.number, step) for step in steps]
    found += [
        (step.recorded.complete_ns, 1, step.number, step)
        for step in steps
        if step.recorded.complete_ns is not None
    ]
    for _, ends, _, step in sorted(found, key=lambda event: event[:3]):
        yield step, not ends


def find_fault(step: ReplayStep) -> ReplayFault | None:
    """Infer the fault that struck a call from its outcome in the trace."""
    line = step.recorded
    if line.outcome != "info":
        return None
    if line.complete_ns is None:
        return "kill"
    return "cancel" if line.error == "CancelledError" else None
