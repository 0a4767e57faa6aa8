"""Run the races of the contract under many schedules, and minimise a schedule that fails."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Final

from memory_contract.adapter import Adapter
from memory_contract.cases.case import Case
from memory_contract.checker.shrink import minimize
from memory_contract.contract_run import (
    Item,
    Progress,
    list_gates,
    run_contract,
    run_item,
    select,
)
from memory_contract.deviations import Deviations
from memory_contract.explorer.loop import ExploringLoop, StepTaken
from memory_contract.explorer.schedules import (
    Chooser,
    RandomOrder,
    RecordedOrder,
    Schedule,
    format_schedule,
    renumber_switches,
)
from memory_contract.gates import Mode
from memory_contract.history import Operation
from memory_contract.results import CaseResult, CaseVerdict, Report
from memory_contract.runner import (
    CASE_S_MAX,
    StoreUnderTest,
    build_timeout_result,
    list_modes,
    run_round,
)
from memory_contract.timeouts import WorkTimedOut, run_with_timeout

SCHEDULES: Final = 500
# Schedules that are tried to minimise one. Few are needed: most switches do not matter.
_TRIES_MAX: Final = 400
# Longer schedules are not for reading; the seed brings them back.
_WRITTEN_MAX: Final = 200
_STOPS_MAX: Final = 12
_OUTSIDE: Final = "threads, sockets or pipes took part"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One run of a case under one schedule."""

    result: CaseResult
    # None if the case never came to call the store.
    loop: ExploringLoop | None
    hangs: bool = False

    @property
    def schedule(self) -> Schedule:
        """The switches that were made."""
        return self.loop.switches if self.loop is not None else ()

    @property
    def is_exact(self) -> bool:
        """Whether another run with this schedule goes the same way, as far as the loop can tell."""
        return self.loop is None or self.loop.is_exact

    @property
    def failure(self) -> str:
        """The name of what failed; nothing if nothing did."""
        return self.result.failures[0].name if self.result.verdict == "FAIL" else ""


def explore(
    target: str | Adapter | type,
    *,
    cases: Sequence[str] = (),
    schedules: int = SCHEDULES,
    seed: int | None = None,
    keeps_last: int | None = None,
    deviations: Deviations | None = None,
    progress: Progress | None = None,
) -> Report:
    """Run the races between tasks under so many schedules, spread over the cases.

    A case ends with its first failure, which is made small. The seed of a failure, given again
    with the name of its case, brings it back with the first schedule. `deviations` are failures
    that are known.
    """
    chosen = [case for case in select((), cases) if "tasks" in case.modes and case.overlaps]

    def run_all(subject: StoreUnderTest, seed: int) -> Iterator[CaseResult]:
        items = [Item(case=case, mode="tasks", known=_find_known(case, subject)) for case in chosen]
        waiting = [item.case for item in items if item.known is None]
        share, extra = divmod(schedules, len(waiting) or 1)
        for item in items:
            count = max(1, share + (item.case in waiting[:extra]))
            run = partial(explore_case, subject=subject, seed=seed, schedules=count)
            yield run_item(item, run, deviations, progress)

    return run_contract(
        target, run_all, gates=list_gates((), chosen), seed=seed, keeps_last=keeps_last
    )


def _find_known(case: Case, subject: StoreUnderTest) -> CaseResult | None:
    for mode, known in list_modes(case, subject):
        if mode == "tasks":
            return known
    return CaseResult(
        gate=case.gate,
        case=case.name,
        mode="tasks",
        verdict="NOT CLAIMED",
        reason="the store is not awaited, so there are no tasks to schedule",
    )


def explore_case(
    case: Case, _mode: Mode = "tasks", *, subject: StoreUnderTest, seed: int, schedules: int
) -> CaseResult:
    """Run one case under so many schedules, until one fails."""
    began = time.monotonic()
    seeds = Random(seed)  # noqa: S311 -- runs must repeat
    ours, results = seed, []
    for _ in range(schedules):
        attempt = attempt_case(case, subject, ours, RandomOrder(ours))
        if attempt.failure:
            found = _minimize(case, subject, ours, attempt)
            return replace(found, duration_s=time.monotonic() - began)
        results.append(_build_result(attempt))
        # A store that cannot be raced, or that the case is not for, will not become another.
        # One that hangs would hang again, and each time costs minutes.
        if attempt.result.verdict == "NOT CLAIMED" or attempt.hangs:
            break
        ours = seeds.getrandbits(32)
    best = min(results, key=lambda result: _ORDER.index(result.verdict))
    ran = sum(result.verdict == best.verdict for result in results)
    note = f"{case.name}: {ran} of {len(results)} schedules ended with {best.verdict}"
    notes = (*best.notes, note) if best.verdict != "NOT CLAIMED" else best.notes
    return replace(best, notes=notes, duration_s=time.monotonic() - began)


