"""Lines up two lists of which nothing tells the elements apart but themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Final

# Lining up takes time with the product of the lengths. Beyond this it is not tried: what only one
# list has is still found.
STEPS_MAX: Final = 1_000_000


@dataclass(slots=True)
class Aligned:
    """Places, counted from 0: in the first list, in the second, or in both."""

    gone: list[int] = field(default_factory=list)
    added: list[int] = field(default_factory=list)
    changed: list[tuple[int, int]] = field(default_factory=list)
    moved: int | None = None
    """Where the first element stands that is elsewhere, if the lists hold the same elements."""


def aligned(before: Sequence[bytes], after: Sequence[bytes]) -> Aligned:
    """What was taken out, put in, or changed in its place."""
    found = Aligned()
    first = _same(before, after)
    if Counter(before) == Counter(after):
        found.moved = first if first < len(before) else None
        return found
    last = _same(before[first:][::-1], after[first:][::-1])
    one, two = before[first : len(before) - last], after[first : len(after) - last]
    if len(one) * len(two) > STEPS_MAX:
        _without_order(found, one, two, first)
        return found
    for kind, i, j, k, m in SequenceMatcher(None, one, two, autojunk=False).get_opcodes():
        if kind == "replace" and j - i == m - k:
            found.changed += zip(
                range(first + i, first + j), range(first + k, first + m), strict=True
            )
        elif kind != "equal":
            found.gone += range(first + i, first + j)
            found.added += range(first + k, first + m)
    return found


def _same(before: Sequence[bytes], after: Sequence[bytes]) -> int:
    """How many elements are the same from the beginning on."""
    count = 0
    for one, two in zip(before, after, strict=False):
        if one != two:
            break
        count += 1
    return count


def _without_order(found: Aligned, one: Sequence[bytes], two: Sequence[bytes], first: int) -> None:
    left = Counter(two)
    for at, each in enumerate(one, start=first):
        if left[each]:
            left[each] -= 1
        else:
            found.gone.append(at)
    left = Counter(one)
    for at, each in enumerate(two, start=first):
        if left[each]:
            left[each] -= 1
        else:
            found.added.append(at)
