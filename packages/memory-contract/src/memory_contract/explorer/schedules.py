"""Schedules of tasks: how one is written down, chosen by a seed, and repeated."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final


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


@dataclass(slots=True, eq=False)
class TaskStep:
    """A task that can go on: its name, and which of its steps it is."""

    task: str
    number: int
    handle: asyncio.Handle
    coroutine: Any
    # Steps of other tasks that were taken since it became ready.
    passed_over: int = 0
    # The number of times that it was its turn and another was taken.
    asked: int = 0


# How often the plain order is left. More finds a race sooner, and leaves more switches to read.
SWITCH_CHANCE: Final = 0.15


class RandomOrder:
    """The plain order, left now and then by a seed: few switches, anywhere."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)  # noqa: S311 -- runs must repeat

    def pick(self, ready: Sequence[TaskStep]) -> int:
        """Return the index of the step to run: the first, or now and then another."""
        if self._random.random() >= SWITCH_CHANCE:
            return 0
        return self._random.randrange(1, len(ready))


class RecordedOrder:
    """Repeats a recorded schedule, as far as it fits; without switches, the plain order."""

    def __init__(self, schedule: Iterable[Switch] = ()) -> None:
        self._taken = {(s.task, s.number, s.asked): s.taken for s in schedule}

    def pick(self, ready: Sequence[TaskStep]) -> int:
        """Pick the recorded task; the first if that one is not ready."""
        first = ready[0]
        taken = self._taken.get((first.task, first.number, first.asked))
        names = [step.task for step in ready]
        return names.index(taken) if taken in names else 0


Chooser = RandomOrder | RecordedOrder
