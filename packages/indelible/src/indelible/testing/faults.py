"""A store of an application's own that fails on cue, on any engine.

It sits at the waist: a backend around the backend. What core does about a failing engine, such as
asking again with the key, it does here too.
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
from indelible.core.backend import AsyncBackend, Backend
from indelible.core.plan import Operation

What = Literal["fail", "time out", "lose the reply", "be slow"]
S = TypeVar("S", MemoryStore, AsyncMemoryStore)

ANY: Final = "*"
# Verbs that can be made to fail. `claims` performs no operation, so no fault can reach it.
FAULT_VERBS: Final = frozenset(verbs.VERBS) - {"claims"}
# A verb that writes nothing has no reply whose loss leaves the outcome unknown.
_READS: Final = frozenset(name for name, verb in verbs.VERBS.items() if not verb.writes)


@dataclass(slots=True)
class _Cue:
    """What is to happen to the next calls of a verb."""

    verb: str
    what: What
    error: MemoryStoreError | None
    seconds: float
    # None is until `heal`.
    left: int | None
    struck: int = 0

    def __str__(self) -> str:
        return f"{self.what} at {self.verb}"


class Struck(NamedTuple):
    """A call that was made to fail."""

    verb: str
    what: What


@dataclass(slots=True)
class _Call:
    """A call that is under way, and what is to become of it."""

    verb: str
    cue: _Cue | None
    slept: bool = False

    def seconds(self) -> float:
        """How long to wait now: a call is slow once, however many steps it has."""
        slow = self.cue is not None and self.cue.what == "be slow" and not self.slept
        self.slept = True
        return self.cue.seconds if self.cue is not None and slow else 0.0

    def refuse(self, step: Operation[Any]) -> None:
        """Raise in the engine's place, before it hears of anything."""
        if self.cue is None:
            return
        if self.cue.what == "fail":
            raise cast(MemoryStoreError, self.cue.error).copy()
        if self.cue.what == "time out":
            if isinstance(step, verbs.COMMITTING_OPERATIONS):
                raise _unknown()
            if self.verb in _READS:
                raise UnavailableError("the store did not answer in time")

    def lose(self, step: Operation[Any]) -> None:
        """Raise in the place of an answer."""
        lost = self.cue is not None and self.cue.what == "lose the reply"
        if lost and isinstance(step, verbs.COMMITTING_OPERATIONS):
            raise _unknown()


def _unknown() -> OutcomeUnknownError:
    return OutcomeUnknownError(
        "the store did not answer in time: the write may have landed. The same call with the same"
        " key lands it exactly once",
        exhausted=True,
    )


# The call that this thread or task is in. Verbs that call verbs are one call.
_current: ContextVar[_Call | None] = ContextVar("indelible_memory_faults", default=None)


class MemoryFaults:
    """Makes calls of an application's stores fail, each when it is told to.

    `verb` is the name of a method, such as `"add_messages"`, or `"*"` for any; `times` says how
    many calls in a row, None until `heal`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cues: list[_Cue] = []
        self._spent: list[_Cue] = []
        self._struck: list[Struck] = []

    # What may happen

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
            # Core would ask again, and succeed: as if it had been tried until the deadline.
            error = error.copy(exhausted=True)
        self._arm(verb, "fail", times, error=error)

    def time_out_next(self, verb: str, *, times: int | None = 1) -> None:
        """Give no answer in time, and do nothing: a write says that its outcome is unknown."""
        self._arm(verb, "time out", times)

    def lose_next_reply(self, verb: str, *, times: int | None = 1) -> None:
        """Do it, and give no answer: the outcome is unknown, and it landed."""
        if verb in _READS:
            raise UsageError(f"{verb} writes nothing, so no reply to a write can be lost")
        self._arm(verb, "lose the reply", times)

    def run_out_of_memory_next(self, verb: str, *, times: int | None = 1) -> None:
        """Refuse for want of memory, as a full Redis does; nothing is written."""
        full = UnavailableError("the memory of the server is full; nothing was written", code="OOM")
        self._arm(verb, "fail", times, error=full)

    def slow_next(self, verb: str, seconds: float, *, times: int | None = 1) -> None:
        """Take so long, and then do it."""
        self._arm(verb, "be slow", times, seconds=seconds)

    def heal(self) -> None:
        """Let everything succeed again."""
        with self._lock:
            self._spent += self._cues
            self._cues = []

    # What happened

    @property
    def struck(self) -> list[Struck]:
        """The calls that were made to fail, in their order."""
        with self._lock:
            return list(self._struck)

    @property
    def unstruck(self) -> list[str]:
        """What was asked for and never happened: a test that rests on it proved nothing."""
        with self._lock:
            return [str(cue) for cue in (*self._spent, *self._cues) if not cue.struck]

    # Where it happens

    def watch(self, store: S) -> S:
        """Let a store that is open already fail, too."""
        if not isinstance(store._backend, (_Faulty, _AsyncFaulty)):  # noqa: SLF001 -- our own store
            awaited = isinstance(store, AsyncMemoryStore)
            around: Any = _AsyncFaulty if awaited else _Faulty
            store._backend = around(store._backend)  # noqa: SLF001
            for verb in FAULT_VERBS:
                wrap = self._awaited if awaited else self._blocking
                setattr(store, verb, wrap(verb, getattr(store, verb)))
        return store

    def _arm(
        self,
        verb: str,
        what: What,
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
            self._cues.append(_Cue(verb, what, error, seconds, times))

    def _take(self, verb: str) -> _Cue | None:
        """The cue of a call that begins now, if there is one for it."""
        with self._lock:
            for cue in self._cues:
                if cue.verb not in (verb, ANY) or (cue.what == "lose the reply" and verb in _READS):
                    continue
                cue.struck += 1
                if cue.left is not None:
                    cue.left -= 1
                    if not cue.left:
                        self._cues.remove(cue)
                        self._spent.append(cue)
                self._struck.append(Struck(verb, cue.what))
                return cue
        return None

    @contextmanager
    def _call(self, verb: str) -> Iterator[None]:
        if _current.get() is not None:
            yield
            return
        current = _current.set(_Call(verb, self._take(verb)))
        try:
            yield
        finally:
            _current.reset(current)

    def _blocking(self, verb: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*arguments: Any, **options: Any) -> Any:
            with self._call(verb):
                return method(*arguments, **options)

        return call

    def _awaited(self, verb: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        async def call(*arguments: Any, **options: Any) -> Any:
            with self._call(verb):
                answer = method(*arguments, **options)
                return await answer if inspect.isawaitable(answer) else answer

        return call


class _Faulty:
    """A backend around a blocking backend."""

    def __init__(self, inner: Backend) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def perform(self, step: Operation[Any]) -> Any:
        """Do one step, as the call that it belongs to is to go."""
        call = _current.get() or _Call("", None)
        time.sleep(call.seconds())
        call.refuse(step)
        answer = self._inner.perform(step)
        call.lose(step)
        return answer


class _AsyncFaulty:
    """A backend around an async backend."""

    def __init__(self, inner: AsyncBackend) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def perform(self, step: Operation[Any]) -> Any:
        """Do one step, as the call that it belongs to is to go."""
        call = _current.get() or _Call("", None)
        if seconds := call.seconds():
            await asyncio.sleep(seconds)
        call.refuse(step)
        answer = await self._inner.perform(step)
        call.lose(step)
        return answer


@contextmanager
def watching() -> Iterator[MemoryFaults]:
    """Faults for every store that is opened meanwhile, and for those that are told to `watch`."""
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
