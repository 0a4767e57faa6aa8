"""Reduces a trace to the fewest operations and workers with which a store still fails.

`checker.shrink` reduces a history by asking the checker; this module replays against the store. The
result is what the store did in the smallest failing replay, not the old trace with lines left out.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

from memory_contract.adapter import Adapter
from memory_contract.checker.shrink import minimize
from memory_contract.runner import StoreUnderTest
from memory_contract.targets import resolve
from memory_contract.traces.diagnosis.history_builder import merge_announced
from memory_contract.traces.format import (
    ReplayLevel,
    TraceCall,
    TraceHeader,
    TraceOperation,
    shift_times,
    write_trace,
)
from memory_contract.traces.replay import (
    LoadedTrace,
    Replay,
    build_metadata,
    load_trace,
    replay_lines,
    replay_trace,
)
from memory_contract.version import __version__

# Limits on the replays: a smaller trace is a comfort, not a verdict.
QUESTIONS_MAX: Final = 600
BUDGET_S: Final = 120.0
# Runs of each candidate: a race may be lost in only one of a few.
TIMES: Final = 5

Progress = Callable[[int, int], None]
Lines = tuple[TraceOperation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrinkResult:
    """The smallest trace that still fails, with its replay; the whole trace if the store passes."""

    trace: LoadedTrace
    replay: Replay
    operations_before: int
    workers_before: int

    @property
    def operations(self) -> int:
        """Return the number of operations that are left."""
        return len(self.trace.lines)

    @property
    def workers(self) -> int:
        """Return the number of workers that are left."""
        return _count_workers(self.trace.lines)


def _count_workers(lines: Iterable[TraceCall]) -> int:
    return len({line.worker for line in lines})


def shrink_trace(
    path: str | Path,
    store: str | Adapter | type,
    *,
    level: ReplayLevel = "concurrent",
    seed: int | None = None,
    times: int = TIMES,
    session: str | None = None,
    budget_s: float = BUDGET_S,
    progress: Progress | None = None,
) -> ShrinkResult:
    """Shrink a trace against a store that fails on it."""
    until = time.monotonic() + budget_s
    trace = load_trace(path, session=session)
    operations, _ = merge_announced(trace.lines)
    ours = secrets.randbits(32) if seed is None else seed
    first = replay_trace(trace, store, level=level, seed=ours, times=4 * times)
    whole = ShrinkResult(
        trace=trace,
        replay=first,
        operations_before=len(operations),
        workers_before=_count_workers(trace.lines),
    )
    if first.verdict not in ("FAILED", "CHANGED"):
        return whole
    subject = StoreUnderTest(resolve(store))
    best, lines, questions = first, tuple(operations), 0

    def attempt(fewer: Lines) -> Lines | None:
        """Replay fewer lines; keep and return them if they still fail."""
        nonlocal best, lines, questions
        if questions >= QUESTIONS_MAX or time.monotonic() > until or not fewer:
            return None
        questions += 1
        if progress is not None:
            progress(questions, len(lines))
        found = replay_lines(
            # The failure to keep is that of the store, which may differ from the trace's.
            replace(trace, lines=fewer, names=first.found),
            subject,
            level=level,
            seed=ours + questions,
            # Without overlaps, every run is the same.
            times=times if _has_overlap(fewer) else 1,
        )
        if found.verdict != "FAILED":
            return None
        best, lines = found, fewer
        return fewer

    try:
        for story in trace.stories:
            needed = {(op.worker, op.invoke_ns) for op in story.small}
            few = tuple(op for op in operations if (op.worker, op.invoke_ns) in needed)
            if len(few) < len(lines):
                attempt(few)
        # Whole sessions and workers first: that takes the fewest questions.
        for name in ("session", "worker"):
            for each in dict.fromkeys(getattr(line, name) for line in lines):
                attempt(tuple(line for line in lines if getattr(line, name) != each))
        minimize(lines, attempt, tries=QUESTIONS_MAX)
    finally:
        subject.close()
    metadata = build_metadata(subject.adapter)
    metadata.workers = best.way.workers if best.way is not None else None
    # What the store did, not the old trace with lines left out.
    observed = LoadedTrace(lines=best.lines, metadata=metadata, names=best.found)
    return replace(whole, trace=observed, replay=best)


def _has_overlap(lines: Lines) -> bool:
    """Return whether any two operations were open at once."""
    ordered = sorted(lines, key=lambda line: line.invoke_ns)
    return any(
        first.complete_ns is None or then.invoke_ns <= first.complete_ns
        for first, then in pairwise(ordered)
    )


def write_small_trace(path: str | Path, trace: LoadedTrace) -> None:
    """Write a small trace, from its first operation on and in the order of time."""
    metadata = trace.metadata
    ordered = sorted(trace.lines, key=lambda line: line.invoke_ns)
    began = ordered[0].invoke_ns if ordered else 0
    lines = [shift_times(line, -began) for line in ordered if isinstance(line, TraceOperation)]
    header = TraceHeader(
        version=__version__,
        contents="kept" if any(line.contents for line in lines) else "hashed",
        fresh=metadata.fresh,
        ttl_s=metadata.ttl_s,
        ttl_late_s=metadata.ttl_late_s,
        ttl_refreshed_by=metadata.ttl_refreshed_by,
        workers=metadata.workers,
    )
    write_trace(path, header, lines)
