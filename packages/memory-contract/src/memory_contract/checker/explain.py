"""A verdict as one screen of text: proof first, at most five operations, no free guesses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from memory_contract.checker.causes import find_faults_during, find_likely_cause
from memory_contract.checker.verdict import (
    Anomaly,
    Ok,
    Scope,
    Undecided,
    Verdict,
    Violated,
    format_count,
    quote_name,
)
from memory_contract.history import Fault, Operation

SHOWN_MAX: Final = 5
# Of a long list only the surroundings of what the anomaly is about are shown.
IDS_MAX: Final = 8
# Of the faults that struck meanwhile, those that are named.
FAULTS_MAX: Final = 3


def explain(verdict: Verdict, faults: Sequence[Fault] = ()) -> str:
    """Render a verdict for a terminal; `faults` were made meanwhile."""
    scope = verdict.scope
    size = f"{format_count(scope.operations, 'op')} in {format_count(scope.sessions, 'session')}"
    if isinstance(verdict, Ok):
        return f"OK   nothing breaks the contract   {size}\n"
    if isinstance(verdict, Undecided):
        return f"UNKNOWN   {verdict.reason}   {size}\n"
    return _format_violated(verdict, faults)


def _format_violated(verdict: Violated, faults: Sequence[Fault]) -> str:
    first = verdict.anomalies[0]
    shown = _choose_shown(first)
    rows = [_build_row(op, first, verdict.scope) for op in shown]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    lines = [f"VIOLATED   {first.name.upper()}   session {quote_name(first.session)}   proved"]
    # The sentence before the semicolon is what happened; the rest is why nothing else explains it.
    happened, _, why = first.proof.partition("; ")
    lines.append(f"  {happened.rstrip('.')}.")
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append("    " + "   ".join([*cells, *row[3:]]).rstrip())
    if why:
        lines.append(f"  {why[0].upper()}{why[1:]}")
    if struck := _format_faults(first, faults, verdict.scope):
        lines.append(f"  Meanwhile: {struck}.")
    if cause := find_likely_cause(first, faults):
        lines.append(f"  Likely: {cause}.")
    lines.append("  " + _format_rest(verdict, len(shown)))
    return "\n".join(lines) + "\n"


def _choose_shown(anomaly: Anomaly) -> list[Operation]:
    witness = anomaly.witness
    if len(witness) > SHOWN_MAX:
        # The first ones say where it began, the last one is the operation that nothing explains.
        witness = (*witness[: SHOWN_MAX - 1], witness[-1])
    both = [*witness, *anomaly.beside][:SHOWN_MAX]
    return sorted(both, key=lambda op: (op.invoke_ns, op.complete_ns or 0))


def _build_row(op: Operation, anomaly: Anomaly, scope: Scope) -> list[str]:
    began = (op.invoke_ns - scope.began_ns) / 1e9
    end = "…" if op.complete_ns is None else f"{(op.complete_ns - scope.began_ns) / 1e9:.3f}"
    row = [f"{op.worker} {_format_call(op, anomaly)}", f"{began:.3f} → {end} s", op.outcome]
    if op.op in {"read", "pop"} or isinstance(op.value, tuple):
        row.append(_format_seen(op, anomaly))
    if op in anomaly.beside:
        row.append("overlaps")
    return row


def _format_call(op: Operation, anomaly: Anomaly) -> str:
    about: dict[str, str | None] = {
        "append": f"[{_format_around(op.ids, anomaly)}]",
        "read": None if op.limit is None else f"last {op.limit}",
        "trim": f"keep {op.keep}",
        "fork": f"into {quote_name(op.target or '')}",
    }
    words = [op.op, op.snapshot, about.get(op.op), op.key and f"key {op.key}"]
    return " ".join(word for word in words if word)


def _format_seen(op: Operation, anomaly: Anomaly) -> str:
    if not isinstance(op.value, tuple):
        return op.value or "nothing"
    missing = [id_ for id_ in anomaly.ids if id_ not in op.value and op.outcome == "ok"]
    absent = f"   (no {', '.join(missing[:IDS_MAX])})" if missing else ""
    return f"[{_format_around(op.value, anomaly)}]{absent}"


def _format_around(ids: tuple[str, ...], anomaly: Anomaly) -> str:
    if len(ids) <= IDS_MAX:
        return " ".join(ids)
    at = next((place for place, id_ in enumerate(ids) if id_ in anomaly.ids), len(ids))
    start = max(0, min(at - IDS_MAX // 2, len(ids) - IDS_MAX))
    before, after = "… " if start else "", " …" if start + IDS_MAX < len(ids) else ""
    return f"{before}{' '.join(ids[start : start + IDS_MAX])}{after}"


def _format_faults(anomaly: Anomaly, faults: Sequence[Fault], scope: Scope) -> str:
    """Which faults struck while it happened, the first ones by name."""
    struck = find_faults_during(anomaly.witness, faults)
    told = [
        f"{fault.name} at {(fault.began_ns - scope.began_ns) / 1e9:.3f} s"
        for fault in struck[:FAULTS_MAX]
    ]
    more = f" and {len(struck) - FAULTS_MAX} more" if len(struck) > FAULTS_MAX else ""
    return ", ".join(told) + more


def _format_rest(verdict: Violated, shown: int) -> str:
    first, scope = verdict.anomalies[0], verdict.scope
    here = Counter(a.name for a in verdict.anomalies[1:] if a.session == first.session)
    also = ", ".join(f"{name} ({count})" for name, count in here.most_common(4))
    elsewhere = sum(a.session != first.session for a in verdict.anomalies)
    parts = [f"{shown} of {format_count(scope.operations, 'op')} shown"]
    parts += [f"also broken here: {also}"] if also else []
    if others := scope.sessions - 1:
        parts.append(
            f"{elsewhere} anomal{'ies' if elsewhere != 1 else 'y'} in"
            f" {format_count(others, 'other session')}"
        )
    return " · ".join(parts)
