"""Likely causes: a fixed table, from what was proved and what struck meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from memory_contract.checker.verdict import Anomaly
from memory_contract.history import Fault, Operation

# By how the name of a fault begins. The first that struck between the first and the last operation
# of the proof decides.
_LOST: Final = (
    ("kill", "it was acknowledged before it was written, and died with its process"),
    ("power", "an fsync is missing: what was acknowledged was still in the system's cache"),
    ("fork", "a file, socket or lock is shared with a forked child"),
    ("SIGSTOP", "a writer's lease ran out while it slept, and it wrote what it had read before"),
    ("the clock", "entries are thrown away by the wall clock"),
)
_BY_FAULT: Final = {
    "lost append": _LOST,
    "early expiry": _LOST[-1:],
    "corrupted entry": (("fork", _LOST[2][1]),),
    "real-time reorder": (("the clock", "entries are ordered by a clock"),),
    "program-order violation": (("the clock", "entries are ordered by a clock"),),
}


def find_likely_cause(anomaly: Anomaly, faults: Sequence[Fault] = ()) -> str | None:
    """A cause from the fixed table, or none: nothing else is guessed."""
    for fault in find_faults_during(anomaly.witness, faults):
        for begins, cause in _BY_FAULT.get(anomaly.name, ()):
            if fault.name.startswith(begins):
                return cause
    return _find_cause_in_witness(anomaly)


def _find_cause_in_witness(anomaly: Anomaly) -> str | None:
    witness = anomaly.witness
    match anomaly.name:
        case "lost append" if anomaly.beside:
            other = anomaly.beside[0].worker
            return f"{other} wrote back a list that it had read before (read-modify-write)"
        case "torn batch" | "torn snapshot" | "interleaved batch":
            return "a batch is not written atomically"
        case "duplicate" | "duplicate after retry" if any(op.outcome == "info" for op in witness):
            return "a write was tried again after its reply was lost"
        case "real-time reorder" if _is_one_clock_tick(witness):
            return "entries are ordered by a clock"
        case "resurrected entry" if any(op.op == "clear" for op in witness):
            return "a cache, or a delete that leaves a part behind"
        case _:
            return None


def find_faults_during(operations: Sequence[Operation], faults: Sequence[Fault]) -> list[Fault]:
    """The faults that struck between the first of the operations and the last."""
    if not operations:
        return []
    began = min(op.invoke_ns for op in operations)
    ended = max(max(op.invoke_ns, op.complete_ns or 0) for op in operations)
    return [
        fault
        for fault in faults
        if fault.began_ns <= ended and (fault.ended_ns is None or fault.ended_ns >= began)
    ]


def _is_one_clock_tick(witness: tuple[Operation, ...]) -> bool:
    """Whether the two appends fell into one millisecond, as coarse clocks see it."""
    times = sorted(op.invoke_ns for op in witness[:2])
    return len(times) == 2 and times[1] - times[0] < 1_000_000
