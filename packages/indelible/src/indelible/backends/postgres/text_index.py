"""The index of words: what of an entry is indexed, and how entries are found by it.

The row of an entry has a number for each of its words, and a GIN index has these numbers. So the
index is written, and goes, with the entry. Two words may have the same number: the plan counts the
words of what was found again.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Final

from indelible.backends.postgres.arrays import BytesArray, IntArray, TextArray
from indelible.backends.postgres.sessions import decode_name
from indelible.backends.postgres.statements import (
    CONTENT,
    All,
    Do,
    PostgresContext,
    Sql,
)
from indelible.core.codec import SEARCHED_KINDS, parse_text
from indelible.core.limits import COMMON_WORD_ENTRIES, PAGE_ENTRIES_MAX
from indelible.core.operations import FindText, IndexResult, IndexText, StoredEntry
from indelible.core.ranking import Occurrences, tokenize
from indelible.core.rows import KIND_BY_NUMBER, KIND_NUMBER, SearchScope, split_entry_id
from indelible.model import Kind

_NUMBERS: Final = ", ".join(str(KIND_NUMBER[kind]) for kind in SEARCHED_KINDS)
# The predicate of the index `entry_unindexed`.
_IS_UNINDEXED: Final = f"words IS NULL AND kind IN ({_NUMBERS})"
_ENTRY_ID: Final = "(session << 32 | position)"
_OF_IDS: Final = """
    FROM unnest($1::bigint[]) AS found (id)
    JOIN indelible.entry ON session = id >> 32 AND position = id & 4294967295"""
_OF_SESSIONS: Final = "FROM indelible.entry WHERE session = ANY ($1::bigint[])"

_SESSIONS: Final = """
    SELECT number, name, log_end - born FROM indelible.session WHERE namespace = $1"""
_UNINDEXED: Final = f"""
    SELECT number, name FROM indelible.session WHERE namespace = $1 AND number IN (
        SELECT session FROM indelible.entry WHERE {_IS_UNINDEXED})"""
# What the server knows of the whole table, or of its partitions: about how many rows, and how many
# words a row has.
_SIZE: Final = """
    SELECT coalesce(sum(reltuples) FILTER (WHERE reltuples > 0), 0)::bigint,
        coalesce(max(elem_count_histogram[cardinality(elem_count_histogram)]), 0)::float8
    FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid AND relkind = 'r'
    LEFT JOIN pg_stats ON schemaname = 'indelible' AND tablename = relname
        AND pg_stats.attname = pg_attribute.attname
    WHERE relnamespace = to_regnamespace('indelible') AND pg_attribute.attname = 'words'"""
# Which part of the rows has a word, for all words that many have.
_SHARES: Final = """
    SELECT word, max(share) FROM pg_stats,
        unnest(most_common_elems::text::integer[], most_common_elem_freqs) AS common (word, share)
    WHERE schemaname = 'indelible' AND attname = 'words' AND word = ANY ($1::bigint[])
    GROUP BY word"""
_HAS_WORD: Final = """
    FROM indelible.entry WHERE words @> ARRAY[$1::integer]
        AND ($2::bigint[] IS NULL OR session = ANY ($2))"""
_FIND: Final = f"SELECT string_agg(int8send({_ENTRY_ID}), '') {_HAS_WORD}"
_READ: Final = f"""
    SELECT session, position, kind, written_at, payload, {CONTENT.format(salt="salt")}
    FROM unnest($1::bigint[], $2::bigint[]) AS found (id, salt)
    JOIN indelible.entry ON session = id >> 32 AND position = id & 4294967295"""

# Those who erase or replace an entry wait until its words are written.
_PAGE: Final = f"""
    SELECT {_ENTRY_ID}, kind, payload FROM indelible.entry
    WHERE (session, position) >= ($1::bigint >> 32, $1 & 4294967295)
        AND kind IN ({_NUMBERS}) {{unindexed}}
    ORDER BY session, position LIMIT $2 FOR UPDATE"""
_UPDATE: Final = """
    UPDATE indelible.entry SET words = new.words::integer[]
    FROM unnest($1::bigint[], $2::text[]) AS new (id, words)
    WHERE session = id >> 32 AND position = id & 4294967295"""
_INDEXED: Final = """
    SELECT position, kind, payload, words FROM indelible.entry
    WHERE session = $1 AND position >= $2 ORDER BY position LIMIT $3"""


# Writing


def compute_words(kind: Kind | None, envelope: bytes) -> list[int] | None:
    """Compute the numbers of an entry's words; None if it is not searched, or damaged."""
    text = parse_text(kind, envelope) if kind in SEARCHED_KINDS else None
    return None if text is None else sorted({_hash(term) for _, _, term in tokenize(text)})


def format_words(words: list[int] | None) -> str | None:
    """Format numbers as the server reads an array of `integer`."""
    return None if words is None else "{" + ",".join(map(str, words)) + "}"


def _hash(term: str) -> int:
    return zlib.crc32(term.encode()) - 2**31


