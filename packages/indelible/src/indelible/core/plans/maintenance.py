"""Vacuum, forget and timeline. Only the first two delete entries."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from indelible import view
from indelible.core.clock import to_datetime
from indelible.core.limits import JOURNAL_LINES_MAX, PAGE_ENTRIES_MAX, TTL_S_MAX
from indelible.core.operations import (
    Erase,
    JournalLine,
    ReadHead,
    ReadJournal,
    ReadLog,
    ReadSnapshots,
    Reclaim,
    ReclaimResult,
    Scrub,
)
from indelible.core.plan import Plan, perform
from indelible.core.plans.sessions import build_session_info
from indelible.core.plans.snapshots import build_snapshot
from indelible.core.plans.verification import Progress, check_row, list_all_sessions
from indelible.core.plans.view_changes import find_undoable, find_undone
from indelible.core.settings import check_session_id
from indelible.errors import FormatError, UsageError
from indelible.model import (
    Change,
    ForgetReceipt,
    Timeline,
    TimelineEntry,
    VacuumReport,
)


def vacuum(
    session_id: str | None,
    *,
    undo_window: float,
    dry_run: bool,
    progress: Progress | None,
) -> Plan[VacuumReport]:
    """Delete entries that no view, snapshot or journal line inside the window can reach."""
    if not isinstance(undo_window, (int, float)) or not 0 <= undo_window <= TTL_S_MAX:
        raise UsageError(
            f"undo_window is a number of seconds from 0 to {TTL_S_MAX}, not {undo_window!r}",
            value=undo_window,
        )
    names = yield from list_all_sessions(session_id, dead=True)
    total = ReclaimResult()
    for name in names:
        try:
            head = yield from perform(ReadHead(name))
            undo_since_ms = head.now_ms - int(undo_window * 1000)
            removed = yield from perform(Reclaim(name, undo_since_ms, dry_run))
        except FormatError:
            # A damaged session is skipped, and does not stop the others.
            if session_id is not None:
                raise
            removed = ReclaimResult()
        total = ReclaimResult(
            total.entries + removed.entries,
            total.size_bytes + removed.size_bytes,
            total.journal_lines + removed.journal_lines,
        )
        if progress is not None:
            progress(name, total.entries)
    return VacuumReport(
        sessions=len(names),
        entries=total.entries,
        bytes=total.size_bytes,
        journal_lines=total.journal_lines,
        dry_run=dry_run,
    )


def forget(session_id: str) -> Plan[ForgetReceipt]:
    """Erase a session. Calling it again clears what was still pending."""
    session = check_session_id(session_id)
    erased = yield from perform(Erase(session))
    left = yield from perform(Scrub())
    return ForgetReceipt(
        session_id=session,
        entries=erased.entries,
        snapshots=erased.snapshots,
        bytes=erased.size_bytes,
        forks=erased.forks,
        pending=bool(left),
        left=(*left, *erased.kept),
    )


def read_timeline(session_id: str) -> Plan[Timeline]:
    """Read all entries of a session's life, visible or not, with snapshots and changes."""
    session = check_session_id(session_id)
    journal = yield from perform(ReadJournal(session, JOURNAL_LINES_MAX))
    snapshots = yield from perform(ReadSnapshots(session))
    head = journal.head
    shown = view.freeze(head.view, head.end)
    entries: list[TimelineEntry] = []
    start: int | None = 0
    while start is not None:
        page = yield from perform(ReadLog(session, start, PAGE_ENTRIES_MAX))
        for row in page.rows:
            visible = view.contains(shown, row.position, row.position + 1)
            # Leave out entries that were appended meanwhile: the timeline is one state.
            if row.position < head.end:
                entries.append(TimelineEntry(entry=check_row(session, row), visible=visible))
        start = page.resume
    undone = find_undone(journal.lines)
    newest = find_undoable(journal.lines)
    return Timeline(
        info=replace(build_session_info(session, head), snapshots=len(snapshots.records)),
        entries=tuple(entries),
        snapshots=tuple(build_snapshot(session, record) for record in snapshots.records),
        changes=tuple(_build_change(line, undone) for line in journal.lines),
        undo=None if newest is None else _build_change(newest, undone),
    )


def _build_change(line: JournalLine, undone: Collection[str]) -> Change:
    before, after = view.freeze(line.before, line.end), view.freeze(line.after, line.end)
    return Change(
        change=line.change,
        at=to_datetime(line.changed_at_ms),
        key=line.key,
        undone=line.key in undone,
        dropped=tuple(view.iter_positions(view.subtract(before, after))),
        restored=tuple(view.iter_positions(view.subtract(after, before))),
    )
