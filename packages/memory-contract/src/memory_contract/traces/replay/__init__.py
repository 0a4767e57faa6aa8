"""Replay a trace: the same sessions, workers and overlaps against any store, and what comes of it.

FIXED: the store does not do it. FAILED: it does the same again. CHANGED: it does something else
that breaks the contract. UNKNOWN: nothing was proved. ERROR: the store could not be asked.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Final

from memory_contract.adapter import Adapter, Refused
from memory_contract.calls import format_error
from memory_contract.checker.verdict import Undecided, Violated
from memory_contract.history import HistoryError
from memory_contract.results import Unreachable
from memory_contract.runner import StoreUnderTest
from memory_contract.targets import resolve
from memory_contract.timeouts import WorkTimedOut, run_with_timeout
from memory_contract.traces.diagnosis import judge_lines
from memory_contract.traces.diagnosis.history_builder import merge_announced
from memory_contract.traces.diagnosis.trace_reader import TraceMetadata, TraceReader
from memory_contract.traces.format import ReplayLevel, TraceCall
from memory_contract.traces.replay.plan import (
    TEXT_CHARS_MIN,
    ReplayPlan,
    WorkerMode,
    build_plan,
    choose_worker_mode,
)
from memory_contract.traces.replay.results import LoadedTrace, Replay, ReplayVerdict, count_overlaps
from memory_contract.traces.replay.scheduler import ReplayRun, Scheduler
from memory_contract.workers.pool import StoreRaised, WorkerLost

__all__ = [
    "LoadedTrace",
    "Replay",
    "ReplayLevel",
    "ReplayVerdict",
    "load_trace",
    "replay_lines",
    "replay_trace",
]

# A replay holds its operations in memory and makes them one by one: this takes some minutes.
OPERATIONS_MAX: Final = 100_000
# Limits on memory and processes, since a trace may come from anybody: characters of made-up text,
# calls that are open at the same time, and processes.
TEXT_CHARS_MAX: Final = 64 << 20
AT_ONCE_MAX: Final = 1_000
PROCESSES_MAX: Final = 128
# Further runs if nothing overlapped: the calls of a quick store are short.
VACUOUS_MAX: Final = 60
# A bound on what hangs, not on what is slow.
RUN_S_MAX: Final = 600.0

Progress = Callable[[int, int], None]


def load_trace(path: str | Path, *, session: str | None = None) -> LoadedTrace:
    """Load a trace that is small enough to be replayed, and what it proves."""
    reader = TraceReader(path)
    if session is None and reader.operations > OPERATIONS_MAX:
        raise HistoryError(
            f"{reader.operations} operations are too many to replay (at most {OPERATIONS_MAX}):"
            " name one session, or have `memory-contract explain` write the smallest part that"
            " fails"
        )
    if obstacle := reader.metadata.find_obstacle():
        raise HistoryError(f"{path} cannot be replayed: {obstacle}")
    # Calls on every session are yielded with each of them.
    found = {id(line): line for ours in reader.read_sessions(session) for line in ours}
    lines = tuple(found.values())
    _refuse_excess(path, lines)
    if not lines:
        where = f" of session {session!r}" if session is not None else ""
        raise HistoryError(f"{path} holds no operation{where}")
    explanation = judge_lines(lines, reader.metadata)
    return LoadedTrace(
        lines=lines,
        metadata=reader.metadata,
        names=explanation.names,
        stories=explanation.stories,
    )


def _refuse_excess(path: str | Path, lines: Sequence[TraceCall]) -> None:
    """Refuse a trace whose numbers ask for more than a replay may take."""
    operations, _ = merge_announced(lines)
    appends = [op for op in operations if op.op == "append"]
    # An entry of unknown size is made as small as can be.
    sizes = [size for op in appends for size in (*op.sizes, *[0] * len(op.ids))[: len(op.ids)]]
    chars = sum(max(TEXT_CHARS_MIN, size) for size in sizes)
    moments = [(op.invoke_ns, 1) for op in operations]
    moments += [(op.complete_ns, -1) for op in operations if op.complete_ns is not None]
    # Of one moment, beginnings come first: such calls overlap.
    steps = (step for _, step in sorted(moments, key=lambda each: (each[0], -each[1])))
    at_once = max(accumulate(steps), default=0)
    groups = len({op.worker.rpartition("-")[0] or op.worker for op in operations})
    for found, most, what in (
        (chars, TEXT_CHARS_MAX, "characters of text"),
        (at_once, AT_ONCE_MAX, "calls at the same time"),
        (groups, PROCESSES_MAX, "processes and stores"),
    ):
        if found > most:
            raise HistoryError(f"{path} asks for {found} {what}; a replay makes at most {most}")


def replay_trace(
    path: str | Path | LoadedTrace,
    store: str | Adapter | type,
    *,
    level: ReplayLevel = "concurrent",
    seed: int | None = None,
    times: int = 1,
    session: str | None = None,
    progress: Progress | None = None,
) -> Replay:
    """Replay a trace against a store, at most `times` times."""
    trace = path if isinstance(path, LoadedTrace) else load_trace(path, session=session)
    try:
        subject = StoreUnderTest(resolve(store))
    except Unreachable as error:
        return Replay(verdict="ERROR", reason=str(error), level=level, recorded=trace.names)
    try:
        return replay_lines(trace, subject, level=level, seed=seed, times=times, progress=progress)
    finally:
        subject.close()


def replay_lines(
    trace: LoadedTrace,
    subject: StoreUnderTest,
    *,
    level: ReplayLevel = "concurrent",
    seed: int | None = None,
    times: int = 1,
    progress: Progress | None = None,
) -> Replay:
    """Replay lines in memory against an open store; the first run that fails decides."""
    ours = secrets.randbits(32) if seed is None else seed
    best: Replay | None = None
    ways: list[WorkerMode | None] = [None]
    for number in range(max(1, times) + VACUOUS_MAX):
        if number >= times and best is not None and not best.vacuous:
            break
        if progress is not None:
            progress(min(number, times), times)
        way = ways[number % len(ways)]
        found = _run_once(trace, subject, level, ours, number=number, asked=way)
        if found.vacuous and len(ways) == 1:
            # Tasks that never give way cannot overlap; threads may.
            ways += [WorkerMode("threads", "blocking")] if "blocking" in subject.flavours else []
        # A failure is final. Of the other verdicts, FIXED outweighs UNKNOWN.
        if (
            best is None
            or found.verdict in ("FAILED", "CHANGED", "ERROR")
            or (found.verdict == "FIXED" and best.verdict == "UNKNOWN")
        ):
            best = replace(found, times=number + 1)
        best = replace(best, times=number + 1)
        # One that hangs would hang again, and each time costs minutes.
        if found.verdict in ("FAILED", "CHANGED", "ERROR") or found.hangs:
            break
    assert best is not None
    return best


def _run_once(
    trace: LoadedTrace,
    subject: StoreUnderTest,
    level: ReplayLevel,
    seed: int,
    *,
    number: int,
    asked: WorkerMode | None,
) -> Replay:
    plan = build_plan(trace.lines, trace.metadata, subject.adapter, seed=seed + number)
    way = asked or choose_worker_mode(subject, plan.steps, trace.metadata.workers)
    blank = Replay(
        verdict="UNKNOWN",
        level=level,
        way=way,
        seed=seed,
        recorded=trace.names,
        operations=len(plan.steps),
        notes=tuple(plan.notes),
    )
    if obstacle := _find_obstacle(plan):
        return replace(blank, reason=obstacle, lacking=frozenset(plan.lacking))
    # The first run begins all calls of a round at once; later ones move them apart at random.
    jitter = Random(f"{seed} {number}") if number else None  # noqa: S311 -- runs must repeat
    try:
        run = run_with_timeout(RUN_S_MAX, lambda: _run_plan(plan, subject, way, level, jitter))
    except WorkTimedOut as error:
        words = f"it hangs, or is too slow to be judged: {error}"
        return replace(blank, reason=words, hangs=True)
    except WorkerLost as error:
        return replace(blank, reason=str(error), hangs=True)
    except (StoreRaised, Refused) as error:
        return replace(blank, verdict="ERROR", reason=f"the store raised {error}")
    except Exception as error:  # noqa: BLE001 -- a defect of the kit is no verdict on a store
        return replace(blank, reason=f"the kit itself failed: {format_error(error)}")
    return _judge_run(blank, plan, run, subject.adapter)


def _find_obstacle(plan: ReplayPlan) -> str:
    if plan.lacking:
        return f"the store does not offer {', '.join(sorted(plan.lacking))}, which the trace uses"
    moments = [step.recorded.invoke_ns for step in plan.steps]
    if plan.expiring and (max(moments) - min(moments)) / 1e9 / plan.speed > RUN_S_MAX:
        return f"its sessions expire, and it would take over {RUN_S_MAX:.0f} s to wait for that"
    return "" if plan.steps else "the trace holds nothing that can be done again"


def _run_plan(
    plan: ReplayPlan,
    subject: StoreUnderTest,
    way: WorkerMode,
    level: ReplayLevel,
    jitter: Random | None,
) -> ReplayRun:
    sessions = {step.call.session for step in (*plan.setup, *plan.final)}
    with subject.workspace(sessions) as workspace:
        scheduler = Scheduler(plan, subject, workspace, way, level=level, jitter=jitter)
        return scheduler.run_plan()


def build_metadata(adapter: Adapter) -> TraceMetadata:
    """Build the metadata of a replay's own lines: none is missing."""
    return TraceMetadata(
        own_ids=False,
        ttl_late_s=adapter.ttl_s_late,
        ttl_refreshed_by=adapter.ttl_refreshed_by,
    )


