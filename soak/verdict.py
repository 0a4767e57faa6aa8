"""Judges the records of one engine: counts what was acknowledged, lost, doubled and broken."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import indelible
from memory_contract.checker import judge
from memory_contract.checker.explain import explain
from memory_contract.checker.verdict import Undecided, Violated
from memory_contract.history import Operation, write_history
from soak.record import parse_record
from soak.writer import parse_ids

# Sessions that are judged together.
CHUNK: Final = 64
LOST: Final = frozenset({"lost append", "stale read", "lost snapshot", "lossy snapshot"})
DOUBLED: Final = frozenset({"duplicate", "duplicate after retry"})


def parse_records(records: Sequence[Path]) -> list[Operation]:
    """Parse the records of all writers of an engine."""
    return [op for record in records for op in parse_record(record)]


def read_sessions(url: str, sessions: Iterable[str]) -> list[Operation]:
    """Read every session in a process that wrote nothing."""
    found = []
    with indelible.open(url) as store:
        for session in sessions:
            began = time.monotonic_ns()
            seen = parse_ids(store.get_history(session))
            found.append(
                Operation(
                    worker="final",
                    session=session,
                    op="read",
                    invoke_ns=began,
                    complete_ns=time.monotonic_ns(),
                    outcome="ok",
                    value=seen,
                )
            )
    return found


def count_results(operations: Sequence[Operation], evidence: Path) -> Counter[str]:
    """Count and judge the operations; write a history that is wrong to `evidence`."""
    count = _count_operations(operations)
    by_session: dict[str, list[Operation]] = defaultdict(list)
    for op in operations:
        by_session[op.session].append(op)
    count["sessions"] = len(by_session)
    names = sorted(by_session)
    for start in range(0, len(names), CHUNK):
        together = names[start : start + CHUNK]
        _judge([op for name in together for op in by_session[name]], count, evidence)
    return count


def _count_operations(operations: Sequence[Operation]) -> Counter[str]:
    count: Counter[str] = Counter(operations=len(operations))
    last: dict[str, frozenset[str]] = {}
    keys: dict[tuple[str, str], set[str]] = defaultdict(set)
    for op in operations:
        if op.op == "append" and op.key is not None:
            keys[op.session, op.key].add(op.outcome)
            if op.outcome == "ok":
                count["acknowledged"] += 1
                count["entries"] += len(op.ids)
        elif op.op == "read" and op.outcome == "ok" and isinstance(op.value, tuple):
            last[op.session] = frozenset(op.value)
    for (session, key), outcomes in keys.items():
        if "info" in outcomes:
            count["unknown"] += 1
            if "ok" in outcomes or key.removeprefix("k") in last.get(session, ()):
                count["unknown, landed"] += 1
    return count


def _judge(operations: list[Operation], count: Counter[str], evidence: Path) -> None:
    verdict = judge(operations)
    if isinstance(verdict, Undecided):
        # Count the undecided sessions, not all that were judged with them.
        names = {op.session for op in operations}
        if len(names) == 1:
            count["undecided"] += 1
            return
        for name in names:
            _judge([op for op in operations if op.session == name], count, evidence)
    elif isinstance(verdict, Violated):
        for anomaly in verdict.anomalies:
            kind = anomaly.name
            count["lost" if kind in LOST else "doubled" if kind in DOUBLED else "broken"] += 1
        write_history(evidence.with_suffix(".jsonl"), operations)
        with evidence.with_suffix(".txt").open("a", encoding="utf-8") as file:
            file.write(explain(verdict))
