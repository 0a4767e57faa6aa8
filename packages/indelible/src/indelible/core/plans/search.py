"""Search among the visible summaries of a session, by exact cosine similarity."""

from __future__ import annotations

import math
from collections.abc import Sequence

from indelible.core.operations import FindNearest
from indelible.core.plan import Plan, perform
from indelible.core.plans.append import to_floats
from indelible.core.plans.read import decode_summaries, read_summaries
from indelible.core.settings import Settings, check_session_id
from indelible.core.similarity import compute_cosine
from indelible.errors import UsageError
from indelible.model import StoredSummary, SummaryMatch


def search_summaries(
    settings: Settings,
    session_id: str,
    query: Sequence[float] | str,
    *,
    k: int,
    embedder: str | None,
) -> Plan[list[SummaryMatch]]:
    """Find the `k` summaries that are nearest to a vector or a text."""
    session = check_session_id(session_id)
    if not isinstance(k, int) or k < 1:
        raise UsageError(f"k is a number from 1 up, not {k!r}", value=k)
    vector, name = _embed_query(settings, query, embedder)
    near = yield from perform(FindNearest(session, vector, name, k))
    if near is not None and (found := _rank(decode_summaries(session, near), vector, name)):
        return found[:k]
    shown = yield from read_summaries(session)
    if not shown:
        return []
    found = _rank(shown, vector, name)
    if not found:
        raise _build_no_match_error(session, name, len(vector), shown)
    return found[:k]


def _rank(shown: list[StoredSummary], vector: Sequence[float], name: str) -> list[SummaryMatch]:
    """Rank the comparable summaries by similarity, then by position."""
    matches = [
        SummaryMatch(
            position=stored.position,
            score=compute_cosine(vector, stored.summary.vector),
            summary=stored.summary,
        )
        for stored in shown
        if stored.summary.vector is not None
        and stored.summary.embedder == name
        and len(stored.summary.vector) == len(vector)
    ]
    return sorted(matches, key=lambda match: (-match.score, match.position))


def _embed_query(
    settings: Settings, query: Sequence[float] | str, embedder: str | None
) -> tuple[Sequence[float], str]:
    """Return the vector of a query and the name of its embedder."""
    own = settings.embedder
    if isinstance(query, str):
        if own is None:
            raise UsageError("to search by text, open the store with embedder=…")
        return own.embed(query), own.name
    vector = to_floats(query)
    if not vector or not all(map(math.isfinite, vector)):
        raise UsageError(f"not a vector to compare with: {query!r}", value=query)
    return vector, embedder or (own.name if own else "unnamed")


def _build_no_match_error(
    session: str, name: str, dimension: int, shown: list[StoredSummary]
) -> UsageError:
    there = {
        f"{stored.summary.embedder} ({len(stored.summary.vector)} dimensions)"
        for stored in shown
        if stored.summary.vector is not None
    }
    return UsageError(
        f"session {session!r} has no summary by embedder {name} ({dimension} dimensions) to"
        f" compare with; it has: {', '.join(sorted(there)) or 'none with a vector'}",
        session=session,
        embedder=name,
        dimension=dimension,
    )
