"""Reads the visible summaries, and those that are nearest to a vector."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from indelible.core.embedding import NO_EMBEDDER, TextEmbedder
from indelible.core.operations import FindMatches, Read, StoredEntry
from indelible.core.plan import Plan, perform
from indelible.core.plans.read import EntryDecoder, check_number
from indelible.core.plans.search_request import check_vector
from indelible.core.settings import check_session_id
from indelible.core.similarity import compute_cosine, scale_to_unit
from indelible.errors import UsageError
from indelible.model import Kind, StoredSummary, Summary, SummaryMatch

_SUMMARIES: Final = frozenset({Kind.SUMMARY})


def read_summaries(session_id: str) -> Plan[list[StoredSummary]]:
    """Read the visible summaries."""
    session = check_session_id(session_id)
    found = yield from perform(Read(session, kinds=_SUMMARIES))
    return _decode(session, found.rows)


def _decode(session: str, rows: Iterable[StoredEntry]) -> list[StoredSummary]:
    """Decode rows to summaries; a damaged one is an error."""
    decoder = EntryDecoder(session)
    return [
        StoredSummary(position=row.position, summary=summary)
        for row in rows
        if isinstance(summary := decoder.decode(row), Summary)
    ]


def check_text_search(
    own: TextEmbedder | None, session_id: str, *, k: int, embedder: str | None
) -> TextEmbedder:
    """Check the arguments of a search by text; return what computes its vector."""
    if own is None:
        raise UsageError("to search by text, open the store with embedder=…")
    refuse_other_embedder(own, embedder)
    check_session_id(session_id)
    check_number(k, "k", least=1)
    return own


def refuse_other_embedder(own: TextEmbedder, embedder: str | None) -> None:
    """Raise if a text without a vector names another embedder than that of the store."""
    if embedder not in (None, own.name):
        raise UsageError(
            f"the vector of a text is computed by the store's embedder, {own.name!r}; for"
            f" {embedder!r}, pass a vector",
            value=embedder,
        )


def search_summaries(
    session_id: str, vector: Sequence[float], *, k: int, embedder: str | None
) -> Plan[list[SummaryMatch]]:
    """Find the `k` summaries that are nearest to a vector."""
    session = check_session_id(session_id)
    check_number(k, "k", least=1)
    name = embedder or NO_EMBEDDER
    unit = tuple(scale_to_unit(check_vector(vector)))
    page = yield from perform(
        FindMatches((), _SUMMARIES, k, (session,), vector=unit, embedder=name)
    )
    rows = [row for each in page.matches for row in each.rows] if page is not None else []
    if found := _rank(_decode(session, sorted(rows)), unit, name):
        return found[:k]
    shown = yield from read_summaries(session)
    found = _rank(shown, unit, name)
    if shown and not found:
        raise _build_no_match_error(session, name, len(unit), shown)
    return found[:k]


def _rank(shown: list[StoredSummary], unit: Sequence[float], name: str) -> list[SummaryMatch]:
    """Rank the comparable summaries by similarity, then by position."""
    matches = [
        SummaryMatch(
            position=stored.position,
            score=compute_cosine(unit, stored.summary.vector),
            summary=stored.summary,
        )
        for stored in shown
        if stored.summary.vector is not None
        and stored.summary.embedder == name
        and len(stored.summary.vector) == len(unit)
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
