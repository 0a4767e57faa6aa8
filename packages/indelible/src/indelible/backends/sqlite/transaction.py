"""A transaction on the file: the statements behind each primitive."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any

from indelible import view
from indelible.backends.sqlite import search, text_index
from indelible.backends.sqlite.checksums import (
    CONTENT,
    FIELDS,
    PAYLOAD,
    build_damage_error,
    build_insert,
    cast_number,
    is_intact,
)
from indelible.backends.sqlite.connection import Rows, SqliteConnection
from indelible.core import rules
from indelible.core.checksums import (
    compute_entry_checksum,
    compute_row_checksum,
    compute_session_salt,
    split_checksums,
)
from indelible.core.codec import KIND_BYTES, has_kind
from indelible.core.ids import MADE_PREFIX
from indelible.core.limits import (
    ACTIVITY_STEP_MS,
    BATCH_ENTRIES_MAX,
    KEYS_KEPT,
    LOG_ENTRIES_MAX,
)
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
from indelible.core.ranking import Occurrences
from indelible.core.rows import (
    KIND_BY_NUMBER,
    KIND_NUMBER,
    KeyUse,
    SearchScope,
    SessionRow,
    build_log_row,
    build_outline,
    build_token,
    encode_links,
)
from indelible.core.session_list import Place, build_name_end
from indelible.core.transaction import Transaction
from indelible.errors import FormatError
from indelible.model import Kind
from indelible.view import Extents

# An entry's row id is its session's number and its position.
POSITION_BITS = 32
POSITION_MASK = 2**POSITION_BITS - 1
# With a larger number, the row ids of a session would not fit into 63 bits.
SESSION_NUMBER_MAX = 2**31 - 2

_ALL_KINDS = -1
_GET_KIND_NUMBER = itemgetter(1)
# Id, kind and payload of a row that is inserted.
_GET_INDEXED = itemgetter(0, 1, 10)

# Tables whose rows belong to a session by its number.
PARTS = ("snapshot", "journal", "kept_key", "quarantine")

# The row has the first time in the last step of activity; the newest entry has the last one. A
# damaged entry does not move the session to another step.
_STEP = f"last_activity / {ACTIVITY_STEP_MS}"
_LAST_ACTIVITY = f"""
    CAST(max(last_activity, min((1 + {_STEP}) * {ACTIVITY_STEP_MS} - 1, ifnull((
        SELECT written_at FROM entry WHERE id >= (number << 32) + born AND id < (number + 1) << 32
        ORDER BY id DESC LIMIT 1), 0))) AS INTEGER)"""
# A session's row, its newest entry, and where its newest batch ends. Scalar subqueries are a seek
# each; a join is not.
_COLUMNS = f"""
    SELECT {FIELDS["session"]}, session.checksum, {_LAST_ACTIVITY},
        (SELECT id FROM entry WHERE id < (number + 1) << 32 ORDER BY id DESC LIMIT 1),
        CAST((SELECT deadline FROM entry WHERE id < (number + 1) << 32 ORDER BY id DESC LIMIT 1)
            AS INTEGER),
        CAST((SELECT id + batch_size FROM entry WHERE id >= number << 32 AND id < (number + 1) << 32
            AND batch_size > 0 ORDER BY id DESC LIMIT 1) AS INTEGER)"""
_FIND_SESSION = f"{_COLUMNS} FROM session WHERE namespace = ? AND name = ?"
# For each order: its index, what a page begins after, and the terms. {0} is > or <. Sorted values
# are numbers, or a page would not end where the next one begins.
_ORDERS = {
    # By the bounds of the name: of two lower bounds, SQLite would seek either.
    "id": ("session_name", "TRUE", ("name",)),
    "created": (
        "session_created",
        "typeof(created_at) = 'integer' AND (created_at, name) {0} (:value, :name)",
        ("created_at", "name"),
    ),
    "last_activity": (
        "session_activity",
        f"""{_STEP} {{0}}= :value / {ACTIVITY_STEP_MS}
            AND ({_LAST_ACTIVITY}, name) {{0}} (:value, :name)""",
        (_STEP, _LAST_ACTIVITY, "name"),
    ),
}


@cache
def _build_list(order: SessionOrder) -> str:
    """Build the statement that lists sessions in an order."""
    index, after, terms = _ORDERS[order.by]
    direction = " DESC" if order.descending else ""
    ordered = ", ".join(term + direction for term in terms)
    # The page is chosen by its order alone: sorting would read all columns of all sessions.
    return f"""{_COLUMNS},
            (SELECT count(*) FROM snapshot AS part
                WHERE part.session = session.number AND part.life = session.life)
        FROM session
        WHERE number IN (
            SELECT number FROM session INDEXED BY {index}
            WHERE namespace = :namespace AND name >= :first AND name < :last
                AND {after.format("<" if order.descending else ">")}
            ORDER BY {ordered} LIMIT :limit
        )
        ORDER BY {ordered}"""


_CREATE_SESSION = f"""
    INSERT INTO session (namespace, name, life, born, staged, generation, tail, created_at,
        metadata, extents)
    SELECT ?, ?, 0, 0, 1, 0, 0, 0, x'', x''
    WHERE NOT EXISTS (
        SELECT * FROM sqlite_sequence WHERE name = 'session' AND seq >= {SESSION_NUMBER_MAX}
    )
    RETURNING number"""
_SAVE_SESSION = """
    UPDATE session SET life = ?, born = ?, staged = ?, generation = ?, tail = ?, deadline = ?,
        created_at = ?, last_activity = ?, vacuums = ?, forked_from = ?, metadata = ?, extents = ?,
        checksum = ?
    WHERE number = ?"""
_CHECK_NEWEST_ENTRY = f"""
    SELECT {CONTENT} = content_checksum({PAYLOAD}) FROM entry WHERE id = :id"""

_INSERT_ENTRY = """
    INSERT INTO entry (id, kind, written_at, deadline, batch_size, generation, keep, key, call_ids,
        answer_ids, payload, checksum)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_REPLACE_ENTRY = _INSERT_ENTRY.replace("INSERT", "INSERT OR REPLACE", 1)
