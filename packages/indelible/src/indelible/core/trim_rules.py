"""Which entries a trim hides, computed from their outlines.

A trim keeps a conversation valid. Pinned and system messages and summaries always stay. Entries
that belong together by tool call ids (a call, its results, other calls of the same message) are
kept or hidden together, and a call without a result is kept, since its result may still come.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from indelible.core.operations import Outline
from indelible.core.tool_calls import pair_calls
from indelible.model import Kind


@dataclass(frozen=True, slots=True)
class TrimGroup:
    """Entries that are kept or hidden together, as indexes into the outline."""

    members: tuple[int, ...]
    must_stay: bool


def group_entries(outline: Sequence[Outline], stays: Collection[int] = ()) -> list[TrimGroup]:
    """Group calls with their answers; any other entry is a group of its own.

    `stays` are the indexes of further entries that must stay.
    """
    leader = list(range(len(outline)))

    def find(index: int) -> int:
        while leader[index] != index:
            leader[index] = leader[leader[index]]
            index = leader[index]
        return index

    kept = {index for index, entry in enumerate(outline) if entry.keep}
    kept.update(stays)
    for _, call, answer in pair_calls((entry.opens, entry.answers) for entry in outline):
        if call is not None and answer is not None:
            leader[find(answer)] = find(call)
        elif call is not None:
            kept.add(call)
    kept = {find(index) for index in kept}
    members: dict[int, list[int]] = {}
    for index in range(len(outline)):
        members.setdefault(find(index), []).append(index)
    return [TrimGroup(tuple(indexes), root in kept) for root, indexes in members.items()]


def find_dropped_before(
    outline: Sequence[Outline], cut: int, stays: Collection[int] = ()
) -> list[int]:
    """Return the positions to hide: groups that end before index `cut`, but those in `stays`."""
    return _list_positions(
        outline,
        (
            group
            for group in group_entries(outline, stays)
            if not group.must_stay and group.members[-1] < cut
        ),
    )


def find_cut_for_last(outline: Sequence[Outline], keep_last: int) -> int:
    """Return the index of the first of the last `keep_last` messages."""
    if keep_last == 0:
        return len(outline)
    seen = 0
    for index in range(len(outline) - 1, -1, -1):
        if outline[index].kind is Kind.MESSAGE:
            seen += 1
            if seen == keep_last:
                return index
    return 0


def find_cut_for_position(outline: Sequence[Outline], before: int) -> int:
    """Return the index of the first entry at or after a position."""
    return next((i for i, entry in enumerate(outline) if entry.position >= before), len(outline))


def find_over_budget(
    outline: Sequence[Outline],
    max_tokens: int,
    tokens: Callable[[int], int],
    stays: Collection[int] = (),
) -> list[int]:
    """Return the positions to hide so that the rest fits into `max_tokens`.

    `tokens` returns the size of the entry at an index. Entries that must stay count first, then
    groups from the newest on; the first that does not fit is hidden with all older ones.
    """
    groups = group_entries(outline, stays)
    left = max_tokens - sum(
        tokens(index) for group in groups if group.must_stay for index in group.members
    )
    optional = sorted(
        (group for group in groups if not group.must_stay), key=lambda group: group.members[-1]
    )
    while optional:
        left -= sum(tokens(index) for index in optional[-1].members)
        if left < 0:
            break
        optional.pop()
    return _list_positions(outline, optional)


def find_first_kept(outline: Sequence[Outline], dropped: Collection[int]) -> int | None:
    """Return the index of the first entry that a trim keeps without having to; None if none.

    That is where the conversation begins: pinned and system messages and summaries stand before it.
    """
    gone = set(dropped)
    kept = (i for i, entry in enumerate(outline) if not entry.keep and entry.position not in gone)
    return next(kept, None)


def _list_positions(outline: Sequence[Outline], groups: Iterable[TrimGroup]) -> list[int]:
    return sorted(outline[index].position for group in groups for index in group.members)
