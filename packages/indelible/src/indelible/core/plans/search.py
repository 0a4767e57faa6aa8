"""Search among what is visible: entries by their words and vectors, summaries by vectors alone.

What is searched is read and ranked here, so that every engine finds the same, and nothing that was
rolled back, retracted, or has expired.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from indelible import view
from indelible.core import filters, ranking
from indelible.core.content import get_content_text
from indelible.core.embedding import Vector, to_floats
from indelible.core.filters import Filter
from indelible.core.limits import PAGE_ENTRIES_MAX, SEARCH_ENTRIES_MAX, SEARCH_HITS_MAX
from indelible.core.operations import FindNearest, FrozenView, Read
from indelible.core.plan import Plan, perform
from indelible.core.plans.memories import build_collection_id, is_memory
from indelible.core.plans.read import EntryDecoder, check_kinds, decode_summaries, read_summaries
from indelible.core.plans.verification import list_all_sessions
from indelible.core.plans.view_changes import read_snapshots
from indelible.core.ranking import Document, Ranked
from indelible.core.settings import check_session_id
from indelible.core.similarity import compute_cosine
from indelible.errors import ConflictError, LimitError, UsageError
from indelible.model import (
    ChatMessage,
    Entry,
    Hit,
    Kind,
    StoredMemory,
    StoredSummary,
    Summary,
    SummaryMatch,
)
from indelible.view import Extents

# How often a state is read again that a vacuum removed meanwhile.
_ATTEMPTS_MAX: Final = 3
KINDS: Final = (Kind.MESSAGE, Kind.SUMMARY, Kind.MEMORY)
_FIELDS: Final = ("session_id", "kind", "role", "name", "id", "written_at")


class Query(NamedTuple):
    """What is searched for: text, a vector and the embedder that made it, or both."""

    text: str | None = None
    vector: Vector | None = None
    embedder: str | None = None


def parse_query(query: object) -> Query:
    """Parse a query: text, a vector, or a pair of both."""
    if isinstance(query, tuple) and len(query) == 2 and isinstance(query[0], str):
        return Query(query[0], _check_vector(query[1]))
    if isinstance(query, str):
        if not query.strip():
            raise UsageError(f"a query is text, a vector, or both, not {query!r}", value=query)
        return Query(query)
    return Query(None, _check_vector(query))


def _check_vector(given: Any) -> Vector:
    vector = to_floats(given)
    if not vector or not all(map(math.isfinite, vector)):
        raise UsageError(f"not a vector to compare with: {given!r}", value=given)
    return vector


class Scope(NamedTuple):
    """A session that is searched, in one state."""

    session: str
    # None for its current state, until it was read.
    frozen: FrozenView | None = None


def search(
    query: Query,
    *,
    sessions: Iterable[str] | None,
    under: object,
    kinds: Iterable[Kind | str],
    where: Mapping[str, Any] | None,
    k: int,
    offset: int,
    around: int,
    as_of: str | None,
) -> Plan[list[Hit]]:
    """Find the entries that fit a query best."""
    wanted = check_kinds(kinds) or frozenset()
    for name, number, least in (("k", k, 1), ("offset", offset, 0), ("around", around, 0)):
        _check_number(name, number, least)
    conditions = filters.parse_filter(where, fields=_FIELDS, documents=("metadata", "value"))
    tokens = ranking.tokenize(query.text or "")
    terms = list(dict.fromkeys(token.term for token in tokens))
    chosen = yield from _choose_sessions(sessions, under, as_of)
    for attempt in range(_ATTEMPTS_MAX):
        states: dict[str, FrozenView] = {}
        documents: list[Document] = []
        try:
            for scope in chosen:
                left = SEARCH_ENTRIES_MAX - len(documents)
                found, states[scope.session] = yield from _read_documents(
                    scope, wanted, conditions, query, terms, left
                )
                documents += found
            ranked = ranking.rank(documents, terms)[offset : offset + k]
            return (yield from _build_hits(ranked, states, terms, around))
        except ConflictError:
            # A vacuum removed entries of a state that was being read.
            if attempt == _ATTEMPTS_MAX - 1:
                raise
    raise AssertionError


def _check_number(name: str, number: object, least: int) -> None:
    if not isinstance(number, int) or isinstance(number, bool):
        raise UsageError(f"{name} is a number from {least} up, not {number!r}", value=number)
    if not least <= number <= SEARCH_HITS_MAX:
        raise UsageError(
            f"{name} is a number from {least} to {SEARCH_HITS_MAX}, not {number}", value=number
        )


def _choose_sessions(
    sessions: Iterable[str] | None, under: object, as_of: str | None
) -> Plan[list[Scope]]:
    if sessions is not None and under is not None:
        raise UsageError("search takes sessions= or under=, not both")
    if isinstance(sessions, str):
        raise UsageError(f"sessions is a list of session ids, not {sessions!r}", value=sessions)
    if sessions is not None:
        names = list(dict.fromkeys(map(check_session_id, sessions)))
    elif under is not None:
        # Label by label: a session that only begins with the same text is another one.
        top = build_collection_id(under)
        below = yield from list_all_sessions(None, prefix=f"{top}/")
        names = [top, *below]
    else:
        names = yield from list_all_sessions(None)
    if as_of is None:
        return [Scope(name) for name in names]
    if len(names) != 1 or sessions is None:
        raise UsageError("as_of= is a snapshot of one session: name it with sessions=[…]")
    found = yield from read_snapshots(names[0], (as_of,))
    (record,) = found.records
    head = found.head
    extents = view.freeze(record.view, record.end)
    return [Scope(names[0], FrozenView(head.life, extents, head.version, head.vacuums))]


def _read_documents(
    scope: Scope,
    kinds: frozenset[Kind],
    conditions: Filter,
    query: Query,
    terms: Sequence[str],
    left: int,
) -> Plan[tuple[list[Document], FrozenView]]:
    """Read what is to be ranked of one session."""
    session, frozen = scope
    documents: dict[object, Document] = {}
    start: int | None = None
    looked = 0
    while True:
        page = yield from perform(Read(session, frozen, kinds, PAGE_ENTRIES_MAX, start=start))
        frozen = page.frozen
        looked += len(page.rows)
        if looked > left:
            raise _build_limit_error()
        for entry in EntryDecoder(session).to_entries(page.rows):
            # Of the versions of a memory, the newest one counts.
            own = isinstance(entry.value, StoredMemory) and entry.value.id
            name: object = ("memory", own) if own else entry.position
            documents.pop(name, None)
            if own is not False and not is_memory(entry, page.head):
                continue
            if filters.matches(conditions, _build_document_fields(session, entry)):
                documents[name] = _build_document(session, entry, query, terms)
        if page.resume is None:
            return list(documents.values()), frozen
        start = page.resume


def _build_limit_error() -> LimitError:
    return LimitError(
        f"this search would look at more than {SEARCH_ENTRIES_MAX} entries; narrow it with"
        " sessions=, under= or kinds=",
        limit=SEARCH_ENTRIES_MAX,
    )


def _build_document(session: str, entry: Entry, query: Query, terms: Sequence[str]) -> Document:
    value = entry.value
    is_message = isinstance(value, ChatMessage)
    tokens = ranking.tokenize(_get_text(entry))
    author = value.name if isinstance(value, ChatMessage) else None
    similarity: float | None = None
    if query.vector is not None and isinstance(value, Summary | StoredMemory):
        similarity = _compare(query, value)
    return Document(
        # Only messages of a conversation belong together.
        place=session if is_message else f"{session}/{entry.position}",
        session=session,
        position=entry.position,
        length=len(tokens),
        counts=ranking.count_terms(tokens, terms),
        authors=frozenset(token.term for token in ranking.tokenize(author or "")),
        similarity=similarity,
    )


def _compare(query: Query, value: Summary | StoredMemory) -> float | None:
    """Return the similarity to the query; None if the vectors cannot be compared."""
    assert query.vector is not None
    if value.vector is None or value.embedder != (query.embedder or "unnamed"):
        return None
    if len(value.vector) != len(query.vector):
        return None
    return compute_cosine(query.vector, value.vector)


def _get_text(entry: Entry) -> str:
    """Return the text of an entry that is searched."""
    value = entry.value
    if isinstance(value, ChatMessage):
        return get_content_text(value.content) or ""
    if isinstance(value, StoredMemory):
        parts = [value.text or ""] if value.text is not None else [_join_texts(value.value)]
        return " ".join(parts)
    return value.text if isinstance(value, Summary) else ""


def _join_texts(value: object) -> str:
    """Join all texts in a JSON value."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return " ".join(_join_texts(item) for item in value.values())
    return " ".join(map(_join_texts, value)) if isinstance(value, list) else ""


