"""Search among the visible entries.

The candidates come from the indexes of the engine or, without indexes, from reading all entries of
the scope. They are filtered and ranked here, so that all engines find the same.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from indelible import view
from indelible.core import filters, ranking, words
from indelible.core.codec import get_searched_text
from indelible.core.limits import (
    LOG_ENTRIES_MAX,
    PAGE_ENTRIES_MAX,
    SEARCH_ENTRIES_MAX,
    SEARCH_MATCHES,
)
from indelible.core.operations import (
    FindMatches,
    FrozenView,
    MatchPage,
    Read,
    ReadFound,
    StoredEntry,
)
from indelible.core.plan import Plan, perform
from indelible.core.plans.memories import is_memory
from indelible.core.plans.read import EntryDecoder
from indelible.core.plans.search_request import SearchRequest
from indelible.core.plans.sessions import list_all_sessions
from indelible.core.plans.view_changes import read_snapshots
from indelible.core.ranking import Document, Ranked, Statistics
from indelible.core.similarity import NOT_COMPARABLE, compare, scale_to_unit
from indelible.errors import ConflictError, LimitError, UsageError
from indelible.model import ChatMessage, Entry, Hit, Kind, StoredMemory, Summary
from indelible.view import Extents

# Attempts, if a vacuum removes entries of the state that is being read.
_ATTEMPTS_MAX: Final = 3
_MESSAGES: Final = frozenset({Kind.MESSAGE})
# Entries that are read on either side of a message to find its neighbours: a tool call and its
# result may lie between two messages.
_WINDOW: Final = 4


@dataclass(slots=True)
class Found:
    """The candidates of a search, and the states of their sessions."""

    # The words that were looked for; those that were not, with how the query writes them.
    terms: frozenset[str]
    dropped: Mapping[str, str] = field(default_factory=dict)
    documents: dict[tuple[str, int], Document] = field(default_factory=dict)
    statistics: Statistics = field(default_factory=lambda: Statistics(0, 0.0, {}))
    states: dict[str, FrozenView] = field(default_factory=dict)
    # The entries of the candidates, and others that were read with them.
    entries: dict[tuple[str, int], Entry] = field(default_factory=dict)
    # Whether the engine may find more.
    more: bool = False


def search(request: SearchRequest) -> Plan[list[Hit]]:
    """Find the entries that match a query best."""
    if request.vector is not None:
        request = request._replace(vector=tuple(scale_to_unit(request.vector)))
    query: Mapping[str, str] = words.choose_words(request.text or "")
    wanted = request.offset + request.k
    limit = SEARCH_MATCHES
    # In few steps, since pages fit together if the same documents were ranked for them.
    while limit < 2 * wanted:
        limit *= 4
    attempts = 0
    while True:
        try:
            found = yield from _find(request, query, limit)
            ranked = ranking.rank([*found.documents.values()], found.terms, found.statistics)
            if found.more and len(ranked) < wanted:
                limit *= 4
                continue
            if found.dropped and not ranked:
                # The rarer words occur only in entries that are hidden or filtered out.
                query = found.dropped
                continue
            return (yield from _build_hits(ranked[request.offset : wanted], found, request.around))
        except ConflictError:
            # A vacuum removed entries of a state that was being read.
            attempts += 1
            if attempts == _ATTEMPTS_MAX:
                raise


def _find(request: SearchRequest, query: Mapping[str, str], limit: int) -> Plan[Found]:
    """Find the candidates: by the engine's indexes, or by reading everything."""
    found = Found(frozenset(query))
    frozen = (yield from _read_snapshot(request)) if request.as_of is not None else None
    page = yield from perform(
        FindMatches(
            tuple(query),
            request.kinds,
            limit,
            request.sessions,
            request.under,
            frozen,
            request.vector,
            request.embedder,
        )
    )
    if page is None:
        documents = yield from _read_documents(found, request, frozen)
    else:
        found.terms -= frozenset(page.dropped)
        found.dropped = {term: query[term] for term in page.dropped}
        documents = _list_matches(found, page, request)
    _check_dimensions(documents, request)
    for document in documents:
        if document.counts or document.similarity is not None:
            found.documents[document.session, document.position] = document
    if Kind.MESSAGE in request.kinds:
        yield from _add_neighbours(found, request, indexed=page is not None)
    return found


def _read_snapshot(request: SearchRequest) -> Plan[FrozenView]:
    assert request.sessions is not None
    assert request.as_of is not None
    found = yield from read_snapshots(request.sessions[0], (request.as_of,))
    (record,) = found.records
    return found.head.freeze(view.freeze(record.view, record.end))