def _judge_run(blank: Replay, plan: ReplayPlan, run: ReplayRun, adapter: Adapter) -> Replay:
    explanation = judge_lines(run.lines, build_metadata(adapter))
    notes = [*plan.notes, *_list_notes(run)]
    result = replace(
        blank,
        explanation=explanation,
        found=explanation.names,
        lines=tuple(run.lines),
        overlaps=count_overlaps(plan.steps, run.by_step),
        notes=tuple(notes),
    )
    verdict = explanation.verdict
    if isinstance(verdict, Violated):
        same = explanation.names & blank.recorded
        first = verdict.anomalies[0]
        return replace(result, verdict="FAILED" if same else "CHANGED", reason=first.proof)
    if run.surprises:
        more = f" (and {len(run.surprises) - 1} more)" if len(run.surprises) > 1 else ""
        return replace(result, verdict="ERROR", reason=run.surprises[0] + more)
    if isinstance(verdict, Undecided):
        return replace(result, reason=verdict.reason)
    # Without the fault or the overlap, the failure had no chance to happen.
    if result.level == "faults" and not run.struck:
        why = "could be made here" if run.unmade else "stands in the trace"
        return replace(result, reason=f"no fault {why}")
    if result.level != "sequential" and result.overlaps.recorded and not result.overlaps.kept:
        why = "no two operations overlapped that had overlapped in the trace"
        return replace(result, reason=why, vacuous=True)
    return replace(result, verdict="FIXED")


def _list_notes(run: ReplayRun) -> Iterable[str]:
    if run.skipped:
        yield f"{run.skipped} calls were left out: what they are about is older than the trace"
    for (what, why), count in run.unmade.items():
        yield f"{what}: {count} ({why})"