# Of schedules none of which failed, the best verdict counts, as with races that are run again.
_ORDER: Final[tuple[CaseVerdict, ...]] = ("PASS", "UNKNOWN", "VACUOUS", "NOT RUN", "NOT CLAIMED")


def attempt_case(case: Case, subject: StoreUnderTest, seed: int, chooser: Chooser) -> Attempt:
    """Run a case once; abandon a run that does not end."""
    loops: list[ExploringLoop] = []

    def exploring() -> ExploringLoop:
        loops.append(ExploringLoop(chooser))
        return loops[-1]

    hangs = False
    try:
        result = run_with_timeout(
            CASE_S_MAX, lambda: run_round(case, "tasks", subject, seed, exploring)
        )
    except WorkTimedOut as error:
        hangs = True
        result = build_timeout_result(error, case, "tasks", subject, seed)
        for loop in loops:
            # Its remaining steps must not take time from the next run.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(loop.stop)
    return Attempt(result=result, loop=loops[0] if loops else None, hangs=hangs)


def _minimize(case: Case, subject: StoreUnderTest, seed: int, failing: Attempt) -> CaseResult:
    """Return the result of the smallest schedule that fails in the same way."""
    best = failing

    def try_switches(switches: Schedule) -> Schedule | None:
        nonlocal best
        again = attempt_case(case, subject, seed, RecordedOrder(switches))
        if again.failure != failing.failure:
            return None
        if len(again.schedule) <= len(best.schedule):
            best = again
        return again.schedule

    repeats = try_switches(failing.schedule) == failing.schedule
    minimize(failing.schedule, lambda few: try_switches(renumber_switches(few)), tries=_TRIES_MAX)
    return _build_result(best, _format_schedule_text(seed, best, repeats=repeats))


def _format_schedule_text(seed: int, attempt: Attempt, *, repeats: bool = True) -> str:
    """Describe the schedule, its seed, and whether it repeats exactly."""
    count = len(attempt.schedule)
    lines = [f"seed {seed}, {count} {'switch' if count == 1 else 'switches'}: "]
    lines[0] += format_schedule(attempt.schedule[:_WRITTEN_MAX])
    if count > _WRITTEN_MAX:
        lines[0] += f" and {count - _WRITTEN_MAX} more"
    if count and attempt.loop is not None:
        lines.append(describe_schedule(attempt.loop.taken, attempt.result.history))
    if attempt.is_exact and repeats:
        lines.append("exact: the seed brings it back")
    else:
        why = "time or chance took part" if attempt.is_exact else _OUTSIDE
        lines.append(f"not exact: {why}, so the seed may need several runs to bring it back")
    return "\n".join(lines)


def describe_schedule(taken: Sequence[StepTaken], history: Sequence[Operation]) -> str:
    """`w1 stops in its append of w1e3 to c-1 at store.py:14 in append, and w0 goes on`."""
    stops = [_describe_stop(history, step) for step in taken if step.switch is not None]
    if (more := len(stops) - _STOPS_MAX) > 0:
        stops[_STOPS_MAX:] = [f"and so on ({more} more)"]
    return "; ".join(stops)


def _describe_stop(history: Sequence[Operation], step: StepTaken) -> str:
    assert step.switch is not None
    task, others = step.switch.task, f", and {step.switch.taken} goes on"
    at = f" at {step.place}" if step.place else ""
    # Tasks have the names of their workers.
    theirs = [op for op in history if op.worker == task]
    for op in theirs:
        if op.invoke_ns <= step.began_ns <= (op.complete_ns or step.began_ns):
            what = f" of {' '.join(op.ids)} to {op.session}" if op.ids else f" of {op.session}"
            return f"{task} stops in its {op.op}{what}{at}{others}"
    before = theirs and not any(op.invoke_ns <= step.began_ns for op in theirs)
    return f"{task} stops{' before its first call' if before else at}{others}"


def _build_result(attempt: Attempt, schedule: str = "") -> CaseResult:
    result, notes = attempt.result, attempt.result.notes
    if not attempt.is_exact and result.verdict != "NOT CLAIMED":
        notes = (f"{result.case}: schedules are not exact: {_OUTSIDE}", *notes)
    return replace(result, notes=notes, schedule=schedule)
