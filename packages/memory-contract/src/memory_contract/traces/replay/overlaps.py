"""Which pairs of operations overlapped in a trace, and how many of them do in a replay."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memory_contract.history import Operation
from memory_contract.traces.replay.plan import ReplayStep

# Pairs grow with the square of what is open at once.
PAIRS_MAX: Final = 200_000


@dataclass(frozen=True, slots=True)
class Overlaps:
    """Pairs of operations of two workers, in the trace and again in a replay."""

    recorded: int = 0
    kept: int = 0

    @property
    def share(self) -> float:
        """How much of the pattern was kept."""
        return self.kept / self.recorded if self.recorded else 1.0


def count_overlaps(steps: Sequence[ReplayStep], replayed: Mapping[int, Operation]) -> Overlaps:
    """Compare a trace with what became of it."""
    recorded = kept = 0
    open_: list[tuple[int, int, ReplayStep]] = []
    for step in sorted(steps, key=lambda each: each.invoke_ns):
        while open_ and open_[0][0] < step.invoke_ns:
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
        end = step.invoke_ns if step.complete_ns is None else step.complete_ns
        heapq.heappush(open_, (end, step.number, step))
    return Overlaps(recorded, kept)


def _overlap(one: Operation, two: Operation) -> bool:
    ends = (one.complete_ns, two.complete_ns)
    return (ends[0] is None or two.invoke_ns <= ends[0]) and (
        ends[1] is None or one.invoke_ns <= ends[1]
    )
