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
from indelible.core.ranking import Occurrences, list_terms
from indelible.core.rows import KIND_BY_NUMBER, KIND_NUMBER, SearchScope, split_entry_id
from indelible.model import Kind

_IS_SEARCHED: Final = f"kind IN ({', '.join(str(KIND_NUMBER[kind]) for kind in SEARCHED_KINDS)})"
# The predicate of the index `entry_unindexed`.
_IS_UNINDEXED: Final = f"words IS NULL AND {_IS_SEARCHED}"
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
# How many rows the whole table or all its partitions have, and how many words a row has: estimates
# from the server's statistics. Before it has any, sessions say how many rows.
_SIZE: Final = """
    SELECT coalesce(
            sum(reltuples / relpages * pg_relation_size(pg_class.oid)
                / current_setting('block_size')::float8) FILTER (WHERE reltuples > 0),
            (SELECT sum(log_end - born) FROM indelible.session), 0)::bigint,
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
    WHERE (session, position) >= ($1::bigint >> 32, $1 & 4294967295) AND ({{wanted}})
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
    """Compute the numbers of an entry's words, in order; None if it is not searched or damaged."""
    text = parse_text(kind, envelope) if kind in SEARCHED_KINDS else None
    return None if text is None else sorted(_hash(set(list_terms(text))))


def format_words(words: list[int] | None) -> str | None:
    """Format numbers as the server reads an array of `integer`."""
    return None if words is None else "{" + ",".join(map(str, words)) + "}"


def _hash(terms: Collection[str]) -> list[int]:
    """Return the numbers of words; signed, since the server has no others."""
    numbers = map(zlib.crc32, map(str.encode, terms))
    return list(struct.unpack(f"{len(terms)}i", struct.pack(f"{len(terms)}I", *numbers)))


async def index_page(op: IndexText) -> IndexResult:
    """Index a page of the entries that the index lacks; with `rebuild`, of all."""
    wanted = f"{_IS_SEARCHED} OR words IS NOT NULL" if op.rebuild else _IS_UNINDEXED
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


# Searching


async def find_scope(context: PostgresContext, op: FindText) -> SearchScope:
    """Find the sessions that a search is about."""
    if op.sessions is not None:
        named = BytesArray(name.encode() for name in op.sessions)
        sessions = Sql(f"{_SESSIONS} AND name = ANY ($2::bytea[])", (context.namespace, named))
    elif op.under is not None:
        # What comes next after a slash is a zero.
        bounds = (each.encode() for each in (op.under, f"{op.under}/", f"{op.under}0"))
        below = f"{_SESSIONS} AND (name = $2 OR name > $3 AND name < $4)"
        sessions = Sql(below, (context.namespace, *bounds))
    else:
        sessions = Sql(f"{_SESSIONS} LIMIT $2", (context.namespace, COMMON_WORD_ENTRIES + 1))
    found, lacking = await All((sessions, Sql(_UNINDEXED, (context.namespace,))))
    unindexed = {number: decode_name(name) for number, name in lacking}
    total = sum(entries for _, _, entries in found)
    average = 0.0
    is_large = max(total, len(found)) > COMMON_WORD_ENTRIES
    if is_large:
        ((stored, average),) = await Sql(_SIZE)
        if op.sessions is None and op.under is None:
            return SearchScope(None, unindexed, stored, average, is_large)
    names = {number: decode_name(name) for number, name, _ in found}
    unindexed = {number: name for number, name in unindexed.items() if number in names}
    return SearchScope(names, unindexed, total, average, is_large)


async def count_words(words: Collection[str], scope: SearchScope) -> dict[str, int]:
    """Estimate how many entries have each word, of those that the server knows to be common."""
    numbers = dict(zip(words, _hash(words), strict=True))
    shares: dict[int, float] = dict(await Sql(_SHARES, (IntArray(numbers.values()),)))
    return {
        term: int(shares[number] * scope.total)
        for term, number in numbers.items()
        if number in shares
    }


async def find_words(
    words: Sequence[str], scope: SearchScope, among: Collection[int] | None
) -> Occurrences:
    """Find the entries that have each word: by the index, or by looking at all of a few."""
    numbers = _hash(words)
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