def _build_document_fields(session: str, entry: Entry) -> dict[str, object]:
    """Build what a filter looks at; what an entry does not have is missing."""
    value = entry.value
    fields: dict[str, object] = {
        "session_id": session,
        "kind": str(entry.kind),
        "written_at": entry.written_at,
        "metadata": value.metadata,
    }
    if isinstance(value, ChatMessage):
        fields["role"] = value.role
        if value.name is not None:
            fields["name"] = value.name
    if isinstance(value, StoredMemory):
        fields |= {"id": value.id, "value": value.value}
    return fields


def _build_hits(
    ranked: Sequence[Ranked], states: Mapping[str, FrozenView], terms: Sequence[str], around: int
) -> Plan[list[Hit]]:
    """Read the entries of a result, and those around them."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for document, _, _ in ranked:
        before, after = _find_neighbours(states[document.session], document.position, around)
        own = ((document.position, document.position + 1),)
        spans.setdefault(document.session, []).extend((*before, *own, *after))
    entries: dict[tuple[str, int], Entry] = {}
    for session, extents in spans.items():
        state = states[session]
        asked = FrozenView(state.life, view.normalize(extents), state.version, state.vacuums)
        found = yield from perform(Read(session, asked))
        for entry in EntryDecoder(session).to_entries(found.rows):
            entries[session, entry.position] = entry
    hits: list[Hit] = []
    for document, score, ranks in ranked:
        session, position = document.session, document.position
        before, after = _find_neighbours(states[session], position, around)
        entry = entries[session, position]
        beside = [entries[session, at] for at in view.iter_positions((*before, *after))]
        hits.append(
            Hit(
                session_id=session,
                position=position,
                entry=entry,
                score=score,
                ranks=ranks,
                snippet=ranking.build_snippet(_get_text(entry), terms),
                around=tuple(beside),
            )
        )
    return hits


def _find_neighbours(state: FrozenView, position: int, count: int) -> tuple[Extents, Extents]:
    """Find the visible entries before and after a position."""
    if not count:
        return (), ()
    before = view.clip(state.extents, 0, position)
    after = view.clip(state.extents, position + 1, state.extents[-1][1])
    return view.take_last(before, count), view.take_first(after, count)


def search_summaries(
    session_id: str, vector: Sequence[float], *, k: int, embedder: str | None
) -> Plan[list[SummaryMatch]]:
    """Find the `k` summaries that are nearest to a vector."""
    session = check_session_id(session_id)
    if not isinstance(k, int) or k < 1:
        raise UsageError(f"k is a number from 1 up, not {k!r}", value=k)
    name = embedder or "unnamed"
    vector = _check_vector(vector)
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
