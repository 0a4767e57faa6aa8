"""Changes of the view, snapshots of it, and the journal that undoes changes."""

from __future__ import annotations

from indelible import view
from indelible.backends.postgres.arrays import BytesArray, IntArray
from indelible.backends.postgres.errors import KeyUsedError
from indelible.backends.postgres.sessions import (
    OF_SESSION,
    PostgresSessionRow,
    build_damage_error,
    build_session_update,
    ensure_active,
    load_session,
    lock_session,
    to_array,
    to_extents,
)
from indelible.backends.postgres.statements import (
    GUARDED_WRITES,
    READS,
    WRITES,
    Call,
    Do,
    PostgresContext,
    Row,
    Sql,
    in_transaction,
)
from indelible.core import rules
from indelible.core.operations import (
    ChangeView,
    DeleteSnapshot,
    FindChange,
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

_LINES = (
    """
    SELECT part.operation, part.change, part.changed_at, part.generation, part.log_end,
        part.tail_before, part.tail_after, part.extents_before, part.extents_after, part.undone_by,
        part.session, part.life, part.checksum = indelible.journal_checksum(part.session, part.life,
            part.generation, part.changed_at, part.log_end, part.tail_before, part.tail_after,
            part.operation, part.change, part.undone_by, part.extents_before, part.extents_after)
    FROM indelible.journal AS part"""
    + OF_SESSION
)
# A line that changed nothing is there for the sake of its key alone.
_CHANGED = """
    AND NOT (part.tail_before = part.tail_after AND part.extents_before = part.extents_after)"""
_NEWEST_FIRST = " ORDER BY part.generation DESC LIMIT $3"
_NEW_LINE = """
    INSERT INTO indelible.journal (session, life, operation, change, changed_at, generation,
        log_end, tail_before, tail_after, extents_before, extents_after, undone_by, checksum)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10::bigint[], $11::bigint[], $12,
        indelible.journal_checksum($1, $2, $6, $5, $7, $8, $9, $3, $4, $12, $10::bigint[],
            $11::bigint[]))"""
_UNDONE = """
    UPDATE indelible.journal SET undone_by = $4,
        checksum = indelible.journal_checksum(session, life, generation, changed_at, log_end,
            tail_before, tail_after, operation, change, $4, extents_before, extents_after)
    WHERE session = $1 AND life = $2 AND operation = $3"""
_SNAPSHOTS = (
    """
    SELECT part.id, part.label, part.taken_at, part.log_end, part.extents,
        part.checksum = indelible.snapshot_checksum(part.session, part.life, part.number,
            part.taken_at, part.log_end, part.id, part.label, part.extents)
    FROM indelible.snapshot AS part"""
    + OF_SESSION
)
_NEW_SNAPSHOT = """
    INSERT INTO indelible.snapshot (session, life, id, label, taken_at, log_end, extents, number,
        checksum)
    SELECT $1, $2, $3, $4, $5, $6, $7::bigint[], number,
        indelible.snapshot_checksum($1, $2, number, $5, $6, $3, $4, $7::bigint[])
    FROM nextval('indelible.snapshot_number') AS number"""
# The guarded writes: see the migration that creates the functions.
_SAVE_SNAPSHOT = "SELECT * FROM indelible.save_snapshot($1, $2, $3, $4, $5, $6, $7)"
_ROLL_BACK = "SELECT * FROM indelible.roll_back($1, $2, $3, $4, $5, $6, $7, $8)"
# So many extents are below both limits of a snapshot, however long the log is: the start and the
# length of one take at most five bytes each.
_EXTENTS_SURE = min(view.EXTENTS_MAX, view.VIEW_BYTES_MAX // 10)


@WRITES.handles(ChangeView)
def change_view(context: PostgresContext, op: ChangeView) -> Plan[ViewChangeResult]:
    """Show something else, if the view is still the one that was looked at."""
    query = _build_line_query(context, op.session, op.key)
    current, (rows,) = yield from lock_session(context, op.session, query)
    done = _find_line(current, FindChange(op.session, op.change, op.key), rows)
    if done is not None:
        return ViewChangeResult(done, replayed=True)
    return (yield from _write_change(context, current, op))


@GUARDED_WRITES.handles(Rollback)
def rollback(context: PostgresContext, op: Rollback) -> Plan[ViewChangeResult]:
    """Make visible what a snapshot froze."""
    expected = op.expected
    if expected is None or (expected.isascii() and expected.isprintable()):
        row = yield from _call_guarded(
            _ROLL_BACK,
            *context.named(op.session),
            context.now_ms(),
            expected,
            op.snapshot.encode(),
            op.key.encode(),
            rules.ROLLBACK.encode(),
        )
        if row is not None:
            changed_at, version, end, *tails, before, after = row
            line = JournalLine(
                key=op.key,
                change=rules.ROLLBACK,
                changed_at_ms=changed_at,
                version=version,
                end=end,
                before=view.View(to_extents(before), tails[0]),
                after=view.View(to_extents(after), tails[1]),
            )
            return ViewChangeResult(line)
    result: ViewChangeResult = yield from in_transaction(_decide_rollback(context, op))
    return result


def _call_guarded(function: str, *params: object) -> Plan[Row | None]:
    """Call a guarded write; None if it wrote nothing."""
    try:
        row = yield from perform(Call(function, params))
    except KeyUsedError:
        # An earlier attempt, which still waited in the server, was committed in between.
        return None
    return None if row[0] is None else row


def _decide_rollback(context: PostgresContext, op: Rollback) -> Plan[ViewChangeResult]:
    queries = (
        _build_line_query(context, op.session, op.key),
        _build_snapshot_query(context, op.session, op.snapshot),
    )
    current, (rows, found) = yield from lock_session(context, op.session, *queries)
    done = _find_line(current, FindChange(op.session, rules.ROLLBACK, op.key), rows)
    if done is not None:
        return ViewChangeResult(done, replayed=True)
    record = build_record(op.session, found[0]) if found else None
    change = rules.plan_rollback(op, current.head(), record)
    return (yield from _write_change(context, current, change))


@WRITES.handles(FindChange)
def find_change(context: PostgresContext, op: FindChange) -> Plan[JournalLine | None]:
    """Find a change by its key, and sync it."""
    query = _build_line_query(context, op.session, op.key)
    current, (rows,) = yield from lock_session(context, op.session, query)
    return _find_line(current, op, rows)


def _build_line_query(context: PostgresContext, session: str, key: str) -> Sql:
    return Sql(_LINES + " AND part.operation = $3", (*context.named(session), key.encode()))


def _find_line(current: PostgresSessionRow, op: FindChange, rows: list[Row]) -> JournalLine | None:
    if not rows or current.head().status is not Status.ACTIVE:
        return None
    line = _build_line(op.session, rows[0])
    rules.refuse_different_change(op.session, op.key, op.change, line)
    # Locking the session's row is a write; its commit waits for this earlier change.
    return line


def _write_change(
    context: PostgresContext, current: PostgresSessionRow, op: ChangeView
) -> Plan[ViewChangeResult]:
    head = current.head()
    rules.refuse_if_changed(op, head)
    line = rules.build_journal_line(op, head, current.now_ms)
    yield Do(
        build_session_update(tail="$3", extents="$4::bigint[]", generation="generation + 1"),
        (*context.named(op.session), line.after.tail, to_array(line.after.extents)),
    )
    yield insert_line(current, line, head.generation + 1)
    if op.undoes is not None:
        yield Do(_UNDONE, (current.number, current.life, op.undoes.encode(), op.key.encode()))
    return ViewChangeResult(line)


@READS.handles(ReadJournal)
def read_journal(context: PostgresContext, op: ReadJournal) -> Plan[JournalPage]:
    """The newest changes of the view."""
    query = build_lines_query(context, op.session, limit=op.limit)
    current, (lines,) = yield from load_session(context, op.session, query)
    head = current.head()
    if head.status is not Status.ACTIVE:
        return JournalPage(head, ())
    return JournalPage(head, build_lines(op.session, lines))


def build_lines_query(
    context: PostgresContext, session: str, *, limit: int | None = None, changes_only: bool = True
) -> Sql:
    """The statement that reads the lines of a life, newest first."""
    query = _LINES + (_CHANGED if changes_only else "") + _NEWEST_FIRST
    return Sql(query, (*context.named(session), limit))


def insert_line(current: PostgresSessionRow, line: JournalLine, generation: int) -> Do:
    """The statement that writes a journal line."""
    return Do(
        _NEW_LINE,
        (
            current.number,
            current.life,
            line.key.encode(),
            line.change.encode(),
            line.changed_at_ms,
            generation,
            line.end,
            line.before.tail,
            line.after.tail,
            to_array(line.before.extents),
            to_array(line.after.extents),
            None if line.undone_by is None else line.undone_by.encode(),
        ),
    )


def insert_snapshot(current: PostgresSessionRow, record: SnapshotRecord) -> Do:
    """The statement that writes a snapshot."""
    return Do(
        _NEW_SNAPSHOT,
        (
            current.number,
            current.life,
            record.id.encode(),
            None if record.label is None else record.label.encode(),
            record.taken_at_ms,
            record.end,
            _close(record.view, record.end),
        ),
    )


def build_snapshots_query(context: PostgresContext, session: str) -> Sql:
    """The statement that reads the snapshots of a life, oldest first."""
    return Sql(_SNAPSHOTS + " ORDER BY part.number", context.named(session))


def _build_snapshot_query(context: PostgresContext, session: str, snapshot_id: str) -> Sql:
    return Sql(_SNAPSHOTS + " AND part.id = $3", (*context.named(session), snapshot_id.encode()))


@GUARDED_WRITES.handles(SaveSnapshot)
def save_snapshot(context: PostgresContext, op: SaveSnapshot) -> Plan[SnapshotRecord]:
    """Store the view and the end of the log under a new id."""
    label = None if op.label is None else op.label.encode()
    row = yield from _call_guarded(
        _SAVE_SNAPSHOT,
        *context.named(op.session),
        context.now_ms(),
        op.id.encode(),
        label,
        _EXTENTS_SURE,
    )
    if row is not None:
        taken_at, end, extents = row
        return SnapshotRecord(op.id, op.label, taken_at, _open(extents, end), end)
    record: SnapshotRecord = yield from in_transaction(_decide_snapshot(context, op))
    return record


def _decide_snapshot(context: PostgresContext, op: SaveSnapshot) -> Plan[SnapshotRecord]:
    current, (there,) = yield from lock_session(
        context,
        op.session,
        _build_snapshot_query(context, op.session, op.id),
    )
    if current.status is Status.ACTIVE and there:
        return build_record(op.session, there[0])
    current = yield from ensure_active(context, current, op.session, ttl_s=op.ttl_s)
    assert current.state is not None
    end = current.state.end
    rules.refuse_too_many_extents(op.session, view.freeze(current.view, end))
    record = SnapshotRecord(op.id, op.label, current.now_ms, current.view, end)
    yield insert_snapshot(current, record)
    return record


@READS.handles(ReadSnapshots)
def read_snapshots(context: PostgresContext, op: ReadSnapshots) -> Plan[SnapshotList]:
    """All snapshots of the session's life, or the named ones."""
    if op.ids is None:
        query = build_snapshots_query(context, op.session)
    else:
        ids = BytesArray(name.encode() for name in op.ids)
        query = Sql(
            _SNAPSHOTS + " AND part.id = ANY($3::bytea[])", (*context.named(op.session), ids)
        )
    current, (rows,) = yield from load_session(context, op.session, query)
    head = current.head()
    if head.status is not Status.ACTIVE:
        return SnapshotList(head, ())
    records = [build_record(op.session, row) for row in rows]
    if op.ids is not None:
        by_id = {record.id: record for record in records}
        records = [by_id[name] for name in op.ids if name in by_id]
    return SnapshotList(head, tuple(records))


@WRITES.handles(DeleteSnapshot)
def delete_snapshot(context: PostgresContext, op: DeleteSnapshot) -> Plan[bool]:
    """Forget one snapshot; entries stay."""
    current, _ = yield from lock_session(context, op.session)
    if current.status is not Status.ACTIVE:
        return False
    rows = yield from perform(
        Sql(
            "DELETE FROM indelible.snapshot WHERE session = $1 AND life = $2 AND id = $3"
            " RETURNING 1",
            (current.number, current.life, op.id.encode()),
        )
    )
    return bool(rows)


def build_record(session: str, row: Row) -> SnapshotRecord:
    """A snapshot as it was stored."""
    snapshot_id, label, taken_at, end, extents, is_intact = row
    if not is_intact:
        raise build_damage_error(session, f"its snapshot {snapshot_id!r} in indelible.snapshot")
    return SnapshotRecord(
        snapshot_id.decode(),
        None if label is None else label.decode(),
        taken_at,
        _open(extents, end),
        end,
    )


def _close(shown: view.View, end: int) -> IntArray:
    """A snapshot's view as its row has it: what the tail held is its last extent."""
    tail = () if shown.tail == end else ((shown.tail, end),)
    return to_array((*shown.extents, *tail))


def _open(closed: list[int], end: int) -> view.View:
    """The view that a snapshot was taken of."""
    *extents, last = to_extents(closed) or ((end, end),)
    # Not put into normal form: what reaches outside of the log must be found.
    return (
        view.View(tuple(extents), last[0]) if last[1] == end else view.View((*extents, last), end)
    )


def _build_line(session: str, row: Row) -> JournalLine:
    operation, change, changed_at, generation, end, *tails, before, after, undone_by = row[:-3]
    at, life, is_intact = row[-3:]
    if not is_intact:
        raise build_damage_error(session, f"the line {operation!r} in indelible.journal")
    return JournalLine(
        key=operation.decode(),
        change=change.decode(),
        changed_at_ms=changed_at,
        version=rules.build_version(f"{at}.{life}", end, generation),
        end=end,
        before=view.build_view(to_extents(before), tails[0]),
        after=view.build_view(to_extents(after), tails[1]),
        undone_by=None if undone_by is None else undone_by.decode(),
    )


def build_lines(session: str, rows: list[Row]) -> tuple[JournalLine, ...]:
    """Journal lines as they were stored."""
    return tuple(_build_line(session, row) for row in rows)
