"""The columns of an entry for search, and the maintenance of the index of words.

The row of an entry has the numbers of its words, in an array with a GIN index. So the index is
written and deleted with the entry. The row also has the vector, at length 1 in single precision.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from indelible.backends.postgres.arrays import BytesArray, IntArray, TextArray
from indelible.backends.postgres.connection import PostgresConnection
from indelible.core.codec import SEARCHED_KINDS, parse_indexed
from indelible.core.limits import PAGE_ENTRIES_MAX
from indelible.core.operations import IndexResult, IndexText
from indelible.core.rows import KIND_BY_NUMBER, KIND_NUMBER, split_entry_id
from indelible.core.similarity import round_unit
from indelible.core.words import hash_term, list_terms
from indelible.model import Kind

_IS_SEARCHED: Final = f"kind IN ({', '.join(str(KIND_NUMBER[kind]) for kind in SEARCHED_KINDS)})"
# The predicate of the index `entry_unindexed`.
IS_UNINDEXED: Final = f"words IS NULL AND {_IS_SEARCHED}"
# The header of a binary array: dimensions, a flag, the element type, their number, the first index.
_ARRAY_HEADER: Final = 20
# Session and position as one number.
ENTRY_ID: Final = "(session << 32 | position)"
# The lock makes others wait who erase or replace an entry before its words are written.
_PAGE: Final = f"""
    SELECT {ENTRY_ID}, kind, payload FROM indelible.entry
    WHERE (session, position) >= ($1::bigint >> 32, $1 & 4294967295) AND ({{wanted}})
    ORDER BY session, position LIMIT $2 FOR UPDATE"""
_UPDATE: Final = """
    UPDATE indelible.entry
    SET words = new.words::integer[], embedder = new.embedder, vector = new.vector::real[]
    FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::text[])
        AS new (id, words, embedder, vector)
    WHERE session = id >> 32 AND position = id & 4294967295"""
# In order, since the next page begins after the last row.
_INDEXED: Final = """
    SELECT position, kind, payload, words, embedder, array_send(vector) FROM indelible.entry
    WHERE session = $1 AND position >= $2 ORDER BY position LIMIT $3"""


class IndexedColumns(NamedTuple):
    """The indexed columns of an entry's row; None for those that do not apply."""

    # The numbers of its words, sorted.
    words: list[int] | None = None
    embedder: bytes | None = None
    vector: tuple[float, ...] | None = None


def compute_columns(kind: Kind | None, envelope: bytes, *, search: bool = True) -> IndexedColumns:
    """Compute the columns of an entry; there are none if it is not searched, or damaged.

    Without `search`, there are no words.
    """
    # A message has no vector. Parsing it would take a fifth of the client's time for an append.
    indexed = parse_indexed(kind, envelope) if search or kind is not Kind.MESSAGE else None
    if indexed is None:
        return IndexedColumns()
    words = sorted(hash_terms(set(list_terms(indexed.text)))) if search else None
    if indexed.vector is None or indexed.embedder is None:
        return IndexedColumns(words)
    return IndexedColumns(words, encode_embedder(indexed.embedder), round_unit(indexed.vector))


def encode_embedder(embedder: str) -> bytes:
    """Encode an embedder's name. A query may have a name that could not be stored."""
    return embedder.encode("utf-8", "surrogatepass")


def format_array(numbers: Iterable[float] | None) -> str | None:
    """Format numbers as the text of an array."""
    return None if numbers is None else "{" + ",".join(map(repr, numbers)) + "}"


def parse_vector(sent: bytes) -> tuple[float, ...]:
    """Parse an array of `real` in the server's binary form: a header, then a length before each."""
    # A damaged array may be empty or contain nulls; the latter are parsed as other numbers.
    if len(sent) <= _ARRAY_HEADER:
        return ()
    return struct.unpack_from("!" + "4xf" * ((len(sent) - _ARRAY_HEADER) // 8), sent, _ARRAY_HEADER)


def hash_terms(terms: Collection[str]) -> list[int]:
    """Return the numbers of words, as signed integers."""
    numbers = map(hash_term, terms)
    return list(struct.unpack(f"{len(terms)}i", struct.pack(f"{len(terms)}I", *numbers)))


def index_page(db: PostgresConnection, op: IndexText) -> IndexResult:
    """Index a page of the entries that the index lacks; with `rebuild`, of all."""
    wanted = f"{_IS_SEARCHED} OR words IS NOT NULL" if op.rebuild else IS_UNINDEXED
    rows = db.query(_PAGE.format(wanted=wanted), (op.resume or 0, op.limit))
    if not rows:
        return IndexResult()
    kinds = [KIND_BY_NUMBER.get(kind) for _, kind, _ in rows]
    columns = [compute_columns(kind, row[-1]) for kind, row in zip(kinds, rows, strict=True)]
    ids = IntArray(entry_id for entry_id, _, _ in rows)
    params = (
        ids,
        TextArray(format_array(each.words) for each in columns),
        BytesArray(each.embedder for each in columns),
        TextArray(format_array(each.vector) for each in columns),
    )
    db.do(_UPDATE, params)
    last = split_entry_id(ids[-1])[0]
    found = db.query("SELECT name FROM indelible.session WHERE number = $1", (last,))
    # A damaged name must not stop the indexing.
    name = found[0][0].decode("utf-8", "backslashreplace") if found else ""
    searched = sum(kind in SEARCHED_KINDS for kind in kinds)
    indexed = sum(each.words is not None for each in columns)
    resume = ids[-1] + 1 if len(rows) == op.limit else None
    return IndexResult(indexed, searched - indexed, resume, name)


def agrees_with_entries(db: PostgresConnection, session: int) -> bool:
    """Return whether the columns of a session are those of its entries, which are not damaged."""
    start = 0
    while True:
        rows = db.query(_INDEXED, (session, start, PAGE_ENTRIES_MAX))
        for _, kind, payload, words, embedder, sent in rows:
            expected = compute_columns(KIND_BY_NUMBER.get(kind), payload)
            stored = words, embedder, None if sent is None else parse_vector(sent)
            # An entry without words is not indexed yet; searches read it.
            if stored not in (expected, expected._replace(words=None)):
                return False
        if len(rows) < PAGE_ENTRIES_MAX:
            return True
        start = rows[-1][0] + 1
