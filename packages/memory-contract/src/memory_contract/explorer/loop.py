"""An event loop that runs the steps of tasks in an order that a strategy chooses.

Only the steps of tasks: timers, transports and all other callbacks keep their order, and all that
are due come before the next step. Built on the loop that asyncio itself uses, through what it
offers to everybody: it decides nothing but which step `call_soon` gets to run next.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import Context
from dataclasses import dataclass
from typing import Final, TypeVar, TypeVarTuple

from memory_contract.explorer.clock import Clock, WatchedSelector
from memory_contract.explorer.schedules import Switch
from memory_contract.explorer.strategies import Chooser
from memory_contract.explorer.tasks import TaskNames, TaskStep, find_location, find_task

_T = TypeVar("_T")
_Args = TypeVarTuple("_Args")

# How often a step is passed over before it must be taken. asyncio lets nobody starve, and a store
# that waits in a loop until another task has done its part relies on that.
PASSED_OVER_MAX: Final = 1_000

THREADS: Final = "work was given to threads"
WOKEN: Final = "another thread woke the event loop"
FILES: Final = "sockets or pipes were waited for"
ENDLESS: Final = "more steps were taken than are written down"

# A store that spins takes millions of steps: those are not written down.
_TAKEN_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class StepTaken:
    """One step that was taken: whose, when, and the switch that brought it, if one did."""

    task: str
    began_ns: int
    ended_ns: int
    switch: Switch | None = None
    # Where the task stands that could have gone on instead.
    place: str = ""


class ExploringLoop(asyncio.SelectorEventLoop):
    """Runs steps of tasks as a strategy chooses, and records where it left the plain order."""

    def __init__(self, chooser: Chooser, *, places: bool = False) -> None:
        """With `places`, record also where in their code tasks were stopped."""
        self._places = places
        self._owner = threading.get_ident()
        self._clock = Clock()
        self._chooser = chooser
        self._pool: list[TaskStep] = []
        self._names = TaskNames()
        self._due = False
        self._ran: dict[str, int] = {}
        self._steps = 0
        self.choices = 0
        self.taken: list[StepTaken] = []
        # Why a run may differ from another one with the same schedule; empty if nothing is known.
        self.inexact: dict[str, None] = {}
        selector = WatchedSelector(self._clock)
        super().__init__(selector)
        selector.watching = lambda: self._note_inexact(FILES)

    @property
    def exact(self) -> bool:
        """Return whether all that happened came from the tasks themselves."""
        return not self.inexact

    @property
    def switches(self) -> tuple[Switch, ...]:
        """The schedule so far."""
        return tuple(taken.switch for taken in self.taken if taken.switch is not None)

    def time(self) -> float:
        """The loop's own time."""
        return self._clock.now()

    # What is not the tasks' own doing

    def _note_inexact(self, why: str) -> None:
        self.inexact[why] = None
        self._clock.set_free()

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*_Args], _T], *args: *_Args
    ) -> asyncio.Future[_T]:
        """Note that threads take part from now on."""
        self._note_inexact(THREADS)
        return super().run_in_executor(executor, func, *args)

    def call_soon_threadsafe(
        self, callback: Callable[[*_Args], object], *args: *_Args, context: Context | None = None
    ) -> asyncio.Handle:
        """Note whether another thread takes part."""
        if threading.get_ident() != self._owner:
            self._note_inexact(WOKEN)
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
        name = self._names.name(task, asyncio.current_task(self) if self.is_running() else None)
        self._pool.append(TaskStep(name, self._names.count(task), handle, task.get_coro()))
        self._schedule_next_step()
        return handle

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
        self._clock.tick()
        began = time.monotonic_ns()
        try:
            step.handle._run()  # noqa: SLF001 -- what the loop itself does with a handle
        finally:
            if len(self.taken) < _TAKEN_MAX:
                self.taken.append(StepTaken(step.task, began, time.monotonic_ns(), switch, place))
            else:
                self.inexact[ENDLESS] = None
            self._schedule_next_step()

    def _choose_step(self) -> tuple[TaskStep, Switch | None, str]:
        oldest = self._pool[0]
        if len(self._pool) == 1 or oldest.passed_over >= PASSED_OVER_MAX:
            return oldest, None, ""
        # The plain order: who ran last, so that who was stopped goes on when the one that was
        # taken instead has ended; then those that did not begin yet, as they came.
        ready = sorted(self._pool, key=lambda step: -self._ran.get(step.task, -1))
        first = ready[0]
        self.choices += 1
        chosen = ready[self._chooser.pick(ready)]
        if chosen is first:
            return chosen, None, ""
        switch = Switch(first.task, first.number, chosen.task, first.asked)
        first.asked += 1
        return chosen, switch, find_location(first.coroutine) if self._places else ""

    def close(self) -> None:
        """Close the loop and drop the steps that were not run."""
        self._pool.clear()
        super().close()
