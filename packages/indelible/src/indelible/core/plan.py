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


class Operation(Generic[R]):
    """One thing to be done by a driver, answered with an `R`."""

    __slots__ = ()


Plan = Generator[Operation[Any], Any, T]


def perform(op: Operation[R]) -> Plan[R]:
    """Yield one step and return its answer, with its type."""
    answer: R = yield op
    return answer


def run_plan(plan: Plan[T], perform: Callable[[Operation[Any]], Any]) -> T:
    """Run a plan to its end, blocking."""
    try:
        op = next(plan)
        while True:
            try:
                answer = perform(op)
            except MemoryStoreError as error:
                op = plan.throw(error)
            else:
                op = plan.send(answer)
    except StopIteration as finished:
        result: T = finished.value
        return result


async def run_plan_async(plan: Plan[T], perform: Callable[[Operation[Any]], Awaitable[Any]]) -> T:
    """Run a plan to its end, awaiting."""
    try:
        op = next(plan)
        while True:
            try:
                answer = await perform(op)
            except MemoryStoreError as error:
                op = plan.throw(error)
            else:
                op = plan.send(answer)
    except StopIteration as finished:
        result: T = finished.value
        return result
