"""Maintenance: vacuum, erasure, checks and quarantine."""

from __future__ import annotations

from typing import Final

from indelible import view
from indelible.backends.postgres.arrays import BytesArray
from indelible.backends.postgres.read import split_bounds
from indelible.backends.postgres.sessions import (
    PostgresSessionRow,
    build_checksum,
    build_session_update,
    lock_session,
)
from indelible.backends.postgres.statements import READS, WRITES, All, Do, PostgresContext, Sql
from indelible.backends.postgres.views import (
    build_lines,
    build_lines_query,
    build_record,
    build_snapshots_query,
)
from indelible.core import rules
from indelible.core.codec import CHECKSUM_BYTES
from indelible.core.limits import KEYS_KEPT, LOG_ENTRIES_MAX, STAGE_ABANDONED_S
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
from indelible.model import Status

# Tables whose rows belong to a session by its number.
PARTS: Final = ("entry", "snapshot", "journal", "kept_key", "quarantine")
# A deleted row is not overwritten at once, and no client can reach the server's logs and copies.
_KEPT: Final = (
    "the server's tables, until its own vacuum has passed and the space is used again",
    "its write-ahead log and the archive of it, for as long as they are kept",
    "standbys until they have caught up, and backups",
)
_ALL: Final[view.Extents] = ((0, LOG_ENTRIES_MAX),)
_EXTENTS: Final = "unnest($2::bigint[], $3::bigint[]) AS extent (start, stop)"
_WITHIN: Final = "session = $1 AND position >= start AND position < stop"
# Keys of appends that lose an entry, with what their entries were.
_KEEP_KEYS: Final = f"""
    INSERT INTO indelible.kept_key (session, life, key, position, entries, generation, checksums,
        checksum)
    SELECT session, life, key, position, batch, generation, checksums,
        indelible.kept_key_checksum(session, life, position, generation, batch, key, checksums)
    FROM indelible.entry AS first, LATERAL (
        SELECT string_agg(substr(payload, 9, {CHECKSUM_BYTES}), '' ORDER BY position) AS checksums
        FROM indelible.entry AS whole WHERE whole.session = $1
            AND whole.position >= first.position
            AND whole.position < first.position + first.batch) AS entries
    WHERE session = $1 AND life = $4 AND key IS NOT NULL AND position >= $5
        AND EXISTS (SELECT FROM {_EXTENTS} WHERE position + batch > start AND position < stop)
    ON CONFLICT DO NOTHING"""
# The checksum that a row of each table must have.
_DAMAGED: Final = {
    "session": build_checksum(),
    "snapshot": "indelible.snapshot_checksum(session, life, number, taken_at, log_end, id, label,"
    " extents)",
    "journal": "indelible.journal_checksum(session, life, generation, changed_at, log_end,"
    " tail_before, tail_after, operation, change, undone_by, extents_before, extents_after)",
    "kept_key": "indelible.kept_key_checksum(session, life, position, generation, entries, key,"
    " checksums)",
}


@WRITES.handles(Reclaim)
def reclaim(context: PostgresContext, op: Reclaim) -> Plan[ReclaimResult]:
    """Remove what nothing can reach."""
    snapshots, journal = (
        build_snapshots_query(context, op.session),
        build_lines_query(context, op.session, changes_only=False),
    )
    current, (records, lines) = yield from lock_session(context, op.session, snapshots, journal)
    if current.state is None:
        return ReclaimResult()
    if current.status is not Status.ACTIVE:
        return (yield from _reclaim_dead(context, op, current))
    head = current.head()
    every = build_lines(op.session, lines)
    kept = rules.keep_undoable(every, op.undo_since_ms)
    reach = rules.find_reachable(head, [build_record(op.session, row) for row in records], kept)
    dead = view.subtract(((0, max(0, head.end - 1)),), reach)
    removed = yield from _measure(current, dead)
    gone = ReclaimResult(
        removed.entries, removed.size_bytes, rules.count_removed_changes(every, kept)
    )
    if not op.dry_run:
        yield from _keep_keys(current, head.born, dead)
        yield Do(
            f"DELETE FROM indelible.entry USING {_EXTENTS} WHERE {_WITHIN}",
            (current.number, *split_bounds(dead)),
        )
        yield from _forget_old_parts(current, BytesArray(line.key.encode() for line in kept))
        if removed.entries:
            yield Do(build_session_update(vacuums="vacuums + 1"), context.named(op.session))
    return gone


def _reclaim_dead(
    context: PostgresContext, op: Reclaim, current: PostgresSessionRow
) -> Plan[ReclaimResult]:
    assert current.state is not None
    abandoned_ms = (current.created_at_ms or 0) + STAGE_ABANDONED_S * 1000
    if current.state.staged and current.now_ms < abandoned_ms:
        return ReclaimResult()
    removed = yield from _measure(current, _ALL)
    if not op.dry_run:
        yield from remove_life(context, current, op.session, forget=current.status is Status.NEW)
    return removed


def _measure(current: PostgresSessionRow, extents: view.Extents) -> Plan[ReclaimResult]:
    ((entries, size),) = yield from perform(
        Sql(
            "SELECT count(*), coalesce(sum(octet_length(payload)), 0)::bigint"
            f" FROM indelible.entry, {_EXTENTS} WHERE {_WITHIN}",
            (current.number, *split_bounds(extents)),
        )
    )
    return ReclaimResult(entries, size)