# Entries of other kinds are read too, without their bodies: a position that is missing, or whose
# kind was damaged, must not look like one that was not asked for. (A part of an empty blob is NULL
# to SQLite.)
_READ_ENTRIES = f"""
    SELECT id, kind, {cast_number("written_at")},
        CASE WHEN kind BETWEEN 1 AND {len(KIND_BY_NUMBER)} AND NOT ? >> kind & 1
            THEN ifnull(substr({PAYLOAD}, 1, {KIND_BYTES}), x'') ELSE {PAYLOAD} END,
        {CONTENT}
    FROM entry WHERE id >= ? AND id < ? ORDER BY id"""
_READ_ENTRIES_BACKWARDS = _READ_ENTRIES + " DESC"
_READ_LOG = f"""
    SELECT id & {POSITION_MASK}, kind, {cast_number("written_at")}, CAST(deadline AS INTEGER),
        {cast_number("batch_size")}, {cast_number("generation")}, keep, CAST(key AS TEXT), call_ids,
        answer_ids, {PAYLOAD}, {CONTENT}
    FROM entry WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"""
_READ_OUTLINES = f"""
    SELECT id & {POSITION_MASK}, kind, ifnull(length(payload), 0), keep, call_ids, answer_ids
    FROM entry WHERE id >= ? AND id < ? ORDER BY id"""
_MEASURE_ENTRIES = """
    SELECT count(*), ifnull(sum(length(payload)), 0) FROM entry WHERE id >= ? AND id < ?"""

# The expression of the index `entry_item`.
_ITEM = """CASE WHEN json_valid(CAST(payload AS TEXT)) THEN json_extract(
    CAST(payload AS TEXT), CASE kind WHEN 5 THEN '$.memory.id' ELSE '$.checkpoint.id' END) END"""
_FIND_ITEMS = f"""
    SELECT {_ITEM}, id & 4294967295 FROM entry INDEXED BY entry_item
    WHERE kind IN (5, 7) AND id >> 32 = :number AND id >= :born
        AND {_ITEM} >= :item AND ({_ITEM} > :item OR id < :after)
    ORDER BY {_ITEM}, -id LIMIT :limit"""
