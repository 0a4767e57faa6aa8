"""Sessions: finding one, beginning a life, metadata and lists."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from indelible import view
from indelible.backends.sqlite.checksums import (
    CONTENT,
    build_damage_error,
    build_update,
    is_intact,
)
from indelible.backends.sqlite.connection import SqliteConnection
from indelible.backends.sqlite.handlers import READS, WRITES
from indelible.core import rules
from indelible.core.checksums import compute_session_salt
from indelible.core.limits import BATCH_ENTRIES_MAX, LOG_ENTRIES_MAX
from indelible.core.operations import (
    Head,
    ListSessions,
    ReadHead,
    SessionPage,
    SetMetadata,
    tuple_new,
)
from indelible.core.rules import SessionState
from indelible.errors import FormatError
from indelible.model import Status
from indelible.view import View

# An entry's row id is its session's number and its position.
POSITION_BITS = 32
POSITION_MASK = 2**POSITION_BITS - 1
# With a larger number, the row ids of a session would not fit into 63 bits.
SESSION_NUMBER_MAX = 2**31 - 2

# A session's row, whether it is intact, its newest entry, and where its newest batch ends. Scalar
# subqueries are a seek each; a join is not.
_ROW = f"""
    {is_intact("session")}, number, life, born, generation, staged, session.deadline,
    (SELECT id FROM entry WHERE id < (number + 1) << 32 ORDER BY id DESC LIMIT 1),
    (SELECT deadline FROM entry WHERE id < (number + 1) << 32 ORDER BY id DESC LIMIT 1),
    (SELECT id + batch_size FROM entry WHERE id >= number << 32 AND id < (number + 1) << 32
        AND batch_size > 0 ORDER BY id DESC LIMIT 1)"""  # noqa: S608 (constants)
_FIND = f"SELECT {_ROW} FROM session WHERE namespace = ? AND name = ?"  # noqa: S608 (constants)
_LOAD = f"""
    SELECT {_ROW}, tail, extents, created_at, metadata, forked_from, vacuums
    FROM session WHERE namespace = ? AND name = ?"""  # noqa: S608
_NEW_SESSION = f"""
    INSERT INTO session (namespace, name, life, born, staged, generation, tail, deadline,
        created_at, forked_from, metadata, extents)
    SELECT ?1, ?2, 1, ?7, ?3, 0, ?7, ?4, ?5, ?6, x'7b7d', x''
    WHERE NOT EXISTS (
        SELECT * FROM sqlite_sequence WHERE name = 'session' AND seq >= {SESSION_NUMBER_MAX}
    )
    RETURNING number"""  # noqa: S608 (a constant)
_NEW_LIFE = build_update(
    "session",
    {
        "life": "life + 1",
        "born": "?1",
        "tail": "?1",
        "staged": "?2",
        "generation": "0",
        "deadline": "?3",
        "created_at": "?4",
        "forked_from": "?5",
        "metadata": "x'7b7d'",
        "extents": "x''",
    },
    where="number = ?6 RETURNING life",
)
_SET_CHECKSUM = build_update("session", {}, where="number = ?1")
_SET_METADATA = build_update("session", {"metadata": "?1"}, where="number = ?2")
_NEWEST_ENTRY = f"""
    SELECT id, {CONTENT} = content_checksum(payload) FROM entry
    WHERE id >= :low AND id < :high ORDER BY id DESC LIMIT 1"""  # noqa: S608
_LIST = f"""
    SELECT name, {_ROW} FROM session
    WHERE namespace = ? AND name >= ? AND name > ? ORDER BY name LIMIT ?"""  # noqa: S608


class SqliteSessionRow(NamedTuple):
    """A session's row and its state; number 0 and no state if there is no row."""

    number: int
    life: int
    state: SessionState | None
    name: str


NO_SESSION = SqliteSessionRow(0, 0, None, "")


