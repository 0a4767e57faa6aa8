"""How search ranks what it looked at: by words, by nearness to a vector, or by both.

Everything here is a pure function of the documents, so every engine ranks in the same way.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

# The tokenizer, as SQLite's full-text search names it: words of any script without diacritics and
# case, and without English endings.
TOKENIZER: Final = ("porter", "unicode61", "remove_diacritics", "2")

# BM25, with the constants that full-text engines use.
_SATURATION: Final = 1.2
_LENGTH_SHARE: Final = 0.75
# A word in more documents than this is common.
_COMMON_SHARE: Final = 0.1
# What a document adds to those beside it in its session: an answer often lacks the words of its
# question.
_NEIGHBOUR_SHARES: Final = {1: 0.5, 2: 0.25}
# How much more a document counts if the query names its author.
_AUTHOR_FACTOR: Final = 1.5
# Reciprocal rank fusion. Words count for more: a near vector alone is often about something else.
_FUSION_OFFSET: Final = 20
_VECTOR_WEIGHT: Final = 0.6


class Token(NamedTuple):
    """A word of a text: its bytes in UTF-8, and what it is compared by."""

    start: int
    stop: int
    term: str


@dataclass(slots=True)
class Document:
    """What is known of an entry that was looked at."""

    session: str
    position: int
    # Documents of one place are neighbours, in the order in which they come.
    place: str
    # How many words it has, and how often each word of the query.
    length: int
    counts: Mapping[str, int]
    authors: frozenset[str]
    # Its similarity to the vector of the query; None if it cannot be compared with it.
    similarity: float | None = None


class Ranked(NamedTuple):
    """A document of the result: its score, and its rank in each list that made it."""

    document: Document
    score: float
    ranks: dict[str, int]


def tokenize(text: str) -> list[Token]:
    """Split a text into words."""
    return [Token(*found) for found in _load_tokenizer()(text.encode("utf-8", "replace"), 4, None)]


@cache
def _load_tokenizer() -> Callable[..., Any]:
    # SQLite is only imported by those who use it or search.
    import apsw  # noqa: PLC0415

    return apsw.Connection("").fts5_tokenizer(TOKENIZER[0], list(TOKENIZER[1:]))


def count_terms(tokens: Iterable[Token], terms: Collection[str]) -> dict[str, int]:
    """Count the words of a query in a text."""
    return dict(Counter(token.term for token in tokens if token.term in terms))


def rank(documents: Sequence[Document], terms: Collection[str]) -> list[Ranked]:
    """Rank the documents that have something of the query, best first; ties as they come."""
    by_text = _sort(_score_text(documents, terms))
    nearness = {
        number: document.similarity
        for number, document in enumerate(documents)
        if document.similarity is not None
    }
    by_vector = _sort(nearness)
    if not by_vector:
        scored = _score_text(documents, terms)
        return [
            Ranked(documents[number], scored[number], {"text": place})
            for place, number in enumerate(by_text, 1)
        ]
    ranks: dict[int, dict[str, int]] = {}
    for name, order in (("text", by_text), ("vector", by_vector)):
        for place, number in enumerate(order, 1):
            ranks.setdefault(number, {})[name] = place
    scores = {number: _fuse(places) for number, places in ranks.items()}
    return [Ranked(documents[number], scores[number], ranks[number]) for number in _sort(scores)]


def _fuse(ranks: Mapping[str, int]) -> float:
    weights = {"text": 1.0, "vector": _VECTOR_WEIGHT}
    return sum(weights[name] / (_FUSION_OFFSET + place) for name, place in ranks.items())


def _sort(scores: Mapping[int, float]) -> list[int]:
    return sorted(scores, key=lambda number: (-scores[number], number))


def _score_text(documents: Sequence[Document], terms: Collection[str]) -> dict[int, float]:
    """Score the documents by their words, and by those of their neighbours."""
    named = {term for term in terms if any(term in each.authors for each in documents)}
    # A name says who speaks, unless it is all that is asked for.
    wanted = [term for term in terms if term not in named] or list(terms)
    own = _compute_bm25(documents, _drop_common(documents, wanted))
    scores = dict(own)
    for number, score in own.items():
        for step, share in _NEIGHBOUR_SHARES.items():
            for other in (number - step, number + step):
                if 0 <= other < len(documents) and (
                    documents[other].place == documents[number].place
                ):
                    scores[other] = scores.get(other, 0.0) + share * score
    return {
        number: score * (_AUTHOR_FACTOR if documents[number].authors & named else 1.0)
        for number, score in scores.items()
    }


def _drop_common(documents: Sequence[Document], terms: Sequence[str]) -> list[str]:
    """Drop words that are in many documents, if there are others: they say little."""
    frequency = Counter(term for document in documents for term in document.counts)
    rare = [term for term in terms if 0 < frequency[term] <= _COMMON_SHARE * len(documents)]
    return rare or list(terms)


def _compute_bm25(documents: Sequence[Document], terms: Sequence[str]) -> dict[int, float]:
    total = len(documents)
    average = sum(document.length for document in documents) / total if total else 0.0
    frequency = Counter(term for document in documents for term in document.counts)
    weights = {
        term: math.log(1 + (total - frequency[term] + 0.5) / (frequency[term] + 0.5))
        for term in terms
    }
    scores: dict[int, float] = {}
    for number, document in enumerate(documents):
        norm = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * document.length / (average or 1))
        score = sum(
            weights[term] * count * (_SATURATION + 1) / (count + norm)
            for term, count in document.counts.items()
            if term in weights
        )
        if score:
            scores[number] = score
    return scores


# The longest snippet, and what comes before its first matching word.
_SNIPPET_BYTES: Final = 240
_SNIPPET_LEAD_BYTES: Final = 60


def build_snippet(text: str, terms: Collection[str]) -> str:
    """Cut the part out of a text with its first matching words, which are in brackets."""
    data = text.encode("utf-8", "replace")
    tokens = [token for token in tokenize(text) if token.term in terms]
    first = tokens[0].start if tokens else 0
    start = 0 if first <= _SNIPPET_LEAD_BYTES else _find_border(data, first - _SNIPPET_LEAD_BYTES)
    stop = len(data)
    if stop - start > _SNIPPET_BYTES:
        stop = _find_border(data, start + _SNIPPET_BYTES)
    parts: list[bytes] = []
    at = start
    for token in tokens:
        if token.start < at or token.stop > stop:
            continue
        parts += [data[at : token.start], b"[", data[token.start : token.stop], b"]"]
        at = token.stop
    parts.append(data[at:stop])
    cut = b"".join(parts).decode("utf-8", "ignore")
    return f"{'…' if start else ''}{cut}{'…' if stop < len(data) else ''}"


def _find_border(data: bytes, near: int) -> int:
    """Return a place at a space or, if there is none near, between two characters."""
    space = data.find(b" ", near, near + _SNIPPET_LEAD_BYTES)
    if space >= 0:
        return space + 1
    while near < len(data) and data[near] & 0xC0 == 0x80:
        near += 1
    return near
