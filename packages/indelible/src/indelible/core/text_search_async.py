"""Search by an index of words: which entries have the words, and which of them are visible.

Engines that keep such an index implement the primitives of the section "The index of words" in
`transaction_async.py`.
"""

from __future__ import annotations

from indelible import view
from indelible.core import ranking, rules
from indelible.core.operations import FindText, StoredEntry, TextMatches, TextPage
from indelible.core.ranking import Statistics
from indelible.core.rows import SearchScope, build_row_head, split_entry_id
from indelible.core.transaction_async import AsyncTransaction


async def find_text(tx: AsyncTransaction, op: FindText) -> TextPage | None:
    """Find the visible entries with the rarest words; None if there is no index."""
    scope = await tx.find_scope(op)
    if scope is None:
        return None
    words = dict(op.words)
    counts = await _count_words(tx, words, scope) if scope.is_large else None
    dropped = tuple(sorted(words.keys() - counts.keys())) if counts is not None else ()
    leading = ranking.choose_leading(counts, scope.total, op.limit) if counts else words.keys()
    occurrences = await tx.find_words({term: words[term] for term in leading}, scope)
    ids = dict(occurrences.ids)
    others = {} if counts is None else {term: words[term] for term in counts.keys() - leading}
    if others:
        among = frozenset[int]().union(*ids.values())
        ids |= (await tx.find_words(others, scope, among=among)).ids
    frequency = counts or {term: len(found) for term, found in ids.items()}
    statistics = Statistics(occurrences.total, occurrences.average, frequency)
    found, more = await _read_visible(tx, op, scope, ranking.order_matches(ids, statistics))
    return TextPage(
        found, more or bool(others), statistics, dropped, tuple(scope.unindexed.values())
    )


async def _count_words(
    tx: AsyncTransaction, words: dict[str, str], scope: SearchScope
) -> dict[str, int]:
    """Count the entries with each word, without words that many have.

    If all that are there have many, the rarest one remains.
    """
    most = ranking.compute_common_count(scope.total)
    counts = await tx.count_words(words, scope, most + 1)
    kept = {term: count for term, count in counts.items() if count <= most}
    if len(kept) < len(counts) and not any(kept.values()):
        common = {term: words[term] for term in counts.keys() - kept.keys()}
        exact = await tx.count_words(common, scope, None)
        rarest = min(exact, key=lambda term: (exact[term], term))
        kept[rarest] = exact[rarest]
    return kept


async def _read_visible(
    tx: AsyncTransaction, op: FindText, scope: SearchScope, ids: list[int]
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
    tx: AsyncTransaction,
    op: FindText,
    states: dict[int, TextMatches | None],
    numbers: set[int],
) -> None:
    """Load the states of sessions by their numbers; those of other namespaces are None."""
    states |= dict.fromkeys(numbers)
    for row in await tx.find_numbered(numbers) if numbers else ():
        head = build_row_head(row, await tx.now_ms())
        frozen = rules.choose_frozen_view(row.name, op.frozen, head)
        states[row.number] = TextMatches(row.name, head, frozen, ())
