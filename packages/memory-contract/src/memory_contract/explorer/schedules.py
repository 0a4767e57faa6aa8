"""Schedules of tasks: how one is written down, and the strategies that choose one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final, Protocol


@dataclass(frozen=True, slots=True)
class Switch:
    """One place where a task could have gone on, in the plain order, and another was taken.

    The place is named by the task itself, so that it stays the same when other switches are
    left out.
    """

    task: str
    number: int
    taken: str
    # The number of times that it had been this step's turn before.
    asked: int = 0

    def __str__(self) -> str:
        again = f".{self.asked}" if self.asked else ""
        return f"{self.task}#{self.number}{again}>{self.taken}"


# In the plain order a task goes on as long as it can; then comes who was stopped last.
Schedule = tuple[Switch, ...]


def format_schedule(schedule: Iterable[Switch]) -> str:
    """A schedule as text: `w1#7>w0`, one after the other; `plain` if it has no switches."""
    return " ".join(map(str, schedule)) or "plain"


def renumber_switches(switches: Iterable[Switch]) -> Schedule:
    """Count the switches at each step of a task anew, after some were left out."""
    seen: Counter[tuple[str, int]] = Counter()
    kept = []
    for switch in switches:
        step = (switch.task, switch.number)
        kept.append(replace(switch, asked=seen[step]))
        seen[step] += 1
    return tuple(kept)


# Strategies


class ReadyStep(Protocol):
    """A task that can go on: its name, which of its steps it is, and how often it was stopped."""

    task: str
    number: int
    asked: int


class Chooser(Protocol):
    """Picks the next step."""

    def pick(self, ready: Sequence[ReadyStep]) -> int:
        """Return the index of the step to run; the first is that of the plain order."""


class Uniform:
    """Any of them, with equal chances: many switches, everywhere."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def pick(self, ready: Sequence[ReadyStep]) -> int:
        """Pick any step at random."""
        return self._random.randrange(len(ready))


class Sticky:
    """The plain order, left now and then: few switches, anywhere."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._chance = random.choice((0.3, 0.1, 0.03))

    def pick(self, ready: Sequence[ReadyStep]) -> int:
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

    def pick(self, ready: Sequence[ReadyStep]) -> int:
        """Pick the highest rank, after it may have fallen."""
        for step in ready:
            if step.task not in self._ranks:
                self._ranks[step.task] = self._random.random()
        highest = self._find_highest(ready)
        if self._random.random() < self._chance:
            self._lowest -= 1.0
            self._ranks[ready[highest].task] = self._lowest
            highest = self._find_highest(ready)
        return highest

    def _find_highest(self, ready: Sequence[ReadyStep]) -> int:
        return max(range(len(ready)), key=lambda place: self._ranks[ready[place].task])


class RecordedOrder:
    """Repeats a recorded schedule, as far as it fits; without switches, the plain order."""

    def __init__(self, schedule: Iterable[Switch] = ()) -> None:
        self._taken = {(s.task, s.number, s.asked): s.taken for s in schedule}

    def pick(self, ready: Sequence[ReadyStep]) -> int:
        """Pick the recorded task; the first if that one is not ready."""
        first = ready[0]
        taken = self._taken.get((first.task, first.number, first.asked))
        names = [step.task for step in ready]
        return names.index(taken) if taken in names else 0


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
