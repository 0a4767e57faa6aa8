"""Maintenance: vacuum, erase, checks of the file, quarantine."""

from __future__ import annotations

from collections.abc import Iterable

from indelible import view
from indelible.backends.sqlite.checksums import CONTENT, build_insert, build_update, is_intact
from indelible.backends.sqlite.connection import SqliteConnection
from indelible.backends.sqlite.handlers import READS, WRITES
from indelible.backends.sqlite.schema import compare_schema
from indelible.backends.sqlite.sessions import (
    POSITION_MASK,
    SESSION_NUMBER_MAX,
    SqliteSessionRow,
    entry_ids,
    find_session,
    load_session,
    log_entry_ids,
)
from indelible.backends.sqlite.views import read_lines, read_records
from indelible.core import rules
from indelible.core.limits import DAMAGED_ROWS_NAMED_MAX, KEYS_KEPT, STAGE_ABANDONED_S
from indelible.core.operations import (
    CheckEngine,
    CheckSession,
    Erase,
    EraseResult,
    Head,
    Quarantine,
    ReadQuarantine,
    Reclaim,
    ReclaimResult,
)
from indelible.errors import FormatError, MemoryStoreBackendError
from indelible.model import Status

# Tables whose rows belong to a session by its number.
_PARTS = ("snapshot", "journal", "kept_key", "quarantine")
_KEEP_KEY = build_insert("kept_key", verb="INSERT OR IGNORE")
_COUNT_VACUUM = build_update("session", {"vacuums": "vacuums + 1"}, where="number = ?1")
_OF_SESSION = "LEFT JOIN (SELECT number AS owner, namespace, name FROM session) ON owner = session"
# What may be damaged, and the statement that finds it. Entries of sessions that are active are
# checked when their log is read; here, those that say that a session has expired.
_DAMAGED = {
    "the row": f"""
        SELECT namespace, name, NULL FROM session WHERE NOT {is_intact("session")} LIMIT :limit""",  # noqa: S608 (constants)
    "snapshot {0!r}": f"""
        SELECT namespace, name, id FROM snapshot {_OF_SESSION}
        WHERE NOT {is_intact("snapshot")} LIMIT :limit""",  # noqa: S608 (constants)
    "the journal's line of {0!r}": f"""
        SELECT namespace, name, operation FROM journal {_OF_SESSION}
        WHERE NOT {is_intact("journal")} LIMIT :limit""",  # noqa: S608 (constants)
    "the row of key {0!r}": f"""
        SELECT namespace, name, key FROM kept_key {_OF_SESSION}
        WHERE NOT {is_intact("kept_key")} LIMIT :limit""",  # noqa: S608 (constants)
    "entry {0}, which says when its time is over,": f"""
        SELECT namespace, name, id & 4294967295
        FROM (SELECT number, born, namespace, name FROM session) JOIN entry
        ON id = (SELECT id FROM entry WHERE id < (number + 1) << 32 ORDER BY id DESC LIMIT 1)
        WHERE id >= (number << 32 | born) AND deadline <= :now
        AND {CONTENT.replace(":salt", "session_salt(namespace, name)")} <> content_checksum(payload)
        LIMIT :limit""",  # noqa: S608 (constants)
}
_EMPTY = build_update(
    "session",
    {
        "born": "?1",
        "tail": "?1",
        "extents": "x''",
        "deadline": "?2",
        "generation": "generation + 1",
        "metadata": "x'7b7d'",
    },
    where="number = ?3",
)


@WRITES.handles(Reclaim)
def reclaim(db: SqliteConnection, op: Reclaim) -> ReclaimResult:
    """Remove entries that nothing can reach."""
    row, head = load_session(db, op.session)
    if row.state is None:
        return ReclaimResult()
    if head.status is Status.ACTIVE:
        return _reclaim_active(db, op, row, head)
    if row.state.staged:
        ((created_at,),) = db.execute(
            "SELECT created_at FROM session WHERE number = ?", (row.number,)
        )
        if db.now_ms() < created_at + STAGE_ABANDONED_S * 1000:
            return ReclaimResult()
    removed = _measure_entries(db, [entry_ids(row.number)])
    if not op.dry_run:
        if head.status is Status.EXPIRED:
            _empty_session(db, row)
        else:
            remove_session(db, row)
    return ReclaimResult(*removed)


