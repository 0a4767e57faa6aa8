"""The view: changing it, snapshots of it, and the journal that undoes changes."""

from __future__ import annotations

from typing import Any

from indelible import view
from indelible.backends.sqlite.checksums import (
    build_damage_error,
    build_insert,
    build_update,
    is_intact,
)
from indelible.backends.sqlite.connection import SqliteConnection
from indelible.backends.sqlite.handlers import READS, WRITES
from indelible.backends.sqlite.sessions import (
    SqliteSessionRow,
    begin_life,
    find_session,
    load_session,
    sync,
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
from indelible.model import Status

_LINES = f"""
    SELECT {is_intact("journal")}, operation, change, changed_at, generation, "end",
        tail_before, tail_after, extents_before, extents_after, undone_by
    FROM journal WHERE session = ? AND life = ?"""  # noqa: S608 (constants)
_LINE_BY_KEY = _LINES + " AND operation = ?"
_SET_UNDONE = build_update(
    "journal", {"undone_by": "?1"}, where="session = ?2 AND life = ?3 AND operation = ?4"
)
# A line that changed nothing is kept for its key alone; if it only seems so because it is damaged,
# it is read, and reported.
_CHANGED = (
    " AND NOT (tail_before = tail_after AND extents_before = extents_after"
    f" AND {is_intact('journal')})"
)
_SET_VIEW = build_update(
    "session",
    {"tail": "?1", "extents": "?2", "generation": "generation + 1"},
    where="number = ?3",
)
_NEW_LINE = build_insert("journal")
_SNAPSHOTS = f"""
    SELECT {is_intact("snapshot")}, id, label, taken_at, "end", tail, extents
    FROM snapshot WHERE session = ? AND life = ?"""  # noqa: S608 (constants)
_SNAPSHOT_BY_ID = _SNAPSHOTS + " AND id = ?"
_NEW_SNAPSHOT = build_insert("snapshot")


@WRITES.handles(ChangeView)
def change_view(db: SqliteConnection, op: ChangeView) -> ViewChangeResult:
    """Replace the view, if it is still the one that the change was computed from."""
    row, head = load_session(db, op.session)
    if not op.fresh:
        done = _find_line(db, row, head, op.change, op.key)
        if done is not None:
            return ViewChangeResult(done, replayed=True)
    return _write_change(db, row, head, op)


@WRITES.handles(Rollback)
def rollback(db: SqliteConnection, op: Rollback) -> ViewChangeResult:
    """Make visible what a snapshot froze."""
    row, head = load_session(db, op.session)
    if not op.fresh:
        done = _find_line(db, row, head, rules.ROLLBACK, op.key)
        if done is not None:
            return ViewChangeResult(done, replayed=True)
    change = rules.plan_rollback(op, head, _find_snapshot(db, row, op.snapshot))
    return _write_change(db, row, head, change)


@WRITES.handles(FindChange)
def find_change(db: SqliteConnection, op: FindChange) -> JournalLine | None:
    """Find a change by its key, and sync it."""
    row, head = load_session(db, op.session)
    return _find_line(db, row, head, op.change, op.key)


def _find_line(
    db: SqliteConnection, row: SqliteSessionRow, head: Head, change: str, key: str
) -> JournalLine | None:
    if head.status is not Status.ACTIVE:
        return None
    rows = db.execute(_LINE_BY_KEY, (row.number, row.life, key))
    if not rows:
        return None
    line = _build_line(row, *rows[0])
    rules.refuse_different_change(row.name, key, change, line)
    sync(db, row)
    return line


def _write_change(
    db: SqliteConnection, row: SqliteSessionRow, head: Head, op: ChangeView
) -> ViewChangeResult:
    rules.refuse_if_changed(op, head)
    line = rules.build_journal_line(op, head, db.now_ms())
    db.execute(_SET_VIEW, (line.after.tail, view.encode(line.after.extents), row.number))
    insert_line(db, row, line, head.generation + 1)
    if op.undoes is not None:
        db.execute(_SET_UNDONE, (op.key, row.number, row.life, op.undoes))
    return ViewChangeResult(line)


@READS.handles(ReadJournal)
def read_journal(db: SqliteConnection, op: ReadJournal) -> JournalPage:
    """Read the newest changes of the view."""
    row, head = load_session(db, op.session)
    if head.status is not Status.ACTIVE:
        return JournalPage(head, ())
    return JournalPage(head, read_lines(db, row, limit=op.limit))


def read_lines(
    db: SqliteConnection, row: SqliteSessionRow, *, limit: int = -1, changes_only: bool = True
) -> tuple[JournalLine, ...]:
    """Read the journal lines of a life, newest first."""
    query = _LINES + (_CHANGED if changes_only else "") + " ORDER BY number DESC LIMIT ?"
    rows = db.execute(query, (row.number, row.life, limit))
    return tuple(_build_line(row, *fields) for fields in rows)


def insert_line(
    db: SqliteConnection, row: SqliteSessionRow, line: JournalLine, generation: int
) -> None:
    """Write a journal line."""
    db.execute(
        _NEW_LINE,
        (
            row.number,
            row.life,
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


@WRITES.handles(SaveSnapshot)
def save_snapshot(db: SqliteConnection, op: SaveSnapshot) -> SnapshotRecord:
    """Store the view and the end of the log under an id: one row, however long the log is."""
    row, head = load_session(db, op.session)
    if head.status is not Status.ACTIVE:
        begin_life(db, row, op.session, ttl_s=op.ttl_s)
        row, head = load_session(db, op.session)
    elif not op.fresh:
        record = _find_snapshot(db, row, op.id)
        if record is not None:
            sync(db, row)
            return record
    rules.refuse_too_many_extents(op.session, view.freeze(head.view, head.end))
    record = SnapshotRecord(op.id, op.label, db.now_ms(), head.view, head.end)
    insert_snapshot(db, row, record)
    return record


def insert_snapshot(db: SqliteConnection, row: SqliteSessionRow, record: SnapshotRecord) -> None:
    """Write a snapshot."""
    db.execute(
        _NEW_SNAPSHOT,
        (
            row.number,
            row.life,
            record.id,
            record.label,
            record.taken_at_ms,
            record.end,
            record.view.tail,
            view.encode(record.view.extents),
        ),
    )


@READS.handles(ReadSnapshots)
def read_snapshots(db: SqliteConnection, op: ReadSnapshots) -> SnapshotList:
    """Read all snapshots of the session's life, or those with certain ids."""
    row, head = load_session(db, op.session)
    if head.status is not Status.ACTIVE:
        return SnapshotList(head, ())
    if op.ids is None:
        return SnapshotList(head, tuple(read_records(db, row)))
    found = [_find_snapshot(db, row, snapshot_id) for snapshot_id in op.ids]
    return SnapshotList(head, tuple(record for record in found if record is not None))


def read_records(db: SqliteConnection, row: SqliteSessionRow) -> list[SnapshotRecord]:
    """Read the snapshots of a life, oldest first."""
    rows = db.execute(_SNAPSHOTS + " ORDER BY number", (row.number, row.life))
    return [_build_record(row, *fields) for fields in rows]


@WRITES.handles(DeleteSnapshot)
def delete_snapshot(db: SqliteConnection, op: DeleteSnapshot) -> bool:
    """Delete one snapshot; entries stay."""
    row = find_session(db, op.session)
    if rules.compute_status(row.state, db.now_ms()) is not Status.ACTIVE:
        return False
    record = _find_snapshot(db, row, op.id)
    db.execute(
        "DELETE FROM snapshot WHERE session = ? AND life = ? AND id = ?",
        (row.number, row.life, op.id),
    )
    return record is not None


def _find_snapshot(
    db: SqliteConnection, row: SqliteSessionRow, snapshot_id: str
) -> SnapshotRecord | None:
    rows = db.execute(_SNAPSHOT_BY_ID, (row.number, row.life, snapshot_id))
    return _build_record(row, *rows[0]) if rows else None


def _build_record(
    row: SqliteSessionRow,
    intact: int,
    snapshot_id: str,
    label: str | None,
    taken_at_ms: int,
    end: int,
    tail: int,
    extents: bytes,
) -> SnapshotRecord:
    if not intact:
        raise build_damage_error(f"snapshot {snapshot_id!r}", row.name)
    shown = view.build_view(view.decode(extents), tail)
    return SnapshotRecord(snapshot_id, label, taken_at_ms, shown, end)


def _build_line(row: SqliteSessionRow, intact: int, key: str, *fields: Any) -> JournalLine:
    if not intact:
        raise build_damage_error(f"the journal's line of {key!r}", row.name)
    change, changed_at, generation, end, *tails, before, after, undone_by = fields
    return JournalLine(
        key=key,
        change=change,
        changed_at_ms=changed_at,
        version=rules.build_version(f"{row.number}.{row.life}", end, generation),
        end=end,
        before=view.build_view(view.decode(before), tails[0]),
        after=view.build_view(view.decode(after), tails[1]),
        undone_by=undone_by,
    )