_FIND_NEWER = f"""
    SELECT ?1, id FROM entry INDEXED BY entry_item
    WHERE kind IN (5, 7) AND id >> 32 = ?1 >> 32
        AND {_ITEM} = (SELECT {_ITEM} FROM entry WHERE id = ?1) AND -id < -?1
    ORDER BY -id LIMIT ?2"""

_KEY_USE = f"""
    SELECT key, id & 4294967295, {cast_number("batch_size")}, {cast_number("generation")}
    FROM entry"""
_KEYS = f"{_KEY_USE} WHERE id >= ? AND id < ?"
_READ_KEYS = _KEYS + " AND key IS NOT NULL ORDER BY id DESC LIMIT ?"
_FIND_GENERATED_KEY = _KEYS + " AND key = ? ORDER BY id DESC LIMIT 1"
_FIND_CALLERS_KEY = f"""{_KEY_USE}
    WHERE id >> 32 = ? AND key = ? AND substr(key, 1, 1) <> '{MADE_PREFIX}' AND id >= ?
    ORDER BY id DESC LIMIT 1"""
_FIND_KEPT_KEY = f"""
    SELECT {FIELDS["kept_key"]}, checksum FROM kept_key
    WHERE session = ? AND life = ? AND key = ?"""
_KEEP_KEY = build_insert("kept_key").replace("INSERT", "INSERT OR IGNORE", 1)

_LINES = f"SELECT {FIELDS['journal']}, checksum FROM journal WHERE session = ? AND life = ?"
_FIND_LINE = _LINES + " AND operation = ?"
_READ_LINES = _LINES + " ORDER BY number DESC LIMIT ?"
# A line that changed nothing is kept for its key alone. One that only seems so because it is
# damaged is read, and reported.
_READ_CHANGES = f"""
    {_LINES} AND NOT (tail_before = tail_after AND extents_before = extents_after
        AND {is_intact("journal")})
    ORDER BY number DESC LIMIT ?"""
_INSERT_LINE = build_insert("journal")
_MARK_UNDONE = f"""
    UPDATE journal SET undone_by = ?1,
        checksum = row_checksum({FIELDS["journal"].replace("undone_by", "?1")})
    WHERE session = ?2 AND life = ?3 AND operation = ?4 AND {is_intact("journal")}"""

_SNAPSHOTS = f"SELECT {FIELDS['snapshot']}, checksum FROM snapshot WHERE session = ? AND life = ?"
_FIND_SNAPSHOT = _SNAPSHOTS + " AND id = ?"
_READ_SNAPSHOTS = _SNAPSHOTS + " ORDER BY number"
_INSERT_SNAPSHOT = build_insert("snapshot")


def build_entry_ids(number: int, start: int, stop: int) -> tuple[int, int]:
    """Return the row ids `[low, high)` of positions; none may reach into another session."""
    if not 0 <= start <= stop <= LOG_ENTRIES_MAX:
        raise FormatError(f"no log has positions {start} to {stop}; nothing was read or written")
    return number << POSITION_BITS | start, (number << POSITION_BITS) + stop


