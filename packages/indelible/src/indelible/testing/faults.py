"""Fault injection for the stores of an application under test, on any engine.

Errors are thrown into the plans of a call where an engine would raise them. So retries with the
same key, and all else that core does about a failing engine, happen here too.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeVar, cast

from indelible import (
    AsyncMemoryStore,
    MemoryStore,
    MemoryStoreError,
    OutcomeUnknownError,
    UnavailableError,
    UsageError,
)
from indelible.core import verbs
from indelible.core.plan import Operation, Plan

FaultKind = Literal["fail", "time out", "lose the reply", "be slow"]
S = TypeVar("S", MemoryStore, AsyncMemoryStore)
T = TypeVar("T")

ANY: Final = "*"
# Verbs that can be made to fail. `claims` performs no operation, so no fault can reach it.
FAULT_VERBS: Final = frozenset(verbs.VERBS) - {"claims"}
# A verb that writes nothing has no reply whose loss leaves the outcome unknown.
_READS: Final = frozenset(name for name, verb in verbs.VERBS.items() if not verb.writes)


@dataclass(slots=True)
class _Fault:
    """A fault for the next calls of a verb."""

    verb: str
    what: FaultKind
    error: MemoryStoreError | None
    seconds: float
    # How many calls are left; None until `heal`.
    left: int | None
    struck: int = 0

    def __str__(self) -> str:
        return f"{self.what} at {self.verb}"


class Struck(NamedTuple):
    """A call that was made to fail."""

    verb: str
    what: FaultKind


@dataclass(slots=True)
class _FaultyCall:
    """A call in progress, and its fault."""

    verb: str
    fault: _Fault | None

    def raise_before(self, op: Operation[Any]) -> None:
        """Raise before the operation reaches the engine."""
        if self.fault is None:
            return
        if self.fault.what == "fail":
            raise cast(MemoryStoreError, self.fault.error).copy()
        if self.fault.what == "time out":
            if isinstance(op, verbs.COMMITTING_OPERATIONS):
                raise _build_unknown_error()
            if self.verb in _READS:
                raise UnavailableError("the store did not answer in time")

    def raise_after(self, op: Operation[Any]) -> None:
        """Raise after the engine has performed the operation."""
        lost = self.fault is not None and self.fault.what == "lose the reply"
        if lost and isinstance(op, verbs.COMMITTING_OPERATIONS):
            raise _build_unknown_error()


def _build_unknown_error() -> OutcomeUnknownError:
    return OutcomeUnknownError(
        "the store did not answer in time: the write may have landed. The same call with the same"
        " key lands it exactly once",
        exhausted=True,
    )


# The call of this thread or task. A verb that calls another verb is one call.
_current_call: ContextVar[_FaultyCall | None] = ContextVar("indelible_memory_faults", default=None)


class MemoryFaults:
    """Makes calls of an application's stores fail.

    `verb` is the name of a method, such as `"add_messages"`, or `"*"` for any; `times` says how
    many calls in a row, None until `heal`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[_Fault] = []
        self._spent: list[_Fault] = []
        self._struck: list[Struck] = []

    # Faults

    def fail_next(
        self,
        verb: str,
        error: type[MemoryStoreError] | MemoryStoreError = UnavailableError,
        *,
        times: int | None = 1,
    ) -> None:
        """Raise this error; nothing is written."""
        if isinstance(error, type) and issubclass(error, MemoryStoreError):
            error = error("memory_faults made this call fail")
        if not isinstance(error, MemoryStoreError):
            raise UsageError(f"a store raises errors of indelible, not {error!r}", value=error)
        if isinstance(error, OutcomeUnknownError):
            # Otherwise core would retry and succeed; this says that the deadline was reached.
            error = error.copy(exhausted=True)
        self._arm(verb, "fail", times, error=error)

    def time_out_next(self, verb: str, *, times: int | None = 1) -> None:
        """Time out without doing anything; the outcome of a write is then unknown."""
        self._arm(verb, "time out", times)

    def lose_next_reply(self, verb: str, *, times: int | None = 1) -> None:
        """Perform the write and lose the reply; its outcome is then unknown."""
        if verb in _READS:
            raise UsageError(f"{verb} writes nothing, so no reply to a write can be lost")
        self._arm(verb, "lose the reply", times)

    def run_out_of_memory_next(self, verb: str, *, times: int | None = 1) -> None:
        """Fail as a Redis without memory does; nothing is written."""
        full = UnavailableError("the memory of the server is full; nothing was written", code="OOM")
        self._arm(verb, "fail", times, error=full)

    def slow_next(self, verb: str, seconds: float, *, times: int | None = 1) -> None:
        """Wait, then perform the call."""
        self._arm(verb, "be slow", times, seconds=seconds)

    def heal(self) -> None:
        """Disarm all faults."""
        with self._lock:
            self._spent += self._faults
            self._faults = []

    # Results

    @property
    def struck(self) -> list[Struck]:
        """The calls that were made to fail, in order."""
        with self._lock:
            return list(self._struck)

    @property
    def unstruck(self) -> list[str]:
        """Faults that never happened: a test that relies on one proved nothing."""
        with self._lock:
            return [str(fault) for fault in (*self._spent, *self._faults) if not fault.struck]

    # Stores

    def watch(self, store: S) -> S:
        """Inject faults into a store that is open already."""
        attributes, run = vars(store), store._run  # noqa: SLF001 (our own store)
        if "_run" not in attributes:
            attributes["_run"] = lambda plan, **options: run(_inject(plan), **options)
            wrap = self._wrap_async if isinstance(store, AsyncMemoryStore) else self._wrap
            for verb in FAULT_VERBS:
                attributes[verb] = wrap(verb, getattr(store, verb))
        return store

    def _arm(
        self,
        verb: str,
        what: FaultKind,
        times: int | None,
        *,
        error: MemoryStoreError | None = None,
        seconds: float = 0.0,
    ) -> None:
        if verb != ANY and verb not in FAULT_VERBS:
            raise UsageError(
                f"a store has no verb {verb!r}; it has {', '.join(sorted(FAULT_VERBS))}"
            )
        if times is not None and times < 1:
            raise UsageError(f"times is a number from 1 up, or None, not {times!r}", value=times)
        with self._lock:
            self._faults.append(_Fault(verb, what, error, seconds, times))

    def _take_fault(self, verb: str) -> _Fault | None:
        """Take the fault of a call that begins now, if there is one."""
        with self._lock:
            for fault in self._faults:
                if fault.verb not in (verb, ANY):
                    continue
                if fault.what == "lose the reply" and verb in _READS:
                    continue
                fault.struck += 1
                if fault.left is not None:
                    fault.left -= 1
                    if not fault.left:
                        self._faults.remove(fault)
                        self._spent.append(fault)
                self._struck.append(Struck(verb, fault.what))
                return fault
        return None

    @contextmanager
    def _enter_call(self, verb: str) -> Iterator[float]:
        """Enter a call, and return how many seconds it waits first."""
        if _current_call.get() is not None:
            yield 0.0
            return
        fault = self._take_fault(verb)
        current = _current_call.set(_FaultyCall(verb, fault))
        try:
            yield 0.0 if fault is None else fault.seconds
        finally:
            _current_call.reset(current)

    def _wrap(self, verb: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*arguments: Any, **options: Any) -> Any:
            with self._enter_call(verb) as delay_s:
                time.sleep(delay_s)
                return method(*arguments, **options)

        return call

    def _wrap_async(self, verb: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        async def call(*arguments: Any, **options: Any) -> Any:
            with self._enter_call(verb) as delay_s:
                if delay_s:
                    await asyncio.sleep(delay_s)
                answer = method(*arguments, **options)
                return await answer if inspect.isawaitable(answer) else answer

        return call


def _inject(plan: Plan[T]) -> Plan[T]:
    """Run a plan with the fault of its call."""
    call = _current_call.get() or _FaultyCall("", None)
    try:
        op = next(plan)
        while True:
            try:
                call.raise_before(op)
                answer = yield op
                call.raise_after(op)
            except MemoryStoreError as error:
                op = plan.throw(error)
            else:
                op = plan.send(answer)
    except StopIteration as finished:
        result: T = finished.value
        return result


@contextmanager
def watching() -> Iterator[MemoryFaults]:
    """Inject faults into every store that is opened meanwhile, and those passed to `watch`."""
    faults = MemoryFaults()
    classes: tuple[Any, ...] = (MemoryStore, AsyncMemoryStore)
    before = [kind.__init__ for kind in classes]

    def watched(first: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(first)
        def begin(store: Any, *arguments: Any, **options: Any) -> None:
            first(store, *arguments, **options)
            faults.watch(store)

        return begin

    for kind, first in zip(classes, before, strict=True):
        kind.__init__ = watched(first)
    try:
        yield faults
    finally:
        for kind, first in zip(classes, before, strict=True):
            kind.__init__ = first
