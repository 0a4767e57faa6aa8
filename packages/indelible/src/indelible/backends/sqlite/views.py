"""The view in SQLite's words: changing it, writing it down, and the journal that undoes it."""

from __future__ import annotations

from typing import Any

from indelible import view
from indelible.backends.sqlite.checksums import damaged_row, insert, is_intact, update
from indelible.backends.sqlite.connection import Do, Rows, Sql
from indelible.backends.sqlite.sessions import (
    Context,
    SessionRow,
    begin_life,
    find_session,
    load_session,
    touch,
)
from indelible.core import rules
from indelible.core.operations import (
    ChangeView,
    DeleteSnapshot,
    FindChange,
    Head,
    JournalLine,
    JournalPage,
    ReadJournal,
    ReadSnapshots,
    Rollback,
    SaveSnapshot,
    SnapshotList,
    SnapshotRecord,
    ViewChangeResult,
)
from indelible.core.plan import Plan, perform
from indelible.model import Status

_LINES = f"""
    SELECT {is_intact("journal")}, operation, change, changed_at, generation, "end",
        tail_before, tail_after, extents_before, extents_after, undone_by
    FROM journal WHERE session = ? AND life = ?"""  # noqa: S608 (constants)
_LINE_OF = _LINES + " AND operation = ?"
_UNDONE = update(
    "journal", {"undone_by": "?1"}, where="session = ?2 AND life = ?3 AND operation = ?4"
)
# A line that changed nothing is there for the sake of its key alone; if it says so by damage, it
# is read, and said.
_CHANGED = (
    " AND NOT (tail_before = tail_after AND extents_before = extents_after"
    f" AND {is_intact('journal')})"
)
_NEW_VIEW = update(
    "session",
    {"tail": "?1", "extents": "?2", "generation": "generation + 1"},
    where="number = ?3",
)
_NEW_LINE = insert("journal")
_SNAPSHOTS = f"""
    SELECT {is_intact("snapshot")}, id, label, taken_at, "end", tail, extents
    FROM snapshot WHERE session = ? AND life = ?"""  # noqa: S608 (constants)
_SNAPSHOT_OF = _SNAPSHOTS + " AND id = ?"
# The row is a copy of the session's own view, whatever the length of the history.
_NEW_SNAPSHOT = insert("snapshot")


def change_view(context: Context, op: ChangeView) -> Plan[ViewChangeResult]:
    """Show something else, if the view is still the one that was looked at."""
    place, head = yield from load_session(context, op.session)
    if not op.fresh:
        done = yield from _find_line(place, head, FindChange(op.session, op.change, op.key))
        if done is not None:
            return ViewChangeResult(done, replayed=True)
    return (yield from _write_change(context, place, head, op))


def rollback(context: Context, op: Rollback) -> Plan[ViewChangeResult]:
    """Make visible what a snapshot froze."""
    place, head = yield from load_session(context, op.session)
    if not op.fresh:
        done = yield from _find_line(place, head, FindChange(op.session, rules.ROLLBACK, op.key))
        if done is not None:
            return ViewChangeResult(done, replayed=True)
    records = yield from _snapshots_by_id(place, op.snapshot)
    change = rules.plan_rollback(op, head, records[0] if records else None)
    return (yield from _write_change(context, place, head, change))


def find_change(context: Context, op: FindChange) -> Plan[JournalLine | None]:
    """Find a change by its key, and sync it."""
    place, head = yield from load_session(context, op.session)
    return (yield from _find_line(place, head, op))


def _find_line(place: SessionRow, head: Head, op: FindChange) -> Plan[JournalLine | None]:
    if head.status is not Status.ACTIVE:
        return None
    done = yield from perform(Sql(_LINE_OF, (place.number, place.life, op.key)))
    if not done:
        return None
    line = _line(place, done[0])
    rules.refuse_different_change(op.session, op.key, op.change, line)
    yield touch(place)
    return line


def _write_change(
    context: Context, place: SessionRow, head: Head, op: ChangeView
) -> Plan[ViewChangeResult]:
    rules.refuse_if_changed(op, head)
    line = rules.build_journal_line(op, head, context.now_ms())
    yield Do(_NEW_VIEW, (line.after.tail, view.encode(line.after.extents), place.number))
    yield insert_line(place, line, head.generation + 1)
    if op.undoes is not None:
        yield Do(_UNDONE, (op.key, place.number, place.life, op.undoes))
    return ViewChangeResult(line)


def read_journal(context: Context, op: ReadJournal) -> Plan[JournalPage]:
    """The newest changes of the view."""
    place, head = yield from load_session(context, op.session)
    if head.status is not Status.ACTIVE:
        return JournalPage(head, ())
    return JournalPage(head, (yield from journal_lines(place, limit=op.limit)))