class SqliteTransaction(Transaction):
    """Runs the primitives on a connection that has begun a transaction."""

    __slots__ = ("_db",)

    def __init__(self, db: SqliteConnection) -> None:
        super().__init__()
        self._db = db

    def read_clock(self) -> int:
        return self._db.now_ms()

    # Sessions

    def find_session(self, name: str, *, damaged: bool = False) -> SessionRow | None:
        rows = self._db.execute(_FIND_SESSION, (self._db.namespace, name))
        if not rows:
            return None
        row, intact = _build_session(rows[0])
        if damaged:
            return row
        if not intact:
            raise build_damage_error("the row", name)
        if row.deadline_ms is not None and row.born < row.end:
            self._check_deadline(row)
        return row

    def _check_deadline(self, row: SessionRow) -> None:
        """Raise if a session has expired by an entry that is damaged."""
        assert row.deadline_ms is not None
        if self.now_ms() < row.deadline_ms:
            return
        newest, _ = build_entry_ids(row.number, row.end - 1, row.end)
        found = self._db.execute(_CHECK_NEWEST_ENTRY, {"salt": self._salt(row), "id": newest})
        if any(not fits for (fits,) in found):
            raise FormatError(
                f"session {row.name!r} may have expired, or not: entry {row.end - 1}, which says"
                " when, is damaged; nothing was changed. Restore the file from a backup, or forget"
                " the session and import it from an export.",
                session=row.name,
            )

    def _salt(self, row: SessionRow) -> int:
        return compute_session_salt(self._db.namespace, row.name)

    def list_sessions(
        self, prefix: str, order: SessionOrder, after: Place, limit: int
    ) -> Sequence[tuple[SessionRow, bool, int]]:
        first, last = prefix, build_name_end(prefix)
        if order.by == "id":
            # What comes next after a text is that text with a zero.
            if order.descending:
                last = min(last, after.name)
            else:
                first = max(first, after.name + "\0")
        params = {
            "namespace": self._db.namespace,
            "first": first,
            "last": last,
            "value": after.value,
            "name": after.name,
            "limit": limit,
        }
        found = self._db.execute(_build_list(order), params)
        return [(*_build_session(fields[:-1]), fields[-1]) for fields in found]

    def find_forks(self, name: str) -> tuple[str, ...]:
        found = self._db.execute(
            "SELECT name FROM session WHERE namespace = ? AND forked_from = ? ORDER BY name",
            (self._db.namespace, name),
        )
        return tuple(fork for (fork,) in found)

    def create_session(self, name: str) -> int:
        rows = self._db.execute(_CREATE_SESSION, (self._db.namespace, name))
        if not rows:
            raise FormatError(
                "the file's counter of sessions is damaged: it has no number for a new session, and"
                " nothing was written. Export the sessions, and import them into a new file."
            )
        number: int = rows[0][0]
        return number

    def save_session(self, row: SessionRow) -> None:
        values = (
            row.life,
            row.born,
            int(row.staged),
            row.generation,
            row.view.tail,
            row.deadline_ms,
            row.created_at_ms,
            row.last_activity_ms,
            row.vacuums,
            row.forked_from,
            row.metadata,
            view.encode(row.view.extents),
        )
        checksum = compute_row_checksum(row.number, self._db.namespace, row.name, *values)
        self._db.execute(_SAVE_SESSION, (*values, checksum, row.number))

    def delete_parts(self, row: SessionRow) -> None:
        self.delete_entries(row, ((0, LOG_ENTRIES_MAX),))
        for table in PARTS:
            self._db.execute(f"DELETE FROM {table} WHERE session = ?", (row.number,))

    def delete_session(self, row: SessionRow) -> None:
        self.delete_parts(row)
        self._db.execute("DELETE FROM session WHERE number = ?", (row.number,))

    def sync(self, row: SessionRow) -> None:
        # What an earlier attempt left may have been read from a log that was never synced. This
        # commit syncs it; SQLite writes nothing if nothing changes, so a counter changes.
        self._db.execute("UPDATE session SET touched = touched + 1 WHERE number = ?", (row.number,))

    # Entries

    def insert_entries(
        self, row: SessionRow, rows: Sequence[LogRow], *, replace: bool = False
    ) -> None:
        salt = self._salt(row)
        values = [_build_entry(row.number, salt, entry) for entry in rows]
        if replace:
            for start, stop in view.from_positions([entry.position for entry in rows]):
                ids = build_entry_ids(row.number, start, stop)
                text_index.remove_entries(self._db, *ids)
        self._db.execute_many(_REPLACE_ENTRY if replace else _INSERT_ENTRY, values)
        text_index.add_entries(self._db, [_GET_INDEXED(value) for value in values])

    def read_entries(
        self, row: SessionRow, extents: Extents, kinds: frozenset[Kind] | None, *, newest: bool
    ) -> list[StoredEntry]:
        numbers, mask = _choose_kinds(kinds)
        query = _READ_ENTRIES_BACKWARDS if newest else _READ_ENTRIES
        found: Rows = []
        for start, stop in extents[::-1] if newest else extents:
            ids = build_entry_ids(row.number, start, stop)
            part = self._db.execute(query, (mask, self._salt(row), *ids))
            if len(part) != stop - start:
                rules.refuse_many_missing(row.name, stop - start - len(part), start, stop)
                part = _fill_gaps(part, range(*ids)[::-1] if newest else range(*ids))
            found += part
        if not numbers.issuperset(map(_GET_KIND_NUMBER, found)):
            found = self._pick_kinds(numbers, found)
        get_kind = KIND_BY_NUMBER.get
        return [
            StoredEntry(entry_id & POSITION_MASK, get_kind(number), written_at, payload, content)
            for entry_id, number, written_at, payload, content in found
        ]

    def _pick_kinds(self, numbers: frozenset[int], found: Rows) -> Rows:
        """Drop rows of other kinds, unless their payload says otherwise: they are damaged."""
        rows: Rows = []
        for entry_id, number, written_at, payload, content in found:
            kind = KIND_BY_NUMBER.get(number)
            if kind is None or number in numbers:
                rows.append((entry_id, number, written_at, payload, content))
            elif not has_kind(kind, payload):
                ((whole,),) = self._db.execute(
                    f"SELECT {PAYLOAD} FROM entry WHERE id = ?", (entry_id,)
                )
                rows.append((entry_id, number, written_at, whole, content))
        return rows

    def read_log(
        self, row: SessionRow, start: int, stop: int, limit: int | None = None
    ) -> list[LogRow]:
        ids = build_entry_ids(row.number, start, stop)
        most = -1 if limit is None else limit
        found = self._db.execute(_READ_LOG, (self._salt(row), *ids, most))
        return [build_log_row(*fields) for fields in found]

    def read_outlines(self, row: SessionRow, extents: Extents) -> list[Outline]:
        ids = [build_entry_ids(row.number, start, stop) for start, stop in extents]
        found = chain.from_iterable(self._db.execute(_READ_OUTLINES, each) for each in ids)
        return [build_outline(row.name, *fields) for fields in found]

    def measure_entries(self, row: SessionRow, extents: Extents) -> tuple[int, int]:
        count = size = 0
        for start, stop in extents:
            ids = build_entry_ids(row.number, start, stop)
            ((entries, length),) = self._db.execute(_MEASURE_ENTRIES, ids)
            count += entries
            size += length
        return count, size

    def delete_entries(self, row: SessionRow, extents: Extents) -> None:
        for start, stop in extents:
            ids = build_entry_ids(row.number, start, stop)
            text_index.remove_entries(self._db, *ids)
            self._db.execute("DELETE FROM entry WHERE id >= ? AND id < ?", ids)

    # The index of items

    def find_items(self, row: SessionRow, after: ItemPlace, limit: int) -> list[ItemPlace]:
        born, _ = build_entry_ids(row.number, row.born, row.end)
        params = {
            "number": row.number,
            "item": after.item,
            "after": (row.number << POSITION_BITS) + after.position,
            "born": born,
            "limit": limit,
        }
        return [ItemPlace(*fields) for fields in self._db.execute(_FIND_ITEMS, params)]

    # The indexes of words and of vectors

    def find_scope(self, op: FindMatches) -> SearchScope | None:
        return search.find_scope(self._db, op) if self._db.indexes_text else None

    def count_words(
        self, words: Collection[str], scope: SearchScope, most: int | None
    ) -> dict[str, int]:
        return search.count_words(self._db, words, scope, most)

    def find_words(
        self,
        words: Collection[str],
        scope: SearchScope,
        *,
        among: Collection[int] | None = None,  # noqa: ARG002 (FTS5 finds all as fast)
    ) -> Occurrences:
        return search.find_words(self._db, words, scope)

    def find_nearest(
        self, vector: Sequence[float], embedder: str, scope: SearchScope, limit: int
    ) -> list[tuple[float, int]]:
        return search.find_nearest(self._db, vector, embedder, scope, limit)

    def find_unindexed(self, scope: SearchScope, limit: int) -> list[int]:
        return search.find_unindexed(self._db, scope, limit)

    def find_newer(self, ids: Sequence[int], limit: int) -> list[tuple[int, int]]:
        return [found for each in ids for found in self._db.execute(_FIND_NEWER, (each, limit))]

    def find_sessions_by_number(self, numbers: Collection[int]) -> list[SessionRow]:
        named = "SELECT name FROM session WHERE namespace = ? AND number = ?"
        found = (self._db.execute(named, (self._db.namespace, number)) for number in numbers)
        rows = [self.find_session(name) for names in found for (name,) in names]
        return [row for row in rows if row is not None]

    def read_found(self, names: Mapping[int, str]) -> dict[int, StoredEntry]:
        return search.read_found(self._db, names)

    def index_text(self, op: IndexText) -> IndexResult:
        return text_index.index_missing(self._db, op)

    def is_indexed_right(self, row: SessionRow) -> bool:
        return text_index.agrees_with_entries(self._db, row.number)

    # Keys of appends

    def find_key(self, row: SessionRow, key: str) -> KeyUse | None:
        if key.startswith(MADE_PREFIX):
            oldest = max(row.born, row.end - KEYS_KEPT)
            ids = build_entry_ids(row.number, oldest, row.end)
            rows = self._db.execute(_FIND_GENERATED_KEY, (*ids, key))
        else:
            low, _ = build_entry_ids(row.number, row.born, row.end)
            rows = self._db.execute(_FIND_CALLERS_KEY, (row.number, key, low))
        return KeyUse(*rows[0]) if rows else None

    def read_keys(self, row: SessionRow, limit: int) -> list[KeyUse]:
        ids = build_entry_ids(row.number, row.born, row.end)
        return [KeyUse(*fields) for fields in self._db.execute(_READ_KEYS, (*ids, limit))]

    def find_kept_key(self, row: SessionRow, key: str) -> tuple[KeyUse, list[bytes]] | None:
        rows = self._db.execute(_FIND_KEPT_KEY, (row.number, row.life, key))
        if not rows:
            return None
        fields = _check_row(row, f"the row of key {key!r}", rows[0])
        _, _, _, first, count, generation, joined = fields
        return KeyUse(key, first, count, generation), split_checksums(joined)

    def keep_keys(self, row: SessionRow, uses: Sequence[KeyUse]) -> None:
        for use in uses:
            joined = b"".join(self.read_checksums(row, use))
            fields = (row.number, row.life, *use, joined)
            self._db.execute(_KEEP_KEY, (*fields, compute_row_checksum(*fields)))

    # The journal

    def find_line(self, row: SessionRow, key: str) -> JournalLine | None:
        rows = self._db.execute(_FIND_LINE, (row.number, row.life, key))
        return _build_line(row, rows[0]) if rows else None

    def read_lines(
        self, row: SessionRow, *, limit: int | None = None, changes_only: bool = False
    ) -> list[JournalLine]:
        query = _READ_CHANGES if changes_only else _READ_LINES
        params = (row.number, row.life, -1 if limit is None else limit)
        return [_build_line(row, fields) for fields in self._db.execute(query, params)]

    def insert_line(self, row: SessionRow, line: JournalLine) -> None:
        _, _, generation = rules.parse_version(line.version)
        fields = (
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
        )
        self._db.execute(_INSERT_LINE, (*fields, compute_row_checksum(*fields)))

    def mark_undone(self, row: SessionRow, key: str, by: str) -> None:
        self._db.execute(_MARK_UNDONE, (by, row.number, row.life, key))

    def delete_old_parts(self, row: SessionRow, lines: Collection[str], keys_max: int) -> None:
        life = row.number, row.life
        self._db.execute("DELETE FROM snapshot WHERE session = ? AND life <> ?", life)
        self._db.execute(
            "DELETE FROM quarantine WHERE session = ? AND position < ?", (row.number, row.born)
        )
        self._db.execute(
            "DELETE FROM kept_key WHERE session = ?1 AND (life <> ?2 OR position <= ("
            " SELECT position FROM kept_key WHERE session = ?1 AND life = ?2"
            " ORDER BY position DESC LIMIT 1 OFFSET ?3))",
            (*life, keys_max),
        )
        found = self._db.execute(
            "SELECT number, life, operation FROM journal WHERE session = ?", (row.number,)
        )
        old = [(number,) for number, life, key in found if life != row.life or key not in lines]
        self._db.execute_many("DELETE FROM journal WHERE number = ?", old)

    # Snapshots

    def find_snapshot(self, row: SessionRow, snapshot_id: str) -> SnapshotRecord | None:
        rows = self._db.execute(_FIND_SNAPSHOT, (row.number, row.life, snapshot_id))
        return _build_snapshot(row, rows[0]) if rows else None

    def read_snapshots(self, row: SessionRow) -> list[SnapshotRecord]:
        rows = self._db.execute(_READ_SNAPSHOTS, (row.number, row.life))
        return [_build_snapshot(row, fields) for fields in rows]

    def count_snapshots(self, row: SessionRow, *, all_lives: bool = False) -> int:
        ((count,),) = self._db.execute(
            "SELECT count(*) FROM snapshot WHERE session = ? AND (? OR life = ?)",
            (row.number, all_lives, row.life),
        )
        return int(count)

    def insert_snapshot(self, row: SessionRow, record: SnapshotRecord) -> None:
        fields = (
            row.number,
            row.life,
            record.id,
            record.label,
            record.taken_at_ms,
            record.end,
            record.view.tail,
            view.encode(record.view.extents),
        )
        self._db.execute(_INSERT_SNAPSHOT, (*fields, compute_row_checksum(*fields)))

    def delete_snapshot(self, row: SessionRow, snapshot_id: str) -> None:
        self._db.execute(
            "DELETE FROM snapshot WHERE session = ? AND life = ? AND id = ?",
            (row.number, row.life, snapshot_id),
        )

    # Quarantine

    def insert_quarantine(self, row: SessionRow, entries: Sequence[tuple[int, str, bytes]]) -> None:
        now_ms = self.now_ms()
        self._db.execute_many(
            "INSERT OR IGNORE INTO quarantine VALUES (?, ?, ?, ?, ?)",
            [(row.number, position, why, now_ms, raw) for position, why, raw in entries],
        )

    def read_quarantine(self, row: SessionRow) -> list[tuple[int, str, bytes]]:
        rows = self._db.execute(
            "SELECT position, reason, payload FROM quarantine WHERE session = ? ORDER BY position",
            (row.number,),
        )
        return [(position, reason, payload) for position, reason, payload in rows]

    # Audit

    def insert_audit_lines(self, session: str, lines: Sequence[StoredLine]) -> None:
        self._db.execute_many(
            "INSERT INTO audit VALUES (?, ?, ?, ?, ?)",
            [(self._db.namespace, session, *line) for line in lines],
        )

    def list_audits(self) -> list[str]:
        names = "SELECT DISTINCT session FROM audit WHERE namespace = ?"
        return [name for (name,) in self._db.execute(names, (self._db.namespace,))]

    def read_audit(self, session: str, start: int | None, limit: int) -> list[StoredLine]:
        lines = """SELECT number, ifnull(CAST(line AS TEXT), ''), ifnull(CAST(hash AS TEXT), '')
            FROM audit WHERE namespace = ? AND session = ?"""
        name = (self._db.namespace, session)
        if start is None:
            rows = self._db.execute(f"{lines} ORDER BY number DESC LIMIT 1", name)
        else:
            ranged = f"{lines} AND number >= ? ORDER BY number LIMIT ?"
            rows = self._db.execute(ranged, (*name, start, limit))
        return [StoredLine(*row) for row in rows]


