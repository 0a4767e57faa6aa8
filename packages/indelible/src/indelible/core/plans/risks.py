"""Risks of a store on its engine: data that can be lost, and space that is wasted."""

from __future__ import annotations

from indelible import view
from indelible.core.limits import (
    JOURNAL_LINES_MAX,
    PAGE_ENTRIES_MAX,
    RISK_SESSIONS_MAX,
    UNDO_WINDOW_S,
)
from indelible.core.operations import (
    FindRisks,
    Identify,
    ListSessions,
    ReadHead,
    ReadJournal,
    ReadSnapshots,
    Reclaim,
)
from indelible.core.plan import Plan, perform
from indelible.core.plans.sessions import Progress
from indelible.core.rules import find_reachable, keep_undoable
from indelible.errors import FormatError
from indelible.model import Gravity, Risk, Status

# Wasteful sessions that are reported one by one; further ones are counted.
SESSIONS_NAMED_MAX = 20


def find_risks(*, sessions: bool, progress: Progress | None) -> Plan[tuple[Risk, ...]]:
    """Find what the engine can lose and, with `sessions`, sessions that are mostly unreachable."""
    found = list((yield from perform(FindRisks())))
    if sessions:
        found += yield from _find_wasted_space(progress)
    order = list(Gravity)
    return tuple(sorted(found, key=lambda risk: order.index(risk.severity)))


def read_identity() -> Plan[str | None]:
    """Read the identity of the store's place."""
    return (yield from perform(Identify()))


def _find_wasted_space(progress: Progress | None) -> Plan[list[Risk]]:
    found: list[Risk] = []
    wasted = unnamed = 0
    names, more = yield from _list_first_sessions()
    for name in names:
        try:
            dead, alive = yield from _count_reachable(name)
        except FormatError:
            # `verify` reports damage.
            continue
        wasted += dead
        if progress is not None:
            progress(name, wasted)
        if dead <= alive:
            continue
        if len(found) == SESSIONS_NAMED_MAX:
            unnamed += 1
        else:
            found.append(
                _build_waste_risk(f"session {name!r}", f"{dead} of its {dead + alive} entries are")
            )
    if unnamed:
        found.append(_build_waste_risk(f"{unnamed} more sessions", "more than half of each is"))
    if more:
        found.append(
            Risk(
                severity=Gravity.NOTE,
                subject=f"sessions beyond the first {RISK_SESSIONS_MAX:,}",
                risk="nothing is lost: they were not looked at, and may hold entries out of reach"
                " that take space all the same",
                remedy="`vacuum --dry-run` looks at every session, for as long as that takes",
            )
        )
    return found


def _list_first_sessions() -> Plan[tuple[list[str], bool]]:
    """List the first `RISK_SESSIONS_MAX` sessions, and whether there are more."""
    # A later page may repeat a session.
    names: dict[str, None] = {}
    resume: str | None = None
    while len(names) <= RISK_SESSIONS_MAX:
        page = yield from perform(ListSessions("", resume, PAGE_ENTRIES_MAX))
        names |= dict.fromkeys(page.names)
        resume = page.resume
        if resume is None:
            break
    return list(names)[:RISK_SESSIONS_MAX], len(names) > RISK_SESSIONS_MAX


def _count_reachable(session: str) -> Plan[tuple[int, int]]:
    """Count the entries that a vacuum would delete, and those that are reachable."""
    head = yield from perform(ReadHead(session))
    shown = view.count(head.visible)
    if shown == head.end - head.born:
        # Everything is visible, as in most sessions.
        return 0, shown
    snapshots = yield from perform(ReadSnapshots(session))
    journal = yield from perform(ReadJournal(session, JOURNAL_LINES_MAX))
    head = journal.head
    if head.status is not Status.ACTIVE:
        return 0, 0
    undo_since_ms = head.now_ms - UNDO_WINDOW_S * 1000
    reach = find_reachable(head, snapshots.records, keep_undoable(journal.lines, undo_since_ms))
    removable = yield from perform(Reclaim(session, undo_since_ms, dry_run=True))
    return removable.entries, view.count(reach)


def _build_waste_risk(subject: str, share: str) -> Risk:
    return Risk(
        severity=Gravity.WARNING,
        subject=subject,
        risk=f"nothing is lost: {share} out of reach of every view, snapshot and undo, and take"
        " space all the same",
        remedy="run `vacuum`",
    )
