"""Whether a history covers what its case is about: workers that overlapped, faults that struck."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from memory_contract.history import Fault, Operation


def check_race_coverage(history: Sequence[Operation], racers: Iterable[str]) -> str | None:
    """Why the history of a race proves nothing; None if it proves something."""
    workers = set(racers)
    raced = [op for op in history if op.worker in workers]
    idle = workers - {op.worker for op in raced if op.outcome == "ok"}
    if idle:
        return f"worker {min(idle)} completed nothing"
    if not any(_has_overlap(ops) for ops in _group_by_session(raced).values()):
        return "no two operations that could disturb each other overlapped"
    reads = any(op.op == "read" for op in raced)
    if reads and not _has_foreign_sighting(history, workers):
        return "no read saw what another worker wrote"
    return None


def check_fault_coverage(history: Iterable[Operation], faults: Sequence[Fault]) -> str | None:
    """Why a history with faults proves nothing; None if a fault struck an open operation."""
    if not faults:
        return "no fault was made"
    if not any(_is_struck(op, fault) for op in history for fault in faults):
        return "no operation was open when a fault struck"
    return None


def _is_struck(op: Operation, fault: Fault) -> bool:
    before = fault.ended_ns is None or op.invoke_ns <= fault.ended_ns
    # An operation without a known outcome was open to the end.
    open_to_the_end = op.complete_ns is None or op.outcome == "info"
    return before and (open_to_the_end or fault.began_ns <= (op.complete_ns or 0))


def _group_by_session(operations: Iterable[Operation]) -> dict[str, list[Operation]]:
    found: dict[str, list[Operation]] = defaultdict(list)
    for op in operations:
        found[op.session].append(op)
    return found


def _has_overlap(operations: list[Operation]) -> bool:
    """Whether a change overlapped another worker's operation on the same session."""
    ordered = sorted(operations, key=lambda op: op.invoke_ns)
    for place, first in enumerate(ordered):
        end = first.complete_ns
        for then in ordered[place + 1 :]:
            if end is not None and then.invoke_ns > end:
                break
            changes = first.op != "read" or then.op != "read"
            if changes and first.worker != then.worker:
                return True
    return False


def _has_foreign_sighting(history: Sequence[Operation], workers: set[str]) -> bool:
    writer = {id_: op.worker for op in history if op.op == "append" for id_ in op.ids}
    return any(
        writer.get(id_, op.worker) != op.worker
        for op in history
        if op.op == "read" and op.worker in workers and isinstance(op.value, tuple)
        for id_ in op.value
    )
