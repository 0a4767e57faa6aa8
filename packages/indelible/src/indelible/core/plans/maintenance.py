"""Vacuum, forget, reindex and timeline. Only the first two delete entries."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from indelible import view
from indelible.core.clock import to_datetime
from indelible.core.limits import (
    INDEX_PAGE,
    JOURNAL_LINES_MAX,
    LOG_ENTRIES_MAX,
    PAGE_ENTRIES_MAX,
    TTL_S_MAX,
)
from indelible.core.operations import (
    Erase,
    IndexText,
    JournalLine,
    LogRow,
    ReadHead,
    ReadJournal,
    ReadLog,
    ReadSnapshots,
    Reclaim,
    ReclaimResult,
    Scrub,
)
from indelible.core.plan import Plan, perform
from indelible.core.plans.read import check_count
from indelible.core.plans.sessions import Progress, build_session_info, list_all_sessions
from indelible.core.plans.snapshots import build_snapshot
from indelible.core.plans.verification import decode_log_row
from indelible.core.plans.view_changes import find_undoable, find_undone
from indelible.core.settings import check_session_id, check_version
from indelible.errors import FormatError, UsageError
from indelible.model import (
    Change,
    ForgetReceipt,
    ReindexReport,
    Timeline,
    TimelineEntry,
    VacuumReport,
)

# Called with each page of a timeline.
OnPage = Callable[[Timeline], None]


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


def reindex(*, rebuild: bool, progress: Progress | None) -> Plan[ReindexReport]:
    """Add the entries to the index of words that it lacks."""
    entries = damaged = 0
    resume: int | None = None
    while True:
        done = yield from perform(IndexText(resume, INDEX_PAGE, rebuild))
        entries, damaged = entries + done.entries, damaged + done.damaged
        resume = done.resume
        if progress is not None:
            progress(done.session, entries)
        if resume is None:
            return ReindexReport(entries=entries, damaged=damaged)


def forget(session_id: str, *, expected: str | None) -> Plan[ForgetReceipt]:
    """Erase a session. Calling it again clears what was still pending."""
    session = check_session_id(session_id)
    erased = yield from perform(Erase(session, check_version(expected)))
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


def read_timeline(
    session_id: str, *, last: int | None, before: int | None, on_page: OnPage | None
) -> Plan[Timeline]:
    """Read the entries of a session's life, visible or not, with snapshots and changes."""
    session = check_session_id(session_id)
    last = check_count(last, "last")
    before = check_count(before, "before")
    journal = yield from perform(ReadJournal(session, JOURNAL_LINES_MAX))
    snapshots = yield from perform(ReadSnapshots(session))
    head = journal.head
    end = head.end if before is None else min(before, head.end)
    shown = head.visible
    undone = find_undone(journal.lines)
    newest = find_undoable(journal.lines)
    changes = {line.key: _build_change(line, undone) for line in journal.lines}
    timeline = Timeline(
        info=replace(build_session_info(session, head), snapshots=len(snapshots.records)),
        entries=(),
        hidden=view.subtract(((head.born, head.end),), shown),
        snapshots=tuple(build_snapshot(session, record) for record in snapshots.records),
        changes=tuple(changes.values()),
        undo=None if newest is None else changes[newest.key],
    )
    entries: list[TimelineEntry] = []

    def add(rows: Iterable[LogRow]) -> None:
        page = tuple(
            TimelineEntry(
                entry=decode_log_row(session, row),
                visible=view.contains(shown, row.position, row.position + 1),
            )
            for row in rows
        )
        if on_page is None:
            entries.extend(page)
        else:
            on_page(replace(timeline, entries=page))

    if last is not None:
        # A log is never longer; a deque refuses much larger lengths.
        add((yield from _read_newest(session, head.born, end, min(last, LOG_ENTRIES_MAX))))
    else:
        start: int | None = head.born
        while start is not None:
            rows, start = yield from _read_log_page(session, start, end)
            add(rows)
    return replace(timeline, entries=tuple(entries))


def _read_newest(session: str, born: int, end: int, last: int) -> Plan[list[LogRow]]:
    """Read the newest entries before `end`; a vacuum may have left gaps between them."""
    span = last
    while True:
        begin = max(born, end - span)
        newest: deque[LogRow] = deque(maxlen=last)
        resume: int | None = begin if last else None
        while resume is not None:
            rows, resume = yield from _read_log_page(session, resume, end)
            newest.extend(rows)
        if len(newest) == last or begin == born:
            return list(newest)
        span *= 2


def _read_log_page(session: str, start: int, end: int) -> Plan[tuple[list[LogRow], int | None]]:
    """Read a page of the log up to `end`, and where the next one begins."""
    page = yield from perform(ReadLog(session, start, min(PAGE_ENTRIES_MAX, max(1, end - start))))
    # Leave out entries that were appended meanwhile: the timeline is one state.
    rows = [row for row in page.rows if row.position < end]
    more = page.resume is not None and page.resume < end
    return rows, page.resume if more else None


def _build_change(line: JournalLine, undone: Collection[str]) -> Change:
    return Change(
        change=line.change,
        at=to_datetime(line.changed_at_ms),
        key=line.key,
        undone=line.key in undone,
        before=view.freeze(line.before, line.end),
        after=view.freeze(line.after, line.end),
    )
