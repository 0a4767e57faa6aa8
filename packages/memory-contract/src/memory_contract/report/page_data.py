"""The data of a page: the facts of each case, and as many operations as one file can hold."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from memory_contract.cases.catalogue import all_cases
from memory_contract.checker.causes import find_likely_cause
from memory_contract.checker.shrink import SHRINKABLE_MAX, minimal
from memory_contract.checker.verdict import Anomaly
from memory_contract.gates import GATES
from memory_contract.history import Fault, Operation
from memory_contract.report.as_json import describe_result, describe_run, operation
from memory_contract.report.program import build_program
from memory_contract.report.text import VERDICTS, build_badge, describe_scope, reproduce, slug
from memory_contract.results import CaseResult, Report

# More operations of one case than a browser draws at once; the page says so where it leaves some.
OPERATIONS_MAX: Final = 10_000
# Ids in all operations of a page together, which make out its size: some ten megabytes.
IDS_MAX: Final = 500_000
# Failures of one case that can be looked at; the page says how many there are.
FAILURES_MAX: Final = 12
# Faults of one case that are drawn.
FAULTS_MAX: Final = 500
# For finding small histories, in all. What there is no time for is shown by its witness.
SHRINKING_S_MAX: Final = 15.0

# Failures come first, since a page has limited room for operations.
_URGENT: Final = {"FAIL": 0, "UNKNOWN": 1, "VACUOUS": 2, "DEVIATION": 3}


def build_page_data(report: Report) -> dict[str, Any]:
    """All that the script of a page draws."""
    known = {(found.gate, found.name): found for found in all_cases()}
    timelines = _Timelines(report)
    urgent = sorted(report.results, key=lambda result: _URGENT.get(result.verdict, 9))
    kept = {result.id: timelines.build(result) for result in urgent}
    return {
        **describe_run(report),
        "badge": build_badge(report).line,
        "verdicts": list(VERDICTS),
        "gates": [
            {
                "name": gate,
                "about": GATES.get(gate, ""),
                "verdict": report.judge_gate(gate),
                "counts": report.count(gate),
            }
            for gate in report.gates
        ],
        "cases": [
            {
                **describe_result(result),
                "slug": slug(result),
                "does": getattr(known.get((result.gate, result.case)), "does", ""),
                "catches": getattr(known.get((result.gate, result.case)), "catches", ""),
                "reproduce": reproduce(report, result),
                **kept[result.id],
            }
            for result in report.results
        ],
    }


class _Timelines:
    """Takes the operations of one case after the other into a page, while there is room."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._room = IDS_MAX
        self._until = time.monotonic() + SHRINKING_S_MAX

    def build(self, result: CaseResult) -> dict[str, Any]:
        """The operations of a case, and its failures, which name them by their place."""
        chosen = _chosen(result.failures)
        small = [self._small(result, failure) for failure in chosen]
        needed = [op for failure in chosen for op in (*failure.witness, *failure.beside)]
        needed += [op for history in small for op in history]
        operations = self._fitting(result, needed, {failure.session for failure in chosen})
        places = {op: place for place, op in enumerate(operations)}
        scope = describe_scope(result)
        return {
            "operations": [_plain(op) for op in operations],
            "began_ns": scope.began_ns,
            "recorded": len(result.history),
            "failed": len(result.failures),
            "bands": _bands(operations, result.faults[:FAULTS_MAX]),
            "failures": [
                self._failure(result, failure, history, places)
                for failure, history in zip(chosen, small, strict=True)
            ],
        }

    def _small(self, result: CaseResult, failure: Anomaly) -> list[Operation]:
        """The smallest history that shows a failure; failing that, its witness."""
        if failure.proved and time.monotonic() < self._until:
            history = result.history
            if len(history) > SHRINKABLE_MAX:
                history = tuple(op for op in history if op.session == failure.session)
            if len(history) <= SHRINKABLE_MAX:
                return minimal(history, failure)
        return list(failure.witness)

    def _fitting(
        self, result: CaseResult, needed: list[Operation], sessions: set[str]
    ) -> list[Operation]:
        """What the proofs need, then their sessions, then the rest from its beginning."""
        ordered = sorted(result.history, key=lambda op: op.invoke_ns)
        near = [op for op in ordered if op.session in sessions]
        kept: dict[Operation, None] = dict.fromkeys(needed)
        self._room -= sum(map(_weight, kept))
        for op in (*near, *ordered):
            if op in kept:
                continue
            if len(kept) >= OPERATIONS_MAX or self._room < _weight(op):
                break
            kept[op] = None
            self._room -= _weight(op)
        return sorted(kept, key=lambda op: op.invoke_ns)

    def _failure(
        self,
        result: CaseResult,
        failure: Anomaly,
        history: list[Operation],
        places: dict[Operation, int],
    ) -> dict[str, Any]:
        happened, _, why = failure.proof.partition("; ")
        return {
            "name": failure.name,
            "session": failure.session,
            "ids": list(failure.ids),
            "happened": happened.rstrip("."),
            "why": why[:1].upper() + why[1:],
            # The table of causes is about what was proved.
            "likely": (failure.proved and find_likely_cause(failure, result.faults)) or "",
            "proved": failure.proved,
            "witness": [places[op] for op in failure.witness],
            "beside": [places[op] for op in failure.beside],
            "minimal": [places[op] for op in history],
            "program": build_program(self._report, result, failure, history),
        }


def _chosen(failures: tuple[Anomaly, ...]) -> list[Anomaly]:
    """The first of each name, then others, in their order."""
    firsts = {failure.name: place for place, failure in reversed(list(enumerate(failures)))}
    places = sorted(range(len(failures)), key=lambda at: (at not in firsts.values(), at))
    return [failures[place] for place in sorted(places[:FAILURES_MAX])]


def _weight(op: Operation) -> int:
    seen = len(op.value) if isinstance(op.value, tuple) else 1
    return 8 + len(op.ids) + seen


def _plain(op: Operation) -> dict[str, Any]:
    found = operation(op)
    return {"from": found.pop("invoke_ns"), "to": found.pop("complete_ns"), **found}


def _bands(operations: Iterable[Operation], faults: tuple[Fault, ...]) -> list[dict[str, Any]]:
    """What lies across all workers: moments in which a session may expire, and faults."""
    bands: list[tuple[Any, ...]] = [
        (f"{op.session} expires", "expiry", op.invoke_ns, op.complete_ns, op.session)
        for op in operations
        if op.op == "expire"
    ]
    bands += [(each.name, "fault", each.began_ns, each.ended_ns, None) for each in faults]
    names = ("label", "kind", "from", "to", "session")
    return [dict(zip(names, band, strict=True)) for band in bands]