def _add_neighbours(found: Found, request: SearchRequest, *, indexed: bool) -> Plan[None]:
    """Add the messages beside those that were found, and set the order of all of them."""
    windows: dict[str, list[tuple[int, int]]] = {}
    for document in found.documents.values():
        if document.kind is Kind.MESSAGE:
            beside = _find_beside(found.states[document.session], document.position, _WINDOW)
            windows.setdefault(document.session, []).append((beside[0][0], beside[-1][1]))
    if not windows:
        return
    spans = {session: view.normalize(pieces) for session, pieces in windows.items()}
    shown = tuple((name, _clip_state(found.states[name], each)) for name, each in spans.items())
    pages = yield from _read_messages(shown, indexed=indexed)
    for (session, own), rows in zip(spans.items(), pages, strict=True):
        orders = {
            # Orders of different spans are far apart, since their messages are not neighbours.
            row.position: bisect_right(own, (row.position, math.inf)) * LOG_ENTRIES_MAX + nth
            for nth, row in enumerate(rows)
        }
        known = {
            order: found.documents[session, position]
            for position, order in orders.items()
            if (session, position) in found.documents
        }
        for order, document in known.items():
            document.order = order
        near = ranking.find_near(known) - known.keys()
        read = [row for row in rows if orders[row.position] in near]
        for entry in EntryDecoder(session).to_entries(read):
            at, order = (session, entry.position), orders[entry.position]
            found.entries[at] = entry
            if _fits(session, entry, request):
                document = _build_document(session, entry, request, found.terms)
                document.order = order
                found.documents[at] = document


def _read_messages(
    states: tuple[tuple[str, FrozenView], ...], *, indexed: bool
) -> Plan[Sequence[Sequence[StoredEntry]]]:
    """Read the messages of some states; in one operation, if the engine has indexes."""
    if indexed:
        return (yield from perform(ReadFound(states, _MESSAGES)))
    pages: list[Sequence[StoredEntry]] = []
    for session, state in states:
        page = yield from perform(Read(session, state, _MESSAGES))
        pages.append(page.rows)
    return pages


def _find_beside(state: FrozenView, position: int, count: int) -> Extents:
    """Find a visible entry and up to `count` on either side of it."""
    before = view.clip(state.extents, 0, position)
    after = view.clip(state.extents, position, state.extents[-1][1])
    return (*view.take_last(before, count), *view.take_first(after, count + 1))


def _clip_state(state: FrozenView, spans: Extents) -> FrozenView:
    """Return the part of a state that is in some spans."""
    shown = (each for start, stop in spans for each in view.clip(state.extents, start, stop))
    return FrozenView(state.life, tuple(shown), state.version, state.vacuums)


# Candidates by the indexes


def _list_matches(found: Found, page: MatchPage, request: SearchRequest) -> list[Document]:
    found.statistics, found.more = page.statistics, page.more
    documents: list[Document] = []
    for session, head, frozen, rows in page.matches:
        found.states[session] = frozen
        for entry in EntryDecoder(session).to_entries(sorted(rows)):
            if isinstance(entry.value, StoredMemory) and not is_memory(entry, head):
                continue
            found.entries[session, entry.position] = entry
            if _fits(session, entry, request):
                documents.append(_build_document(session, entry, request, found.terms))
    return documents


# Candidates by reading


def _read_documents(
    found: Found, request: SearchRequest, frozen: FrozenView | None
) -> Plan[list[Document]]:
    """Read all entries of the sessions, and count their words."""
    left = SEARCH_ENTRIES_MAX
    documents: list[Document] = []
    for session in (yield from _list_sessions(request)):
        own, looked = yield from _read_session(found, session, request, frozen, left)
        documents += own
        left -= looked
    found.statistics = ranking.compute_statistics(documents)
    return documents


def _list_sessions(request: SearchRequest) -> Plan[list[str]]:
    if request.sessions is not None:
        return [*request.sessions]
    if request.under is None:
        return (yield from list_all_sessions(None))
    # Labels are compared whole: "users/anabel" is not under "users/ana".
    below = yield from list_all_sessions(None, prefix=f"{request.under}/")
    return [request.under, *below]


def _read_session(
    found: Found, session: str, request: SearchRequest, frozen: FrozenView | None, left: int
) -> Plan[tuple[Iterable[Document], int]]:
    """Read all entries of one session; also return how many were looked at."""
    documents: dict[int, Document] = {}
    newest: dict[str, int] = {}
    start: int | None = None
    looked = 0
    while True:
        op = Read(session, frozen, request.kinds, PAGE_ENTRIES_MAX, start=start)
        page = yield from perform(op)
        frozen = found.states[session] = page.frozen
        looked += len(page.rows)
        if looked > left:
            raise _build_limit_error()
        for entry in EntryDecoder(session).to_entries(page.rows):
            if isinstance(entry.value, StoredMemory):
                # A newer version replaces the one before, whether it is a memory or a retraction.
                documents.pop(newest.get(entry.value.id, -1), None)
                newest[entry.value.id] = entry.position
                if not is_memory(entry, page.head):
                    continue
            if _fits(session, entry, request):
                documents[entry.position] = _build_document(session, entry, request, found.terms)
        if page.resume is None:
            return documents.values(), looked
        start = page.resume


