"""Strategies that choose the next task: drawn from a seed, or recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Final, Protocol

from memory_contract.explorer.schedules import Switch
from memory_contract.explorer.tasks import TaskStep, find_location


class Chooser(Protocol):
    """Picks the next step."""

    def pick(self, ready: Sequence[TaskStep]) -> int:
        """Return the index of the step to run; the first is that of the plain order."""


class PlainOrder:
    """The plain order: a task goes on as long as it can."""

    def pick(self, ready: Sequence[TaskStep]) -> int:  # noqa: ARG002 -- always the first
        """Pick the first."""
        return 0


class Uniform:
    """Any of them, with equal chances: many switches, everywhere."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def pick(self, ready: Sequence[TaskStep]) -> int:
        """Pick any step at random."""
        return self._random.randrange(len(ready))


class Sticky:
    """The plain order, left now and then: few switches, anywhere."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._chance = random.choice((0.3, 0.1, 0.03))

    def pick(self, ready: Sequence[TaskStep]) -> int:
        """Pick the first, or now and then another."""
        if self._random.random() >= self._chance:
            return 0
        return self._random.randrange(1, len(ready))


class Priorities:
    """Tasks have ranks, and the highest goes on; now and then it falls below all others.

    The way of probabilistic concurrency testing: a race that needs one task to be held back for
    long while others go on is found with few such falls.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._chance = random.choice((0.1, 0.03, 0.01))
        self._ranks: dict[str, float] = {}
        self._lowest = 0.0

    def pick(self, ready: Sequence[TaskStep]) -> int:
        """Pick the highest rank, after it may have fallen."""
        highest = self._find_highest(ready)
        if self._random.random() < self._chance:
            self._lowest -= 1.0
            self._ranks[ready[highest].task] = self._lowest
            highest = self._find_highest(ready)
        return highest

    def _find_highest(self, ready: Sequence[TaskStep]) -> int:
        ranks = [self._get_rank(step.task) for step in ready]
        return ranks.index(max(ranks))

    def _get_rank(self, task: str) -> float:
        if task not in self._ranks:
            self._ranks[task] = self._random.random()
        return self._ranks[task]


class RecordedOrder:
    """Repeats a recorded schedule, as far as it fits."""

    def __init__(self, schedule: Iterable[Switch]) -> None:
        self._taken = {(s.task, s.number, s.asked): s.taken for s in schedule}

    def pick(self, ready: Sequence[TaskStep]) -> int:
        """Pick the recorded task; the first if that one is not ready."""
        first = ready[0]
        taken = self._taken.get((first.task, first.number, first.asked))
        names = [step.task for step in ready]
        return names.index(taken) if taken in names else 0


class AtPlaces:
    """The plain order, left where a task stands at a place of the code; one place after another.

    Each place comes with how many times it is passed by before. Who is taken is drawn.
    """

    def __init__(self, random: Random, places: Iterable[tuple[str, int]]) -> None:
        self._random = random
        self._places = list(places)

    def pick(self, ready: Sequence[TaskStep]) -> int:
        """Pick the first, or another if the first is at the next place."""
        if not self._places:
            return 0
        place, passed_by = self._places[0]
        if find_location(ready[0].coroutine) != place:
            return 0
        if passed_by:
            self._places[0] = place, passed_by - 1
            return 0
        del self._places[0]
        return self._random.randrange(1, len(ready))


_STRATEGIES: Final[tuple[Callable[[Random], Chooser], ...]] = (
    Uniform,
    Priorities,
    Sticky,
    Priorities,
)


def build_chooser(seed: int) -> Chooser:
    """Build the strategy that a seed stands for."""
    random = Random(seed)  # noqa: S311 -- runs must repeat
    return random.choice(_STRATEGIES)(random)
