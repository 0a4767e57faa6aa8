"""Reduce a trace to the fewest operations and workers with which a store still fails.

Where the checker alone can say what is needed, `checker.shrink` does; here the store is asked. What
is left in the end is not the old trace with holes in it, but what the store did to the small one.
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
from memory_contract.ddmin import minimize
from memory_contract.redaction import has_password
from memory_contract.results import Unreachable
from memory_contract.runner import StoreUnderTest
from memory_contract.targets import resolve
from memory_contract.traces.diagnosis import explain_trace
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
)
from memory_contract.version import __version__

# How often the store is asked, and for how long: a smaller trace is a comfort, not a verdict.
QUESTIONS_MAX: Final = 600
BUDGET_S: Final = 120.0
# A race that is lost once in a few tries is still there.
TIMES: Final = 5

Progress = Callable[[int, int], None]
Lines = tuple[TraceOperation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrinkResult:
    """The smallest trace that still fails and its replay; or why there is none."""

    trace: LoadedTrace
    replay: Replay
    operations_before: int
    workers_before: int
    questions: int = 0

    @property
    def operations(self) -> int:
        """How many operations are left."""
        return self.replay.operations

    @property
    def workers(self) -> int:
        """How many workers are left."""
        return len({line.worker for line in self.trace.lines})


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
    trace = load_trace(path, session=session)
    small = [
        {(op.worker, op.invoke_ns) for op in story.small}
        for story in explain_trace(path, session=session).stories
    ]
    try:
        subject = StoreUnderTest(resolve(store))
    except Unreachable as error:
        blank = Replay(verdict="ERROR", reason=str(error), level=level, recorded=trace.names)
        return _keep_trace(trace, blank)
    try:
        shrinker = _Shrinker(trace, subject, level, seed, times, budget_s, progress)
        return shrinker.shrink(small)
    finally:
        subject.close()


def _keep_trace(trace: LoadedTrace, replay: Replay) -> ShrinkResult:
    workers = len({line.worker for line in trace.lines})
    return ShrinkResult(
        trace=trace,
        replay=replay,
        operations_before=len(trace.lines),
        workers_before=workers,
    )


class _Shrinker:
    """Replays smaller and smaller traces and keeps those that still fail."""

    def __init__(
        self,
        trace: LoadedTrace,
        subject: StoreUnderTest,
        level: ReplayLevel,
        seed: int | None,
        times: int,
        budget_s: float,
        progress: Progress | None,
    ) -> None:
        self._trace = trace
        self._subject = subject
        self._level = level
        self._seed = secrets.randbits(32) if seed is None else seed
        self._times = times
        self._until = time.monotonic() + budget_s
        self._progress = progress
        self._questions = 0
        self._best: Replay | None = None
        self._lines: Lines = ()

    def shrink(self, guesses: Iterable[set[tuple[str, int]]]) -> ShrinkResult:
        operations, _ = merge_announced(self._trace.lines)
        first = replay_lines(
            self._trace, self._subject, level=self._level, seed=self._seed, times=4 * self._times
        )
        before = _keep_trace(self._trace, first)
        before = replace(before, operations_before=len(operations))
        if first.verdict not in ("FAILED", "CHANGED"):
            return before
        # What the store does is what is looked for from here on, whatever the trace showed.
        self._trace = replace(self._trace, names=first.found)
        self._best, self._lines = first, tuple(operations)
        for guess in guesses:
            few = tuple(op for op in operations if (op.worker, op.invoke_ns) in guess)
            if len(few) < len(self._lines):
                self._try(few)
        # Whole sessions and workers first: that takes the fewest questions.
        for name in ("session", "worker"):
            for each in dict.fromkeys(getattr(line, name) for line in self._lines):
                self._try(tuple(x for x in self._lines if getattr(x, name) != each))
        minimize(self._lines, self._try, tries=QUESTIONS_MAX)
        trace = _build_observed(self._lines, self._best, self._subject.adapter)
        return replace(before, trace=trace, replay=self._best, questions=self._questions)

    def _try(self, lines: Lines) -> Lines | None:
        """Replay fewer lines; keep and return them if they still fail."""
        if self._questions >= QUESTIONS_MAX or time.monotonic() > self._until or not lines:
            return None
        self._questions += 1
        if self._progress is not None:
            self._progress(self._questions, len(self._lines))
        found = replay_lines(
            replace(self._trace, lines=lines),
            self._subject,
            level=self._level,
            seed=self._seed + self._questions,
            # What one worker after the other does comes to the same every time.
            times=self._times if _has_overlap(lines) else 1,
        )
        if found.verdict != "FAILED":
            return None
        self._best, self._lines = found, lines
        return lines


def _has_overlap(lines: Lines) -> bool:
    """Return whether any two operations were open at once."""
    ordered = sorted(lines, key=lambda line: line.invoke_ns)
    return any(
        first.complete_ns is None or then.invoke_ns <= first.complete_ns
        for first, then in pairwise(ordered)
    )


def _build_observed(lines: Lines, replay: Replay, adapter: Adapter) -> LoadedTrace:
    """Build a trace of what the store did, with the contents that were kept."""
    kept: dict[str, list[TraceOperation]] = {}
    for line in lines:
        if line.op == "append":
            kept.setdefault(line.worker, []).append(line)
    seen: list[TraceCall] = []
    observed, _ = merge_announced(replay.lines)
    for line in observed:
        # A worker appends in the order in which it did.
        ours = kept.get(line.worker, []) if line.op == "append" else []
        seen.append(replace(line, contents=ours.pop(0).contents) if ours else line)
    metadata = build_metadata(adapter)
    metadata.workers = replay.way.workers if replay.way is not None else None
    return LoadedTrace(lines=tuple(seen), metadata=metadata, names=replay.found)


def write_small_trace(
    path: str | Path, trace: LoadedTrace, *, store: str = "", level: ReplayLevel = "concurrent"
) -> None:
    """Write a small trace, which says against which store it is to be held, and how."""
    metadata = trace.metadata
    began = min((line.invoke_ns for line in trace.lines), default=0)
    lines = [shift_times(line, -began) for line in trace.lines if isinstance(line, TraceOperation)]
    header = TraceHeader(
        version=__version__,
        contents="kept" if any(line.contents for line in lines) else "hashed",
        fresh=metadata.fresh,
        ttl_s=metadata.ttl_s,
        ttl_late_s=metadata.ttl_late_s,
        ttl_refreshed_by=metadata.ttl_refreshed_by,
        workers=metadata.workers,
        # A URL with a password is in no file: whoever runs the trace names the store.
        store="" if has_password(store) else store,
        level=level,
    )
    write_trace(path, header, lines)
