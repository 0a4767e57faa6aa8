"""The scheduler of a replay: the order in which calls are made.

A trace says which operations were over before another began, and which overlapped. So does a
replay: a call is made only when all are back that were back before it in the trace, and calls that
were open at the same time are made at the same moment.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final, Literal

from memory_contract.calls import Log
from memory_contract.traces.format import ReplayLevel, TraceOperation
from memory_contract.traces.replay.hosts import HostPool
from memory_contract.traces.replay.plan import FINAL, SETUP, ReplayPlan, ReplayStep

# The caller ended and never heard of it, or its task was cancelled.
ReplayFault = Literal["kill", "cancel"]

# How far calls of one moment are moved apart, when a pattern is tried again: one of these, at most.
# Calls on a quick store are over in microseconds.
JITTERS_NS: Final = (1, 1, 50_000, 300_000, 1_500_000)
# Of the time that passed between two calls on a session that expires, what is too short to matter.
PAUSE_S_MIN: Final = 0.01
# How long after a call was begun it is cancelled, or its process killed, at most, when a pattern is
# tried again.
STRIKE_S_MAX: Final = 0.002


@dataclass(slots=True)
class ReplayRun:
    """The result of one run."""

    lines: list[TraceOperation] = field(default_factory=list)
    # The line that each step became.
    by_step: dict[int, TraceOperation] = field(default_factory=dict)
    # What the store raised where it had not in the trace.
    surprises: list[str] = field(default_factory=list)
    struck: int = 0
    # Faults of the trace that could not be made here: which, why, and how many.
    unmade: Counter[tuple[str, str]] = field(default_factory=Counter)
    skipped: int = 0


class Scheduler:
    """Runs a plan on hosts."""

    def __init__(
        self, plan: ReplayPlan, hosts: HostPool, *, level: ReplayLevel, jitter: Random | None
    ) -> None:
        self._plan = plan
        self._hosts = hosts
        self._level = level
        self._jitter = jitter
        self._apart_ns = jitter.choice(JITTERS_NS) if jitter is not None else 1
        # The store's ids of the snapshots of the trace.
        self._names: dict[str, Any] = {}
        # The step that each lane is at, and when it was begun.
        self._open: dict[str, tuple[ReplayStep, int]] = {}
        self._left = Counter(step.lane for step in plan.steps)
        self._last_ns: dict[str, tuple[int, int]] = {}
        self.run = ReplayRun()

    def run_plan(self) -> ReplayRun:
        """Run all steps, then read every session."""
        for step in self._plan.setup:
            self._run_now(step)
        self._hosts.leave(SETUP)
        if self._level == "sequential":
            for step in self._plan.steps:
                self._begin([step])
                self._end(step)
        else:
            self._run_concurrently()
        for step, _ in list(self._open.values()):
            self._end(step)
        if self._plan.final:
            self._hosts.open_fresh(FINAL)
        for step in self._plan.final:
            self._run_now(step)
        return self.run

    def _run_concurrently(self) -> None:
        waiting: list[ReplayStep] = []
        for step, begins in iter_events(self._plan.steps):
            if begins:
                if any(step.lane == other.lane for other in waiting):
                    self._begin(waiting)
                    waiting = []
                waiting.append(step)
                continue
            self._begin(waiting)
            waiting = []
            self._end(step)
        self._begin(waiting)

    def _begin(self, steps: Sequence[ReplayStep]) -> None:
        """Make some calls at the same moment."""
        ready: list[ReplayStep] = []
        for step in steps:
            if step.lane in self._open:
                self._end(self._open[step.lane][0])
            self._pause(step)
            if self._is_possible(step):
                # Opened before the moment: what takes time must not take it from the others.
                self._hosts.open(step.lane, step.group)
                ready.append(step)
            else:
                self.run.skipped += 1
                self._finish_step(step)
        moment = self._hosts.plan_moment(len(ready))
        for step in ready:
            late = self._jitter.randrange(self._apart_ns) if self._jitter is not None else 0
            self._open[step.lane] = step, time.monotonic_ns()
            self._start(step, moment + late if moment else 0)
        for step in ready:
            if self._is_open(step):
                self._strike(step)

    def _start(self, step: ReplayStep, start_ns: int) -> None:
        name = step.call.snapshot or ""
        names = {name: self._names[name]} if step.call.op == "rollback" else {}
        self._hosts.call(step.lane, "start", step.program, names, start_ns)

    def _is_open(self, step: ReplayStep) -> bool:
        return step.lane in self._open and self._open[step.lane][0] is step

    def _is_possible(self, step: ReplayStep) -> bool:
        """Return whether the snapshot of a step exists here; no store forks from one."""
        if step.call.op == "rollback":
            return step.call.snapshot in self._names
        return step.call.op != "fork" or step.recorded.snapshot is None

    def _end(self, step: ReplayStep) -> None:
        """Wait for the call of a step."""
        if not self._is_open(step):
            return
        raised = self._add_log(step, self._hosts.call(step.lane, "finish", step.lane))
        if raised and step.recorded.outcome == "ok" and not self._is_fair(step):
            self.run.surprises.append(f"{step.call.op} raised {raised}")
        self._finish_step(step)

    def _add_log(self, step: ReplayStep, log: Log) -> str:
        """Add the line of a call that is over; return what it raised."""
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
        self._add_line(step, line)
        return raised

    def _add_line(self, step: ReplayStep, line: TraceOperation) -> None:
        self.run.lines.append(line)
        self.run.by_step[step.number] = line

    def _is_fair(self, step: ReplayStep) -> bool:
        """Return whether an error is allowed: nothing was written, or faults are injected."""
        return self._level == "faults" or self.run.by_step[step.number].outcome == "fail"

    def _finish_step(self, step: ReplayStep) -> None:
        lane, recorded = step.lane, step.recorded
        self._open.pop(lane, None)
        if step.number in self.run.by_step:
            line = self.run.by_step[step.number]
            end = line.complete_ns or time.monotonic_ns()
            before = recorded.complete_ns or recorded.invoke_ns
            self._last_ns[step.call.session] = (before, end)
        self._left[lane] -= 1
        if self._left[lane] == 0:
            self._hosts.leave(lane)

    def _pause(self, step: ReplayStep) -> None:
        """Wait as long as the trace did before a call on a session that expires."""
        known = self._last_ns.get(step.call.session)
        if step.call.session not in self._plan.expiring or known is None:
            return
        before_ns, ended_ns = known
        gap_s = (step.recorded.invoke_ns - before_ns) / 1e9 / self._plan.speed
        left_s = gap_s - (time.monotonic_ns() - ended_ns) / 1e9
        if left_s > PAUSE_S_MIN:
            time.sleep(left_s)

    # Faults

    def _strike(self, step: ReplayStep) -> None:
        """Cancel a call that was started or kill its process, as in the trace."""
        fault = find_fault(step) if self._level == "faults" else None
        after_s = self._jitter.random() * STRIKE_S_MAX if self._jitter is not None else 0.0
        if fault == "cancel":
            if self._hosts.way.flavour != "async":
                why = "the store is not awaited"
                self.run.unmade["calls that could not be cancelled", why] += 1
                return
            self._hosts.call(step.lane, "cancel", step.lane, after_s)
        elif fault == "kill":
            time.sleep(after_s)
            if not self._kill(step):
                why = "they have no process of their own"
                self.run.unmade["callers that could not be killed", why] += 1
                return
        else:
            return
        self.run.struck += 1

    def _kill(self, step: ReplayStep) -> bool:
        lost = [each for each in self._open.values() if each[0].group == step.group]
        if not self._hosts.kill(step.lane):
            return False
        for each, began_ns in lost:
            self._add_line(each, replace(each.line, invoke_ns=began_ns))
            self._finish_step(each)
        return True

    def _run_now(self, step: ReplayStep) -> None:
        """Make a call before the trace begins, or after its end."""
        self._hosts.open(step.lane, step.lane)
        self._start(step, 0)
        raised = self._add_log(step, self._hosts.call(step.lane, "finish", step.lane))
        if raised:
            self.run.surprises.append(f"{step.call.op} raised {raised}")


def iter_events(steps: Sequence[ReplayStep]) -> Iterator[tuple[ReplayStep, bool]]:
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
