"""The steps of tasks: how they are told from other callbacks, and what a task is called."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

# What asyncio schedules to begin or go on with a task: of its own tasks, which are written in C,
# and of those that are written in Python.
_STEP_TYPE: Final = "TaskStepMethWrapper"
_STEP_NAMES: Final = frozenset({"task_wakeup", "__step", "__wakeup"})
# The name that a task has if nobody named it; its number differs from run to run.
_UNNAMED: Final = re.compile(r"Task-\d+")


def find_task(callback: Callable[..., Any]) -> asyncio.Task[Any] | None:
    """The task that a callback is a step of; None if it is something else."""
    task = getattr(callback, "__self__", None)
    if task is None or not asyncio.isfuture(task):
        return None
    step = type(callback).__name__ == _STEP_TYPE
    if not step and getattr(callback, "__name__", "") not in _STEP_NAMES:
        return None
    return task  # type: ignore[return-value]


@dataclass(slots=True, eq=False)
class TaskStep:
    """A task that can go on: its name, and which of its steps it is."""

    task: str
    number: int
    handle: asyncio.Handle
    coroutine: Any = None
    # How many steps of others were taken since it could go on.
    passed_over: int = 0
    # How many times it was its turn and another was taken.
    asked: int = 0


class TaskNames:
    """What tasks are called: the same in each run, and when other tasks are scheduled otherwise.

    A task that was given a name keeps it. Another is named after the task that made it: `w1/2` is
    the second that w1 made.
    """

    def __init__(self) -> None:
        self._names: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self._steps: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._made: Counter[str] = Counter()

    def name(self, task: asyncio.Task[Any], maker: asyncio.Task[Any] | None) -> str:
        """The name of a task, which is drawn when it is first seen."""
        if (known := self._names.get(task)) is not None:
            return known
        given = task.get_name()
        if _UNNAMED.fullmatch(given):
            stem = self._names.get(maker, "main") if maker is not None else "main"
            self._made[stem] += 1
            given = f"{stem}/{self._made[stem]}"
        else:
            self._made[f"={given}"] += 1
            if (again := self._made[f"={given}"]) > 1:
                given = f"{given}/again{again}"
        self._names[task] = given
        return given

    def count(self, task: asyncio.Task[Any]) -> int:
        """Which step of the task comes now."""
        self._steps[task] = number = self._steps.get(task, -1) + 1
        return number