def _keep_keys(current: PostgresSessionRow, born: int, dead: view.Extents) -> Plan[None]:
    """Write down the keys of the newest appends that lose an entry; forget older ones."""
    rows = yield from perform(
        Sql(
            "SELECT position FROM indelible.entry WHERE session = $1 AND life = $2"
            " AND key IS NOT NULL ORDER BY position DESC OFFSET $3 LIMIT 1",
            (current.number, current.life, KEYS_KEPT - 1),
        )
    )
    oldest = rows[0][0] if rows else born
    yield Do(
        "DELETE FROM indelible.kept_key WHERE session = $1 AND (life <> $2 OR position < $3)",
        (current.number, current.life, oldest),
    )
    yield Do(_KEEP_KEYS, (current.number, *split_bounds(dead), current.life, oldest))


def _forget_old_parts(current: PostgresSessionRow, kept_operations: BytesArray) -> Plan[None]:
    """Remove parts of earlier lives, and the journal lines that are not kept."""
    at = (current.number, current.life)
    yield Do("DELETE FROM indelible.snapshot WHERE session = $1 AND life <> $2", at)
    yield Do(
        "DELETE FROM indelible.journal WHERE session = $1"
        " AND (life <> $2 OR operation <> ALL ($3::bytea[]))",
        (*at, kept_operations),
    )


def remove_life(
    context: PostgresContext, current: PostgresSessionRow, session: str, *, forget: bool
) -> Plan[None]:
    """Remove all of a life that ended; its row stays while it is still known as expired."""
    assert current.state is not None
    for table in PARTS:
        yield Do(f"DELETE FROM indelible.{table} WHERE session = $1", (current.number,))
    named = context.named(session)
    if forget:
        yield Do("DELETE FROM indelible.session WHERE namespace = $1 AND name = $2", named)
    else:
        ended = build_session_update(
            born="log_end",
            tail="log_end",
            extents="'{}'",
            generation="generation + 1",
            metadata="'{}'",
        )
        yield Do(ended, named)


@WRITES.handles(Erase)
def erase(context: PostgresContext, op: Erase) -> Plan[EraseResult]:
    """Remove every row of a session."""
    forks = Sql(
        "SELECT name FROM indelible.session WHERE namespace = $1 AND forked_from = $2"
        " ORDER BY name",
        context.named(op.session),
    )
    current, (found,) = yield from lock_session(context, op.session, forks)
    names = tuple(name.decode() for (name,) in found)
    if current.state is None:
        return EraseResult(forks=names, kept=_KEPT)
    size = yield from _measure(current, _ALL)
    ((snapshots,),) = yield from perform(
        Sql("SELECT count(*) FROM indelible.snapshot WHERE session = $1", (current.number,))
    )
    yield from remove_life(context, current, op.session, forget=True)
    return EraseResult(size.entries, snapshots, size.size_bytes, names, _KEPT)


@READS.handles(CheckEngine)
def check_engine(_context: PostgresContext, _op: CheckEngine) -> Plan[tuple[str, ...]]:
    """Rows that belong to no session, and rows whose checksum does not match."""
    queries = {
        f"rows of {table} belong to no session": f"SELECT count(*) FROM indelible.{table} AS part"
        " WHERE NOT EXISTS (SELECT FROM indelible.session WHERE number = part.session)"
        for table in PARTS
    }
    for table, checksum in _DAMAGED.items():
        query = f"SELECT count(*) FROM indelible.{table} WHERE checksum IS DISTINCT FROM {checksum}"
        queries[f"rows of {table} are damaged: their checksum does not match"] = query
    counts = yield from perform(All(tuple(map(Sql, queries.values()))))
    return tuple(
        f"{count} {what}" for what, ((count,),) in zip(queries, counts, strict=True) if count
    )


@READS.handles(Scrub)
def scrub(_context: PostgresContext, _op: Scrub) -> Plan[tuple[str, ...]]:
    """Do nothing: no client can clear the server's files. The receipt of an erasure says so."""
    yield from ()
    return ()


@READS.handles(CheckSession)
def check_session(_context: PostgresContext, _op: CheckSession) -> Plan[tuple[str, ...]]:
    """Do nothing: other operations read every row of a session."""
    yield from ()
    return ()


@WRITES.handles(Quarantine)
def quarantine(context: PostgresContext, op: Quarantine) -> Plan[None]:
    """Keep the bytes of entries that cannot be read."""
    current, _ = yield from lock_session(context, op.session)
    for position, why, raw in op.entries:
        yield Do(
            "INSERT INTO indelible.quarantine (session, position, reason, moved_at, payload)"
            " VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
            (current.number, position, why.encode("utf-8", "surrogatepass"), current.now_ms, raw),
        )


@READS.handles(ReadQuarantine)
def read_quarantine(
    context: PostgresContext, op: ReadQuarantine
) -> Plan[tuple[tuple[int, str, bytes], ...]]:
    """Read the entries that were put into quarantine."""
    rows = yield from perform(
        Sql(
            "SELECT part.position, part.reason, part.payload FROM indelible.quarantine AS part"
            " JOIN indelible.session AS own ON part.session = own.number"
            " WHERE own.namespace = $1 AND own.name = $2 ORDER BY part.position",
            context.named(op.session),
        )
    )
    return tuple(
        (position, reason.decode("utf-8", "surrogatepass"), payload)
        for position, reason, payload in rows
    )
