"""Search by an index of words: which entries have the words, and which of them are visible.

Engines that keep such an index implement the primitives of the section "The index of words" in
`transaction.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from indelible import view
from indelible.core import ranking, rules
from indelible.core.operations import FindText, ReadFound, StoredEntry, TextMatches, TextPage
from indelible.core.ranking import Statistics
from indelible.core.rows import SearchScope, build_entry_ids, build_row_head, split_entry_id
from indelible.core.transaction import Transaction


async def find_text(tx: Transaction, op: FindText) -> TextPage | None:
    """Find the visible entries with the rarest words; None if there is no index."""
    scope = await tx.find_scope(op)
    if scope is None:
        return None
    words = dict(op.words)
    others: Collection[str] = ()
    if scope.is_large:
        counts, ids = await _count_words(tx, words, scope)
        statistics = Statistics(scope.total, scope.average, counts)
        leading = ranking.choose_leading(statistics, op.limit)
        missing = {term: words[term] for term in leading if term not in ids}
        ids |= (await tx.find_words(missing, scope)).ids if missing else {}
        others = counts.keys() - leading
        ids |= await _find_others(tx, {term: words[term] for term in others}, scope, ids, counts)
    else:
        found = await tx.find_words(words, scope)
        ids = dict(found.ids)
        counts = {term: len(each) for term, each in ids.items()}
        statistics = Statistics(found.total, found.average, counts)
    dropped = tuple(sorted(words.keys() - counts.keys()))
    matches, more = await _read_visible(tx, op, scope, ranking.order_matches(ids, statistics))
    unindexed = tuple(scope.unindexed.values())
    return TextPage(matches, more or bool(others), statistics, dropped, unindexed)


async def _count_words(
    tx: Transaction, words: Mapping[str, str], scope: SearchScope
) -> tuple[dict[str, int], dict[str, Collection[int]]]:
    """Count the entries with each word, without words that many have.

    If all that are there have many, the rarest one remains. Also returns the entries with words
    that had to be found for that.
    """
    most = ranking.compute_common_count(scope.total)
    counts = await tx.count_words(words, scope, most + 1)
    unknown = {term: words[term] for term in words if term not in counts}
    ids = dict((await tx.find_words(unknown, scope)).ids) if unknown else {}
    counts |= {term: len(each) for term, each in ids.items()}
    kept = {term: count for term, count in counts.items() if count <= most}
    if len(kept) < len(counts) and not any(kept.values()):
        common = {term: words[term] for term in counts.keys() - kept.keys()}
        exact = counts | await tx.count_words(common, scope, None)
        rarest = min(common, key=lambda term: (exact[term], term))
        kept[rarest] = exact[rarest]
    return kept, {term: each for term, each in ids.items() if term in kept}


async def _find_others(
    tx: Transaction,
    words: Mapping[str, str],
    scope: SearchScope,
    ids: Mapping[str, Collection[int]],
    counts: Mapping[str, int],
) -> dict[str, Collection[int]]:
    """Find which of the entries that were found have other words, too."""
    among = frozenset[int]().union(*ids.values())
    missing = {term: words[term] for term in words if term not in ids}
    if not missing:
        return {}
    # To look at one entry takes longer than to find one by a word.
    few = 2 * len(among) < sum(counts[term] for term in missing)
    found = (await tx.find_words(missing, scope, among=among if few else None)).ids
    return {term: among.intersection(each) for term, each in found.items()}


async def read_found(tx: Transaction, op: ReadFound) -> tuple[tuple[StoredEntry, ...], ...]:
    """Read entries of states that a search has found."""
    ids = [build_entry_ids(frozen.life, frozen.extents) for _, frozen in op.states]
    names = {each: name for (name, _), own in zip(op.states, ids, strict=True) for each in own}
    found: dict[int, list[StoredEntry]] = {}
    for number, entry in await tx.read_found(names):
        if entry.kind is None or entry.kind in op.kinds:
            found.setdefault(number, []).append(entry)
    numbers = [split_entry_id(own[0])[0] for own in ids]
    return tuple(tuple(sorted(found.get(number, ()))) for number in numbers)


async def _read_visible(
    tx: Transaction, op: FindText, scope: SearchScope, ids: list[int]
) -> tuple[tuple[TextMatches, ...], bool]:
    """Read the first `op.limit` that are visible; also return whether there may be more."""
    # The plan reads sessions as a whole that are not in the index as a whole.
    states: dict[int, TextMatches | None] = dict.fromkeys(scope.unindexed)
    found: dict[int, list[StoredEntry]] = {}
    count = 0
    start = 0
    while start < len(ids) and count < op.limit:
        chunk = [(each, *split_entry_id(each)) for each in ids[start : start + op.limit]]
        start += op.limit
        await _load_states(tx, op, states, {number for _, number, _ in chunk} - states.keys())
        names: dict[int, str] = {}
        for entry_id, number, position in chunk:
            state = states[number]
            if state is not None and view.contains(state.frozen.extents, position, position + 1):
                names[entry_id] = state.session
        for number, entry in await tx.read_found(names):
            # One whose kind is unknown is damaged, and reported when it is decoded.
            if entry.kind is None or entry.kind in op.kinds:
                found.setdefault(number, []).append(entry)
                count += 1
    matches = [
        state._replace(rows=tuple(found[number]))
        for number, state in states.items()
        if state is not None and number in found
    ]
    return tuple(matches), start < len(ids)


async def _load_states(
    tx: Transaction,
    op: FindText,
    states: dict[int, TextMatches | None],
    numbers: set[int],
) -> None:
    """Load the states of sessions by their numbers; those of other namespaces are None."""
    states |= dict.fromkeys(numbers)
    for row in await tx.find_sessions_by_number(numbers) if numbers else ():
        head = build_row_head(row, await tx.now_ms())
        frozen = rules.choose_frozen_view(row.name, op.frozen, head)
        states[row.number] = TextMatches(row.name, head, frozen, ())
