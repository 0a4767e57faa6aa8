"""Search: the primitives on the indexes of words and of vectors that find entries."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from heapq import nlargest
from typing import Final

from indelible.backends.sqlite.checksums import CONTENT, PAYLOAD, cast_number
from indelible.backends.sqlite.connection import SqliteConnection
from indelible.backends.sqlite.text_index import format_term, read_totals
from indelible.core.checksums import CHECKSUM_MASK, compute_session_salt
from indelible.core.limits import COMMON_WORD_ENTRIES, LOG_ENTRIES_MAX
from indelible.core.operations import FindMatches, StoredEntry
from indelible.core.ranking import Occurrences
from indelible.core.rows import KIND_BY_NUMBER, SearchScope, split_entry_id
from indelible.core.similarity import NOT_COMPARABLE, compare, pack_unit, unpack_unit

# A query of FTS5 covers one range of row ids. Another query takes about as long as stepping over so
# many entries with the word.
_SPAN_ROWS: Final = 100
# For more ranges than this, the number of entries with a word is estimated.
_SPANS_MAX: Final = 128

Span = tuple[int, int]

_FIND: Final = (
    "SELECT rowid FROM entry_words WHERE entry_words MATCH ? AND rowid >= ? AND rowid < ?"
)
_COUNT: Final = f"SELECT count(*) FROM ({_FIND} LIMIT ?)"
_COUNT_ENTRIES: Final = "SELECT count(*) FROM entry_words_docsize WHERE id >= ? AND id < ?"
_SESSIONS: Final = "SELECT number, name FROM session WHERE namespace = ?"
_UNINDEXED: Final = """
    SELECT entry FROM unindexed WHERE entry >> 32 IN (SELECT number FROM session WHERE namespace = ?
        AND (?2 IS NULL OR number IN (SELECT value FROM json_each(?2)))) LIMIT ?3"""
_VECTORS: Final = """
    SELECT vector, entry FROM entry_vector WHERE entry >= ? AND entry < ? AND embedder = ?"""
# By sqlite-vec. The distance of a vector of zeros is null.
_SIMILARITIES: Final = f"""
    SELECT CASE length(vector) WHEN length(?1)
            THEN 1 - ifnull(vec_distance_cosine(vector, ?1), 1) ELSE {NOT_COMPARABLE} END, entry
    FROM entry_vector WHERE entry >= ?2 AND entry < ?3 AND embedder = ?4"""
# The caller subtracts the salt of the session.
_READ: Final = f"""
    SELECT id, kind, {cast_number("written_at")}, {PAYLOAD}, {CONTENT.replace(":salt", "0")}
    FROM entry WHERE id IN (SELECT value FROM json_each(?))"""


def find_scope(db: SqliteConnection, op: FindMatches) -> SearchScope:
    """Find the sessions that a search is about."""
    stored, length = read_totals(db)
    average = length / stored if stored else 0.0
    if op.sessions is not None:
        one = f"{_SESSIONS} AND name = ?"
        found = [row for name in op.sessions for row in db.execute(one, (db.namespace, name))]
    elif op.under is not None:
        below = f"{_SESSIONS} AND (name = ? OR name >= ? AND name < ?)"
        # "0" is the character after "/".
        bounds = (op.under, f"{op.under}/", f"{op.under}0")
        found = db.execute(below, (db.namespace, *bounds))
    else:
        return SearchScope(None, stored, average, stored > COMMON_WORD_ENTRIES)
    names: dict[int, str] = dict(found)
    total = sum(db.execute(_COUNT_ENTRIES, span)[0][0] for span in _build_spans(names))
    return SearchScope(names, total, average, total > COMMON_WORD_ENTRIES)


def _build_spans(names: Collection[int] | None) -> list[Span]:
    """Build the ranges of row ids that hold sessions; sessions side by side share one."""
    if names is None:
        return [(0, 2**63 - 1)]
    spans: list[Span] = []
    for number in sorted(names):
        start, stop = number * LOG_ENTRIES_MAX, (number + 1) * LOG_ENTRIES_MAX
        if spans and spans[-1][1] == start:
            spans[-1] = spans[-1][0], stop
        else:
            spans.append((start, stop))
    return spans


def count_words(
    db: SqliteConnection, words: Collection[str], scope: SearchScope, most: int | None
) -> dict[str, int]:
    """Count the entries with each word; for many ranges, by its share of all between them."""
    spans, share = _build_spans(scope.names), 1.0
    if len(spans) > _SPANS_MAX:
        stored, _ = read_totals(db)
        spans, share = [(spans[0][0], spans[-1][1])], scope.total / stored
    limit = -1 if most is None else math.ceil(most / share)
    counts = {
        term: sum(db.execute(_COUNT, (format_term(term), *span, limit))[0][0] for span in spans)
        for term in words
    }
    return {term: math.ceil(count * share) for term, count in counts.items()}


def find_words(db: SqliteConnection, words: Collection[str], scope: SearchScope) -> Occurrences:
    """Find the entries that have each word."""
    ids = {term: _find_word(db, format_term(term), scope.names) for term in words}
    return Occurrences(scope.total, scope.average, ids)


def _find_word(db: SqliteConnection, written: str, names: Collection[int] | None) -> list[int]:
    spans = _build_spans(names)
    if names is not None and len(spans) > 1:
        most = _SPAN_ROWS * len(spans)
        found = db.execute(f"{_FIND} LIMIT ?", (written, spans[0][0], spans[-1][1], most))
        if len(found) < most:
            return [each for (each,) in found if split_entry_id(each)[0] in names]
    return [each for span in spans for (each,) in db.execute(_FIND, (written, *span))]


def find_unindexed(db: SqliteConnection, scope: SearchScope, limit: int) -> list[int]:
    """Find entries that the indexes lack."""
    numbers = None if scope.names is None else json.dumps([*scope.names])
    return [entry for (entry,) in db.execute(_UNINDEXED, (db.namespace, numbers, limit))]


def find_nearest(
    db: SqliteConnection, vector: Sequence[float], embedder: str, scope: SearchScope, limit: int
) -> list[tuple[float, int]]:
    """Compare the vectors of an embedder: by sqlite-vec if it is installed."""
    near: list[tuple[float, int]] = []
    for span in _build_spans(scope.names):
        if db.load_sqlite_vec():
            near += db.execute(_SIMILARITIES, (pack_unit(vector), *span, embedder))
        else:
            rows = db.execute(_VECTORS, (*span, embedder))
            near += [(compare(vector, unpack_unit(packed)), entry) for packed, entry in rows]
    return nlargest(limit, near)


def read_found(db: SqliteConnection, names: Mapping[int, str]) -> dict[int, StoredEntry]:
    """Read entries, given with the names of their sessions."""
    salts = {name: compute_session_salt(db.namespace, name) for name in set(names.values())}
    entries: dict[int, StoredEntry] = {}
    for entry_id, kind, written_at, payload, content in db.execute(_READ, (json.dumps([*names]),)):
        salt = salts[names[entry_id]]
        content_part = content if content < 0 else (content - salt) & CHECKSUM_MASK
        place = split_entry_id(entry_id)[1], KIND_BY_NUMBER.get(kind), written_at, payload
        entries[entry_id] = StoredEntry(*place, content_part)
    return entries
