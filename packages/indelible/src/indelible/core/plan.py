"""Plans: generators that yield operations and receive their results.

A plan performs no I/O. `run_plan` and `run_plan_async` are the only places that do, so sync and
async share one logic. The error of an operation is thrown into its plan, which may handle it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

from indelible.core.limits import APPEND_ATTEMPTS_MAX
from indelible.errors import (
    ClosedError,
    FormatError,
    MemoryStoreBackendError,
    MemoryStoreError,
    OutcomeUnknownError,
)

T = TypeVar("T")
R = TypeVar("R")

_LOGGER: Final = logging.getLogger("indelible.operations")


class Operation(Generic[R]):
    """A request to a backend, which returns an `R`."""

    __slots__ = ()

    # The result on engines that lack what it is for, such as an index. Most operations have none.
    default: ClassVar[Any]

    def repeat(self) -> Self:
        """Return what to send after a lost reply: it finds what an earlier attempt has written."""
        return self


Plan = Generator[Operation[Any], Any, T]


def perform(op: Operation[R]) -> Plan[R]:
    """Yield one operation and return its result, typed."""
    answer: R = yield op
    return answer


def send_until_known(op: Operation[R], **details: str) -> Plan[tuple[R, bool]]:
    """Send an operation until its outcome is known; return its result, and whether it was repeated.

    If the outcome stays unknown, the error says so, with `details`.
    """
    unknown: OutcomeUnknownError | None = None
    for _ in range(APPEND_ATTEMPTS_MAX):
        try:
            result = yield from perform(op)
        except OutcomeUnknownError as error:
            unknown, op = error, op.repeat()
            if error.details.get("exhausted"):
                # The backend tried until the deadline; another attempt would exceed it.
                break
        except (MemoryStoreBackendError, FormatError, ClosedError) as error:
            if unknown is None:
                raise
            # This attempt wrote nothing, but the one before may have.
            raise unknown.copy(**details) from error
        else:
            return result, unknown is not None
    assert unknown is not None
    raise unknown.copy(**details) from unknown.__cause__


def _log_failure(op: Operation[Any], error: MemoryStoreError) -> None:
    """Log the kinds of an operation and of its error: the rest may be a secret or a content."""
    names = type(op).__name__, type(error).__name__
    _LOGGER.debug("%s failed: %s, landed: %s", *names, error.landed)


def run_plan(plan: Plan[T], perform: Callable[[Operation[Any]], Any]) -> T:
    """Run a plan to its end, blocking."""
    try:
        op = next(plan)
        while True:
            try:
                answer = perform(op)
            except MemoryStoreError as error:
                _log_failure(op, error)
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
                _log_failure(op, error)
                op = plan.throw(error)
            else:
                op = plan.send(answer)
    except StopIteration as finished:
        result: T = finished.value
        return result
