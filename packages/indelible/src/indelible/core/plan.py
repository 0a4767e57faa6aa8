"""A plan says what to do; it never does it.

A plan is a generator that yields steps and is sent their results. The blocking loop and the
awaiting loop below are the only two places where plans meet the world, so that every operation
has one logic for both. An error of a step is thrown into its plan, which may know what to do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

from indelible.errors import MemoryStoreError

T = TypeVar("T")
R = TypeVar("R")


class Step(Generic[R]):
    """One thing to be done by a driver, answered with an `R`."""

    __slots__ = ()


Plan = Generator[Step[Any], Any, T]


def ask(step: Step[R]) -> Plan[R]:
    """Yield one step and return its answer, with its type."""
    answer: R = yield step
    return answer


def drive(plan: Plan[T], perform: Callable[[Step[Any]], Any]) -> T:
    """Run a plan to its end, blocking."""
    try:
        step = next(plan)
        while True:
            try:
                answer = perform(step)
            except MemoryStoreError as error:
                step = plan.throw(error)
            else:
                step = plan.send(answer)
    except StopIteration as finished:
        result: T = finished.value
        return result


async def drive_async(plan: Plan[T], perform: Callable[[Step[Any]], Awaitable[Any]]) -> T:
    """Run a plan to its end, awaiting."""
    try:
        step = next(plan)
        while True:
            try:
                answer = await perform(step)
            except MemoryStoreError as error:
                step = plan.throw(error)
            else:
                step = plan.send(answer)
    except StopIteration as finished:
        result: T = finished.value
        return result
