"""The index of words: what of an entry is indexed; completing and checking the index.

The row of an entry has a number for each of its words, and a GIN index has these numbers. So the
index is written, and goes, with the entry. Two words may have the same number: the plan counts the
words of what was found again.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection
from typing import Final

from indelible.backends.postgres.arrays import IntArray, TextArray
from indelible.backends.postgres.statements import (
    Do,
    Sql,
)
from indelible.core.codec import SEARCHED_KINDS, parse_indexed
from indelible.core.limits import PAGE_ENTRIES_MAX
from indelible.core.operations import IndexResult, IndexText
from indelible.core.ranking import list_terms
from indelible.core.rows import KIND_BY_NUMBER, KIND_NUMBER, split_entry_id
from indelible.model import Kind

_IS_SEARCHED: Final = f"kind IN ({', '.join(str(KIND_NUMBER[kind]) for kind in SEARCHED_KINDS)})"
# The predicate of the index `entry_unindexed`.
IS_UNINDEXED: Final = f"words IS NULL AND {_IS_SEARCHED}"
# Session and position as one number.
ENTRY_ID: Final = "(session << 32 | position)"
# Those who erase or replace an entry wait until its words are written.
_PAGE: Final = f"""
    SELECT {ENTRY_ID}, kind, payload FROM indelible.entry
    WHERE (session, position) >= ($1::bigint >> 32, $1 & 4294967295) AND ({{wanted}})
    ORDER BY session, position LIMIT $2 FOR UPDATE"""
_UPDATE: Final = """
    UPDATE indelible.entry SET words = new.words::integer[]
    FROM unnest($1::bigint[], $2::text[]) AS new (id, words)
    WHERE session = id >> 32 AND position = id & 4294967295"""
_INDEXED: Final = """
    SELECT position, kind, payload, words FROM indelible.entry
    WHERE session = $1 AND position >= $2 ORDER BY position LIMIT $3"""


def compute_words(kind: Kind | None, envelope: bytes) -> list[int] | None:
    """Compute the numbers of an entry's words, in order; None if it is not searched or damaged."""
    indexed = parse_indexed(kind, envelope)
    return None if indexed is None else sorted(hash_terms(set(list_terms(indexed.text))))


def format_words(words: list[int] | None) -> str | None:
    """Format numbers as the server reads an array of `integer`."""
    return None if words is None else "{" + ",".join(map(str, words)) + "}"


def hash_terms(terms: Collection[str]) -> list[int]:
    """Return the numbers of words; signed, since the server has no others."""
    numbers = map(zlib.crc32, map(str.encode, terms))
    return list(struct.unpack(f"{len(terms)}i", struct.pack(f"{len(terms)}I", *numbers)))


async def index_page(op: IndexText) -> IndexResult:
    """Index a page of the entries that the index lacks; with `rebuild`, of all."""
    wanted = f"{_IS_SEARCHED} OR words IS NOT NULL" if op.rebuild else IS_UNINDEXED
    rows = await Sql(_PAGE.format(wanted=wanted), (op.resume or 0, op.limit))
    if not rows:
        return IndexResult()
    kinds = [KIND_BY_NUMBER.get(kind) for _, kind, _ in rows]
    words = [compute_words(kind, row[-1]) for kind, row in zip(kinds, rows, strict=True)]
    ids = IntArray(entry_id for entry_id, _, _ in rows)
    await Do(_UPDATE, (ids, TextArray(map(format_words, words))))
    last = split_entry_id(ids[-1])[0]
    named = await Sql("SELECT name FROM indelible.session WHERE number = $1", (last,))
    name = named[0][0].decode() if named else ""
    searched = sum(kind in SEARCHED_KINDS for kind in kinds)
    indexed = len(words) - words.count(None)
    resume = ids[-1] + 1 if len(rows) == op.limit else None
    return IndexResult(indexed, searched - indexed, resume, name)


async def agrees_with_entries(session: int) -> bool:
    """Return whether the words of a session are those of its entries, which are not damaged."""
    start = 0
    while True:
        rows = await Sql(_INDEXED, (session, start, PAGE_ENTRIES_MAX))
        for _, kind, payload, words in rows:
            # What the index lacks, it lacks knowingly.
            if words is not None and words != compute_words(KIND_BY_NUMBER.get(kind), payload):
                return False
        if len(rows) < PAGE_ENTRIES_MAX:
            return True
        start = rows[-1][0] + 1
