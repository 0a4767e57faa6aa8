"""Search by the indexes of words and of vectors: which entries match, and which are visible.

Engines that keep such indexes implement the primitives of the section "The indexes of words and of
vectors" in `transaction.py`. Entries that are not indexed yet are read and compared here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from indelible import view
from indelible.core import ranking, rules
from indelible.core.codec import has_kind, parse_indexed
from indelible.core.limits import (
    COMMON_WORD_ENTRIES,
    ITEM_PAGE,
    ITEMS_FIRST,
    PAGE_ENTRIES_MAX,
    SEARCH_ENTRIES_MAX,
    SEARCH_MATCHES,
)
from indelible.core.operations import FindMatches, MatchPage, ReadFound, SessionMatches, StoredEntry
from indelible.core.ranking import Statistics
from indelible.core.rows import SearchScope, build_entry_ids, split_entry_id
from indelible.core.similarity import compare, compute_margin
from indelible.core.transaction import Transaction
from indelible.core.words import count_terms
from indelible.errors import LimitError
from indelible.model import Kind

# Entries by the id of each: the number of their session, and their position.
Ids = dict[str, Collection[int]]
# The similarity of a vector, and the id of its entry.
Near = tuple[float, int]


def find_matches(tx: Transaction, op: FindMatches) -> MatchPage | None:
    """Find the visible entries with the rarest words and with the nearest vectors.

    Entries that are not indexed are found as well. None if there are no indexes.
    """
    scope = tx.find_scope(op)
    if scope is None:
        return None
    reader = _Reader(tx, op)
    ids, statistics, rest = _find_words(tx, op.words, scope, op.limit)
    terms = frozenset(statistics.frequency)
    unindexed = _read_unindexed(tx, reader, scope, terms)
    for term, others in unindexed.ids.items():
        ids[term] = [*ids.get(term, ()), *others]
    statistics = statistics.add(unindexed.statistics)
    ordered = [*unindexed.damaged, *ranking.order_matches(ids, statistics)]
    stop = reader.read_first(ordered)
    more = stop < len(ordered) or rest
    if op.vector is not None:
        more = _read_nearest(tx, reader, scope, op.vector, unindexed.near) or more
    dropped = tuple(sorted(set(op.words) - terms))
    return MatchPage(reader.get_matches(), more, statistics, dropped)


def _find_words(
    tx: Transaction, words: Collection[str], scope: SearchScope, limit: int
) -> tuple[Ids, Statistics, bool]:
    """Find the entries with each word; also return whether there may be more of them.

    In a large scope, common words are left out, also of the statistics.
    """
    if not words:
        return {}, Statistics(0, 0.0, {}), False
    if not scope.is_large:
        found = tx.find_words(words, scope)
        counts = {term: len(each) for term, each in found.ids.items()}
        if found.total > COMMON_WORD_ENTRIES:
            counts = _drop_common(counts, found.total)
        ids = {term: found.ids[term] for term in counts}
        return ids, Statistics(found.total, found.average, counts), False
    counts, ids = _count_words(tx, words, scope)
    statistics = Statistics(scope.total, scope.average, counts)
    leading = ranking.choose_leading(statistics, limit)
    missing = leading - ids.keys()
    ids |= tx.find_words(missing, scope).ids if missing else {}
    others = counts.keys() - leading
    ids |= _find_others(tx, others - ids.keys(), scope, ids, counts)
    return ids, statistics, bool(others)


def _drop_common(counts: Mapping[str, int], total: int) -> dict[str, int]:
    """Leave out common words. If all words that occur are common, keep the rarest of them."""
    most = ranking.compute_common_count(total)
    kept = {term: count for term, count in counts.items() if count <= most}
    if len(kept) < len(counts) and not any(kept.values()):
        rarest = min(counts.keys() - kept.keys(), key=lambda term: (counts[term], term))
        kept[rarest] = counts[rarest]
    return kept


def _count_words(
    tx: Transaction, words: Collection[str], scope: SearchScope
) -> tuple[dict[str, int], Ids]:
    """Count the entries with each word, leaving out common words as `_drop_common` does.

    Also return the entries of the words that were found instead of counted.
    """
    most = ranking.compute_common_count(scope.total)
    counts = tx.count_words(words, scope, most + 1)
    unknown = set(words) - counts.keys()
    ids = dict(tx.find_words(unknown, scope).ids) if unknown else {}
    counts |= {term: len(each) for term, each in ids.items()}
    if not any(0 < count <= most for count in counts.values()):
        common = {term for term, count in counts.items() if count}
        counts |= tx.count_words(common, scope, None) if common else {}
    kept = _drop_common(counts, scope.total)
    return kept, {term: each for term, each in ids.items() if term in kept}


def _find_others(
    tx: Transaction,
    words: Collection[str],
    scope: SearchScope,
    ids: Mapping[str, Collection[int]],
    counts: Mapping[str, int],
) -> Ids:
    """Find which of the entries in `ids` have other words, too."""
    if not words:
        return {}
    among = frozenset[int]().union(*ids.values())
    # Checking one entry takes longer than finding one by a word.
    few = 2 * len(among) < sum(counts[term] for term in words)
    found = tx.find_words(words, scope, among=among if few else None).ids
    return {term: among.intersection(each) for term, each in found.items()}


class _Unindexed(NamedTuple):
    """Visible entries that are not indexed."""

    # The entries with each word, and those with a vector.
    ids: Ids
    near: list[Near]
    # These are decoded with the matches, which reports the damage.
    damaged: list[int]
    statistics: Statistics


def _read_unindexed(
    tx: Transaction, reader: _Reader, scope: SearchScope, terms: frozenset[str]
) -> _Unindexed:
    """Read the visible entries that are not indexed, and count their words."""
    unindexed = tx.find_unindexed(scope, SEARCH_ENTRIES_MAX + 1)
    if len(unindexed) > SEARCH_ENTRIES_MAX:
        raise LimitError(
            f"more than {SEARCH_ENTRIES_MAX} entries in the scope of this search are not indexed"
            " yet; add them by reindex(), or narrow the search with sessions= or under=",
            limit=SEARCH_ENTRIES_MAX,
        )
    ids: dict[str, list[int]] = {term: [] for term in terms}
    near: list[Near] = []
    damaged: list[int] = []
    total = words = 0
    for start in range(0, len(unindexed), PAGE_ENTRIES_MAX):
        shown = reader.read_visible(unindexed[start:][:PAGE_ENTRIES_MAX])
        for entry_id, entry in shown.items():
            indexed = parse_indexed(entry.kind, entry.envelope)
            if indexed is None:
                damaged.append(entry_id)
                continue
            length, counts = count_terms(indexed.text, terms)
            total, words = total + 1, words + length
            for term in counts:
                ids[term].append(entry_id)
            if reader.op.vector is not None and indexed.embedder == reader.op.embedder:
                near.append((compare(reader.op.vector, indexed.vector), entry_id))
    frequency = {term: len(each) for term, each in ids.items()}
    statistics = Statistics(total, words / total if total else 0.0, frequency)
    return _Unindexed({**ids}, near, damaged, statistics)


def _read_nearest(
    tx: Transaction,
    reader: _Reader,
    scope: SearchScope,
    vector: Sequence[float],
    unindexed: Sequence[Near],
) -> bool:
    """Keep the visible entries with the nearest vectors; return whether there are others."""
    limit = max(SEARCH_MATCHES, 2 * reader.op.limit)
    while True:
        indexed = tx.find_nearest(vector, reader.op.embedder, scope, limit)
        is_all = len(indexed) < limit
        # Entries beyond these are not nearer.
        border = -math.inf if is_all else indexed[-1][0]
        near = [each for each in (*unindexed, *indexed) if each[0] >= border]
        near.sort(reverse=True)
        stop = reader.read_first([entry_id for _, entry_id in near])
        # In single precision, entries within this margin are as near as the last one.
        reach = near[stop - 1][0] - compute_margin(len(vector)) if stop else 0.0
        if is_all or border < reach:
            close = [entry_id for similarity, entry_id in near[stop:] if similarity >= reach]
            reader.read_first(close, len(close))
            return not is_all or stop + len(close) < len(near)
        limit *= 4


class _Reader:
    """Reads the visible entries of a search, and keeps its matches."""

    def __init__(self, tx: Transaction, op: FindMatches) -> None:
        self.op = op
        self._tx = tx
        # States of sessions by their numbers; None for those of other namespaces.
        self._states: dict[int, SessionMatches | None] = {}
        self._found: dict[int, dict[int, StoredEntry]] = {}

    def read_visible(self, ids: Collection[int]) -> dict[int, StoredEntry]:
        """Read those of some entries that are visible."""
        self._load_states({split_entry_id(each)[0] for each in ids} - self._states.keys())
        found = ((entry_id, self._find_state(entry_id)) for entry_id in ids)
        names = {entry_id: state.session for entry_id, state in found if state is not None}
        return {
            entry_id: entry
            for entry_id, entry in self._tx.read_found(names).items()
            # An entry of another kind than its row says is damaged; decoding it reports that.
            if entry.kind in self.op.kinds or not has_kind(entry.kind, entry.envelope)
        }

    def _find_state(self, entry_id: int) -> SessionMatches | None:
        """Find the state of its session that shows an entry; None if it is hidden."""
        number, position = split_entry_id(entry_id)
        # A damaged index may name an entry of a session that was not found.
        state = self._states.get(number)
        if state is None or not view.contains(state.frozen.extents, position, position + 1):
            return None
        return state

    def _find_replaced(self, ids: Sequence[int]) -> set[int]:
        """Find the memories of which a newer version is visible."""
        replaced: set[int] = set()
        limit = ITEMS_FIRST
        while ids:
            newer = self._tx.find_newer(ids, limit)
            replaced |= {old for old, new in newer if self._find_state(new) is not None}
            # Others may have more versions than these, all of which are hidden.
            counts = Counter(old for old, _ in newer if old not in replaced)
            ids = [old for old, count in counts.items() if count == limit]
            limit *= ITEM_PAGE
        return replaced

    def read_first(self, ids: Sequence[int], limit: int | None = None) -> int:
        """Keep the first `limit` that are visible and current; return how many were read."""
        limit = limit or self.op.limit
        count = start = 0
        while start < len(ids) and count < limit:
            shown = self.read_visible(ids[start : start + limit])
            memories = [each for each, entry in shown.items() if entry.kind is Kind.MEMORY]
            for replaced in self._find_replaced(memories):
                del shown[replaced]
            for entry_id, entry in shown.items():
                number, position = split_entry_id(entry_id)
                self._found.setdefault(number, {})[position] = entry
            count += len(shown)
            start += limit
        return min(start, len(ids))

    def get_matches(self) -> tuple[SessionMatches, ...]:
        """Return the matches, by session."""
        matches: list[SessionMatches] = []
        for number, found in self._found.items():
            state = self._states[number]
            assert state is not None
            matches.append(state._replace(rows=tuple(found.values())))
        return tuple(matches)

    def _load_states(self, numbers: set[int]) -> None:
        self._states |= dict.fromkeys(numbers)
        for row in self._tx.find_sessions_by_number(numbers) if numbers else ():
            head = rules.build_head(row, self._tx.now_ms())
            frozen = rules.choose_frozen_view(row.name, self.op.frozen, head)
            self._states[row.number] = SessionMatches(row.name, head, frozen, ())


def read_found(tx: Transaction, op: ReadFound) -> tuple[tuple[StoredEntry, ...], ...]:
    """Read entries of states that a search has found."""
    ids = [build_entry_ids(frozen.life, frozen.extents) for _, frozen in op.states]
    names = {each: name for (name, _), own in zip(op.states, ids, strict=True) for each in own}
    found = {
        entry_id: entry
        for entry_id, entry in tx.read_found(names).items()
        if entry.kind is None or entry.kind in op.kinds
    }
    return tuple(tuple(found[each] for each in own if each in found) for own in ids)
