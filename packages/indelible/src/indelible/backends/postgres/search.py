"""Search: the primitives that find entries by their words and vectors.

A small scope is scanned; in a large one, the index is used. There the time for a common word goes
into visiting each of its rows. The server's statistics say which words are common.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from heapq import nlargest
from typing import Final

from indelible.backends.postgres.arrays import BytesArray, IntArray
from indelible.backends.postgres.connection import PostgresConnection
from indelible.backends.postgres.sessions import decode_name
from indelible.backends.postgres.statements import CONTENT
from indelible.backends.postgres.text_index import (
    ENTRY_ID,
    IS_UNINDEXED,
    encode_embedder,
    format_array,
    hash_terms,
    parse_vector,
)
from indelible.core.operations import FindMatches, StoredEntry
from indelible.core.ranking import Occurrences
from indelible.core.rows import KIND_BY_NUMBER, SearchScope
from indelible.core.similarity import NOT_COMPARABLE, compare, round_unit

# Entries that are scanned; in a larger scope, the index is used.
SCAN_ENTRIES_MAX: Final = 20_000
# Sessions of a namespace whose entries are counted; with more, the scope is a large one.
_SESSIONS_MAX: Final = SCAN_ENTRIES_MAX
# Words of one statement, which has a column for each; the server allows 1,600.
_WORDS_MAX: Final = 200
_OF_IDS: Final = """
    FROM unnest($1::bigint[]) AS found (id)
    JOIN indelible.entry ON session = id >> 32 AND position = id & 4294967295"""
_OF_SESSIONS: Final = "FROM indelible.entry WHERE session = ANY ($1::bigint[])"

_SESSIONS: Final = """
    SELECT number, name, log_end - born FROM indelible.session WHERE namespace = $1"""
_WITHIN: Final = "($1::bigint[] IS NULL OR session = ANY ($1))"
_UNINDEXED: Final = f"""
    SELECT {ENTRY_ID} FROM indelible.entry WHERE {IS_UNINDEXED} AND {_WITHIN}
        AND session IN (SELECT number FROM indelible.session WHERE namespace = $2) LIMIT $3"""
# The schema of pgvector, if this role may use it. Not cached: it may be installed at any time.
_EXTENSION: Final = """
    SELECT quote_ident(nspname) FROM pg_extension JOIN pg_namespace AS place
        ON place.oid = extnamespace
    WHERE extname = 'vector' AND has_schema_privilege(place.oid, 'USAGE')"""
# The limit of pgvector; longer vectors are compared by the client.
DIMENSIONS_MAX: Final = 16_000
_OF_EMBEDDER: Final = f"""
    FROM indelible.entry WHERE vector IS NOT NULL AND embedder = $2 AND {_WITHIN}"""
_VECTORS: Final = f"SELECT array_send(vector), {ENTRY_ID} {_OF_EMBEDDER}"
# CASE keeps vectors of another length from being cast. The distance of a vector of zeros is NaN.
_SIMILARITIES: Final = f"""
    SELECT CASE WHEN cardinality(vector) = cardinality($3::real[])
            THEN 1 - coalesce(nullif(vector::%(schema)s.vector
                OPERATOR(%(schema)s.<=>) $3::real[]::%(schema)s.vector, 'NaN'), 1)
            ELSE {NOT_COMPARABLE} END AS similarity, {ENTRY_ID} {_OF_EMBEDDER}
    ORDER BY similarity DESC LIMIT $4"""
# Estimates by the server's statistics: rows of the table with its partitions, and words in a row.
# Without statistics, the sessions say how many rows there are.
_SIZE: Final = """
    SELECT coalesce(
            sum(reltuples / nullif(relpages, 0) * pg_relation_size(pg_class.oid)
                / current_setting('block_size')::float8) FILTER (WHERE reltuples > 0),
            (SELECT sum(log_end - born) FROM indelible.session), 0)::bigint,
        coalesce(max(elem_count_histogram[cardinality(elem_count_histogram)]), 0)::float8
    FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid AND relkind = 'r'
    LEFT JOIN pg_stats ON schemaname = 'indelible' AND tablename = relname
        AND pg_stats.attname = pg_attribute.attname
    WHERE relnamespace = to_regnamespace('indelible') AND pg_attribute.attname = 'words'"""
# The share of the rows that have a word, for the common words among the server's statistics.
_SHARES: Final = """
    SELECT word, max(share) FROM pg_stats,
        unnest(most_common_elems::text::integer[], most_common_elem_freqs) AS common (word, share)
    WHERE schemaname = 'indelible' AND attname = 'words' AND word = ANY ($1::bigint[])
    GROUP BY word"""
_FIND: Final = f"""
    (SELECT string_agg(int8send({ENTRY_ID}), '') FROM indelible.entry
        WHERE words @> ARRAY[${{nth}}::integer] AND {_WITHIN})"""
# Because of OFFSET, the planner looks up each range by the primary key. Without it, it may read a
# whole table, since it overestimates the rows of a range.
_READ: Final = f"""
    SELECT {ENTRY_ID}, position, kind, written_at, payload, {CONTENT.format(salt="salt")}
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS found (start, stop, salt)
    CROSS JOIN LATERAL (
        SELECT * FROM indelible.entry WHERE session = start >> 32
            AND position >= start & 4294967295 AND position < stop - (start >> 32 << 32) OFFSET 0
    ) AS entry"""


def find_scope(db: PostgresConnection, op: FindMatches) -> SearchScope:
    """Find the sessions that a search covers."""
    if op.sessions is not None:
        wanted = BytesArray(name.encode() for name in op.sessions)
        named = f"{_SESSIONS} AND name = ANY ($2::bytea[])"
        found = db.query(named, (db.context.namespace, wanted))
    elif op.under is not None:
        # "0" is the character after "/".
        bounds = (each.encode() for each in (op.under, f"{op.under}/", f"{op.under}0"))
        below = f"{_SESSIONS} AND (name = $2 OR name >= $3 AND name < $4)"
        found = db.query(below, (db.context.namespace, *bounds))
    else:
        found = db.query(f"{_SESSIONS} LIMIT $2", (db.context.namespace, _SESSIONS_MAX + 1))
    total = sum(entries for _, _, entries in found)
    average = 0.0
    is_large = total > SCAN_ENTRIES_MAX or len(found) > _SESSIONS_MAX
    if is_large:
        ((stored, average),) = db.query(_SIZE)
        if op.sessions is None and op.under is None:
            return SearchScope(None, max(total, stored), average, is_large)
    names = {number: decode_name(name) for number, name, _ in found}
    return SearchScope(names, total, average, is_large)


def count_words(
    db: PostgresConnection, words: Collection[str], scope: SearchScope
) -> dict[str, int]:
    """Estimate how many entries have each word, for words in the server's statistics."""
    numbers = dict(zip(words, hash_terms(words), strict=True))
    shares: dict[int, float] = dict(db.query(_SHARES, (IntArray(numbers.values()),)))
    return {
        term: int(shares[number] * scope.total)
        for term, number in numbers.items()
        if number in shares
    }


