"""Search among what is visible.

`search` reads and ranks entries here, so that every engine finds the same, and nothing that was
rolled back, retracted, or has expired. `search_summaries` has the engine choose by vectors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from indelible import view
from indelible.core import filters, ranking
from indelible.core.codec import format_value
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


class Request(NamedTuple):
    """A search, checked: for a text, for a vector of an embedder, or for both."""

    text: str | None
    vector: Vector | None
    embedder: str | None
    sessions: tuple[str, ...] | None
    under: str | None
    kinds: frozenset[Kind]
    where: Filter
    k: int
    offset: int
    around: int
    as_of: str | None

    @property
    def terms(self) -> frozenset[str]:
        """The words that are looked for."""
        return frozenset(token.term for token in ranking.tokenize(self.text or ""))


def parse_request(
    query: object,
    *,
    sessions: Iterable[str] | None,
    under: object,
    kinds: Iterable[Kind | str] | None,
    where: Mapping[str, Any] | None,
    k: int,
    offset: int,
    around: int,
    as_of: str | None,
) -> Request:
    """Check what is asked for."""
    text, vector = _parse_query(query)
    if sessions is not None and under is not None:
        raise UsageError("search takes sessions= or under=, not both")
    if isinstance(sessions, str):
        raise UsageError(f"sessions is a list of session ids, not {sessions!r}", value=sessions)
    names = None if sessions is None else tuple(dict.fromkeys(map(check_session_id, sessions)))
    if as_of is not None and (names is None or len(names) != 1):
        raise UsageError("as_of= is a snapshot of one session: name it with sessions=[…]")
    wanted = check_kinds(KINDS if kinds is None else kinds) or frozenset()
    if not wanted <= set(KINDS):
        known = ", ".join(KINDS)
        raise UsageError(f"search finds entries of the kinds {known}, not {kinds!r}", value=kinds)
    return Request(
        text,
        vector,
        None,
        names,
        None if under is None else build_collection_id(under),
        wanted,
        filters.parse_filter(where, fields=_FIELDS, documents=("metadata", "value")),
        _check_number("k", k, 1),
        _check_number("offset", offset, 0),
        _check_number("around", around, 0),
        as_of,
    )


def _parse_query(query: object) -> tuple[str | None, Vector | None]:
    """Parse a query: text, a vector, or a pair of both."""
    if isinstance(query, tuple) and len(query) == 2 and isinstance(query[0], str):
        return query[0], _check_vector(query[1])
    if isinstance(query, str):
        if not query.strip():
            raise UsageError(f"a query is text, a vector, or both, not {query!r}", value=query)
        return query, None
    return None, _check_vector(query)


def _check_vector(given: Any) -> Vector:
    vector = to_floats(given)
    if not vector or not all(map(math.isfinite, vector)):
        raise UsageError(f"not a vector to compare with: {format_value(given)}", value=given)
    return vector


def _check_number(name: str, number: object, least: int) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise UsageError(f"{name} is a number from {least} up, not {number!r}", value=number)
    if number > SEARCH_HITS_MAX:
        raise LimitError(
            f"{name} is {number}; the limit is {SEARCH_HITS_MAX}",
            limit=SEARCH_HITS_MAX,
            actual=number,
        )
    return number


class Scope(NamedTuple):
    """A session that is searched, in one state."""

    session: str
    # None for its current state, until it was read.
    frozen: FrozenView | None = None


def search(request: Request) -> Plan[list[Hit]]:
    """Find the entries that fit a query best."""
    terms = request.terms
    scopes = yield from _choose_sessions(request)
    for attempt in range(_ATTEMPTS_MAX):
        states: dict[str, FrozenView] = {}
        documents: list[Document] = []
        left = SEARCH_ENTRIES_MAX
        try:
            for scope in scopes:
                found, states[scope.session], looked = yield from _read_documents(
                    scope, request, terms, left
                )
                documents += found
                left -= looked
            ranked = ranking.rank(documents, terms)[request.offset :][: request.k]
            return (yield from _build_hits(ranked, states, terms, request.around))
        except ConflictError:
            # A vacuum removed entries of a state that was being read.
            if attempt == _ATTEMPTS_MAX - 1:
                raise
    raise AssertionError


def _choose_sessions(request: Request) -> Plan[list[Scope]]:
    if request.sessions is not None:
        names = [*request.sessions]
    elif request.under is not None:
        # Label by label: a session that only begins with the same text is another one.
        below = yield from list_all_sessions(None, prefix=f"{request.under}/")
        names = [request.under, *below]
    else:
        names = yield from list_all_sessions(None)
    if request.as_of is None:
        return [Scope(name) for name in names]
    found = yield from read_snapshots(names[0], (request.as_of,))
    (record,) = found.records
    head = found.head
    extents = view.freeze(record.view, record.end)
    return [Scope(names[0], FrozenView(head.life, extents, head.version, head.vacuums))]


def _read_documents(
    scope: Scope, request: Request, terms: frozenset[str], left: int
) -> Plan[tuple[list[Document], FrozenView, int]]:
    """Read what is to be ranked of one session; also returns its state, and how much was read."""
    session, frozen = scope
    documents: dict[object, Document] = {}
    start: int | None = None
    looked = messages = 0
    while True:
        op = Read(session, frozen, request.kinds, PAGE_ENTRIES_MAX, start=start)
        page = yield from perform(op)
        frozen = page.frozen
        looked += len(page.rows)
        if looked > left:
            raise _build_limit_error()
        for entry in EntryDecoder(session).to_entries(page.rows):
            name: object = entry.position
            if isinstance(entry.value, StoredMemory):
                # Of the versions of a memory, the newest one counts.
                name = ("memory", entry.value.id)
                documents.pop(name, None)
                if not is_memory(entry, page.head):
                    continue
            order = messages if isinstance(entry.value, ChatMessage) else None
            messages += order is not None
            if filters.matches(request.where, _build_fields(session, entry)):
                documents[name] = _build_document(session, entry, order, request, terms)
        if page.resume is None:
            return list(documents.values()), frozen, looked
        start = page.resume


def _build_limit_error() -> LimitError:
    return LimitError(
        f"this search would look at more than {SEARCH_ENTRIES_MAX} entries; narrow it with"
        " sessions=, under= or kinds=",
        limit=SEARCH_ENTRIES_MAX,
    )


def _build_document(
    session: str, entry: Entry, order: int | None, request: Request, terms: frozenset[str]
) -> Document:
    value = entry.value
    tokens = ranking.tokenize(_get_text(entry))
    author = value.name if isinstance(value, ChatMessage) else None
    similarity: float | None = None
    if request.vector is not None and isinstance(value, Summary | StoredMemory):
        similarity = _compare(request.vector, request.embedder or "unnamed", value)
    return Document(
        session=session,
        position=entry.position,
        order=order,
        length=len(tokens),
        counts=ranking.count_terms(tokens, terms),
        authors=frozenset(token.term for token in ranking.tokenize(author or "")),
        similarity=similarity,
    )


def _compare(vector: Vector, embedder: str, value: Summary | StoredMemory) -> float | None:
    """Return the similarity to a vector; None if the two cannot be compared."""
    if value.vector is None or value.embedder != embedder or len(value.vector) != len(vector):
        return None
    return compute_cosine(vector, value.vector)


def _get_text(entry: Entry) -> str:
    """Return the text of an entry that is searched."""
    value = entry.value
    if isinstance(value, ChatMessage):
        return get_content_text(value.content) or ""
    if isinstance(value, StoredMemory):
        return value.text if value.text is not None else _join_texts(value.value)
    return value.text if isinstance(value, Summary) else ""


def _join_texts(value: object) -> str:
    """Join all texts in a JSON value."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return " ".join(_join_texts(item) for item in value.values())
    return " ".join(map(_join_texts, value)) if isinstance(value, list) else ""


