"""The arguments of a search, checked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from indelible.core import filters
from indelible.core.codec import SEARCHED_KINDS, format_value
from indelible.core.embedding import NO_EMBEDDER, Vector, is_several, to_floats
from indelible.core.filters import Filter
from indelible.core.limits import SEARCH_HITS_MAX
from indelible.core.plans.memories import build_collection_id
from indelible.core.plans.read import check_kinds, check_number
from indelible.core.settings import check_session_id
from indelible.errors import LimitError, UsageError
from indelible.model import Kind

_FIELDS: Final = ("session_id", "kind", "role", "name", "id", "written_at")


class SearchRequest(NamedTuple):
    """A checked search for a text, for a vector of an embedder, or for both."""

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
) -> SearchRequest:
    """Check the arguments of a search."""
    text, vector = _parse_query(query)
    if sessions is not None and under is not None:
        raise UsageError("search takes sessions= or under=, not both")
    if sessions is not None and not is_several(sessions):
        shown = format_value(sessions)
        raise UsageError(f"sessions is a list of session ids, not {shown}", value=sessions)
    names = None if sessions is None else tuple(dict.fromkeys(map(check_session_id, sessions)))
    if as_of is not None and (names is None or len(names) != 1):
        raise UsageError("as_of= is a snapshot of one session: name it with sessions=[…]")
    wanted = check_kinds(SEARCHED_KINDS if kinds is None else kinds) or frozenset()
    if not wanted <= set(SEARCHED_KINDS):
        known = ", ".join(SEARCHED_KINDS)
        raise UsageError(f"search finds entries of the kinds {known}, not {kinds!r}", value=kinds)
    return SearchRequest(
        text,
        vector,
        NO_EMBEDDER,
        names,
        None if under is None else build_collection_id(under),
        wanted,
        filters.parse_filter(where, fields=_FIELDS, documents=("metadata", "value")),
        _check_hits("k", k, 1),
        _check_hits("offset", offset, 0),
        _check_hits("around", around, 0),
        as_of,
    )


def _parse_query(query: object) -> tuple[str | None, Vector | None]:
    """Parse a query: text, a vector, or a pair of both."""
    if isinstance(query, tuple) and len(query) == 2 and isinstance(query[0], str):
        return query[0], check_vector(query[1])
    if isinstance(query, str):
        if not query.strip():
            raise UsageError(f"a query is text, a vector, or both, not {query!r}", value=query)
        return query, None
    return None, check_vector(query)


def check_vector(given: Any) -> Vector:
    """Check the vector of a query."""
    vector = to_floats(given)
    if not vector or not all(map(math.isfinite, vector)):
        raise UsageError(f"not a vector to compare with: {format_value(given)}", value=given)
    return vector


def _check_hits(name: str, number: int, least: int) -> int:
    if check_number(number, name, least=least) > SEARCH_HITS_MAX:
        raise LimitError(
            f"{name} is {number}; the limit is {SEARCH_HITS_MAX}",
            limit=SEARCH_HITS_MAX,
            actual=number,
        )
    return number
