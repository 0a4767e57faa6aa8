"""The steps of tasks: how they are recognised, what tasks are called, and where they wait."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final
from weakref import WeakKeyDictionary

# What asyncio schedules to begin or go on with a task: of its own tasks, which are written in C,
# and of those that are written in Python.
_STEP_TYPE: Final = "TaskStepMethWrapper"
_STEP_NAMES: Final = frozenset({"task_wakeup", "__step", "__wakeup"})
# The name that a task has if nobody named it; its number differs from run to run.
_UNNAMED: Final = re.compile(r"Task-\d+")

_ASYNCIO: Final = str(Path(asyncio.__file__).parent)
_KIT: Final = str(Path(__file__).parents[1])
# A chain of awaits is not longer than this.
_DEPTH_MAX: Final = 200


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


def find_location(coroutine: Any) -> str:
    """`file.py:17 in append`: the innermost place that is neither asyncio's nor the kit's."""
    found = ""
    for frame in _iter_frames(coroutine):
        path = frame.f_code.co_filename
        if not path.startswith((_ASYNCIO, _KIT)):
            found = f"{Path(path).name}:{frame.f_lineno} in {frame.f_code.co_name}"
    return found


def _iter_frames(awaited: Any) -> Iterator[FrameType]:
    """The frames of a coroutine and of what it awaits, from the outermost on."""
    for _ in range(_DEPTH_MAX):
        frame = _get_first(awaited, "cr_frame", "gi_frame", "ag_frame")
        if frame is None:
            return
        yield frame
        awaited = _get_first(awaited, "cr_await", "gi_yieldfrom", "ag_await")
        if awaited is None:
            # What counts the suspensions of a call stands between the call and its task.
            awaited = frame.f_locals.get("awaitable")


def _get_first(awaited: Any, *names: str) -> Any:
    found = (getattr(awaited, name, None) for name in names)
    return next((value for value in found if value is not None), None)
