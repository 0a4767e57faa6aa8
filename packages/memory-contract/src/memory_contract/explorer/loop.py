"""An event loop that runs the steps of tasks in an order that a seed chooses, or a schedule.

Only the steps of tasks: timers, transports and all other callbacks keep their order, and all that
are due come before the next step. Built on the loop that asyncio itself uses, through what it
offers to everybody: it decides nothing but which step `call_soon` gets to run next.
"""

from __future__ import annotations

import asyncio
import re
import selectors
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import Context
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary

from memory_contract.explorer.schedules import Chooser, Switch, TaskStep
from memory_contract.handles import iter_awaited

_T = TypeVar("_T")
_Args = TypeVarTuple("_Args")

# A step that was passed over so often must be taken: asyncio lets no task starve, and a store that
# polls until another task has done its part relies on that.
PASSED_OVER_MAX: Final = 1_000
# A store that spins takes millions of steps: those are not written down.
_TAKEN_MAX: Final = 100_000

# The callbacks with which asyncio runs a step of a task: of tasks that are written in C, and of
# those that are written in Python.
_STEP_TYPE: Final = "TaskStepMethWrapper"
_STEP_NAMES: Final = frozenset({"task_wakeup", "__step", "__wakeup"})
# The name that a task has if nobody named it; its number differs from run to run.
_UNNAMED: Final = re.compile(r"Task-\d+")
# Code whose frames are not the store's.
_ASYNCIO: Final = str(Path(asyncio.__file__).parent)
_KIT: Final = str(Path(__file__).parents[1])

# Any number would do; a fixed one is added to in the same way, to the last bit, in each run.
_BEGIN_S: Final = float(2**20)
# The time by which a step advances the clock: less than any step takes, so that the clock never
# runs ahead of real time.
STEP_S: Final = 2e-6


class Clock:
    """A clock that advances with steps and waits until it is set free, not with the machine's load.

    So a timer comes due at the same place of each run. It never runs ahead of real time: who waits
    for a thread with a timeout has all of it.
    """

    def __init__(self) -> None:
        self._now_s = _BEGIN_S
        self._offset_s: float | None = None

    def now(self) -> float:
        """Return the time in seconds."""
        return self._now_s if self._offset_s is None else self._offset_s + time.monotonic()

    def advance(self, seconds: float) -> None:
        """Advance by a step or a wait."""
        self._now_s += seconds

    @property
    def is_free(self) -> bool:
        """Whether it follows real time."""
        return self._offset_s is not None

    def set_free(self) -> None:
        """Follow real time from now on: something outside the loop took part."""
        if self._offset_s is None:
            self._offset_s = self._now_s - time.monotonic()


