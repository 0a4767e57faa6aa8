"""The index of words: an FTS5 table that is written in the transactions of the entries.

It holds words, and no text: to remove an entry from it, FTS5 is given the text of that entry again.
`unindexed` names the sessions that have entries which it lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from indelible.backends.sqlite.connection import SqliteConnection
from indelible.core.codec import parse_text
from indelible.core.limits import LOG_ENTRIES_MAX
from indelible.core.operations import IndexResult, IndexText
from indelible.core.ranking import list_terms
from indelible.model import Kind

# The kinds that are indexed, by the numbers that rows have.
_KINDS: Final = {1: Kind.MESSAGE, 4: Kind.SUMMARY, 5: Kind.MEMORY}
_NUMBERS: Final = ", ".join(map(str, _KINDS))
INSERT: Final = "INSERT INTO entry_text (rowid, text) VALUES (?, ?)"
# Note that a session has entries which the index lacks.
MARK: Final = "INSERT OR IGNORE INTO unindexed VALUES (?)"
_DELETE: Final = "INSERT INTO entry_text (entry_text, rowid, text) VALUES ('delete', ?, ?)"
# FTS5 has a row in this table for each row of the index.
_INDEXED: Final = """
    SELECT words.id, kind, payload, sz FROM entry_text_docsize AS words LEFT JOIN entry
    ON entry.id = words.id WHERE words.id >= ? AND words.id < ? ORDER BY words.id"""
_LACKS: Final = f"""
    kind IN ({_NUMBERS})
    AND NOT EXISTS (SELECT 1 FROM entry_text_docsize AS words WHERE words.id = entry.id)"""
_MISSING: Final = f"""
    SELECT id, kind, payload FROM entry WHERE id >= ? AND id < ? AND {_LACKS} ORDER BY id LIMIT ?"""


# Writing


def parse_texts(rows: Iterable[Sequence[Any]]) -> tuple[list[tuple[int, str]], int]:
    """Parse what is to be indexed of entries, given as id, kind and payload.

    Returns row ids with texts for `INSERT`, and how many entries are damaged: their session is then
    to be marked with `MARK`, so that searches read it and report the damage.
    """
    texts: list[tuple[int, str]] = []
    damaged = 0
    for entry_id, number, payload in rows:
        if number not in _KINDS:
            continue
        text = parse_text(_KINDS[number], payload)
        if text is None:
            damaged += 1
        else:
            texts.append((entry_id, text))
    return texts, damaged


def remove_entries(db: SqliteConnection, low: int, high: int) -> None:
    """Remove the words of entries that are about to be deleted or replaced."""
    texts: list[tuple[int, str]] = []
    for entry_id, number, payload, _ in db.execute(_INDEXED, (low, high)):
        text = parse_text(_KINDS[number], payload) if number in _KINDS else None
        if text is None:
            # The words of a damaged entry are unknown, so they cannot be removed one by one.
            drop_index(db)
            return
        texts.append((entry_id, text))
    if texts:
        db.execute_many(_DELETE, texts)


def drop_index(db: SqliteConnection) -> None:
    """Remove all words. Searches then read the entries, until the index is built again."""
    db.execute("INSERT INTO entry_text (entry_text) VALUES ('delete-all')")
    db.execute("INSERT OR IGNORE INTO unindexed SELECT number FROM session")


def index_missing(db: SqliteConnection, op: IndexText) -> IndexResult:
    """Index entries that the index lacks, in the order of their row ids."""
    if op.rebuild and op.resume is None:
        drop_index(db)
    start = op.resume or 0
    entries = damaged = 0
    name = ""
    while entries + damaged < op.limit:
        left = db.execute(
            "SELECT session, name FROM unindexed JOIN session ON number = session"
            " WHERE session >= ? ORDER BY session LIMIT 1",
            (start >> 32,),
        )
        if not left:
            return IndexResult(entries, damaged, None, name)
        ((session, name),) = left
        first, stop = session << 32, (session << 32) + LOG_ENTRIES_MAX
        rows = db.execute(_MISSING, (max(start, first), stop, op.limit - entries - damaged))
        texts, bad = parse_texts(rows)
        db.execute_many(INSERT, texts)
        entries, damaged = entries + len(texts), damaged + bad
        if rows:
            start = rows[-1][0] + 1
            continue
        if not db.execute(_MISSING, (first, stop, 1)):
            db.execute("DELETE FROM unindexed WHERE session = ?", (session,))
        start = stop
    return IndexResult(entries, damaged, start, name)


# Reading what FTS5 keeps beside the words. Its documentation describes both forms.


def read_totals(db: SqliteConnection) -> tuple[int, int]:
    """Return how many entries the index has, and how many words."""
    rows = db.execute("SELECT block FROM entry_text_data WHERE id = 1")
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
    """Return whether the index agrees with the entries of a session, which are not damaged."""
    low, high = session << 32, (session << 32) + LOG_ENTRIES_MAX
    for _, number, payload, size in db.execute(_INDEXED, (low, high)):
        text = parse_text(_KINDS[number], payload) if number in _KINDS else None
        if text is None or _parse_integers(size) != [len(list_terms(text))]:
            return False
    is_marked = db.execute("SELECT 1 FROM unindexed WHERE session = ?", (session,))
    return bool(is_marked) or not db.execute(_MISSING, (low, high, 1))