def _build_fields(session: str, entry: Entry) -> dict[str, object]:
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
    ranked: Sequence[Ranked], states: Mapping[str, FrozenView], terms: frozenset[str], around: int
) -> Plan[list[Hit]]:
    """Read the entries of a result, and those around them."""
    beside = {
        (document.session, document.position): _find_neighbours(
            states[document.session], document, around
        )
        for document, _, _ in ranked
    }
    wanted: dict[str, list[tuple[int, int]]] = {}
    for (session, position), extents in beside.items():
        wanted.setdefault(session, []).extend(((position, position + 1), *extents))
    entries: dict[tuple[str, int], Entry] = {}
    for session, pieces in wanted.items():
        state, spans = states[session], view.normalize(pieces)
        if len(entries) + view.count(spans) > SEARCH_ENTRIES_MAX:
            raise _build_limit_error()
        asked = FrozenView(state.life, spans, state.version, state.vacuums)
        found = yield from perform(Read(session, asked))
        for each in EntryDecoder(session).to_entries(found.rows):
            # One that was erased meanwhile is no hit.
            if not isinstance(each.value, StoredMemory) or each.value.id:
                entries[session, each.position] = each
    hits: list[Hit] = []
    for document, score, ranks in ranked:
        at = document.session, document.position
        if at not in entries:
            continue
        others = [
            entries[document.session, position]
            for position in view.iter_positions(beside[at])
            if (document.session, position) in entries
        ]
        hits.append(
            Hit(
                session_id=document.session,
                position=document.position,
                entry=entries[at],
                score=score,
                ranks=ranks,
                snippet=ranking.build_snippet(_get_text(entries[at]), terms),
                # Memories stand for themselves.
                around=tuple(each for each in others if each.kind is not Kind.MEMORY),
            )
        )
    return hits


def _find_neighbours(state: FrozenView, document: Document, count: int) -> Extents:
    """Find the visible entries around a message; other kinds have none."""
    if not count or document.order is None:
        return ()
    before = view.clip(state.extents, 0, document.position)
    after = view.clip(state.extents, document.position + 1, state.extents[-1][1])
    return (*view.take_last(before, count), *view.take_first(after, count))


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