class _WatchedSelector(selectors.DefaultSelector):
    """A selector that advances the clock by each wait and reports what is waited for."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        # Called when anything but the loop's own wake-up pipe is registered.
        self.watching: Callable[[], None] | None = None

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self.watching is not None:
            self.watching()
        return super().register(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        began = time.monotonic()
        found = super().select(timeout)
        # A signal can end a wait before its time: then the loop waits again.
        if timeout and not found and time.monotonic() - began >= timeout:
            self._clock.advance(timeout)
        return found


@dataclass(frozen=True, slots=True)
class StepTaken:
    """One step that was taken: whose, when, and the switch that brought it, if one did."""

    task: str
    began_ns: int
    switch: Switch | None = None
    # The source line of the task that could have gone on instead.
    place: str = ""


class ExploringLoop(asyncio.SelectorEventLoop):
    """Runs steps of tasks as a chooser says, and records where it left the plain order."""

    def __init__(self, chooser: Chooser) -> None:
        self._owner = threading.get_ident()
        self._clock = Clock()
        self._chooser = chooser
        self._pool: list[TaskStep] = []
        # The number of the last step of each task, and how many tasks had each name.
        self._numbers: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()
        self._named: Counter[str] = Counter()
        self._due = False
        self._steps = 0
        # The step that each task ran last.
        self._ran: dict[str, int] = {}
        self.taken: list[StepTaken] = []
        selector = _WatchedSelector(self._clock)
        super().__init__(selector)
        selector.watching = self._clock.set_free

    @property
    def switches(self) -> tuple[Switch, ...]:
        """The schedule so far."""
        return tuple(taken.switch for taken in self.taken if taken.switch is not None)

    @property
    def is_exact(self) -> bool:
        """Whether nothing but tasks and timers took part, so that the run can be repeated."""
        return not self._clock.is_free

    def time(self) -> float:
        """The loop's own time."""
        return self._clock.now()

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*_Args], _T], *args: *_Args
    ) -> asyncio.Future[_T]:
        """Note that threads take part: a quick one ends before it could call back."""
        self._clock.set_free()
        return super().run_in_executor(executor, func, *args)

    def call_soon_threadsafe(
        self, callback: Callable[[*_Args], object], *args: *_Args, context: Context | None = None
    ) -> asyncio.Handle:
        """Note whether another thread takes part."""
        if threading.get_ident() != self._owner:
            self._clock.set_free()
        return super().call_soon_threadsafe(callback, *args, context=context)

    # Steps

    def call_soon(
        self, callback: Callable[[*_Args], object], *args: *_Args, context: Context | None = None
    ) -> asyncio.Handle:
        """Keep a step of a task until it is chosen; schedule anything else as usual."""
        task = find_task(callback)
        if task is None:
            return super().call_soon(callback, *args, context=context)
        if self.is_closed():
            raise RuntimeError("Event loop is closed")
        handle = asyncio.Handle(callback, args, self, context)
        if task not in self._numbers:
            self._name_task(task)
        self._numbers[task] = number = self._numbers.get(task, -1) + 1
        self._pool.append(TaskStep(task.get_name(), number, handle, task.get_coro()))
        self._schedule_next_step()
        return handle

    def _name_task(self, task: asyncio.Task[Any]) -> None:
        """Give a task a name that is the same in each run, whatever else is scheduled otherwise.

        A task that was given a name keeps it. Another is named after the task that made it: `w1/2`
        is the second that w1 made.
        """
        given = task.get_name()
        if _UNNAMED.fullmatch(given):
            maker = asyncio.current_task(self) if self.is_running() else None
            stem = "main" if maker is None or maker not in self._numbers else maker.get_name()
            self._named[f"{stem}/"] += 1
            task.set_name(f"{stem}/{self._named[f'{stem}/']}")
            return
        self._named[given] += 1
        if self._named[given] > 1:
            task.set_name(f"{given}/again{self._named[given]}")

    def _schedule_next_step(self) -> None:
        """Schedule the next step after all callbacks that are due before it."""
        if self._pool and not self._due:
            self._due = True
            super().call_soon(self._run_one_step)

    def _run_one_step(self) -> None:
        self._due = False
        self._pool = [step for step in self._pool if not step.handle.cancelled()]
        if not self._pool:
            return
        step, switch, place = self._choose_step()
        self._pool.remove(step)
        for other in self._pool:
            other.passed_over += 1
        self._steps += 1
        self._ran[step.task] = self._steps
        self._clock.advance(STEP_S)
        if len(self.taken) < _TAKEN_MAX:
            self.taken.append(StepTaken(step.task, time.monotonic_ns(), switch, place))
        try:
            step.handle._run()  # noqa: SLF001 -- what the loop itself does with a handle
        finally:
            self._schedule_next_step()

    def _choose_step(self) -> tuple[TaskStep, Switch | None, str]:
        oldest = self._pool[0]
        if len(self._pool) == 1 or oldest.passed_over >= PASSED_OVER_MAX:
            return oldest, None, ""
        # The plain order: who ran last, so that who was stopped goes on when the one that was
        # taken instead has ended; then those that did not begin yet, as they came.
        ready = sorted(self._pool, key=lambda step: -self._ran.get(step.task, -1))
        first, chosen = ready[0], ready[self._chooser.pick(ready)]
        if chosen is first:
            return chosen, None, ""
        switch = Switch(first.task, first.number, chosen.task, first.asked)
        first.asked += 1
        return chosen, switch, _find_location(first.coroutine)

    def close(self) -> None:
        """Close the loop and drop the steps that were not run."""
        self._pool.clear()
        super().close()


def find_task(callback: Callable[..., Any]) -> asyncio.Task[Any] | None:
    """Return the task that a callback is a step of; None if it is something else."""
    task = getattr(callback, "__self__", None)
    if task is None or not asyncio.isfuture(task):
        return None
    step = type(callback).__name__ == _STEP_TYPE
    if not step and getattr(callback, "__name__", "") not in _STEP_NAMES:
        return None
    return task  # type: ignore[return-value]


def _find_location(coroutine: Any) -> str:
    """`file.py:17 in append`: the innermost place that is neither asyncio's nor the kit's."""
    calls = [each for each in iter_awaited(coroutine) if not each[0].startswith((_ASYNCIO, _KIT))]
    return "{}:{} in {}".format(Path(calls[-1][0]).name, *calls[-1][1:]) if calls else ""
