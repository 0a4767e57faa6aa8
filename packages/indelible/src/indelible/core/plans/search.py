"""Search among what is visible.

The indexes of an engine choose what is ranked; without them, everything is read. It is ranked here,
so that every engine finds the same, and nothing that was rolled back, retracted, or has expired.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from indelible import view
from indelible.core import filters, ranking
from indelible.core.codec import SEARCHED_KINDS, format_value, get_searched_text
from indelible.core.embedding import Vector, to_floats
from indelible.core.filters import Filter
from indelible.core.limits import (
    PAGE_ENTRIES_MAX,
    SEARCH_ENTRIES_MAX,
    SEARCH_HITS_MAX,
    SEARCH_MATCHES,
    SEARCH_RANKED,
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
from indelible.core.plans.memories import build_collection_id, find_visible, is_memory
from indelible.core.plans.read import EntryDecoder, check_kinds, decode_summaries, read_summaries
from indelible.core.plans.verification import list_all_sessions
from indelible.core.plans.view_changes import read_snapshots
from indelible.core.ranking import Document, Ranked, Statistics
from indelible.core.settings import check_session_id
from indelible.core.similarity import NOT_COMPARABLE, compare, compute_cosine, scale_to_unit
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
_MESSAGES: Final = frozenset({Kind.MESSAGE})
_SUMMARIES: Final = frozenset({Kind.SUMMARY})
# How many entries on either side are read to find the messages beside one.
_WINDOW: Final = 8
# The embedder of vectors that callers give without a name.
NO_EMBEDDER: Final = "unnamed"
_FIELDS: Final = ("session_id", "kind", "role", "name", "id", "written_at")


class Request(NamedTuple):
    """A search, checked: for a text, for a vector of an embedder, or for both."""

    text: str | None
    vector: Vector | None
    embedder: str
    sessions: tuple[str, ...] | None
    under: str | None
    kinds: frozenset[Kind]
    where: Filter
    k: int
    offset: int
    around: int
    as_of: str | None


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
    wanted = check_kinds(SEARCHED_KINDS if kinds is None else kinds) or frozenset()
    if not wanted <= set(SEARCHED_KINDS):
        known = ", ".join(SEARCHED_KINDS)
        raise UsageError(f"search finds entries of the kinds {known}, not {kinds!r}", value=kinds)
    return Request(
        text,
        vector,
        NO_EMBEDDER,
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
    """A session that is read, in one state."""

    session: str
    # None for its current state, until it was read.
    frozen: FrozenView | None = None


@dataclass(slots=True)
class Found:
    """What a search ranks, and the states of the sessions that it is from."""

    terms: frozenset[str]
    documents: dict[tuple[str, int], Document] = field(default_factory=dict)
    # Entries that were read by the index, to be the hits.
    entries: dict[tuple[str, int], Entry] = field(default_factory=dict)
    states: dict[str, FrozenView] = field(default_factory=dict)
    statistics: Statistics = field(default_factory=lambda: Statistics(0, 0.0, {}))
    # Words of the query, as they were written, that were not looked for.
    dropped: tuple[str, ...] = ()
    # Whether the engine may find more.
    more: bool = False

    def add(self, documents: Iterable[Document]) -> None:
        """Add documents; one that is there already stays."""
        for document in documents:
            self.documents.setdefault((document.session, document.position), document)


def search(request: Request) -> Plan[list[Hit]]:
    """Find the entries that fit a query best."""
    if request.vector is not None:
        request = request._replace(vector=tuple(scale_to_unit(request.vector)))
    limit = max(SEARCH_MATCHES, 2 * (request.offset + request.k))
    attempts = 0
    while True:
        try:
            found = yield from _find(request, limit)
            _check_dimensions(found.documents.values(), request)
            ranked = ranking.rank([*found.documents.values()], found.terms, found.statistics)
            if found.more and len(ranked) < request.offset + request.k:
                limit *= 4
                continue
            ranked = ranked[request.offset :][: request.k]
            return (yield from _build_hits(ranked, found, request.around))
        except ConflictError:
            # A vacuum removed entries of a state that was being read.
            attempts += 1
            if attempts == _ATTEMPTS_MAX:
                raise


def _find(request: Request, limit: int) -> Plan[Found]:
    """Find what is to be ranked: by the engine's indexes, or by reading everything."""
    words = ranking.choose_words(request.text or "")
    found = Found(frozenset(words))
    frozen = (yield from _read_snapshot(request)) if request.as_of is not None else None
    page = yield from perform(
        FindMatches(
            tuple(words.items()),
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
        names = yield from _list_sessions(request)
        yield from _add_read(found, names, request, frozen)
    else:
        found.terms -= frozenset(page.dropped)
        found.dropped = tuple(words[term] for term in page.dropped)
        yield from _add_matches(found, page, request)
    return found


def _read_snapshot(request: Request) -> Plan[FrozenView]:
    assert request.sessions is not None
    assert request.as_of is not None
    found = yield from read_snapshots(request.sessions[0], (request.as_of,))
    (record,) = found.records
    head = found.head
    extents = view.freeze(record.view, record.end)
    return FrozenView(head.life, extents, head.version, head.vacuums)


def _list_sessions(request: Request) -> Plan[list[str]]:
    if request.sessions is not None:
        return [*request.sessions]
    if request.under is None:
        return (yield from list_all_sessions(None))
    # Label by label: a session that only begins with the same text is another one.
    below = yield from list_all_sessions(None, prefix=f"{request.under}/")
    return [request.under, *below]


# What an index has found


def _add_matches(found: Found, page: MatchPage, request: Request) -> Plan[None]:
    """Add the best of what an index has found, and their neighbours."""
    found.statistics, found.more = page.statistics, page.more
    found.states |= {each.session: each.frozen for each in page.matches}
    documents: list[Document] = []
    for session, entry in _decode_matches(page):
        found.entries[session, entry.position] = entry
        if filters.matches(request.where, _build_fields(session, entry)):
            documents.append(_build_document(session, entry, None, request, found.terms))
    most = max(SEARCH_RANKED, 2 * (request.offset + request.k))
    newest: dict[tuple[str, str], int | None] = {}
    for ordered in (
        ranking.choose_best(documents, found.terms, page.statistics),
        ranking.choose_nearest(documents),
    ):
        kept = 0
        for document in ordered:
            if kept == most:
                found.more = True
                break
            if (yield from _is_current(document, found, newest)):
                found.add([document])
                kept += 1
    if Kind.MESSAGE in request.kinds:
        yield from _add_neighbours(found, [*found.documents.values()], request)


def _is_current(
    document: Document, found: Found, newest: dict[tuple[str, str], int | None]
) -> Plan[bool]:
    """Return whether a document is no older version of a memory."""
    session = document.session
    value = found.entries[session, document.position].value
    if not isinstance(value, StoredMemory):
        return True
    if (session, value.id) not in newest:
        extents = found.states[session].extents
        _, position = yield from find_visible(session, value.id, extents)
        newest[session, value.id] = position
    return newest[session, value.id] == document.position


def _decode_matches(page: MatchPage) -> Iterator[tuple[str, Entry]]:
    """Decode what was found; of several versions of a memory, at most the newest is current."""
    for session, head, _, rows in page.matches:
        entries: dict[object, Entry] = {}
        for entry in EntryDecoder(session).to_entries(sorted(rows)):
            memory = entry.value if isinstance(entry.value, StoredMemory) else None
            entries[entry.position if memory is None else memory.id] = entry
        for entry in entries.values():
            if not isinstance(entry.value, StoredMemory) or is_memory(entry, head):
                yield session, entry


def _add_neighbours(found: Found, best: Sequence[Document], request: Request) -> Plan[None]:
    """Add the messages beside those that were found, and tell which is beside which."""
    windows: dict[str, list[tuple[int, int]]] = {}
    for document in best:
        if _is_message(document):
            extents, at = found.states[document.session].extents, document.position
            before = view.take_last(view.clip(extents, 0, at), _WINDOW)
            after = view.take_first(view.clip(extents, at, extents[-1][1]), _WINDOW + 1)
            first = before[0][0] if before else at
            windows.setdefault(document.session, []).append((first, after[-1][1]))
    if not windows:
        return
    spans = {session: view.normalize(pieces) for session, pieces in windows.items()}
    shown = tuple((name, _clip_state(found.states[name], each)) for name, each in spans.items())
    pages = yield from perform(ReadFound(shown, _MESSAGES))
    for (session, own), rows in zip(spans.items(), pages, strict=True):
        beside: dict[int, StoredEntry] = {}
        order, last = 0, 0
        for row in rows:
            span = bisect_right(own, (row.position, math.inf))
            # Messages of different windows are no neighbours.
            order += 1 if span == last else 1 + max(ranking.NEIGHBOUR_SHARES)
            last = span
            known = found.documents.get((session, row.position))
            if known is None:
                beside[order] = row
            else:
                known.order = order
        orders = (each.order for each in best if each.session == session and _is_message(each))
        near = ranking.find_near([order for order in orders if order is not None])
        read = {order: row for order, row in beside.items() if order in near}
        for order, entry in zip(read, EntryDecoder(session).to_entries(read.values()), strict=True):
            found.entries[session, entry.position] = entry
            if filters.matches(request.where, _build_fields(session, entry)):
                found.add([_build_document(session, entry, order, request, found.terms)])


def _is_message(document: Document) -> bool:
    return document.kind is Kind.MESSAGE


def _clip_state(state: FrozenView, spans: Extents) -> FrozenView:
    """Return the part of a state that is in some spans."""
    shown = (each for start, stop in spans for each in view.clip(state.extents, start, stop))
    return FrozenView(state.life, tuple(shown), state.version, state.vacuums)


# What is read as a whole


def _add_read(
    found: Found, names: Iterable[str], request: Request, frozen: FrozenView | None
) -> Plan[None]:
    """Add all entries in these sessions, and count their words."""
    left = SEARCH_ENTRIES_MAX
    for name in names:
        scope = Scope(name, frozen)
        read, found.states[name], looked = yield from _read_documents(
            scope, request, found.terms, left
        )
        found.add(read)
        left -= looked
    found.statistics = ranking.compute_statistics([*found.documents.values()])


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
    length, counts = ranking.count_terms(get_searched_text(entry.kind, value.__dict__), terms)
    author = value.name if isinstance(value, ChatMessage) else None
    return Document(
        session=session,
        position=entry.position,
        kind=entry.kind,
        order=entry.position if entry.kind is Kind.MEMORY else order,
        length=length,
        counts=counts,
        authors=ranking.find_name_terms(author or ""),
        similarity=_compare(request, value),
    )


def _compare(request: Request, value: object) -> float | None:
    """Return the similarity to the vector of the query; None if there is nothing to compare."""
    if request.vector is None or not isinstance(value, Summary | StoredMemory):
        return None
    if value.vector is None or value.embedder != request.embedder:
        return None
    return compare(request.vector, value.vector)


def _check_dimensions(documents: Iterable[Document], request: Request) -> None:
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


def _build_fields(session: str, entry: Entry) -> dict[str, object]:
    """Build what a filter looks at; what an entry does not have is missing."""
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
    return fields


def _build_hits(ranked: Sequence[Ranked], found: Found, around: int) -> Plan[list[Hit]]:
    """Read the entries of a result, and those around them."""
    beside = {
        (document.session, document.position): _find_neighbours(
            found.states[document.session], document, around
        )
        for document, _, _ in ranked
    }
    wanted: dict[str, list[tuple[int, int]]] = {}
    entries = found.entries
    for (session, position), extents in beside.items():
        own = () if (session, position) in entries else ((position, position + 1),)
        if own or extents:
            wanted.setdefault(session, []).extend((*own, *extents))
    for session, pieces in wanted.items():
        state, spans = found.states[session], view.normalize(pieces)
        if len(entries) + view.count(spans) > SEARCH_ENTRIES_MAX:
            raise _build_limit_error()
        asked = FrozenView(state.life, spans, state.version, state.vacuums)
        page = yield from perform(Read(session, asked))
        for each in EntryDecoder(session).to_entries(page.rows):
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
                snippet=ranking.build_snippet(
                    get_searched_text(entries[at].kind, entries[at].value.__dict__), found.terms
                ),
                # Memories stand for themselves.
                around=tuple(each for each in others if each.kind is not Kind.MEMORY),
                dropped=found.dropped,
            )
        )
    return hits


def _find_neighbours(state: FrozenView, document: Document, count: int) -> Extents:
    """Find the visible entries around a message; other kinds have none."""
    if not count or document.kind is not Kind.MESSAGE:
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
    name = embedder or NO_EMBEDDER
    vector = _check_vector(vector)
    unit = tuple(scale_to_unit(vector))
    page = yield from perform(
        FindMatches((), _SUMMARIES, k, (session,), vector=unit, embedder=name)
    )
    rows = [row for each in page.matches for row in each.rows] if page is not None else []
    if found := _rank(decode_summaries(session, sorted(rows)), vector, name):
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
    unit = scale_to_unit(vector)
    matches = [
        SummaryMatch(
            position=stored.position,
            score=compute_cosine(unit, stored.summary.vector),
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
