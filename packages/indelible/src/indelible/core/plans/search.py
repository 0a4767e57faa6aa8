"""Search among the visible summaries of a session, by exact cosine similarity."""

from __future__ import annotations

import math
from collections.abc import Sequence

from indelible.core.embedding import to_floats
from indelible.core.operations import FindNearest
from indelible.core.plan import Plan, perform
from indelible.core.plans.read import decode_summaries, read_summaries
from indelible.core.settings import check_session_id
from indelible.core.similarity import compute_cosine
from indelible.errors import UsageError
from indelible.model import StoredSummary, SummaryMatch


def search_summaries(
    session_id: str, vector: Sequence[float], *, k: int, embedder: str | None
) -> Plan[list[SummaryMatch]]:
    """Find the `k` summaries that are nearest to a vector."""
    session = check_session_id(session_id)
    if not isinstance(k, int) or k < 1:
        raise UsageError(f"k is a number from 1 up, not {k!r}", value=k)
    name = embedder or "unnamed"
    given, vector = vector, to_floats(vector)
    if not vector or not all(map(math.isfinite, vector)):
        raise UsageError(f"not a vector to compare with: {given!r}", value=given)
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
