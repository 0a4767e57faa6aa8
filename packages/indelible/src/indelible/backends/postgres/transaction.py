"""A transaction on the tables: the statements of the primitives that the shared handlers use.

The statement of a primitive without a result is sent together with the next that has a result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, TypeVar

from indelible import view
from indelible.backends.postgres import search, text_index
from indelible.backends.postgres.arrays import BytesArray, IntArray, TextArray
from indelible.backends.postgres.connection import HANDLERS, PostgresConnection
from indelible.backends.postgres.entries import build_arrays, build_entry
from indelible.backends.postgres.sessions import (
    FIND_BY_NUMBERS,
    LOAD_SESSION,
    LOCK_SESSION,
    build_damage_error,
    build_list,
    build_session_row,
    build_session_update,
    decode_name,
    parse_session_row,
    to_array,
    to_extents,
)
from indelible.backends.postgres.statements import (
    CONTENT,
    IN_MANY,
    Row,
    split_bounds,
)
from indelible.core import rules
from indelible.core.checksums import (
    compute_entry_checksum,
    parse_content_checksum,
    split_checksums,
)
from indelible.core.codec import CHECKSUM_BYTES, CHECKSUM_FROM
from indelible.core.handlers import WRITES, perform_operation
from indelible.core.limits import SESSION_ID_BYTES_MAX
from indelible.core.operations import (
    FindMatches,
    IndexResult,
    IndexText,
    ItemPlace,
    JournalLine,
    LogRow,
    Outline,
    SessionOrder,
    SnapshotRecord,
    StoredEntry,
    StoredLine,
)
from indelible.core.plan import Operation
from indelible.core.ranking import Occurrences
from indelible.core.rows import (
    KeyUse,
    SearchScope,
    SessionRow,
    build_log_row,
    build_outline,
)
from indelible.core.session_list import Place
from indelible.core.transaction import Transaction
from indelible.errors import BusyError, FormatError
from indelible.view import Extents

R = TypeVar("R")

# Tables whose rows belong to a session by its number.
PARTS: Final = ("entry", "snapshot", "journal", "kept_key", "quarantine")
# Rows that belong to no session.
ORPHANS: Final = {
    table: f"FROM indelible.{table} AS part WHERE NOT EXISTS"
    " (SELECT FROM indelible.session WHERE number = part.session)"
    for table in PARTS
}
# The expression of the checksum of a row of each table.
CHECKSUMS: Final = {
    "snapshot": "indelible.snapshot_checksum(session, life, number, taken_at, log_end, id, label,"
    " extents)",
    "journal": "indelible.journal_checksum(session, life, generation, changed_at, log_end,"
    " tail_before, tail_after, operation, change, undone_by, extents_before, extents_after)",
    "kept_key": "indelible.kept_key_checksum(session, life, position, generation, entries, key,"
    " checksums)",
}

# If the number of a session is damaged, another session may have it, or rows belong to no session.
_MAY_BE_OTHERS: Final = f"""
    SELECT EXISTS (SELECT FROM indelible.session
            WHERE number = $3 AND (namespace, name) <> ($1::bytea, $2::bytea))
        OR {" OR ".join(f"EXISTS (SELECT {rows})" for rows in ORPHANS.values())}"""
_CREATE_SESSION: Final = """
    INSERT INTO indelible.session (namespace, name, log_end, born, tail, created_at, last_activity,
        activity_minute, checksum)
    VALUES ($1, $2, 0, 0, 0, 0, 0, 0, 0) ON CONFLICT DO NOTHING RETURNING number"""
_SAVE_SESSION: Final = build_session_update(
    life="$3",
    born="$4",
    log_end="$5",
    generation="$6",
    deadline="$7",
    staged="$8",
    tail="$9",
    extents="$10::bigint[]",
    created_at="$11",
    vacuums="$12",
    forked_from="$13",
    metadata="$14",
    last_activity="$15::bigint",
)
_EXTEND_LOG: Final = build_session_update(
    log_end="greatest(log_end, $3)",
    deadline="CASE WHEN $3 >= log_end THEN $4::bigint ELSE deadline END",
    last_activity="greatest(last_activity, $5)",
)

# One array for each column, so that one statement inserts any number of rows.
_INSERT_ENTRIES: Final = """
    INSERT INTO indelible.entry (session, life, position, written_at, deadline, generation, batch,
        key, kind, keep, opens, answers, payload, embedder, vector, item, words, checksum)
    SELECT $1, $2, position, written_at, deadline, generation, batch, key, kind, keep, opens,
        answers, payload, embedder, vector::real[], item, words::integer[], checksum
    FROM unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bytea[],
        $9::bigint[], $10::boolean[], $11::text[], $12::text[], $13::bytea[], $14::bytea[],
        $15::text[], $16::bytea[], $17::text[], $18::bigint[])
        AS row (position, written_at, deadline, generation, batch, key, kind, keep, opens, answers,
            payload, embedder, vector, item, words, checksum)"""
# For staged rows that an earlier attempt has written, and for erased entries.
_REPLACE_ENTRIES: Final = f"""{_INSERT_ENTRIES}
    ON CONFLICT (session, position) DO UPDATE SET payload = excluded.payload,
        embedder = excluded.embedder, vector = excluded.vector, item = excluded.item,
        words = excluded.words, checksum = excluded.checksum"""
_FIND_ITEMS: Final = """
    SELECT item, position FROM indelible.entry
    WHERE session = $1 AND position >= $2 AND item >= $3 AND (item > $3 OR position < $4)
    ORDER BY item, position DESC LIMIT $5"""
_FIND_NEWER: Final = """
    SELECT id, id >> 32 << 32 | newer.position FROM unnest($1::bigint[]) AS id
    JOIN indelible.entry AS own ON own.session = id >> 32 AND own.position = id & 4294967295,
    LATERAL (SELECT position FROM indelible.entry
        WHERE session = own.session AND item = own.item AND position > own.position
        ORDER BY position DESC LIMIT $2) AS newer"""
_LOG_ROW: Final = f"""position, kind, written_at, deadline, batch, generation, keep, key, opens,
    answers, payload, {CONTENT.format(salt="$4")}"""
_READ_LOG: Final = f"""
    SELECT {_LOG_ROW} FROM indelible.entry WHERE session = $1 AND position >= $2 AND position < $3
    ORDER BY position LIMIT $5"""
_READ_EXTENTS: Final = f"SELECT {_LOG_ROW} {IN_MANY}"
_READ_OUTLINES: Final = f"""
    SELECT position, kind, octet_length(payload), keep, opens, answers {IN_MANY}"""
_CHECKSUM: Final = f"substr(payload, {CHECKSUM_FROM + 1}, {CHECKSUM_BYTES})"
_MEASURE_ENTRIES: Final = f"""
    SELECT count(*), coalesce(sum(octet_length(payload)), 0)::bigint {IN_MANY}"""
_DELETE_ENTRIES: Final = """
    DELETE FROM indelible.entry USING unnest($2::bigint[], $3::bigint[]) AS extent (start, stop)
    WHERE session = $1 AND position >= start AND position < stop"""

_FIND_KEY: Final = f"""
    SELECT position, batch, generation, payload, {CONTENT.format(salt="$4")}
    FROM indelible.entry WHERE session = $1 AND life = $2 AND key = $3"""
_READ_KEYS: Final = """
    SELECT position, batch, generation FROM indelible.entry
    WHERE session = $1 AND life = $2 AND key IS NOT NULL ORDER BY position DESC LIMIT $3"""
_FIND_KEPT_KEY: Final = f"""
    SELECT position, entries, generation, checksums, checksum = {CHECKSUMS["kept_key"]}
    FROM indelible.kept_key WHERE session = $1 AND life = $2 AND key = $3"""
_KEEP_KEYS: Final = f"""
    INSERT INTO indelible.kept_key (session, life, key, position, entries, generation, checksums,
        checksum)
    SELECT session, life, key, position, batch, generation, checksums,
        indelible.kept_key_checksum(session, life, position, generation, batch, key, checksums)
    FROM indelible.entry AS first, LATERAL (
        SELECT string_agg({_CHECKSUM}, '' ORDER BY position) AS checksums
        FROM indelible.entry AS whole WHERE whole.session = $1
            AND whole.position >= first.position
            AND whole.position < first.position + first.batch) AS entries
    WHERE session = $1 AND position = ANY($2::bigint[])
    ON CONFLICT DO NOTHING"""

_LINES: Final = f"""
    SELECT operation, change, changed_at, generation, log_end, tail_before, tail_after,
        extents_before, extents_after, undone_by, checksum = {CHECKSUMS["journal"]}
    FROM indelible.journal WHERE session = $1 AND life = $2"""
# A line that changed nothing is kept for its key.
_CHANGED: Final = " AND NOT (tail_before = tail_after AND extents_before = extents_after)"
_INSERT_LINE: Final = """
    INSERT INTO indelible.journal (session, life, operation, change, changed_at, generation,
        log_end, tail_before, tail_after, extents_before, extents_after, undone_by, checksum)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10::bigint[], $11::bigint[], $12,
        indelible.journal_checksum($1, $2, $6, $5, $7, $8, $9, $3, $4, $12, $10::bigint[],
            $11::bigint[]))"""
_MARK_UNDONE: Final = f"""
    UPDATE indelible.journal SET undone_by = $4,
        checksum = {CHECKSUMS["journal"].replace("undone_by", "$4")}
    WHERE session = $1 AND life = $2 AND operation = $3"""

_SNAPSHOTS: Final = f"""
    SELECT id, label, taken_at, log_end, extents, checksum = {CHECKSUMS["snapshot"]}
    FROM indelible.snapshot WHERE session = $1 AND life = $2"""
_INSERT_SNAPSHOT: Final = """
    INSERT INTO indelible.snapshot (session, life, id, label, taken_at, log_end, extents, number,
        checksum)
    SELECT $1, $2, $3, $4, $5, $6, $7::bigint[], number,
        indelible.snapshot_checksum($1, $2, number, $5, $6, $3, $4, $7::bigint[])
    FROM nextval('indelible.snapshot_number') AS number"""


def is_write(op: Operation[Any]) -> bool:
    """Return whether an operation changes anything."""
    return type(op) in WRITES


def find_handler(
    op: Operation[R],
) -> Callable[[PostgresConnection, Operation[R]], R]:
    """Return the handler that performs an operation."""
    return HANDLERS.find(op) if type(op) in HANDLERS else perform_in_transaction


def perform_in_transaction(db: PostgresConnection, op: Operation[R]) -> R:
    """Perform an operation by its shared handler. If it fails, the client rolls back."""
    writes = is_write(op)
    db.begin(writes=writes)
    result = perform_operation(PostgresTransaction(db, writes=writes), op)
    db.commit()
    return result


class PostgresTransaction(Transaction):
    """The primitives inside of a transaction. One that writes locks each session that it finds."""

    __slots__ = ("_context", "_db", "_writes")

    # Deleted rows are overwritten later, and a client cannot reach the server's logs and copies.
    kept = (
        "the server's tables, until its own vacuum has passed and the space is used again",
        "its index of words and the pending list of that, until its own vacuum has passed",
        "its write-ahead log and the archive of it, for as long as they are kept",
        "standbys until they have caught up, and backups",
    )

    def __init__(self, db: PostgresConnection, *, writes: bool) -> None:
        super().__init__()
        self._db = db
        self._context = db.context
        self._writes = writes

    def read_clock(self) -> int:
        query = "SELECT indelible.now_ms($1::bigint)"
        now_ms: int = self._db.query(query, (self._context.now_ms(),))[0][0]
        return now_ms

    # Sessions

    def find_session(self, name: str, *, damaged: bool = False) -> SessionRow | None:
        # The time of the first look, which may have waited for a lock, is that of the transaction.
        now_ms = self._context.now_ms() if self._now_ms is None else self._now_ms
        params = *self._context.get_primary_key(name), now_ms
        if self._writes:
            rows = self._db.query(LOCK_SESSION, params)
        else:
            rows = self._db.query(LOAD_SESSION, (*params, 0, None, 0, 0))
        if not rows:
            return None
        try:
            row, self._now_ms = build_session_row(name, rows[0])
        except FormatError:
            row, _ = parse_session_row(name, rows[0][1:])
            own = *self._context.get_primary_key(name), row.number
            if not damaged or self._db.query(_MAY_BE_OTHERS, own)[0][0]:
                raise
        return row

    def list_sessions(
        self, prefix: str, order: SessionOrder, after: Place, limit: int
    ) -> list[tuple[SessionRow, bool, int]]:
        # No name is longer than that. A damaged session is listed, so that it is noticed.
        names = prefix.encode(), prefix.encode() + b"\xff" * SESSION_ID_BYTES_MAX
        place = after.value, after.name.encode(), limit, self._context.now_ms()
        found = self._db.query(build_list(order), (self._context.namespace, *names, *place))
        rows: list[tuple[SessionRow, bool, int]] = []
        for name, snapshots, self._now_ms, *fields in found:
            rows.append((*parse_session_row(decode_name(name), tuple(fields)), snapshots))
        return rows

    def find_forks(self, name: str) -> tuple[str, ...]:
        rows = self._db.query(
            "SELECT name FROM indelible.session WHERE namespace = $1 AND forked_from = $2"
            " ORDER BY name",
            self._context.get_primary_key(name),
        )
        # A fork with a damaged name must not keep this session from being erased.
        return tuple(fork.decode("utf-8", "backslashreplace") for (fork,) in rows)

    def create_session(self, name: str) -> int:
        rows = self._db.query(_CREATE_SESSION, self._context.get_primary_key(name))
        if not rows:
            raise BusyError(f"another writer began session {name!r} at this very moment")
        number: int = rows[0][0]
        return number

    def save_session(self, row: SessionRow) -> None:
        shown = row.view
        self._db.do(
            _SAVE_SESSION,
            (
                *self._context.get_primary_key(row.name),
                row.life,
                row.born,
                row.end,
                row.generation,
                row.deadline_ms,
                row.staged,
                shown.tail,
                to_array(shown.extents),
                row.created_at_ms,
                row.vacuums,
                None if row.forked_from is None else row.forked_from.encode(),
                row.metadata,
                row.last_activity_ms,
            ),
        )

    def delete_parts(self, row: SessionRow) -> None:
        for table in PARTS:
            self._db.do(f"DELETE FROM indelible.{table} WHERE session = $1", (row.number,))

    def delete_session(self, row: SessionRow) -> None:
        self.delete_parts(row)
        self._db.do(
            "DELETE FROM indelible.session WHERE namespace = $1 AND name = $2",
            self._context.get_primary_key(row.name),
        )

    def sync(self, row: SessionRow) -> None:
        """Do nothing: locking a row is a write, so the commit syncs all earlier writes."""

    # Entries

    def insert_entries(
        self, row: SessionRow, rows: Sequence[LogRow], *, replace: bool = False
    ) -> None:
        if not rows:
            return
        salt = self._context.compute_salt(row.name)
        entries = [
            build_entry(
                each,
                compute_entry_checksum(salt, each.envelope, *each.place),
                search=self._context.search,
            )
            for each in rows
        ]
        self._db.do(
            _REPLACE_ENTRIES if replace else _INSERT_ENTRIES,
            (
                row.number,
                row.life,
                IntArray(each.position for each in rows),
                IntArray(each.written_at_ms for each in rows),
                IntArray(each.deadline_ms for each in rows),
                IntArray(each.generation for each in rows),
                IntArray(each.batch for each in rows),
                BytesArray(None if each.key is None else each.key.encode() for each in rows),
                *build_arrays(entries),
            ),
        )
        end = rows[-1].position + 1, rows[-1].deadline_ms, rows[-1].written_at_ms
        self._db.do(_EXTEND_LOG, (*self._context.get_primary_key(row.name), *end))

    def read_log(
        self, row: SessionRow, start: int, stop: int, limit: int | None = None
    ) -> list[LogRow]:
        params = row.number, start, stop, self._context.compute_salt(row.name), limit
        return [build_log_row(*fields) for fields in self._db.query(_READ_LOG, params)]

    def read_extents(self, row: SessionRow, extents: Extents) -> list[LogRow]:
        params = row.number, *split_bounds(extents), self._context.compute_salt(row.name)
        found = sorted(self._db.query(_READ_EXTENTS, params), key=itemgetter(0))
        return [build_log_row(*fields) for fields in found]

    def read_outlines(self, row: SessionRow, extents: Extents) -> list[Outline]:
        found = self._db.query(_READ_OUTLINES, (row.number, *split_bounds(extents)))
        return [build_outline(row.name, *fields) for fields in sorted(found, key=itemgetter(0))]

    def measure_entries(self, row: SessionRow, extents: Extents) -> tuple[int, int]:
        ((count, size),) = self._db.query(_MEASURE_ENTRIES, (row.number, *split_bounds(extents)))
        return count, size

    def delete_entries(self, row: SessionRow, extents: Extents) -> None:
        self._db.do(_DELETE_ENTRIES, (row.number, *split_bounds(extents)))

    # The index of items

    def find_items(self, row: SessionRow, after: ItemPlace, limit: int) -> list[ItemPlace]:
        params = row.number, row.born, after.item.encode(), after.position, limit
        found = self._db.query(_FIND_ITEMS, params)
        return [ItemPlace(item.decode("utf-8", "replace"), at) for item, at in found]

    # The indexes of words and of vectors

    def find_scope(self, op: FindMatches) -> SearchScope | None:
        return search.find_scope(self._db, op) if self._context.search else None

    def count_words(
        self,
        words: Collection[str],
        scope: SearchScope,
        most: int | None,  # noqa: ARG002 (nothing is counted)
    ) -> dict[str, int]:
        return search.count_words(self._db, words, scope)

    def find_words(
        self, words: Collection[str], scope: SearchScope, *, among: Collection[int] | None = None
    ) -> Occurrences:
        return search.find_words(self._db, [*words], scope, among)

    def find_nearest(
        self, vector: Sequence[float], embedder: str, scope: SearchScope, limit: int
    ) -> list[tuple[float, int]]:
        return search.find_nearest(self._db, vector, embedder, scope, limit)

    def find_unindexed(self, scope: SearchScope, limit: int) -> list[int]:
        return search.find_unindexed(self._db, scope, limit)

    def find_newer(self, ids: Sequence[int], limit: int) -> list[tuple[int, int]]:
        return [
            (given, newer) for given, newer in self._db.query(_FIND_NEWER, (IntArray(ids), limit))
        ]

    def find_sessions_by_number(self, numbers: Collection[int]) -> list[SessionRow]:
        rows: list[SessionRow] = []
        for namespace, name, *fields in self._db.query(
            FIND_BY_NUMBERS, (IntArray(numbers), self._context.now_ms())
        ):
            if namespace == self._context.namespace:
                row, self._now_ms = build_session_row(decode_name(name), tuple(fields))
                assert row is not None
                rows.append(row)
        return rows

    def read_found(self, names: Mapping[int, str]) -> dict[int, StoredEntry]:
        return search.read_found(self._db, names)

    def index_text(self, op: IndexText) -> IndexResult:
        return text_index.index_page(self._db, op)

    def is_indexed_right(self, row: SessionRow) -> bool:
        return text_index.agrees_with_entries(self._db, row.number)

    # Keys of appends

    def find_key(self, row: SessionRow, key: str) -> KeyUse | None:
        salt = self._context.compute_salt(row.name)
        rows = self._db.query(_FIND_KEY, (row.number, row.life, key.encode(), salt))
        if not rows:
            return None
        first, count, generation, payload, content = rows[0]
        if content != parse_content_checksum(payload):
            raise build_damage_error(row.name, f"entry {first} in indelible.entry")
        return KeyUse(key, first, count, generation)

    def read_keys(self, row: SessionRow, limit: int) -> list[KeyUse]:
        # `keep_keys` uses only the positions, so the keys are not sent.
        return [
            KeyUse("", *use) for use in self._db.query(_READ_KEYS, (row.number, row.life, limit))
        ]

    def find_kept_key(self, row: SessionRow, key: str) -> tuple[KeyUse, list[bytes]] | None:
        rows = self._db.query(_FIND_KEPT_KEY, (row.number, row.life, key.encode()))
        if not rows:
            return None
        first, count, generation, joined, is_intact = rows[0]
        if not is_intact:
            raise build_damage_error(row.name, f"a key of position {first} in indelible.kept_key")
        return KeyUse(key, first, count, generation), split_checksums(joined)

    def keep_keys(self, row: SessionRow, uses: Sequence[KeyUse]) -> None:
        self._db.do(_KEEP_KEYS, (row.number, IntArray(use.first for use in uses)))

    # The journal

    def find_line(self, row: SessionRow, key: str) -> JournalLine | None:
        query = _LINES + " AND operation = $3"
        rows = self._db.query(query, (row.number, row.life, key.encode()))
        return _build_line(row, rows[0]) if rows else None

    def read_lines(
        self, row: SessionRow, *, limit: int | None = None, changes_only: bool = False
    ) -> list[JournalLine]:
        query = _LINES + _CHANGED * changes_only + " ORDER BY generation DESC LIMIT $3"
        return [
            _build_line(row, line) for line in self._db.query(query, (row.number, row.life, limit))
        ]

    def insert_line(self, row: SessionRow, line: JournalLine) -> None:
        _, _, generation = rules.parse_version(line.version)
        self._db.do(
            _INSERT_LINE,
            (
                row.number,
                row.life,
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

    def mark_undone(self, row: SessionRow, key: str, by: str) -> None:
        self._db.do(_MARK_UNDONE, (row.number, row.life, key.encode(), by.encode()))

    def delete_old_parts(self, row: SessionRow, lines: Collection[str], keys_max: int) -> None:
        life = row.number, row.life
        self._db.do(
            "DELETE FROM indelible.kept_key WHERE session = $1 AND (life <> $2 OR position <= ("
            " SELECT position FROM indelible.kept_key WHERE session = $1 AND life = $2"
            " ORDER BY position DESC LIMIT 1 OFFSET $3))",
            (*life, keys_max),
        )
        self._db.do("DELETE FROM indelible.snapshot WHERE session = $1 AND life <> $2", life)
        self._db.do(
            "DELETE FROM indelible.quarantine WHERE session = $1 AND position < $2",
            (row.number, row.born),
        )
        self._db.do(
            "DELETE FROM indelible.journal WHERE session = $1"
            " AND (life <> $2 OR operation <> ALL ($3::bytea[]))",
            (*life, BytesArray(key.encode() for key in lines)),
        )

    # Snapshots

    def find_snapshot(self, row: SessionRow, snapshot_id: str) -> SnapshotRecord | None:
        query = _SNAPSHOTS + " AND id = $3"
        rows = self._db.query(query, (row.number, row.life, snapshot_id.encode()))
        return _build_record(row, rows[0]) if rows else None

    def read_snapshots(self, row: SessionRow) -> list[SnapshotRecord]:
        rows = self._db.query(_SNAPSHOTS + " ORDER BY number", (row.number, row.life))
        return [_build_record(row, fields) for fields in rows]

    def count_snapshots(self, row: SessionRow, *, all_lives: bool = False) -> int:
        ((count,),) = self._db.query(
            "SELECT count(*) FROM indelible.snapshot WHERE session = $1 AND (life = $2 OR $3)",
            (row.number, row.life, all_lives),
        )
        snapshots: int = count
        return snapshots

    def insert_snapshot(self, row: SessionRow, record: SnapshotRecord) -> None:
        shown, end = record.view, record.end
        # Closed at the end of the log: the tail becomes the last extent.
        tail = () if shown.tail == end else ((shown.tail, end),)
        self._db.do(
            _INSERT_SNAPSHOT,
            (
                row.number,
                row.life,
                record.id.encode(),
                None if record.label is None else record.label.encode(),
                record.taken_at_ms,
                end,
                to_array((*shown.extents, *tail)),
            ),
        )

    def delete_snapshot(self, row: SessionRow, snapshot_id: str) -> None:
        self._db.do(
            "DELETE FROM indelible.snapshot WHERE session = $1 AND life = $2 AND id = $3",
            (row.number, row.life, snapshot_id.encode()),
        )

    # Quarantine

    def insert_quarantine(self, row: SessionRow, entries: Sequence[tuple[int, str, bytes]]) -> None:
        now_ms = self.now_ms()
        for position, why, raw in entries:
            self._db.do(
                "INSERT INTO indelible.quarantine (session, position, reason, moved_at, payload)"
                " VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
                (row.number, position, why.encode("utf-8", "surrogatepass"), now_ms, raw),
            )

    def read_quarantine(self, row: SessionRow) -> list[tuple[int, str, bytes]]:
        rows = self._db.query(
            "SELECT position, reason, payload FROM indelible.quarantine WHERE session = $1"
            " ORDER BY position",
            (row.number,),
        )
        return [(at, reason.decode("utf-8", "surrogatepass"), raw) for at, reason, raw in rows]

    # Audit

    def insert_audit_lines(self, session: str, lines: Sequence[StoredLine]) -> None:
        numbers, texts, hashes = zip(*lines, strict=True)
        # While there is no session yet, no lock keeps others from writing the same line.
        rows = self._db.query(
            "INSERT INTO indelible.audit SELECT $1, $2, number, line, hash"
            " FROM unnest($3::bigint[], $4::text[], $5::text[]) AS row (number, line, hash)"
            " ON CONFLICT DO NOTHING RETURNING number",
            (
                self._context.namespace,
                session.encode(),
                IntArray(numbers),
                TextArray(texts),
                TextArray(hashes),
            ),
        )
        if len(rows) < len(lines):
            raise BusyError(f"another writer changed session {session!r} at this very moment")

    def list_audits(self) -> list[str]:
        names = "SELECT DISTINCT session FROM indelible.audit WHERE namespace = $1"
        return [decode_name(name) for (name,) in self._db.query(names, (self._context.namespace,))]

    def read_audit(self, session: str, start: int | None, limit: int) -> list[StoredLine]:
        lines = (
            "SELECT number, line, hash FROM indelible.audit WHERE namespace = $1 AND session = $2"
        )
        name = (self._context.namespace, session.encode())
        if start is None:
            rows = self._db.query(f"{lines} ORDER BY number DESC LIMIT 1", name)
        else:
            ranged = f"{lines} AND number >= $3 ORDER BY number LIMIT $4"
            rows = self._db.query(ranged, (*name, start, limit))
        return [StoredLine(*row) for row in rows]


# Rows


def _build_line(row: SessionRow, fields: Row) -> JournalLine:
    operation, change, changed_at, generation, end, *tails, before, after, undone_by = fields[:-1]
    if not fields[-1]:
        shown = operation.decode("utf-8", "backslashreplace")
        raise build_damage_error(row.name, f"the line {shown!r} in indelible.journal")
    return JournalLine(
        key=operation.decode(),
        change=change.decode(),
        changed_at_ms=changed_at,
        version=rules.build_version(row.token, end, generation),
        end=end,
        before=view.build_view(to_extents(before), tails[0]),
        after=view.build_view(to_extents(after), tails[1]),
        undone_by=None if undone_by is None else undone_by.decode(),
    )


def _build_record(row: SessionRow, fields: Row) -> SnapshotRecord:
    snapshot_id, label, taken_at, end, extents, is_intact = fields
    if not is_intact:
        shown = snapshot_id.decode("utf-8", "backslashreplace")
        raise build_damage_error(row.name, f"its snapshot {shown!r} in indelible.snapshot")
    name = None if label is None else label.decode()
    return SnapshotRecord(snapshot_id.decode(), name, taken_at, open_view(extents, end), end)


def open_view(closed: list[int], end: int) -> view.View:
    """Build the view of a snapshot from its closed extents, of which the last may be the tail."""
    *extents, last = to_extents(closed) or ((end, end),)
    # Not normalized, so that extents outside of the log are still found.
    return (
        view.View(tuple(extents), last[0]) if last[1] == end else view.View((*extents, last), end)
    )
