"""Search over summaries, where the server has the extension pgvector.

The server never decides what is found. It compares in single precision, so it names all that may be
among the nearest, with a margin for what it may have rounded, and core compares those exactly.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Final

from indelible import view
from indelible.backends.postgres.arrays import BytesArray
from indelible.backends.postgres.entries import encode_embedder, pack_vector
from indelible.backends.postgres.sessions import load_session
from indelible.backends.postgres.statements import (
    CONTENT,
    HANDLERS,
    IN_MANY,
    All,
    PostgresContext,
    Sql,
    split_bounds,
)
from indelible.core import rules
from indelible.core.codec import KIND_FROM, get_kind_prefix
from indelible.core.operations import FindNearest, StoredEntry
from indelible.core.rows import KIND_BY_NUMBER, KIND_NUMBER
from indelible.model import Kind

# The extension has a bound of its own; longer vectors are stored, and compared by core.
DIMENSIONS_MAX: Final = 16_000
# Where the extension is, if this role may use it. Asked each time: it comes and goes as its owner
# likes, and this travels with the look at the session.
_EXTENSION: Final = """
    SELECT quote_ident(nspname) FROM pg_extension JOIN pg_namespace AS place
        ON place.oid = extnamespace
    WHERE extname = 'vector' AND has_schema_privilege(place.oid, 'USAGE')"""
_COUNT: Final = "SELECT count(*) " + IN_MANY
# A summary, or what may have been one before it was damaged.
_MAY_BE_SUMMARY: Final = f"""
    (kind = {KIND_NUMBER[Kind.SUMMARY]}
        OR (substr(payload, {KIND_FROM + 1}, octet_length(($9::bytea[])[kind]))
            = ($9::bytea[])[kind]) IS NOT TRUE)"""
# By the order of CASE, none is cast that is of another length. A vector of zeros has no direction,
# so its distance is NaN; that, and vectors that are unknown, only core can compare.
_NEAREST: Final = f"""
    WITH compared AS (
        SELECT position, embedder IS NULL AS unknown,
            CASE WHEN embedder = $4 AND cardinality(vector) = $5
                THEN vector::%(schema)s.vector
                    OPERATOR(%(schema)s.<=>) $6::real[]::%(schema)s.vector END AS distance
        {IN_MANY} AND {_MAY_BE_SUMMARY}
    ), reach AS (
        SELECT distance + $7::float8 AS distance FROM compared WHERE distance IS NOT NULL
        ORDER BY distance OFFSET $8::bigint LIMIT 1
    )
    SELECT position, kind, written_at, payload, {CONTENT.format(salt="$10")}
    FROM compared JOIN indelible.entry USING (position)
    WHERE session = $1 AND (unknown OR distance = 'NaN'
        OR distance <= coalesce((SELECT distance FROM reach), 'Infinity'))"""
_MARKS: Final = BytesArray(
    get_kind_prefix(kind) for kind in sorted(KIND_NUMBER, key=KIND_NUMBER.__getitem__)
)


@HANDLERS.handles(FindNearest)
async def find_nearest(context: PostgresContext, op: FindNearest) -> tuple[StoredEntry, ...] | None:
    """Those that may be among the nearest; None where the server cannot tell."""
    dimension = len(op.vector)
    if not 0 < dimension <= DIMENSIONS_MAX or (vector := pack_vector(op.vector)) is None:
        return None
    row, head, (extension,) = await load_session(context, op.session, Sql(_EXTENSION))
    extents = rules.choose_frozen_view(op.session, None, head).extents
    if row is None or not extension or not extents:
        return None
    ((schema,),) = extension
    shown = view.count(extents)
    within = row.number, *split_bounds(extents)
    query = (encode_embedder(op.embedder), dimension, vector, compute_margin(dimension))
    nearest = _NEAREST % {"schema": schema}
    params = *within, *query, min(op.k, shown) - 1, _MARKS, context.salt(op.session)
    ((there,),), rows = await All((Sql(_COUNT, within), Sql(nearest, params)))
    if there != shown:
        # Vacuumed since the session was loaded, or damaged: a read of all finds out which.
        return None
    return tuple(
        StoredEntry(position, KIND_BY_NUMBER.get(kind), *rest)
        for position, kind, *rest in sorted(rows, key=itemgetter(0))
    )


def compute_margin(dimension: int) -> float:
    """How much farther than the k-th nearest, as the server sees it, one of the nearest may be.

    With u = 2**-24, a sum of n products in single precision, in any order, is wrong by at most
    n * u / (1 - n * u) of the lengths. The server makes three of them: the product of two vectors
    and the squares of their lengths. Rounding the vectors turns each by at most u. So a distance is
    wrong by less than 2 * (n + 2) * u / (1 - n * u), and a difference of two by twice that. This is
    nearly twice as much again.
    """
    return 8 * (dimension + 8) * 2.0**-24
