"""Judge a recorded history: Ok, Violated with proofs, or Undecided.

The rules are sound: as long as outcomes are truthful, a history that a right store can produce is
never accused. They are not complete: some violations stay unnamed. Each rule is a file here, and
`events.py` says when an operation can have taken effect.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from memory_contract.checker.batches import check_batches
from memory_contract.checker.events import SessionHistory, group_sessions, tighten
from memory_contract.checker.identity import find_harness_error, find_strange_ids, is_key_outlived
from memory_contract.checker.order import check_order
from memory_contract.checker.pops import check_pops
from memory_contract.checker.presence import Presence, check_absences, check_resurrections
from memory_contract.checker.removal import Removals, settle_fork
from memory_contract.checker.search import (
    STEPS_MAX,
    Stuck,
    build_no_order,
    find_search_obstacle,
    search,
)
from memory_contract.checker.snapshots import check_rollbacks, check_snapshots
from memory_contract.checker.verdict import (
    Anomaly,
    Ok,
    Scope,
    Undecided,
    Verdict,
    Violated,
    quote_name,
)
from memory_contract.checker.window import check_window
from memory_contract.history import Operation, read_history

__all__ = ["check_history", "judge"]


def judge(
    history: Iterable[Operation], *, flicker: bool = False, search_steps: int = STEPS_MAX
) -> Verdict:
    """Judge a history.

    `flicker` asks for flickering entries too: only a store that claims never to show an
    unacknowledged entry that may vanish again can be held to that. `search_steps` bounds the
    search on each small session of which the rules accuse nothing; with 0 there is none.
    """
    operations = list(history)
    began = min((op.invoke_ns for op in operations), default=0)
    names = {op.session for op in operations}
    scope = Scope(len(operations), len(names), began)
    if error := find_harness_error(operations):
        return Undecided(f"the record cannot be judged: {error}", scope)
    sessions = group_sessions(operations)
    anomalies: list[Anomaly] = []
    reasons: list[str] = []
    for session in sessions.values():
        found, reason = _check_session(session, sessions, flicker=flicker, steps=search_steps)
        anomalies += found
        if reason and not found:
            reasons.append(f"session {quote_name(session.name)}: {reason}")
    if anomalies:
        return Violated(tuple(anomalies), scope)
    if reasons:
        more = f" (and {len(reasons) - 1} other sessions)" if len(reasons) > 1 else ""
        return Undecided(reasons[0] + more, scope)
    return Ok(scope)


def check_history(path: str | Path, *, flicker: bool = False) -> Verdict:
    """Judge a history that was written as JSON Lines."""
    return judge(read_history(path), flicker=flicker)


def _check_session(
    session: SessionHistory, sessions: dict[str, SessionHistory], *, flicker: bool, steps: int
) -> tuple[list[Anomaly], str | None]:
    """The anomalies of one session; if there are none, why that may not be the last word."""
    found = find_strange_ids(session, sessions)
    if is_key_outlived(session, sessions):
        return found, "a key was used again across an expiry"
    settle_fork(session, sessions)
    tighten(session)
    found += check_order(session)
    found += check_batches(session, sessions)
    found += check_window(session)
    removals = Removals(session)
    presence = Presence(session, removals, flicker=flicker)
    torn = {id_ for anomaly in found for id_ in anomaly.ids}
    missing = {id_: reads for id_, reads in presence.run().items() if id_ not in torn}
    absent = check_absences(session, missing)
    found += absent
    if session.changes() or session.events.get("snapshot") or session.contents or session.refused:
        risen = check_resurrections(session, removals)
        accused = {(id(op), id_) for a in [*absent, *risen] for op in a.witness for id_ in a.ids}
        found += risen + check_pops(session, removals) + check_snapshots(session, removals)
        found += check_rollbacks(session, removals, accused)
    if found or not steps:
        return found, None
    return _search_session(session, doubts=presence.doubts, steps=steps, flicker=flicker)


def _search_session(
    session: SessionHistory, *, doubts: int, steps: int, flicker: bool
) -> tuple[list[Anomaly], str | None]:
    if obstacle := find_search_obstacle(session):
        reason = f"{doubts} absences rest on changes that overlap, and {obstacle}"
        return [], reason if doubts else None
    result = search(session, steps=steps, flicker=flicker)
    if isinstance(result, Stuck):
        return [build_no_order(session, result)], None
    # Where nothing is removed, the rules decide without a search all but a few rare overlaps.
    gave_up = result is None and bool(session.changes())
    return [], f"the search gave up after {steps} steps" if gave_up else None
