"""The result of a replay, its text, and how many overlaps of the trace it kept."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from memory_contract.checker.verdict import format_count
from memory_contract.history import Operation
from memory_contract.printable import escape_unseen
from memory_contract.results import EXIT_FAIL, EXIT_PASS, EXIT_UNDECIDED
from memory_contract.traces.diagnosis import AnomalyStory, Explanation
from memory_contract.traces.diagnosis.render import render_explanation
from memory_contract.traces.diagnosis.trace_reader import TraceMetadata
from memory_contract.traces.format import ReplayLevel, TraceCall
from memory_contract.traces.replay.plan import ReplayStep, WorkerMode

ReplayVerdict = Literal["FIXED", "FAILED", "CHANGED", "UNKNOWN", "ERROR"]
EXIT_ERROR: Final = 4
_EXITS: Final[dict[ReplayVerdict, int]] = {
    "FIXED": EXIT_PASS,
    "FAILED": EXIT_FAIL,
    "CHANGED": EXIT_FAIL,
    "UNKNOWN": EXIT_UNDECIDED,
    "ERROR": EXIT_ERROR,
}
_MEANING: Final[dict[ReplayVerdict, str]] = {
    "FIXED": "the store does not do it",
    "FAILED": "the store does the same again",
    "CHANGED": "the store does something else that breaks the contract",
    "UNKNOWN": "nothing was proved",
    "ERROR": "the store could not be asked",
}
# FIXED, of a trace without an anomaly.
_CLEAN: Final = "the trace shows nothing wrong, nor does the store"


# Pairs grow with the square of what is open at once.
PAIRS_MAX: Final = 200_000


@dataclass(frozen=True, slots=True)
class Overlaps:
    """Pairs of operations of two workers, in the trace and again in a replay."""

    recorded: int = 0
    kept: int = 0

    @property
    def share(self) -> float:
        """Return the share of the overlaps that occurred again."""
        return self.kept / self.recorded if self.recorded else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTrace:
    """A trace in memory, with the anomalies that it shows."""

    lines: tuple[TraceCall, ...]
    metadata: TraceMetadata
    # The names of the anomalies that it shows.
    names: frozenset[str] = frozenset()
    stories: tuple[AnomalyStory, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The result of a replay."""

    verdict: ReplayVerdict
    reason: str = ""
    level: ReplayLevel = "concurrent"
    way: WorkerMode | None = None
    seed: int = 0
    times: int = 0
    # The anomalies of the trace, and those of the deciding run.
    recorded: frozenset[str] = frozenset()
    found: frozenset[str] = frozenset()
    explanation: Explanation | None = None
    lines: tuple[TraceCall, ...] = ()
    overlaps: Overlaps = field(default_factory=Overlaps)
    operations: int = 0
    notes: tuple[str, ...] = ()
    # Whether it is UNKNOWN for want of an overlap alone, or because the store hangs.
    vacuous: bool = False
    hangs: bool = False
    # Capabilities that the trace needs and the store lacks.
    lacking: frozenset[str] = frozenset()

    @property
    def told(self) -> str:
        """Return the result as text, which a failing test shows."""
        return render_replay(self)

    @property
    def exit_code(self) -> int:
        """The exit code of a command that shows this."""
        return _EXITS[self.verdict]


def render_replay(found: Replay) -> str:
    """Render the verdict, how it was reached, and the proof."""
    is_clean = found.verdict == "FIXED" and not found.recorded
    lines = [f"{found.verdict}   {_CLEAN if is_clean else _MEANING[found.verdict]}"]
    if found.recorded or found.found:
        recorded = ", ".join(sorted(found.recorded)) or "nothing"
        again = ", ".join(sorted(found.found)) or "nothing"
        lines.append(f"  in the trace: {recorded}; here: {again}")
    if found.reason and found.verdict not in ("FAILED", "CHANGED"):
        lines.append(f"  {found.reason}")
    lines += [f"  {line}" for line in _describe_run(found)]
    lines += [f"  note: {note}" for note in found.notes]
    text = "\n".join(map(escape_unseen, lines)) + "\n"
    if found.verdict in ("FAILED", "CHANGED") and found.explanation is not None:
        return f"{text}\n{render_explanation(found.explanation)}"
    return text


def _describe_run(found: Replay) -> list[str]:
    if not found.operations or found.way is None:
        return []
    runs = f"{format_count(found.operations, 'operation')}, {format_count(found.times, 'run')}"
    lines = [f"{runs}, level {found.level}, by {found.way.workers}, seed {found.seed}"]
    overlaps = found.overlaps
    if overlaps.recorded:
        pairs = format_count(overlaps.recorded, "pair")
        lines.append(
            f"{overlaps.kept} of {pairs} of overlapping operations overlapped again"
            f" ({overlaps.share:.0%})"
        )
    return lines


def count_overlaps(steps: Sequence[ReplayStep], replayed: Mapping[int, Operation]) -> Overlaps:
    """Count the overlaps of a trace, and those of them that the replay had, too.

    `steps` are in the order in which they were invoked.
    """
    recorded = kept = 0
    open_: list[tuple[int, int, ReplayStep]] = []
    for step in steps:
        while open_ and open_[0][0] < step.recorded.invoke_ns:
            heapq.heappop(open_)
        for _, _, other in open_:
            if other.lane == step.lane:
                continue
            recorded += 1
            one, two = replayed.get(other.number), replayed.get(step.number)
            kept += one is not None and two is not None and _overlap(one, two)
            if recorded >= PAIRS_MAX:
                return Overlaps(recorded, kept)
        # One that never came back overlaps nothing for certain but what was open with it.
        line = step.recorded
        end = line.invoke_ns if line.complete_ns is None else line.complete_ns
        heapq.heappush(open_, (end, step.number, step))
    return Overlaps(recorded, kept)


def _overlap(one: Operation, two: Operation) -> bool:
    ends = (one.complete_ns, two.complete_ns)
    return (ends[0] is None or two.invoke_ns <= ends[0]) and (
        ends[1] is None or one.invoke_ns <= ends[1]
    )