def _build_limit_error() -> LimitError:
    return LimitError(
        f"this search would look at more than {SEARCH_ENTRIES_MAX} entries; narrow it with"
        " sessions=, under= or kinds=",
        limit=SEARCH_ENTRIES_MAX,
    )


# Documents


def _build_document(
    session: str, entry: Entry, request: SearchRequest, terms: frozenset[str]
) -> Document:
    value = entry.value
    length, counts = words.count_terms(get_searched_text(entry.kind, value.__dict__), terms)
    author = value.name if isinstance(value, ChatMessage) else None
    return Document(
        session=session,
        position=entry.position,
        kind=entry.kind,
        order=entry.position if entry.kind is Kind.MEMORY else None,
        length=length,
        counts=counts,
        authors=words.find_name_terms(author or ""),
        similarity=_compare(request, value),
    )


def _compare(request: SearchRequest, value: object) -> float | None:
    """Return the similarity to the query; None without two vectors of one embedder."""
    if request.vector is None or not isinstance(value, Summary | StoredMemory):
        return None
    if value.vector is None or value.embedder != request.embedder:
        return None
    return compare(request.vector, value.vector)


def _check_dimensions(documents: Iterable[Document], request: SearchRequest) -> None:
    """Raise if an entry has a vector of the same embedder and another dimension."""
    for document in documents:
        if document.similarity == NOT_COMPARABLE:
            raise UsageError(
                f"entry {document.position} of session {document.session!r} has a vector of the"
                f" embedder {request.embedder!r} with another number of dimensions than the query."
                " Give another model another name, and memories its vectors by embed_missing()",
                session=document.session,
                position=document.position,
                embedder=request.embedder,
            )


def _fits(session: str, entry: Entry, request: SearchRequest) -> bool:
    """Return whether the filter matches an entry; a field that it does not have is missing."""
    if not request.where:
        return True
    value = entry.value
    fields: dict[str, object] = {
        "session_id": session,
        "kind": str(entry.kind),
        "written_at": entry.written_at,
        "metadata": getattr(value, "metadata", {}),
    }
    if isinstance(value, ChatMessage):
        fields["role"] = value.role
        if value.name is not None:
            fields["name"] = value.name
    if isinstance(value, StoredMemory):
        fields |= {"id": value.id, "value": value.value}
    return filters.matches(request.where, fields)


# Hits


def _build_hits(ranked: Sequence[Ranked], found: Found, around: int) -> Plan[list[Hit]]:
    """Read the entries of a result, and those around them."""
    shown = {
        (document.session, document.position): _find_beside(
            # Only messages have neighbours.
            found.states[document.session],
            document.position,
            around if document.kind is Kind.MESSAGE else 0,
        )
        for document, _, _ in ranked
    }
    yield from _read_missing(found, shown)
    hits: list[Hit] = []
    for document, score, ranks in ranked:
        at = session, position = document.session, document.position
        if at not in found.entries:
            continue
        entry = found.entries[at]
        others = (
            found.entries.get((session, each))
            for each in view.iter_positions(shown[at])
            if each != position
        )
        hits.append(
            Hit(
                session_id=session,
                position=position,
                entry=entry,
                score=score,
                ranks=ranks,
                snippet=words.build_snippet(
                    get_searched_text(entry.kind, entry.value.__dict__), found.terms
                ),
                around=tuple(
                    each for each in others if each is not None and each.kind is not Kind.MEMORY
                ),
                dropped=tuple(found.dropped.values()),
            )
        )
    return hits


def _read_missing(found: Found, shown: dict[tuple[str, int], Extents]) -> Plan[None]:
    """Read the entries of these extents that were not read yet."""
    wanted: dict[str, set[int]] = {}
    for (session, _), extents in shown.items():
        wanted.setdefault(session, set()).update(view.iter_positions(extents))
    for session, positions in wanted.items():
        missing = view.from_positions(at for at in positions if (session, at) not in found.entries)
        if len(found.entries) + view.count(missing) > SEARCH_ENTRIES_MAX:
            raise _build_limit_error()
        if not missing:
            continue
        state = found.states[session]
        asked = FrozenView(state.life, missing, state.version, state.vacuums)
        page = yield from perform(Read(session, asked))
        for entry in EntryDecoder(session).to_entries(page.rows):
            # A memory that was erased meanwhile is no hit.
            if not isinstance(entry.value, StoredMemory) or entry.value.id:
                found.entries[session, entry.position] = entry