def _reclaim_active(
    db: SqliteConnection, op: Reclaim, row: SqliteSessionRow, head: Head
) -> ReclaimResult:
    lines = read_lines(db, row, changes_only=False)
    kept = rules.keep_undoable(lines, op.undo_since_ms)
    reach = rules.find_reachable(head, read_records(db, row), kept)
    # The newest entry stays: it carries the end of the log, and positions are never reused.
    dead = view.subtract(((0, max(0, head.end - 1)),), reach)
    dead_ids = [log_entry_ids(row, *extent, earlier=True) for extent in dead]
    count, size = _measure_entries(db, dead_ids)
    if not op.dry_run:
        _keep_keys(db, row, head, dead)
        _delete_entries(db, dead_ids)
        _delete_old_parts(db, row, {line.key for line in kept})
        if count:
            db.execute(_COUNT_VACUUM, (row.number,))
    return ReclaimResult(count, size, rules.count_removed_changes(lines, kept))


def _measure_entries(db: SqliteConnection, ranges: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return the number of entries in these ranges of row ids, and their size in bytes."""
    count = size = 0
    for ids in ranges:
        ((entries, length),) = db.execute(
            "SELECT count(*), ifnull(sum(length(payload)), 0) FROM entry WHERE id >= ? AND id < ?",
            ids,
        )
        count += entries
        size += length
    return count, size


def _delete_entries(db: SqliteConnection, ranges: Iterable[tuple[int, int]]) -> None:
    for ids in ranges:
        db.execute("DELETE FROM entry WHERE id >= ? AND id < ?", ids)


def _keep_keys(db: SqliteConnection, row: SqliteSessionRow, head: Head, dead: view.Extents) -> None:
    """Keep the keys of appends that lose an entry, with the checksums of their entries."""
    rows = db.execute(
        "SELECT id, batch_size, generation, key FROM entry"
        " WHERE id >= ? AND id < ? AND key IS NOT NULL ORDER BY id DESC LIMIT ?",
        (*log_entry_ids(row, head.born, head.end), KEYS_KEPT),
    )
    oldest = (rows[-1][0] & POSITION_MASK) if len(rows) == KEYS_KEPT else head.born
    db.execute(
        "DELETE FROM kept_key WHERE session = ? AND (life <> ? OR position < ?)",
        (row.number, row.life, oldest),
    )
    for first_id, batch, generation, key in rows:
        position = first_id & POSITION_MASK
        if not view.clip(dead, position, position + batch):
            continue
        found = db.execute(
            "SELECT ifnull(substr(payload, 9, 16), x'') FROM entry"
            " WHERE id >= ? AND id < ? ORDER BY id",
            log_entry_ids(row, position, min(position + batch, head.end)),
        )
        checksums = b"".join(checksum for (checksum,) in found)
        db.execute(_KEEP_KEY, (row.number, row.life, key, position, batch, generation, checksums))


def _delete_old_parts(db: SqliteConnection, row: SqliteSessionRow, kept_keys: set[str]) -> None:
    """Delete parts of earlier lives, and the journal lines that are not kept."""
    db.execute("DELETE FROM snapshot WHERE session = ? AND life <> ?", (row.number, row.life))
    lines = db.execute(
        "SELECT number, life, operation FROM journal WHERE session = ?", (row.number,)
    )
    old = [(n,) for n, life, key in lines if life != row.life or key not in kept_keys]
    db.execute_many("DELETE FROM journal WHERE number = ?", old)


def _delete_parts(db: SqliteConnection, row: SqliteSessionRow) -> None:
    _delete_entries(db, [entry_ids(row.number)])
    for table in _PARTS:
        db.execute(f"DELETE FROM {table} WHERE session = ?", (row.number,))  # noqa: S608


def _empty_session(db: SqliteConnection, row: SqliteSessionRow) -> None:
    """Delete all of a life that expired but the session's row, which still says so."""
    assert row.state is not None
    _delete_parts(db, row)
    # The row now knows what its newest entry knew: where the log ends, and when the life did.
    db.execute(_EMPTY, (row.state.end, row.state.deadline_ms, row.number))


def remove_session(db: SqliteConnection, row: SqliteSessionRow) -> None:
    """Delete every row of a session. Deleted bytes are overwritten: see `secure_delete`."""
    _delete_parts(db, row)
    db.execute("DELETE FROM session WHERE number = ?", (row.number,))


@WRITES.handles(Erase)
def erase(db: SqliteConnection, op: Erase) -> EraseResult:
    """Remove every row of a session."""
    forks = db.execute(
        "SELECT name FROM session WHERE namespace = ? AND forked_from = ? ORDER BY name",
        (db.namespace, op.session),
    )
    names = tuple(name for (name,) in forks)
    # Nothing of it is shown to anyone: a damaged session can be erased like any other.
    row = find_session(db, op.session, damaged=True)
    if row.state is None:
        return EraseResult(forks=names)
    count, size = _measure_entries(db, [entry_ids(row.number)])
    ((snapshots,),) = db.execute("SELECT count(*) FROM snapshot WHERE session = ?", (row.number,))
    remove_session(db, row)
    return EraseResult(count, snapshots, size, names)


def scrub(db: SqliteConnection) -> tuple[str, ...]:
    """Rewrite the file, move the write-ahead log into it, and truncate that.

    `secure_delete` overwrites rows that are deleted, but not the copies that stay behind in the
    free part of a page when rows move between pages. Only a rewrite is sure to leave none.
    """
    try:
        db.execute("VACUUM")
        ((busy, _, _),) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except (MemoryStoreBackendError, FormatError) as error:
        return (f"free space inside the file, which could not be rewritten ({error.message})",)
    return ("the write-ahead log, until no other process reads the file",) if busy else ()


@READS.handles(CheckEngine)
def check_engine(db: SqliteConnection, _op: CheckEngine) -> tuple[str, ...]:
    """Check SQLite's structures, the schema, checksums of rows, and rows of no session."""
    problems: list[str] = []
    owners = {"entry": "id >> 32", **dict.fromkeys(_PARTS, "session")}
    try:
        found = db.execute("PRAGMA integrity_check")
        problems += [str(text) for (text,) in found if text != "ok"]
        problems += [f"the file {text}" for text in compare_schema(db)]
        numbers = db.execute(
            "SELECT max(seq) FROM sqlite_sequence WHERE name = 'session' UNION ALL"
            " SELECT max(number) FROM session"
        )
        if any((number or 0) > SESSION_NUMBER_MAX for (number,) in numbers):
            problems.append("the counter of sessions is damaged: no session can be added")
        for table, number in owners.items():
            ((count,),) = db.execute(
                f"SELECT count(*) FROM {table}"  # noqa: S608 (our own names)
                f" WHERE {number} NOT IN (SELECT number FROM session)"
            )
            if count:
                problems.append(f"{count} rows of {table} belong to no session")
        problems += _find_damaged_rows(db)
    except FormatError as error:
        # Report what was found before the check had to end.
        problems.append(error.message)
    return tuple(problems)


def _find_damaged_rows(db: SqliteConnection) -> list[str]:
    """Name rows with a wrong checksum, in every namespace and life."""
    problems: list[str] = []
    limits = {"now": db.now_ms(), "limit": DAMAGED_ROWS_NAMED_MAX + 1}
    for what, statement in _DAMAGED.items():
        rows = db.execute(statement, limits)
        for namespace, session, name in rows[:DAMAGED_ROWS_NAMED_MAX]:
            where = f" in namespace {namespace!r}" if namespace else ""
            problems.append(f"{what.format(name)} of session {session!r} is damaged{where}")
        if len(rows) > DAMAGED_ROWS_NAMED_MAX:
            problems.append(f"more rows like these {DAMAGED_ROWS_NAMED_MAX} are damaged")
    return problems


@READS.handles(CheckSession)
def check_session(_db: SqliteConnection, _op: CheckSession) -> tuple[str, ...]:
    """Check nothing: other operations of a verification read every row of a session."""
    return ()


@WRITES.handles(Quarantine)
def quarantine(db: SqliteConnection, op: Quarantine) -> None:
    """Keep the bytes of entries that cannot be read."""
    row = find_session(db, op.session)
    now_ms = db.now_ms()
    db.execute_many(
        "INSERT OR IGNORE INTO quarantine VALUES (?, ?, ?, ?, ?)",
        [(row.number, position, why, now_ms, raw) for position, why, raw in op.entries],
    )


@READS.handles(ReadQuarantine)
def read_quarantine(db: SqliteConnection, op: ReadQuarantine) -> tuple[tuple[int, str, bytes], ...]:
    """Read what was put into quarantine."""
    row = find_session(db, op.session)
    rows = db.execute(
        "SELECT position, reason, payload FROM quarantine WHERE session = ? ORDER BY position",
        (row.number,),
    )
    return tuple((position, reason, payload) for position, reason, payload in rows)
