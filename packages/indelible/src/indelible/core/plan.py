"""Plans: generators that yield operations and receive their results.

A plan performs no I/O. `run_plan` and `run_plan_async` are the only places that do, so sync and
async share one logic. The error of an operation is thrown into its plan, which may handle it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

from indelible.errors import MemoryStoreError

T = TypeVar("T")
R = TypeVar("R")


class Operation(Generic[R]):
    """A request to a backend, which returns an `R`."""

    __slots__ = ()


Plan = Generator[Operation[Any], Any, T]


def perform(op: Operation[R]) -> Plan[R]:
    """Yield one operation and return its result, typed."""
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