def entry_ids(number: int, start: int = 0, stop: int = LOG_ENTRIES_MAX) -> tuple[int, int]:
    """Return the row ids `[low, high)` of positions; none may reach into another session."""
    if not 0 <= start <= stop <= LOG_ENTRIES_MAX:
        raise FormatError(f"no log has positions {start} to {stop}; nothing was read or written")
    return number << POSITION_BITS | start, (number << POSITION_BITS) + stop


def log_entry_ids(
    row: SqliteSessionRow, start: int, stop: int, *, earlier: bool = False
) -> tuple[int, int]:
    """As `entry_ids`, for positions of the session's life; others are refused.

    With `earlier`, positions of earlier lives of the session are allowed, too.
    """
    assert row.state is not None
    first = 0 if earlier else row.state.born
    if not first <= start <= stop <= row.state.end:
        raise FormatError(
            f"positions {start} to {stop} are outside of the session's log ({first} to"
            f" {row.state.end}); nothing was read or written"
        )
    return entry_ids(row.number, start, stop)


def sync(db: SqliteConnection, row: SqliteSessionRow) -> None:
    """Write something for the sake of its commit, which syncs.

    What an earlier attempt left may have been read back from a log that was never synced. Before
    a retry may report it, it must be. (SQLite writes nothing if nothing changes.)
    """
    db.execute("UPDATE session SET touched = touched + 1 WHERE number = ?", (row.number,))


def find_session(db: SqliteConnection, name: str, *, damaged: bool = False) -> SqliteSessionRow:
    """Find a session; a damaged row is an error unless `damaged` allows it."""
    rows = db.execute(_FIND, (db.namespace, name))
    if not rows:
        return NO_SESSION
    intact, *fields = rows[0]
    row = _build_row(name, *fields)
    if not damaged:
        _check_row(db, row, intact)
    return row


def load_session(db: SqliteConnection, name: str) -> tuple[SqliteSessionRow, Head]:
    """Find a session, and all about it but its entries."""
    rows = db.execute(_LOAD, (db.namespace, name))
    if rows:
        intact, *fields, tail, extents, created_at, metadata, forked_from, vacuums = rows[0]
        row = _build_row(name, *fields)
        _check_row(db, row, intact)
        shown = view.build_view(view.decode(extents), tail) if extents else View((), tail)
    else:
        row, shown, created_at, metadata, forked_from, vacuums = (
            NO_SESSION,
            View(),
            None,
            b"",
            "",
            0,
        )
    return row, rules.build_head(
        row.state,
        view=shown,
        now_ms=db.now_ms(),
        created_at_ms=created_at,
        metadata=metadata,
        snapshots=0,
        forked_from=forked_from,
        vacuums=vacuums,
    )


def _build_row(
    name: str,
    number: int,
    life: int,
    born: int,
    generation: int,
    staged: int,
    deadline: int | None,
    newest_id: int | None,
    newest_deadline: int | None,
    batch_stop: int | None,
) -> SqliteSessionRow:
    """Build the state: the newest entry knows where the log ends, and when the life does."""
    end = born
    # Before the first entry of a session, the newest one below is another session's.
    if newest_id is not None and newest_id >= (number << POSITION_BITS | born):
        # A log that lost its newest entries has no gap, but a batch that lost its end is known by
        # its size. A damaged size must not make the log reach further than any batch, or into the
        # next session.
        stop = min(max(newest_id + 1, batch_stop or 0), newest_id + BATCH_ENTRIES_MAX)
        end = min(stop - (number << POSITION_BITS), LOG_ENTRIES_MAX)
        deadline = newest_deadline
    state = tuple_new(
        SessionState, (f"{number}.{life}", born, end, generation, deadline, bool(staged))
    )
    return tuple_new(SqliteSessionRow, (number, life, state, name))