# Rows


def _check_row(row: SessionRow, what: str, fields: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the fields of a row without its checksum; raise if that does not match."""
    if compute_row_checksum(*fields[:-1]) != fields[-1]:
        raise build_damage_error(what, row.name)
    return fields[:-1]


# An append does not change the row of its session, so the same fields are checked again and again.
# Without the cache, an append that is not synced takes a tenth longer.
_compute_session_checksum = lru_cache(maxsize=64, typed=True)(compute_row_checksum)
_decode_extents = lru_cache(maxsize=64)(view.decode)


def _build_session(fields: tuple[Any, ...]) -> tuple[SessionRow, bool]:
    """Return a session, and whether its row is intact.

    The newest entry of a life says where the log ends and when the life does.
    """
    stored = fields[:-5]
    checksum, last_activity, newest_id, newest_deadline, batch_stop = fields[-5:]
    number, _, name, life, born, staged, generation, tail, deadline, *rest = stored
    created_at, _, vacuums, forked_from, metadata, extents = rest
    if _compute_session_checksum(*stored) != checksum:
        # Nothing else of it can be trusted, not even the types.
        created_at = created_at if isinstance(created_at, int) else 0
        unknown = 0, 0, 0, None, True, view.View(), created_at, last_activity
        return SessionRow(str(name), "", *unknown, number=number), False
    end, start_id = born, number << POSITION_BITS
    # Before the first entry of a session, the newest one below is another session's.
    if newest_id is not None and newest_id >= start_id + born:
        # A log that lost its newest entries has no gap, but a batch that lost its end is known by
        # its size. A damaged size must not make the log reach further than any batch, or into the
        # next session.
        stop = min(max(newest_id + 1, batch_stop or 0), newest_id + BATCH_ENTRIES_MAX)
        end = min(stop - start_id, LOG_ENTRIES_MAX)
        deadline = newest_deadline
    shown, readable = view.View(), True
    try:
        shown = view.build_view(_decode_extents(extents), tail)
    except FormatError:
        readable = False
    row = SessionRow(
        name,
        build_token(number, life),
        born,
        end,
        generation,
        deadline,
        bool(staged),
        shown,
        created_at,
        last_activity,
        vacuums,
        forked_from,
        metadata,
        number,
        life,
    )
    return row, readable


def _build_entry(number: int, salt: int, entry: LogRow) -> tuple[Any, ...]:
    """Build the row of an entry; its place is part of its id and of its checksum."""
    return (
        build_entry_ids(number, entry.position, entry.position + 1)[0],
        KIND_NUMBER[entry.kind] if entry.kind is not None else 0,
        entry.written_at_ms,
        entry.deadline_ms,
        entry.batch,
        entry.generation,
        entry.keep,
        entry.key,
        encode_links(entry.opens),
        encode_links(entry.answers),
        entry.envelope,
        compute_entry_checksum(salt, entry.envelope, *entry.place),
    )


@cache
def _choose_kinds(kinds: frozenset[Kind] | None) -> tuple[frozenset[int], int]:
    """Return the numbers of the kinds that are asked for, and the mask that picks their bodies."""
    if kinds is None:
        return frozenset(KIND_BY_NUMBER), _ALL_KINDS
    # Bits without a kind are set too: an entry of an unknown kind is read, and reported.
    mask = ~sum(1 << number for kind, number in KIND_NUMBER.items() if kind not in kinds)
    return frozenset(KIND_NUMBER[kind] for kind in kinds), mask


def _fill_gaps(found: Rows, ids: range) -> Rows:
    """Add an empty row for each that is missing."""
    there = {row[0]: row for row in found}
    return [there.get(entry_id, (entry_id, None, 0, b"", None)) for entry_id in ids]


def _build_line(row: SessionRow, fields: tuple[Any, ...]) -> JournalLine:
    key = fields[2]
    checked = _check_row(row, f"the journal's line of {key!r}", fields)
    change, changed_at, generation, end, undone_by = checked[3:8]
    tail_before, tail_after, before, after = checked[8:]
    return JournalLine(
        key=key,
        change=change,
        changed_at_ms=changed_at,
        version=rules.build_version(row.token, end, generation),
        end=end,
        before=view.build_view(view.decode(before), tail_before),
        after=view.build_view(view.decode(after), tail_after),
        undone_by=undone_by,
    )


def _build_snapshot(row: SessionRow, fields: tuple[Any, ...]) -> SnapshotRecord:
    snapshot_id = fields[2]
    _, _, _, label, taken_at, end, tail, extents = _check_row(
        row, f"snapshot {snapshot_id!r}", fields
    )
    shown = view.build_view(view.decode(extents), tail)
    return SnapshotRecord(snapshot_id, label, taken_at, shown, end)
