"""From a schedule that fails to one that fails with as few switches as can be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from memory_contract.explorer.schedules import Schedule, Switch

# How many schedules are tried on the way. Few are needed: most switches do not matter.
TRIES_MAX: Final = 400


def shrink_schedule(
    schedule: Schedule, still_fails: Callable[[Schedule], Schedule | None], tries: int = TRIES_MAX
) -> Schedule:
    """Leave switches out, many at a time and then one by one, as long as it fails without them.

    `still_fails` tries a schedule afresh and gives the switches that were really made, None if
    nothing failed.
    """
    best, left, size = schedule, tries, len(schedule)
    while best and left:
        place, before = 0, len(best)
        while place < len(best) and left:
            left -= 1
            made = still_fails(_renumbered(best[:place] + best[place + size :]))
            if made is not None and len(made) < len(best):
                best = made
            else:
                place += size
        # One by one, again from the beginning, until a whole round leaves nothing out.
        if size == 1 and len(best) == before:
            break
        size = max(1, min(size // 2, len(best)))
    return best


def _renumbered(switches: Iterable[Switch]) -> Schedule:
    """Of several switches at one step of a task, the first that is left is the first again."""
    seen: Counter[tuple[str, int]] = Counter()
    kept = []
    for switch in switches:
        step = (switch.task, switch.number)
        kept.append(replace(switch, asked=seen[step]))
        seen[step] += 1
    return tuple(kept)