def _check_row(db: SqliteConnection, row: SqliteSessionRow, intact: int) -> None:
    """Raise if the session's row is damaged, or the entry that says that it has expired."""
    if not intact:
        raise build_damage_error("the row", row.name)
    state = row.state
    assert state is not None
    deadline, born, end = state.deadline_ms, state.born, state.end
    if deadline is None or db.now_ms() < deadline or born == end:
        return
    low, high = entry_ids(row.number, born, end)
    salt = compute_session_salt(db.namespace, row.name)
    rows = db.execute(_NEWEST_ENTRY, {"salt": salt, "low": low, "high": high})
    if not all(fits for _, fits in rows):
        raise FormatError(
            f"session {row.name!r} may have expired, or not: entry"
            f" {rows[0][0] & POSITION_MASK}, which says when, is damaged; nothing was changed."
            " Restore the file from a backup, or forget the session and import it from an export.",
            session=row.name,
        )


@READS.handles(ReadHead)
def read_head(db: SqliteConnection, op: ReadHead) -> Head:
    """Read a session without its entries."""
    row, head = load_session(db, op.session)
    if not op.count_snapshots or head.status is not Status.ACTIVE:
        return head
    ((count,),) = db.execute(
        "SELECT count(*) FROM snapshot WHERE session = ? AND life = ?", (row.number, row.life)
    )
    return replace(head, snapshots=count)


def begin_life(
    db: SqliteConnection,
    row: SqliteSessionRow,
    name: str,
    *,
    ttl_s: float | None,
    staged: bool = False,
    forked_from: str | None = None,
    first: int | None = None,
) -> SqliteSessionRow:
    """Begin a session, or its next life behind the end of the last one."""
    now_ms = db.now_ms()
    deadline = rules.compute_deadline_ms(now_ms, ttl_s)
    born = rules.choose_stage_start(name, row.state.end if row.state else 0, first)
    if row.state is None:
        rows = db.execute(
            _NEW_SESSION,
            (db.namespace, name, int(staged), deadline, now_ms, forked_from, born),
        )
        if not rows:
            raise FormatError(
                "the file's counter of sessions is damaged: it has no number for a new session, and"
                " nothing was written. Export the sessions, and import them into a new file."
            )
        ((number,),) = rows
        # The number is part of the checksum.
        db.execute(_SET_CHECKSUM, (number,))
        life = 1
    else:
        number = row.number
        ((life,),) = db.execute(
            _NEW_LIFE, (born, int(staged), deadline, now_ms, forked_from, number)
        )
    state = SessionState(f"{number}.{life}", born, born, 0, deadline, staged)
    return SqliteSessionRow(number, life, state, name)


@WRITES.handles(SetMetadata)
def set_metadata(db: SqliteConnection, op: SetMetadata) -> Head:
    """Replace a session's metadata."""
    row = find_session(db, op.session)
    status = rules.compute_status(row.state, db.now_ms())
    rules.refuse_if_moved(op.session, op.expected, rules.compute_version(row.state, status))
    if status is not Status.ACTIVE:
        row = begin_life(db, row, op.session, ttl_s=op.ttl_s)
    db.execute(_SET_METADATA, (op.metadata, row.number))
    return read_head(db, ReadHead(op.session, count_snapshots=True))


@READS.handles(ListSessions)
def list_sessions(db: SqliteConnection, op: ListSessions) -> SessionPage:
    """List a page of active sessions by name; the last name read is where to continue.

    A session whose row is damaged is listed too, so that nobody misses it.
    """
    names: list[str] = []
    after = op.resume or ""
    while True:
        rows = db.execute(_LIST, (db.namespace, op.prefix, after, op.limit + 1))
        for name, intact, *fields in rows:
            if not name.startswith(op.prefix):
                return SessionPage(tuple(names), None)
            status = rules.compute_status(_build_row(name, *fields).state, db.now_ms())
            if intact and status is not Status.ACTIVE and not op.dead:
                continue
            if len(names) == op.limit:
                return SessionPage(tuple(names), names[-1])
            names.append(name)
        if len(rows) <= op.limit:
            return SessionPage(tuple(names), None)
        after = rows[-1][0]