def find_words(
    db: PostgresConnection, words: Sequence[str], scope: SearchScope, among: Collection[int] | None
) -> Occurrences:
    """Find the entries that have each word."""
    starts = range(0, len(words), _WORDS_MAX)
    parts = [_find_words(db, words[at : at + _WORDS_MAX], scope, among) for at in starts]
    return parts[0]._replace(ids={term: ids for part in parts for term, ids in part.ids.items()})


def _find_words(
    db: PostgresConnection, words: Sequence[str], scope: SearchScope, among: Collection[int] | None
) -> Occurrences:
    """Find entries by the index or, in a small scope and among some entries, by a scan."""
    numbers = hash_terms(words)
    if scope.is_large and among is None:
        # With a limit, which a role may have for searches of its own, the index returns a part.
        db.do("SET LOCAL gin_fuzzy_search_limit = 0")
        queries = ",".join(_FIND.format(nth=nth) for nth in range(2, len(words) + 2))
        (found,) = db.query(f"SELECT {queries}", (_to_sessions(scope), *numbers))
        ids = {term: _parse_ids(each) for term, each in zip(words, found, strict=True)}
        return Occurrences(scope.total, scope.average, ids)
    if among is None:
        # The planner prefers an index scan on the primary key, which takes a quarter longer.
        db.do("SET LOCAL enable_indexscan = off")
        rows = db.query(_build_scan(len(words), _OF_SESSIONS), (_to_sessions(scope), *numbers))
        db.do("SET LOCAL enable_indexscan TO DEFAULT")
    else:
        rows = db.query(_build_scan(len(words), _OF_IDS), (IntArray(among), *numbers))
    ((total, length, *columns),) = rows
    ids = {term: _parse_ids(each) for term, each in zip(words, columns, strict=True)}
    return Occurrences(total, length / total if total else 0.0, ids)


@cache
def _build_scan(count: int, source: str) -> str:
    """Build the query for the entries with each of `count` words, and for the totals."""
    columns = "".join(
        f", string_agg(int8send({ENTRY_ID}), '') FILTER (WHERE ${nth}::integer = ANY (words))"
        for nth in range(2, count + 2)
    )
    return f"SELECT count(words), coalesce(sum(cardinality(words)), 0)::bigint{columns} {source}"


def _to_sessions(scope: SearchScope) -> IntArray | None:
    return None if scope.names is None else IntArray(scope.names)


def _parse_ids(joined: bytes | None) -> Sequence[int]:
    return struct.unpack(f"!{len(joined) // 8}q", joined) if joined else ()


def find_unindexed(db: PostgresConnection, scope: SearchScope, limit: int) -> list[int]:
    """Find entries that the index of words lacks."""
    params = _to_sessions(scope), db.context.namespace, limit
    return [entry_id for (entry_id,) in db.query(_UNINDEXED, params)]


def find_nearest(
    db: PostgresConnection, vector: Sequence[float], embedder: str, scope: SearchScope, limit: int
) -> list[tuple[float, int]]:
    """Compare the vectors of an embedder, in the server if the database has pgvector."""
    extension = db.query(_EXTENSION)
    within = _to_sessions(scope), encode_embedder(embedder)
    if extension and len(vector) <= DIMENSIONS_MAX:
        params = *within, format_array(round_unit(vector)), limit
        rows = db.query(_SIMILARITIES % {"schema": extension[0][0]}, params)
        return [(similarity, entry_id) for similarity, entry_id in rows]
    rows = db.query(_VECTORS, within)
    return nlargest(limit, ((compare(vector, parse_vector(sent)), each) for sent, each in rows))


def read_found(db: PostgresConnection, names: Mapping[int, str]) -> dict[int, StoredEntry]:
    """Read entries, given with the names of their sessions."""
    salts = {name: db.context.compute_salt(name) for name in set(names.values())}
    # Consecutive ids are read as one range.
    starts = IntArray(each for each in sorted(names) if each - 1 not in names)
    stops = IntArray(each + 1 for each in sorted(names) if each + 1 not in names)
    params = starts, stops, IntArray(salts[names[each]] for each in starts)
    return {
        entry_id: StoredEntry(position, KIND_BY_NUMBER.get(kind), *rest)
        for entry_id, position, kind, *rest in db.query(_READ, params)
    }