def journal_lines(
    place: SessionRow, *, limit: int = -1, changes_only: bool = True
) -> Plan[tuple[JournalLine, ...]]:
    """The lines of a life, newest first."""
    query = _LINES + (_CHANGED if changes_only else "") + " ORDER BY number DESC LIMIT ?"
    rows = yield from perform(Sql(query, (place.number, place.life, limit)))
    return tuple(_line(place, row) for row in rows)


def insert_line(place: SessionRow, line: JournalLine, generation: int) -> Do:
    """The statement that writes a journal line."""
    return Do(
        _NEW_LINE,
        (
            place.number,
            place.life,
            line.key,
            line.change,
            line.changed_at_ms,
            generation,
            line.end,
            line.undone_by,
            line.before.tail,
            line.after.tail,
            view.encode(line.before.extents),
            view.encode(line.after.extents),
        ),
    )


def insert_snapshot(place: SessionRow, record: SnapshotRecord) -> Do:
    """The statement that writes a snapshot."""
    return Do(
        _NEW_SNAPSHOT,
        (
            place.number,
            place.life,
            record.id,
            record.label,
            record.taken_at_ms,
            record.end,
            record.view.tail,
            view.encode(record.view.extents),
        ),
    )


def snapshot_records(place: SessionRow) -> Plan[list[SnapshotRecord]]:
    """The snapshots of a life, oldest first."""
    rows = yield from perform(Sql(_SNAPSHOTS + " ORDER BY number", (place.number, place.life)))
    return [_record(place, row) for row in rows]


def save_snapshot(context: Context, op: SaveSnapshot) -> Plan[SnapshotRecord]:
    """Write the view and the log's end down under a new id."""
    place, head = yield from load_session(context, op.session)
    if head.status is not Status.ACTIVE:
        yield from begin_life(context, place, op.session, ttl_s=op.ttl_s)
        place, head = yield from load_session(context, op.session)
    elif not op.fresh:
        there = yield from _snapshots_by_id(place, op.id)
        if there:
            yield touch(place)
            return there[0]
    rules.refuse_too_many_extents(op.session, view.freeze(head.view, head.end))
    record = SnapshotRecord(op.id, op.label, context.now_ms(), head.view, head.end)
    yield insert_snapshot(place, record)
    return record


def read_snapshots(context: Context, op: ReadSnapshots) -> Plan[SnapshotList]:
    """All snapshots of the session's life, or the named ones."""
    place, head = yield from load_session(context, op.session)
    if head.status is not Status.ACTIVE:
        return SnapshotList(head, ())
    found: list[SnapshotRecord] = []
    if op.ids is None:
        found = yield from snapshot_records(place)
    else:
        for snapshot_id in op.ids:
            found += yield from _snapshots_by_id(place, snapshot_id)
    return SnapshotList(head, tuple(found))


def delete_snapshot(context: Context, op: DeleteSnapshot) -> Plan[bool]:
    """Forget one snapshot; entries stay."""
    place = yield from find_session(context, op.session)
    if rules.compute_status(place.standing, context.now_ms()) is not Status.ACTIVE:
        return False
    there = yield from _snapshots_by_id(place, op.id)
    yield Do(
        "DELETE FROM snapshot WHERE session = ? AND life = ? AND id = ?",
        (place.number, place.life, op.id),
    )
    return bool(there)


def _snapshots_by_id(place: SessionRow, snapshot_id: str) -> Plan[list[SnapshotRecord]]:
    rows: Rows = yield Sql(_SNAPSHOT_OF, (place.number, place.life, snapshot_id))
    return [_record(place, row) for row in rows]


def _record(place: SessionRow, row: tuple[Any, ...]) -> SnapshotRecord:
    intact, snapshot_id, label, taken_at, end, tail, extents = row
    if not intact:
        raise damaged_row(f"snapshot {snapshot_id!r}", place.name)
    return SnapshotRecord(
        snapshot_id, label, taken_at, view.build_view(view.decode(extents), tail), end
    )


def _line(place: SessionRow, row: tuple[Any, ...]) -> JournalLine:
    intact, operation, change, changed_at, generation, end, *tails, before, after, undone_by = row
    if not intact:
        raise damaged_row(f"the journal's line of {operation!r}", place.name)
    return JournalLine(
        key=operation,
        change=change,
        changed_at_ms=changed_at,
        version=rules.build_version(f"{place.number}.{place.life}", end, generation),
        end=end,
        before=view.build_view(view.decode(before), tails[0]),
        after=view.build_view(view.decode(after), tails[1]),
        undone_by=undone_by,
    )
