"""Verify, which reports damage, and repair, which sets damaged entries aside."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import JsonValue

from indelible import view
from indelible.core.clock import to_datetime
from indelible.core.codec import build_trim_columns, decode_row
from indelible.core.limits import (
    BATCH_ENTRIES_MAX,
    JOURNAL_LINES_MAX,
    MISSING_NAMED_MAX,
    PAGE_ENTRIES_MAX,
    VIEW_ATTEMPTS_MAX,
)
from indelible.core.operations import (
    CheckEngine,
    CheckSession,
    Head,
    ListAudits,
    LogRow,
    Quarantine,
    ReadHead,
    ReadJournal,
    ReadLog,
    ReadQuarantine,
    ReadSnapshots,
)
from indelible.core.plan import Plan, perform
from indelible.core.plans import audit
from indelible.core.plans.append import append_drafts, build_entries
from indelible.core.plans.sessions import Progress, build_session_info, list_all_sessions
from indelible.core.plans.view_changes import hide
from indelible.core.rules import (
    find_journal_problems,
    find_reachable,
    find_views_outside,
    refuse_many_missing,
)
from indelible.core.settings import Settings, check_session_id
from indelible.core.tool_calls import join_results
from indelible.errors import ConflictError, CorruptEntryError, FormatError, UsageError
from indelible.model import (
    NEVER,
    CallStatus,
    ChatMessage,
    CorruptEntry,
    Entry,
    Finding,
    RepairAction,
    RepairReport,
    Severity,
    ToolCallRecord,
    ToolResult,
    Value,
    VerifyReport,
)

CLOSED_BY_REPAIR = "The tool never answered: its process ended first. Closed by repair."


def verify(
    settings: Settings,
    session_id: str | None,
    *,
    head: str | None = None,
    progress: Progress | None,
) -> Plan[VerifyReport]:
    """Check the engine and all sessions, or one; change nothing."""
    key = None if settings.audit is None else settings.audit.key
    if head is not None and (session_id is None or key is None):
        raise UsageError(
            "to compare with the hash of an audit, name its session, and open the store with"
            " audit=True and its key"
        )
    try:
        problems = yield from perform(CheckEngine())
    except FormatError as error:
        problems = (error.message,)
    findings = [Finding(severity=Severity.ERROR, what=problem) for problem in problems]
    entries = 0
    try:
        names = yield from list_all_sessions(session_id, damaged=True)
        sessions = len(names)
        if key is not None and session_id is None:
            # Audits stay when their sessions are forgotten or expire.
            names = [*dict.fromkeys((*names, *(yield from perform(ListAudits()))))]
    except FormatError as error:
        if error.message not in problems:
            findings.append(Finding(severity=Severity.ERROR, what=error.message))
        return VerifyReport(sessions=0, entries=0, findings=tuple(findings))
    for name in names:
        try:
            entries += yield from _verify_until_stable(name, findings)
            wrong = (yield from audit.find_problems(name, key, head)) if key else ()
            findings += [
                Finding(severity=Severity.ERROR, what=what, session_id=name) for what in wrong
            ]
        except FormatError as error:
            findings.append(Finding(severity=Severity.ERROR, what=error.message, session_id=name))
        if progress is not None:
            progress(name, entries)
    return VerifyReport(sessions=sessions, entries=entries, findings=tuple(findings))


def _verify_until_stable(session: str, findings: list[Finding]) -> Plan[int]:
    """Check one session; again if it changed meanwhile, since a check takes several reads."""
    for _ in range(VIEW_ATTEMPTS_MAX):
        before = yield from perform(ReadHead(session))
        found: list[Finding] = []
        entries = yield from _verify_session(session, found)
        if _is_same_state(before, (yield from perform(ReadHead(session)))):
            break
    findings += found
    return entries


def _is_same_state(before: Head, after: Head) -> bool:
    """Return whether only appends came between two reads of a session."""
    states = [(head.status, head.life, head.vacuums, head.generation) for head in (before, after)]
    return states[0] == states[1]


def _verify_session(session: str, findings: list[Finding]) -> Plan[int]:
    """Check one session; return how many entries were checked."""

    def report(severity: Severity, what: str, position: int | None = None) -> None:
        findings.append(
            Finding(severity=severity, what=what, session_id=session, position=position)
        )

    snapshots = yield from perform(ReadSnapshots(session))
    journal = yield from perform(ReadJournal(session, JOURNAL_LINES_MAX))
    build_session_info(session, journal.head)
    outside = list(find_views_outside(journal.head, snapshots.records, journal.lines))
    for what in (*outside, *find_journal_problems(journal.head.view, journal.lines)):
        report(Severity.ERROR, what)
    log = yield from scan_log(session)
    kept = {position for position, _, _ in (yield from perform(ReadQuarantine(session)))}
    shown = journal.head.visible
    for broken in log.broken.values():
        quarantined = broken.position in kept and not view.contains(
            shown, *_to_extent(broken.position)
        )
        severity = Severity.WARNING if quarantined else Severity.ERROR
        where = "is in quarantine" if quarantined else "cannot be read"
        report(severity, f"{where}: {broken.reason}", broken.position)
    needed = () if outside else find_reachable(journal.head, snapshots.records, journal.lines)
    missing = view.subtract(needed, log.there)
    is_whole = not (log.broken or missing)
    for what in (yield from perform(CheckSession(session, indexes=is_whole))):
        report(Severity.ERROR, what)
    for start, stop in missing:
        if stop - start > MISSING_NAMED_MAX:
            report(Severity.ERROR, f"{stop - start} entries are missing from the log", start)
            continue
        for position in range(start, stop):
            quarantined = position in kept and not view.contains(shown, *_to_extent(position))
            severity = Severity.WARNING if quarantined else Severity.ERROR
            report(severity, "is missing from the log", position)
    for record in join_results(log.find_visible_links(journal.head)):
        if record.status is CallStatus.DANGLING:
            what = f"tool call {record.call_id} ({record.name}) has no result; repair closes it"
            report(Severity.WARNING, what, record.call_position)
    return view.count(log.there)


@dataclass(slots=True)
class LogScan:
    """The result of reading a whole log. Of the entries, only those with tool calls are kept."""

    there: view.Extents = ()
    broken: dict[int, CorruptEntry] = field(default_factory=dict)
    linked: list[Entry] = field(default_factory=list)

    def find_visible_links(self, head: Head) -> list[Entry]:
        """Return the visible entries with tool calls or results."""
        shown = head.visible
        return [entry for entry in self.linked if view.contains(shown, *_to_extent(entry.position))]


def scan_log(session: str) -> Plan[LogScan]:
    """Read the whole log of a session's life, page by page."""
    found = LogScan()
    start: int | None = 0
    while start is not None:
        page = yield from perform(ReadLog(session, start, PAGE_ENTRIES_MAX))
        found.there = view.normalize(
            (*found.there, *(_to_extent(row.position) for row in page.rows))
        )
        for row in page.rows:
            entry = decode_log_row(session, row)
            if isinstance(entry, CorruptEntry):
                found.broken[row.position] = entry
            elif row.opens or row.answers:
                found.linked.append(entry)
        start = page.resume
    return found