async def index_page(op: IndexText) -> IndexResult:
    """Index a page of the entries that the index lacks; with `rebuild`, of all."""
    page = _PAGE.format(unindexed="" if op.rebuild else f"AND {_IS_UNINDEXED}")
    rows = await Sql(page, (op.resume or 0, op.limit))
    words = [compute_words(KIND_BY_NUMBER[kind], payload) for _, kind, payload in rows]
    if not rows:
        return IndexResult()
    ids = IntArray(entry_id for entry_id, _, _ in rows)
    await Do(_UPDATE, (ids, TextArray(map(format_words, words))))
    last = split_entry_id(ids[-1])[0]
    named = await Sql("SELECT name FROM indelible.session WHERE number = $1", (last,))
    name = named[0][0].decode() if named else ""
    damaged = words.count(None)
    resume = ids[-1] + 1 if len(rows) == op.limit else None
    return IndexResult(len(rows) - damaged, damaged, resume, name)


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


# Searching


async def find_scope(context: PostgresContext, op: FindText) -> SearchScope:
    """Find the sessions that a search is about."""
    everywhere = False
    if op.sessions is not None:
        named = BytesArray(name.encode() for name in op.sessions)
        sessions = Sql(f"{_SESSIONS} AND name = ANY ($2::bytea[])", (context.namespace, named))
    elif op.under is not None:
        # What comes next after a slash is a zero.
        bounds = (each.encode() for each in (op.under, f"{op.under}/", f"{op.under}0"))
        below = f"{_SESSIONS} AND (name = $2 OR name > $3 AND name < $4)"
        sessions = Sql(below, (context.namespace, *bounds))
    else:
        everywhere = True
        sessions = Sql(f"{_SESSIONS} LIMIT $2", (context.namespace, COMMON_WORD_ENTRIES + 1))
    found, lacking, ((size, average),) = await All(
        (sessions, Sql(_UNINDEXED, (context.namespace,)), Sql(_SIZE))
    )
    total = sum(entries for _, _, entries in found)
    is_large = max(total, len(found)) > COMMON_WORD_ENTRIES
    unindexed = {number: decode_name(name) for number, name in lacking}
    if everywhere and is_large:
        return SearchScope(None, unindexed, max(total, size), average, is_large)
    names = {number: decode_name(name) for number, name, _ in found}
    unindexed = {number: name for number, name in unindexed.items() if number in names}
    return SearchScope(names, unindexed, total, average, is_large)


async def count_words(words: Collection[str], scope: SearchScope) -> dict[str, int]:
    """Estimate how many entries have each word, of those that the server knows to be common."""
    shares: dict[int, float] = dict(await Sql(_SHARES, (IntArray(map(_hash, words)),)))
    numbers = {term: _hash(term) for term in words}
    return {
        term: int(shares[number] * scope.total)
        for term, number in numbers.items()
        if number in shares
    }


async def find_words(
    words: Sequence[str], scope: SearchScope, among: Collection[int] | None
) -> Occurrences:
    """Find the entries that have each word: by the index, or by looking at all of a few."""
    numbers = tuple(map(_hash, words))
    if scope.is_large and among is None:
        sessions = _to_sessions(scope)
        found = await All(tuple(Sql(_FIND, (number, sessions)) for number in numbers))
        ids = {term: _parse_ids(each) for term, ((each,),) in zip(words, found, strict=True)}
        return Occurrences(scope.total, scope.average, ids)
    if among is None:
        source, params = _OF_SESSIONS, _to_sessions(scope)
    else:
        source, params = _OF_IDS, IntArray(among)
    ((total, length, *columns),) = await Sql(_build_scan(len(words), source), (params, *numbers))
    ids = {term: _parse_ids(each) for term, each in zip(words, columns, strict=True)}
    return Occurrences(total, length / total if total else 0.0, ids)


@cache
def _build_scan(count: int, source: str) -> str:
    """Build the query for entries with each of so many words, and for the statistics of all."""
    columns = "".join(
        f", string_agg(int8send({_ENTRY_ID}), '') FILTER (WHERE ${nth}::integer = ANY (words))"
        for nth in range(2, count + 2)
    )
    return f"SELECT count(words), coalesce(sum(cardinality(words)), 0)::bigint{columns} {source}"


def _to_sessions(scope: SearchScope) -> IntArray | None:
    return None if scope.names is None else IntArray(scope.names)


def _parse_ids(joined: bytes | None) -> Sequence[int]:
    return struct.unpack(f"!{len(joined) // 8}q", joined) if joined else ()


async def read_found(
    context: PostgresContext, names: Mapping[int, str]
) -> list[tuple[int, StoredEntry]]:
    """Read entries, given with the names of their sessions."""
    salts = {name: context.salt(name) for name in set(names.values())}
    params = IntArray(names), IntArray(salts[name] for name in names.values())
    return [
        (number, StoredEntry(position, KIND_BY_NUMBER.get(kind), *rest))
        for number, position, kind, *rest in await Sql(_READ, params)
    ]
