"""The ranking of a search: by words, by nearness to a vector, or by both.

Everything here is a pure function of the documents, so all engines rank in the same way.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, KeysView, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from indelible.core.limits import COMMON_WORD_SHARE
from indelible.core.words import load_function_terms
from indelible.model import Kind

# BM25F: the words of a document and of those beside it are counted together, each normalized by the
# length of its own document, and the sum of a word is saturated.
_SATURATION: Final = 1.2
_LENGTH_SHARE: Final = 0.5
# How much a word counts one or two documents away in the same session: an answer often lacks the
# words of its question.
NEIGHBOUR_SHARES: Final = {1: 0.3, 2: 0.15}
# What a session adds to each of its documents: if it has several of the words, it is about them.
_SESSION_SHARE: Final = 0.15
# How much more a document counts if the query names its author.
_AUTHOR_FACTOR: Final = 1.5
# How much function words and the names of authors count. Questions are full of them, and in a short
# conversation some are rare, which says nothing about its subject; a name says most often who is
# meant, not what.
_MINOR_SHARE: Final = 0.1
# Reciprocal rank fusion. Words count for more: the nearest vector is often about something else.
_FUSION_OFFSET: Final = 10
_VECTOR_WEIGHT: Final = 0.6


@dataclass(slots=True)
class Document:
    """An entry that may be a hit."""

    session: str
    position: int
    kind: Kind
    # Its place among the visible messages of its session, or among the memories of its collection;
    # None for other kinds, which have no neighbours. Only differences matter.
    order: int | None
    # The number of its words, and how often it has each word of the query.
    length: int
    counts: Mapping[str, int]
    authors: frozenset[str]
    # Its similarity to the vector of the query; None if it cannot be compared with it.
    similarity: float | None = None


class Ranked(NamedTuple):
    """A ranked document with its score, and its rank by text and by vector."""

    document: Document
    score: float
    ranks: dict[str, int]


class Statistics(NamedTuple):
    """The statistics of BM25: a word counts for more if fewer documents have it."""

    # The number of documents, and of words in one of them on average.
    total: int
    average: float
    # How many documents have each word.
    frequency: Mapping[str, int]

    def add(self, other: Statistics) -> Statistics:
        """Return the statistics of two disjoint sets of documents."""
        total = self.total + other.total
        words = self.average * self.total + other.average * other.total
        both = Counter(self.frequency) + Counter(other.frequency)
        return Statistics(total, words / total if total else 0.0, both)

    def weigh(self, term: str) -> float:
        """Compute the weight of a word."""
        frequency = self.frequency.get(term, 0)
        rarity = math.log(1 + max(0.0, self.total - frequency + 0.5) / (frequency + 0.5))
        return rarity * (_MINOR_SHARE if term in load_function_terms() else 1.0)


def compute_statistics(documents: Sequence[Document]) -> Statistics:
    """Compute the statistics of some documents."""
    total = len(documents)
    words = sum(document.length for document in documents)
    frequency = Counter(term for document in documents for term in document.counts)
    return Statistics(total, words / total if total else 0.0, frequency)


class Occurrences(NamedTuple):
    """The entries with each word, by an index."""

    # The number of entries in the scope, and of words in one of them on average.
    total: int
    average: float
    ids: Mapping[str, Collection[int]]


def compute_common_count(total: int) -> int:
    """Compute in how many of `total` entries a word may occur without being a common one."""
    return max(1, int(total * COMMON_WORD_SHARE))


def choose_leading(statistics: Statistics, limit: int) -> KeysView[str]:
    """Choose the words that decide which entries come first.

    At least `limit` entries have one of them that counts for more than all other words together,
    so they come before every entry without a leading word.
    """
    counts = statistics.frequency
    weights = sorted(((statistics.weigh(term), term) for term in counts), reverse=True)
    left = sum(weight for weight, _ in weights)
    leading: dict[str, float] = {}
    for weight, term in weights:
        leading[term] = weight
        left -= weight
        if any(own > left and counts[each] >= limit for each, own in leading.items()):
            break
    return leading.keys()


def order_matches(ids: Mapping[str, Collection[int]], statistics: Statistics) -> list[int]:
    """Order entries by the weight of their words; of equal ones, the newest comes first.

    Ids grow with the position, and with the number of the session.
    """
    scores: dict[int, float] = {}
    for term in sorted(ids):
        weight = statistics.weigh(term)
        for entry_id in ids[term]:
            scores[entry_id] = scores.get(entry_id, 0.0) + weight
    groups: dict[float, list[int]] = {}
    for entry_id, score in scores.items():
        groups.setdefault(score, []).append(entry_id)
    return [
        entry_id
        for score in sorted(groups, reverse=True)
        for entry_id in sorted(groups[score], reverse=True)
    ]


def find_near(orders: Iterable[int]) -> set[int]:
    """Return the orders of the neighbours of these messages."""
    return {
        order + sign * step for order in orders for step in NEIGHBOUR_SHARES for sign in (-1, 1)
    }


def rank(
    documents: Sequence[Document], terms: frozenset[str], statistics: Statistics
) -> list[Ranked]:
    """Rank the documents that match by text or by vector, the best first.

    Of equal ones of a session, the newest comes first.
    """
    by_text = _score_text(documents, terms, statistics)
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
        return -scores[number], document.session, -document.position

    return sorted(scores, key=key)


def _score_text(
    documents: Sequence[Document], terms: frozenset[str], statistics: Statistics
) -> dict[int, float]:
    """Score the documents by their words, by those of their neighbours, and by their authors.

    A message is found by its neighbours alone. A memory is not: it only counts for more.
    """
    authors = terms & frozenset[str]().union(*(document.authors for document in documents))
    weights = {
        term: statistics.weigh(term) * (_MINOR_SHARE if term in authors else 1.0) for term in terms
    }
    own = _normalize(documents, statistics)
    # The words of each document and of its neighbours.
    windows = {number: dict(counts) for number, counts in own.items()}
    numbers = {
        (document.session, document.kind, document.order): number
        for number, document in enumerate(documents)
        if document.kind is Kind.MESSAGE or number in own or document.similarity is not None
    }
    for number, counts in own.items():
        document = documents[number]
        if document.order is None:
            continue
        for step, share in NEIGHBOUR_SHARES.items():
            places = (document.order - step, document.order + step)
            for other in (numbers.get((document.session, document.kind, at)) for at in places):
                if other is not None:
                    window = windows.setdefault(other, {})
                    for term, count in counts.items():
                        window[term] = window.get(term, 0.0) + share * count
    sessions = _score_sessions(documents, weights)
    scores: dict[int, float] = {}
    for number, window in windows.items():
        document = documents[number]
        score = _score_words(window, weights) + _SESSION_SHARE * sessions[document.session]
        scores[number] = score * (_AUTHOR_FACTOR if document.authors & authors else 1.0)
    return scores


def _score_sessions(
    documents: Sequence[Document], weights: Mapping[str, float]
) -> dict[str, float]:
    """Score sessions by all words of their documents, whatever their length."""
    counts: dict[str, dict[str, float]] = {}
    for document in documents:
        own = counts.setdefault(document.session, {})
        for term, count in document.counts.items():
            own[term] = own.get(term, 0.0) + count
    return {session: _score_words(found, weights) for session, found in counts.items()}


def _normalize(
    documents: Sequence[Document], statistics: Statistics
) -> dict[int, dict[str, float]]:
    """Count the words of the query in each document that has any; in a long one, each for less."""
    average = statistics.average or 1
    counts: dict[int, dict[str, float]] = {}
    for number, document in enumerate(documents):
        if document.counts:
            norm = 1 - _LENGTH_SHARE + _LENGTH_SHARE * document.length / average
            counts[number] = {term: count / norm for term, count in document.counts.items()}
    return counts


def _score_words(counts: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Sum up the weights of words; a word that comes often counts for less each time.

    `fsum` rounds once, so the sum does not depend on the order of the words.
    """
    return math.fsum(
        weights[term] * count / (count + _SATURATION) for term, count in counts.items()
    )
