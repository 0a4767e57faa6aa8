"""Upkeep in SQLite's words: what may go, what must go, what is wrong."""

from __future__ import annotations

from collections.abc import Iterable

from indelible import view
from indelible.backends.sqlite.checksums import CONTENT, insert, is_intact, update
from indelible.backends.sqlite.connection import Do, Sql, SqlMany
from indelible.backends.sqlite.schema import compare_schema
from indelible.backends.sqlite.sessions import (
    POSITION_MASK,
    SESSION_NUMBER_MAX,
    Context,
    SessionRow,
    all_entry_ids,
    entry_ids,
    find_session,
    load_session,
)
from indelible.backends.sqlite.views import journal_lines, snapshot_records
from indelible.core import rules
from indelible.core.limits import DAMAGED_ROWS_NAMED_MAX, KEYS_KEPT, STAGE_ABANDONED_S
from indelible.core.operations import (
    CheckEngine,
    CheckSession,
    Erase,
    EraseResult,
    Quarantine,
    ReadQuarantine,
    Reclaim,
    ReclaimResult,
    Scrub,
)
from indelible.core.plan import Plan, perform
from indelible.errors import FormatError, MemoryStoreBackendError
from indelible.model import Status

# Tables whose rows belong to a session by its number.
_PARTS = ("snapshot", "journal", "kept_key", "quarantine")
_KEEP_KEY = insert("kept_key", verb="INSERT OR IGNORE")
_COUNT_VACUUM = update("session", {"vacuums": "vacuums + 1"}, where="number = ?1")
_OF_SESSION = "LEFT JOIN (SELECT number AS owner, namespace, name FROM session) ON owner = session"
# What may be damaged, and the statement that finds it. Entries of sessions that are active are
# looked at one by one when their log is; here, those that say that a session's time is over.
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
_EMPTY = update(
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


def reclaim(context: Context, op: Reclaim) -> Plan[ReclaimResult]:
    """Remove what nothing can reach."""
    place = yield from find_session(context, op.session)
    standing = place.standing
    if standing is None:
        return ReclaimResult()
    status = rules.compute_status(standing, context.now_ms())
    if status is Status.ACTIVE:
        return (yield from _reclaim_active(context, op, place))
    ((created_at,),) = yield from perform(
        Sql("SELECT created_at FROM session WHERE number = ?", (place.number,))
    )
    abandoned_ms = created_at + STAGE_ABANDONED_S * 1000
    if standing.staged and context.now_ms() < abandoned_ms:
        return ReclaimResult()
    removed = yield from _size_of([all_entry_ids(place.number)])
    if not op.dry_run:
        yield from remove_life(place, forget=status is Status.NEW)
    return removed


def _reclaim_active(context: Context, op: Reclaim, place: SessionRow) -> Plan[ReclaimResult]:
    _, head = yield from load_session(context, op.session)
    records = yield from snapshot_records(place)
    lines = yield from journal_lines(place, changes_only=False)
    kept = rules.keep_undoable(lines, op.undo_since_ms)
    reach = rules.find_reachable(head, records, kept)
    # The newest entry stays: it carries the end of the log, and positions are never reused.
    dead = view.subtract(((0, max(0, head.end - 1)),), reach)
    dead_ids = [entry_ids(place, *extent, earlier=True) for extent in dead]
    removed = yield from _size_of(dead_ids)
    gone = ReclaimResult(
        removed.entries, removed.size_bytes, rules.count_removed_changes(lines, kept)
    )
    if not op.dry_run:
        yield from _keep_keys(place, head.born, head.end, dead)
        yield from _delete_entries(dead_ids)
        yield from _forget_old_parts(place, {line.key for line in kept})
        if removed.entries:
            yield Do(_COUNT_VACUUM, (place.number,))
    return gone


def _size_of(ranges: Iterable[tuple[int, int]]) -> Plan[ReclaimResult]:
    entries = size = 0
    for ids in ranges:
        ((count, length),) = yield from perform(
            Sql(
                "SELECT count(*), ifnull(sum(length(payload)), 0) FROM entry"
                " WHERE id >= ? AND id < ?",
                ids,
            )
        )
        entries += count
        size += length
    return ReclaimResult(entries, size)


def _delete_entries(ranges: Iterable[tuple[int, int]]) -> Plan[None]:
    for ids in ranges:
        yield Do("DELETE FROM entry WHERE id >= ? AND id < ?", ids)


def _keep_keys(place: SessionRow, born: int, end: int, dead: view.Extents) -> Plan[None]:
    """Write down the keys of appends that lose an entry, with what their entries were."""
    rows = yield from perform(
        Sql(
            "SELECT id, batch_size, generation, key FROM entry"
            " WHERE id >= ? AND id < ? AND key IS NOT NULL ORDER BY id DESC LIMIT ?",
            (*entry_ids(place, born, end), KEYS_KEPT),
        )
    )
    oldest = (rows[-1][0] & POSITION_MASK) if len(rows) == KEYS_KEPT else born
    yield Do(
        "DELETE FROM kept_key WHERE session = ? AND (life <> ? OR position < ?)",
        (place.number, place.life, oldest),
    )
    for first_id, batch, generation, key in rows:
        position = first_id & POSITION_MASK
        if not view.clip(dead, position, position + batch):
            continue
        found = yield from perform(
            Sql(
                "SELECT ifnull(substr(payload, 9, 16), x'') FROM entry"
                " WHERE id >= ? AND id < ? ORDER BY id",
                entry_ids(place, position, min(position + batch, end)),
            )
        )
        yield Do(
            _KEEP_KEY,
            (
                place.number,
                place.life,
                key,
                position,
                batch,
                generation,
                b"".join(checksum for (checksum,) in found),
            ),
        )


def _forget_old_parts(place: SessionRow, kept_operations: set[str]) -> Plan[None]:
    """Remove parts of earlier lives, and the journal lines that are not kept."""
    yield Do("DELETE FROM snapshot WHERE session = ? AND life <> ?", (place.number, place.life))
    lines = yield from perform(
        Sql("SELECT number, life, operation FROM journal WHERE session = ?", (place.number,))
    )
    yield SqlMany(
        "DELETE FROM journal WHERE number = ?",
        [
            (number,)
            for number, life, operation in lines
            if life != place.life or operation not in kept_operations
        ],
    )


def remove_life(place: SessionRow, *, forget: bool) -> Plan[None]:
    """Remove all of a life that ended; its row stays while it is still known as expired."""
    assert place.standing is not None
    yield from _delete_entries([all_entry_ids(place.number)])
    for table in _PARTS:
        yield Do(f"DELETE FROM {table} WHERE session = ?", (place.number,))  # noqa: S608
    if forget:
        yield Do("DELETE FROM session WHERE number = ?", (place.number,))
    else:
        # The row now knows what its newest entry knew: where the log ends, and when life did.
        yield Do(
            _EMPTY,
            (place.standing.end, place.standing.deadline_ms, place.number),
        )


def erase(context: Context, op: Erase) -> Plan[EraseResult]:
    """Remove every row of a session. Deleted bytes are overwritten: see `secure_delete`."""
    forks = yield from perform(
        Sql(
            "SELECT name FROM session WHERE namespace = ? AND forked_from = ? ORDER BY name",
            (context.namespace, op.session),
        )
    )
    names = tuple(name for (name,) in forks)
    # Nothing of it is shown to anyone: a damaged session can be erased like any other.
    place = yield from find_session(context, op.session, damaged=True)
    context.tips.pop(op.session, None)
    if place.standing is None:
        return EraseResult(forks=names)
    size = yield from _size_of([all_entry_ids(place.number)])
    ((snapshots,),) = yield from perform(
        Sql("SELECT count(*) FROM snapshot WHERE session = ?", (place.number,))
    )
    yield from remove_life(place, forget=True)
    return EraseResult(size.entries, snapshots, size.size_bytes, names)


def scrub(_context: Context, _step: Scrub) -> Plan[tuple[str, ...]]:
    """Rewrite the file, move the write-ahead log into it, and cut that to nothing.

    `secure_delete` overwrites rows that are deleted, but not the copies that stay behind in the
    free part of a page when rows move between pages. Only a rewrite is sure to leave none.
    """
    try:
        yield Do("VACUUM")
        ((busy, _, _),) = yield from perform(Sql("PRAGMA wal_checkpoint(TRUNCATE)"))
    except (MemoryStoreBackendError, FormatError) as error:
        return (f"free space inside the file, which could not be rewritten ({error.message})",)
    return ("the write-ahead log, until no other process reads the file",) if busy else ()


def check_engine(context: Context, _step: CheckEngine) -> Plan[tuple[str, ...]]:
    """SQLite's own check, the schema, checksums of rows, and rows that belong to no session."""
    problems: list[str] = []
    owners = {"entry": "id >> 32", **dict.fromkeys(_PARTS, "session")}
    try:
        rows = yield from perform(Sql("PRAGMA integrity_check"))
        problems += [str(text) for (text,) in rows if text != "ok"]
        problems += [f"the file {text}" for text in (yield from compare_schema())]
        rows = yield from perform(
            Sql(
                "SELECT max(seq) FROM sqlite_sequence WHERE name = 'session' UNION ALL"
                " SELECT max(number) FROM session"
            )
        )
        if any((number or 0) > SESSION_NUMBER_MAX for (number,) in rows):
            problems.append("the counter of sessions is damaged: no session can be added")
        for table, number in owners.items():
            ((count,),) = yield from perform(
                Sql(
                    f"SELECT count(*) FROM {table}"  # noqa: S608 (our own names)
                    f" WHERE {number} NOT IN (SELECT number FROM session)"
                )
            )
            if count:
                problems.append(f"{count} rows of {table} belong to no session")
        problems += yield from _damaged_rows(context)
    except FormatError as error:
        # What was found so far is worth more than where the looking had to end.
        problems.append(error.message)
    return tuple(problems)


def _damaged_rows(context: Context) -> Plan[list[str]]:
    """What has not the checksum that it should have, in every namespace and life."""
    problems: list[str] = []
    for what, statement in _DAMAGED.items():
        rows = yield from perform(
            Sql(statement, {"now": context.now_ms(), "limit": DAMAGED_ROWS_NAMED_MAX + 1})
        )
        for namespace, session, name in rows[:DAMAGED_ROWS_NAMED_MAX]:
            where = f" in namespace {namespace!r}" if namespace else ""
            problems.append(f"{what.format(name)} of session {session!r} is damaged{where}")
        if len(rows) > DAMAGED_ROWS_NAMED_MAX:
            problems.append(f"more rows like these {DAMAGED_ROWS_NAMED_MAX} are damaged")
    return problems


def check_session(_context: Context, _step: CheckSession) -> Plan[tuple[str, ...]]:
    """Every row of a session is read by other steps."""
    yield from ()
    return ()


def quarantine(context: Context, op: Quarantine) -> Plan[None]:
    """Keep the bytes of entries that cannot be read."""
    place = yield from find_session(context, op.session)
    now_ms = context.now_ms()
    yield SqlMany(
        "INSERT OR IGNORE INTO quarantine VALUES (?, ?, ?, ?, ?)",
        [(place.number, position, why, now_ms, raw) for position, why, raw in op.entries],
    )


def read_quarantine(
    context: Context, op: ReadQuarantine
) -> Plan[tuple[tuple[int, str, bytes], ...]]:
    """What was put into quarantine."""
    place = yield from find_session(context, op.session)
    rows = yield from perform(
        Sql(
            "SELECT position, reason, payload FROM quarantine WHERE session = ? ORDER BY position",
            (place.number,),
        )
    )
    return tuple((position, reason, payload) for position, reason, payload in rows)