def _to_extent(position: int) -> view.Extent:
    return position, position + 1


def decode_log_row(session: str, row: LogRow) -> Entry | CorruptEntry:
    """Decode a row to an entry, or describe its damage."""
    try:
        value = decode_row(row, session=session)
        if build_trim_columns(value) != row.trim_columns:
            return CorruptEntry(row.position, "its columns for trim are damaged", row.envelope)
        assert row.kind is not None
        return Entry(row.position, row.kind, value, to_datetime(row.written_at_ms))
    except (CorruptEntryError, FormatError) as error:
        reason = str(error.details.get("reason", error.message))
        return CorruptEntry(row.position, reason, row.envelope)


def repair(settings: Settings, session_id: str | None, *, dry_run: bool) -> Plan[RepairReport]:
    """Quarantine damaged entries, keeping their bytes, and close dangling tool calls."""
    actions: list[RepairAction] = []
    names = yield from list_all_sessions(session_id)
    for name in names:
        try:
            actions += yield from _quarantine(settings, name, dry_run=dry_run)
            actions += yield from _close_calls(settings, name, dry_run=dry_run)
        except FormatError as error:
            if session_id is not None:
                raise
            # A session that cannot be repaired does not stop the others.
            what = f"left as it is: {error.message}"
            actions.append(RepairAction(session_id=name, what=what, positions=()))
    return RepairReport(actions=tuple(actions), dry_run=dry_run)


def _scan_stable(session: str) -> Plan[tuple[Head, LogScan]]:
    """Read a session and its log in one state, except that entries may follow in the log."""
    for _ in range(VIEW_ATTEMPTS_MAX):
        head = yield from perform(ReadHead(session))
        log = yield from scan_log(session)
        if _is_same_state(head, (yield from perform(ReadHead(session)))):
            return head, log
    raise _build_conflict(session)


