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

from memory_contract.traces.format import ReplayLevel, TraceCall, TraceOperation
from memory_contract.traces.replay.host import CallRequest, CallResult
from memory_contract.traces.replay.host_pool import HostPool
from memory_contract.traces.replay.plan import ReplayPlan, ReplayStep

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
SETUP: Final = "before"
FINAL: Final = "final"


@dataclass(slots=True)
class ReplayRun:
    """The result of one run."""

    lines: list[TraceCall] = field(default_factory=list)
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
        self._snapshots: dict[str | None, Any] = {}
        # The step that each lane is at, and its line if it is never heard of again.
        self._open: dict[str, tuple[ReplayStep, TraceCall]] = {}
        self._left = Counter(step.call.lane for step in plan.steps)
        self._last_ns: dict[str, tuple[int, int]] = {}
        self.run = ReplayRun()

    def run_plan(self) -> ReplayRun:
        """Run all steps, then read every session."""
        self._set_up()
        if self._level == "sequential":
            for step in self._plan.steps:
                self._begin([step])
                self._end(step)
        else:
            self._run_concurrently()
        for step, _ in list(self._open.values()):
            self._end(step)
        self._read_all()
        return self.run

    def _run_concurrently(self) -> None:
        waiting: list[ReplayStep] = []
        for step, begins in iter_events(self._plan.steps):
            if begins:
                if any(step.call.lane == other.call.lane for other in waiting):
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
        ready: list[tuple[ReplayStep, CallRequest]] = []
        for step in steps:
            if step.call.lane in self._open:
                self._end(self._open[step.call.lane][0])
            self._pause(step)
            call = self._complete_call(step)
            if call is None:
                self.run.skipped += 1
                self._finish_step(step)
            else:
                # Opened before the moment: what takes time must not take it from the others.
                self._hosts.open(call.lane, step.group)
                ready.append((step, call))
        moment = self._hosts.plan_moment(len(ready))
        for step, call in ready:
            late = self._jitter.randrange(self._apart_ns) if self._jitter is not None else 0
            timed = replace(call, start_ns=moment + late if moment else 0)
            self._open[call.lane] = step, self._hosts.call(call.lane, "start", timed)
        for step, _ in ready:
            if self._is_open(step):
                self._strike(step)

    def _is_open(self, step: ReplayStep) -> bool:
        return step.call.lane in self._open and self._open[step.call.lane][0] is step

    def _complete_call(self, step: ReplayStep) -> CallRequest | None:
        """Return the call of a step; None if its snapshot does not exist here."""
        if step.line.op == "rollback":
            if step.line.snapshot not in self._snapshots:
                return None
            return replace(step.call, arguments=(self._snapshots[step.line.snapshot],))
        return None if step.line.op == "fork" and step.line.snapshot is not None else step.call

    def _end(self, step: ReplayStep) -> None:
        """Wait for the call of a step."""
        if not self._is_open(step):
            return
        answer: CallResult = self._hosts.call(step.call.lane, "finish", step.call.lane)
        self._add_line(step, answer)
        if answer.raised and step.line.outcome == "ok" and not self._is_fair(step):
            self.run.surprises.append(f"{step.line.op} raised {answer.raised}")
        self._finish_step(step)

    def _add_line(self, step: ReplayStep, answer: CallResult) -> None:
        self.run.lines.append(answer.line)
        if isinstance(answer.line, TraceOperation):
            self.run.by_step[step.number] = answer.line
        if answer.snapshot is not None:
            self._snapshots[step.line.snapshot] = answer.snapshot

    def _is_fair(self, step: ReplayStep) -> bool:
        """Return whether an error is allowed: nothing was written, or faults are injected."""
        line = self.run.by_step.get(step.number)
        return self._level == "faults" or (line is not None and line.outcome == "fail")

    def _finish_step(self, step: ReplayStep) -> None:
        lane, recorded = step.call.lane, step.line
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
        gap_s = (step.line.invoke_ns - before_ns) / 1e9 / self._plan.speed
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
            self._hosts.call(step.call.lane, "cancel", step.call.lane, after_s)
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
        if not self._hosts.kill(step.call.lane):
            return False
        for each, announced in lost:
            self._add_line(each, CallResult(line=announced))
            self._finish_step(each)
        return True

    # Around it

    def _set_up(self) -> None:
        for session, count in self._plan.before.items():
            for number in range(count):
                message = {"role": "user", "content": f"older {session} {number}"}
                self._call_now(SETUP, "append", session, [message])
        if self._plan.before:
            self._hosts.leave(SETUP)

    def _read_all(self) -> None:
        sessions = self._plan.sessions
        if not sessions:
            return
        self._hosts.open_fresh(FINAL)
        for session in sessions:
            self._call_now(FINAL, "read", session)

    def _call_now(self, lane: str, method: str, session: str, *arguments: Any) -> None:
        self._hosts.open(lane, lane)
        request = CallRequest(lane=lane, method=method, session=session, arguments=arguments)
        self._hosts.call(lane, "start", request)
        answer: CallResult = self._hosts.call(lane, "finish", lane)
        self.run.lines.append(answer.line)
        if answer.raised:
            self.run.surprises.append(f"{method} raised {answer.raised}")


def iter_events(steps: Sequence[ReplayStep]) -> Iterator[tuple[ReplayStep, bool]]:
    """Yield every start (True) and end of a step in order; at one moment, starts come first."""
    found = [(step.line.invoke_ns, 0, step.number, step) for step in steps]
    found += [
        (step.line.complete_ns, 1, step.number, step)
        for step in steps
        if step.line.complete_ns is not None
    ]
    for _, ends, _, step in sorted(found, key=lambda event: event[:3]):
        yield step, not ends


def find_fault(step: ReplayStep) -> ReplayFault | None:
    """Infer the fault that struck a call from its outcome in the trace."""
    line = step.line
    if line.outcome != "info":
        return None
    if line.complete_ns is None:
        return "kill"
    return "cancel" if line.error == "CancelledError" else None
