"""Delta debugging: leave out as much of a failure as possible, so that it still fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def minimize(
    items: Sequence[T], attempt: Callable[[tuple[T, ...]], Sequence[T] | None], *, tries: int
) -> tuple[T, ...]:
    """Leave items out, many at a time and then one by one, until every one that is left is needed.

    `attempt` tries fewer items. It returns those with which it failed, which may be others than
    those that it was given, or None if nothing failed. After so many `tries` the best is returned.
    """
    best, size = tuple(items), len(items)
    while best and tries:
        place, before = 0, len(best)
        while place < len(best) and tries:
            tries -= 1
            found = attempt(best[:place] + best[place + size :])
            if found is not None and len(found) < len(best):
                best = tuple(found)
            else:
                place += size
        if size == 1 and len(best) == before:
            break
        size = max(1, min(size // 2, len(best)))
    return best
