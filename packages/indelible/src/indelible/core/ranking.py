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

# The tokenizer, as SQLite's full-text search names it: words between spaces and signs, without
# diacritics and case, and without English endings.
TOKENIZER: Final = ("porter", "unicode61", "remove_diacritics", "2")

# BM25, with the constants that full-text engines use.
_SATURATION: Final = 1.2
_LENGTH_SHARE: Final = 0.75
# What a document adds to those beside it in its session: an answer often lacks the words of its
# question.
_NEIGHBOUR_SHARES: Final = {1: 0.5, 2: 0.25}
# How much more a document counts if the query names its author.
_AUTHOR_FACTOR: Final = 1.5
# How much the name of an author counts as a word: most often it says who is meant, not what.
_NAME_SHARE: Final = 0.1
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
    # Which message of its session it is, counted by those that are visible; None for other kinds,
    # which have no neighbours.
    order: int | None
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
    """Rank the documents that have something of the query, best first; ties by where they are."""
    by_text = _score_text(documents, frozenset(terms))
    by_vector = {
        number: document.similarity
        for number, document in enumerate(documents)
        if document.similarity is not None
    }
    ranks: dict[int, dict[str, int]] = {}
    for name, scores in (("text", by_text), ("vector", by_vector)):
        for nth, number in enumerate(_sort(documents, scores), 1):
            ranks.setdefault(number, {})[name] = nth
    scores = {n: _fuse(each) for n, each in ranks.items()} if by_vector else by_text
    ordered = _sort(documents, scores)
    return [Ranked(documents[number], scores[number], ranks[number]) for number in ordered]


def _fuse(ranks: Mapping[str, int]) -> float:
    weights = {"text": 1.0, "vector": _VECTOR_WEIGHT}
    return sum(weights[name] / (_FUSION_OFFSET + nth) for name, nth in ranks.items())


def _sort(documents: Sequence[Document], scores: Mapping[int, float]) -> list[int]:
    def key(number: int) -> tuple[float, str, int]:
        document = documents[number]
        return -scores[number], document.session, document.position

    return sorted(scores, key=key)


def _score_text(documents: Sequence[Document], terms: frozenset[str]) -> dict[int, float]:
    """Score the documents by their words, by those of their neighbours, and by their authors."""
    authors = terms & frozenset[str]().union(*(document.authors for document in documents))
    own = _compute_bm25(documents, terms, authors)
    scores = dict(own)
    numbers = {
        (document.session, document.order): number
        for number, document in enumerate(documents)
        if document.order is not None
    }
    for number, score in own.items():
        session, order = documents[number].session, documents[number].order
        if order is None:
            continue
        for step, share in _NEIGHBOUR_SHARES.items():
            for other in (numbers.get((session, order + at)) for at in (-step, step)):
                if other is not None:
                    scores[other] = scores.get(other, 0.0) + share * score
    for number in scores:
        if documents[number].authors & authors:
            scores[number] *= _AUTHOR_FACTOR
    return scores


def _compute_bm25(
    documents: Sequence[Document], terms: frozenset[str], authors: frozenset[str]
) -> dict[int, float]:
    total = len(documents)
    average = sum(document.length for document in documents) / total if total else 0.0
    frequency = Counter(term for document in documents for term in document.counts)
    weights = {
        term: math.log(1 + (total - frequency[term] + 0.5) / (frequency[term] + 0.5))
        * (_NAME_SHARE if term in authors else 1.0)
        for term in terms
    }
    scores: dict[int, float] = {}
    for number, document in enumerate(documents):
        norm = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * document.length / (average or 1))
        if document.counts:
            scores[number] = sum(
                weights[term] * count * (_SATURATION + 1) / (count + norm)
                for term, count in document.counts.items()
            )
    return scores


# About how long a snippet is, and what comes before its first matching word.
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
