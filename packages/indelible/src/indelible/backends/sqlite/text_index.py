"""The indexes of words and of vectors, written in the transactions of the entries.

The index of words is an FTS5 table of their numbers, without content: to remove an entry, FTS5
needs them again. The table `unindexed` names the entries that are in neither index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from indelible.backends.sqlite.checksums import PAYLOAD
from indelible.backends.sqlite.connection import SqliteConnection
from indelible.core.codec import SEARCHED_KINDS, parse_indexed
from indelible.core.limits import LOG_ENTRIES_MAX
from indelible.core.operations import IndexResult, IndexText
from indelible.core.rows import KIND_BY_NUMBER, KIND_NUMBER, split_entry_id
from indelible.core.similarity import pack_unit
from indelible.core.words import hash_term, list_terms

# Entries that are indexed at once. FTS5 writes a segment for each transaction, which takes about as
# long as writing the entry itself. Until then, searches read the waiting entries.
PORTION: Final = 64

_IS_SEARCHED: Final = f"kind IN ({', '.join(str(KIND_NUMBER[kind]) for kind in SEARCHED_KINDS)})"
_NUMBERS: Final = frozenset(KIND_NUMBER[kind] for kind in SEARCHED_KINDS)
_ADD_TEXT: Final = "INSERT INTO entry_words (rowid, words) VALUES (?, ?)"
_ADD_VECTOR: Final = "INSERT INTO entry_vector VALUES (?, ?, ?)"
_ADD_UNINDEXED: Final = "INSERT OR IGNORE INTO unindexed VALUES (?)"
_REMOVE_TEXT: Final = "INSERT INTO entry_words (entry_words, rowid, words) VALUES ('delete', ?, ?)"
_COUNT_WAITING: Final = "SELECT count(*) FROM (SELECT 1 FROM unindexed LIMIT ?)"
_WAITING: Final = f"""
    SELECT id, kind, {PAYLOAD} FROM unindexed JOIN entry ON id = entry
    WHERE entry >= ? ORDER BY entry LIMIT ?"""
# FTS5 has a row in this table for each row of the index.
_INDEXED: Final = f"""
    SELECT words.id, kind, {PAYLOAD}, sz, embedder, vector FROM entry_words_docsize AS words
    LEFT JOIN entry ON entry.id = words.id LEFT JOIN entry_vector ON entry = words.id
    WHERE words.id >= ? AND words.id < ? ORDER BY words.id"""
_MISSING: Final = f"""
    SELECT 1 FROM entry AS own WHERE id >= ? AND id < ? AND {_IS_SEARCHED}
    AND NOT EXISTS (SELECT 1 FROM entry_words_docsize AS words WHERE words.id = own.id)
    AND NOT EXISTS (SELECT 1 FROM unindexed WHERE entry = own.id) LIMIT 1"""


def format_term(term: str) -> str:
    """Format the number of a word as the index has it."""
    return f"{hash_term(term):x}"


def _format_text(text: str) -> str:
    return " ".join(map(format_term, list_terms(text)))


# Writing


def add_entries(db: SqliteConnection, rows: Sequence[tuple[int, int, bytes]]) -> None:
    """Index new entries, given as id, kind and payload, or let them wait for a full portion."""
    added = [row for row in rows if row[1] in _NUMBERS]
    if not added:
        return
    if db.indexes_text:
        ((waiting,),) = db.execute(_COUNT_WAITING, (PORTION + 1,))
        if waiting + len(added) >= PORTION:
            # If more wait, they were written by stores without search: `index_missing` adds them.
            before = db.execute(_WAITING, (0, PORTION)) if waiting <= PORTION else []
            _index(db, [*before, *added])
            return
    db.execute_many(_ADD_UNINDEXED, [(entry_id,) for entry_id, _, _ in added])


def _index(db: SqliteConnection, rows: Sequence[Sequence[Any]]) -> int:
    """Index entries, and return how many; damaged ones stay unindexed, so searches report them."""
    texts: list[tuple[int, str]] = []
    vectors: list[tuple[int, str, bytes]] = []
    damaged: list[tuple[int]] = []
    for entry_id, number, payload in rows:
        indexed = parse_indexed(KIND_BY_NUMBER.get(number), payload)
        if indexed is None:
            damaged.append((entry_id,))
            continue
        texts.append((entry_id, _format_text(indexed.text)))
        if indexed.vector is not None and indexed.embedder is not None:
            vectors.append((entry_id, indexed.embedder, pack_unit(indexed.vector)))
    db.execute_many(_ADD_TEXT, texts)
    if vectors:
        db.execute_many(_ADD_VECTOR, vectors)
    db.execute_many("DELETE FROM unindexed WHERE entry = ?", [(each,) for each, _ in texts])
    if damaged:
        db.execute_many(_ADD_UNINDEXED, damaged)
    return len(texts)


def remove_entries(db: SqliteConnection, low: int, high: int) -> None:
    """Remove entries that are about to be deleted or replaced."""
    texts: list[tuple[int, str]] = []
    for entry_id, number, payload, *_ in db.execute(_INDEXED, (low, high)):
        indexed = parse_indexed(KIND_BY_NUMBER.get(number), payload)
        if indexed is None:
            # The words of a damaged entry are unknown and cannot be removed: start the index anew.
            drop_indexes(db)
            texts = []
            break
        texts.append((entry_id, _format_text(indexed.text)))
    if texts:
        db.execute_many(_REMOVE_TEXT, texts)
    for table in ("entry_vector", "unindexed"):
        db.execute(f"DELETE FROM {table} WHERE entry >= ? AND entry < ?", (low, high))


def drop_indexes(db: SqliteConnection) -> None:
    """Empty the indexes. Searches then read the entries, until they are built again."""
    db.execute("INSERT INTO entry_words (entry_words) VALUES ('delete-all')")
    db.execute("DELETE FROM entry_vector")
    db.execute(f"INSERT OR IGNORE INTO unindexed SELECT id FROM entry WHERE {_IS_SEARCHED}")


def index_missing(db: SqliteConnection, op: IndexText) -> IndexResult:
    """Index entries that the indexes lack, in the order of their row ids."""
    if op.rebuild and op.resume is None:
        drop_indexes(db)
    rows = db.execute(_WAITING, (op.resume or 0, op.limit))
    if not rows:
        return IndexResult()
    indexed = _index(db, rows)
    last = rows[-1][0]
    number, _ = split_entry_id(last)
    named = db.execute("SELECT name FROM session WHERE number = ?", (number,))
    resume = last + 1 if len(rows) == op.limit else None
    return IndexResult(indexed, len(rows) - indexed, resume, named[0][0] if named else "")


# The totals and sizes that FTS5 stores. Its documentation describes both formats.


def read_totals(db: SqliteConnection) -> tuple[int, int]:
    """Return the number of entries and of words in the index."""
    rows = db.execute("SELECT block FROM entry_words_data WHERE id = 1")
    numbers = _parse_integers(rows[0][0]) if rows else []
    return (numbers[0], numbers[1]) if len(numbers) > 1 else (0, 0)


def _parse_integers(data: object) -> list[int]:
    """Parse variable-length integers: seven bits in each byte, the highest first."""
    numbers: list[int] = []
    number = 0
    for byte in data if isinstance(data, bytes) else b"":
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    return numbers


# Checking


def agrees_with_entries(db: SqliteConnection, session: int) -> bool:
    """Return whether the indexes agree with the entries of a session, which are not damaged."""
    low, high = session << 32, (session << 32) + LOG_ENTRIES_MAX
    for _, number, payload, size, embedder, vector in db.execute(_INDEXED, (low, high)):
        indexed = parse_indexed(KIND_BY_NUMBER.get(number), payload)
        if indexed is None or _parse_integers(size) != [len(list_terms(indexed.text))]:
            return False
        packed = None if indexed.vector is None else pack_unit(indexed.vector)
        if (embedder, vector) != (indexed.embedder, packed):
            return False
    return not db.execute(_MISSING, (low, high))