def _quarantine(settings: Settings, session: str, *, dry_run: bool) -> Plan[list[RepairAction]]:
    head, log = yield from _scan_stable(session)
    shown = head.visible
    broken = dict(log.broken)
    for start, stop in view.subtract(shown, log.there):
        refuse_many_missing(session, stop - start, start, stop)
        for position in range(start, stop):
            broken[position] = CorruptEntry(position, "it is missing", b"")
    known = {position for position, _, _ in (yield from perform(ReadQuarantine(session)))}
    hidden = [position for position in broken if view.contains(shown, *_to_extent(position))]
    if not hidden and not broken.keys() - known:
        return []
    positions = tuple(sorted(broken))
    if not dry_run:
        entries = tuple((p, broken[p].reason, broken[p].raw) for p in positions)
        yield from perform(Quarantine(session, entries))
        if hidden:
            yield from hide(settings, session, hidden, change="repair")
    what = "put into quarantine, bytes kept; undo shows it in place again"
    return [RepairAction(session_id=session, what=what, positions=positions)]


def _close_calls(settings: Settings, session: str, *, dry_run: bool) -> Plan[list[RepairAction]]:
    """Close dangling tool calls, unless another writer answers them meanwhile."""
    closed: list[RepairAction] = []
    for _ in range(VIEW_ATTEMPTS_MAX):
        head, log = yield from _scan_stable(session)
        closing = _plan_closing(session, log.find_visible_links(head))
        if dry_run:
            return [action for action, _ in closing]
        version = head.version
        try:
            for first in range(0, len(closing), BATCH_ENTRIES_MAX):
                batch = closing[first : first + BATCH_ENTRIES_MAX]
                results = [result for _, result in batch]
                version = yield from _append_results(settings, session, results, version)
                closed += [action for action, _ in batch]
        except ConflictError as error:
            if error.reason != "version":
                raise
        else:
            return closed
    raise _build_conflict(session)


def _plan_closing(session: str, entries: list[Entry]) -> list[tuple[RepairAction, Value]]:
    """Return an action and an error result for each dangling call."""
    made_by = {entry.position: entry.value for entry in entries}
    closing: list[tuple[RepairAction, Value]] = []
    for record in join_results(entries):
        if record.status is CallStatus.DANGLING and record.call_position is not None:
            what = f"close tool call {record.call_id} ({record.name}) with an error result"
            closing.append(
                (
                    RepairAction(session_id=session, what=what, positions=(record.call_position,)),
                    _build_error_result(record, made_by[record.call_position]),
                )
            )
    return closing


def _append_results(
    settings: Settings, session: str, results: list[Value], expected: str
) -> Plan[str]:
    """Append results to a session that did not change since; return its new version."""
    now = yield from perform(ReadHead(session))
    # An append sets the deadline of its session: leave it as it is.
    deadline_ms = now.deadline_ms
    ttl = NEVER if deadline_ms is None else max(0.001, (deadline_ms - now.now_ms) / 1000)
    drafts = build_entries(results)
    receipt = yield from append_drafts(
        settings, session, drafts, key=None, expected=expected, ttl=ttl
    )
    return receipt.version


def _build_conflict(session: str) -> ConflictError:
    return ConflictError(
        f"others kept changing session {session!r}; it was not repaired. Try again.",
        session=session,
        reason="view",
    )


def _build_error_result(record: ToolCallRecord, call: Value) -> Value:
    """Build an error result in the form in which the call was made."""
    if not isinstance(call, ChatMessage):
        return ToolResult(call_id=record.call_id, content=CLOSED_BY_REPAIR, is_error=True)
    if any(item.get("id") == record.call_id for item in call.tool_calls or ()):
        return ChatMessage(role="tool", tool_call_id=record.call_id, content=CLOSED_BY_REPAIR)
    block: dict[str, JsonValue] = {
        "type": "tool_result",
        "tool_use_id": record.call_id,
        "content": CLOSED_BY_REPAIR,
        "is_error": True,
    }
    return ChatMessage(role="user", content=[block])


def read_quarantine(session_id: str) -> Plan[list[CorruptEntry]]:
    """Read what repair quarantined."""
    session = check_session_id(session_id)
    rows = yield from perform(ReadQuarantine(session))
    return [CorruptEntry(position, reason, raw) for position, reason, raw in rows]
