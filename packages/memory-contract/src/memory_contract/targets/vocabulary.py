"""Vocabularies: the methods by which a kind of store is known, and a handle that calls them.

A handle is written once, as coroutines. If the store blocks, nothing in them ever waits, and they
run to their end like plain functions.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from memory_contract.adapter import Flavour, import_object
from memory_contract.handles import Loop, dismiss

# What the parameter is called that takes the id of a session.
SESSION_NAMES: Final = frozenset(
    {"session_id", "session", "thread_id", "conversation_id", "chat_id"}
)
# How many objects a handle keeps open. Each may hold files, and a case may use many sessions.
_OPEN_MAX: Final = 64


class IsAwaited(TypeError):  # noqa: N818 -- names what happened
    """A store that is called blocking returned something to await."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """A kind of store: how to recognise it, how to call it, and what it claims."""

    # What a factory returns, for messages.
    described: str
    # The methods that it is known by.
    methods: tuple[str, ...]
    handle: type[StoreHandle]
    # The variants of the handle, as keyword arguments: the first that works is taken.
    variants: tuple[Mapping[str, Any], ...] = ({},)
    flavours: tuple[Flavour, ...] = ("blocking", "async")
    # The async method that a base class has for stores without one: it runs their blocking one.
    inherited: str = ""
    # Whether `factory(session_id, workspace)` makes one object per session.
    per_session: bool = False
    # The package to install, and the module that shows that it is.
    package: str = ""
    module: str = ""
    # Further arguments of the `Adapter`.
    claims: Mapping[str, Any] = field(default_factory=dict)

    def is_spoken_by(self, found: Any) -> bool:
        """Whether an object, or a class, has the methods."""
        return all(callable(getattr(found, method, None)) for method in self.methods)

    def has_own_async(self, kind: type) -> bool:
        """Whether the async methods of a class are its own, not its blocking ones in threads."""
        if not self.inherited:
            return True
        method = self.inherited.rpartition(".")[2]
        return getattr(kind, method, None) is not import_object(self.inherited)


class StoreHandle:
    """An open store, called as the kit's `Handle` protocol says."""

    def __init__(self, store: Any, *, awaited: bool) -> None:
        self.store = store
        self.awaited = awaited
        # Whether any answer was awaitable.
        self.has_waited = False

    async def settle(self, answer: Any) -> Any:
        """Return an answer of the store, after awaiting it if it is awaitable."""
        if not (inspect.isawaitable(answer) or inspect.isasyncgen(answer)):
            return answer
        if not self.awaited:
            dismiss(answer)
            raise IsAwaited("what it returns is to be awaited")
        self.has_waited = True
        if inspect.isawaitable(answer):
            answer = await answer
        return [item async for item in answer] if inspect.isasyncgen(answer) else answer

    async def call_twin(self, found: Any, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method, or its async twin, whose name begins with an `a`."""
        name = f"a{method}" if self.awaited else method
        return await self.settle(getattr(found, name)(*arguments, **options))


# One object per session


class Sessions:
    """The objects that one handle has open: one per session."""

    def __init__(self, make: Callable[[str], Any], *, keep: bool) -> None:
        self._make = make
        self._keep = keep
        self._open: dict[str, Any] = {}
        self._used: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def using(self, session: str) -> Iterator[Any]:
        """The object of a session, which stays open meanwhile."""
        with self._lock:
            if session not in self._open:
                self._open[session] = self._make(session)
            self._used[session] += 1
            found = self._open[session]
        try:
            yield found
        finally:
            with self._lock:
                self._used[session] -= 1

    def take_surplus(self) -> list[Any]:
        """Remove and return idle objects beyond the limit; the caller closes them."""
        if self._keep or len(self._open) <= _OPEN_MAX:
            return []
        with self._lock:
            idle = [session for session in self._open if not self._used[session]]
            return [self._open.pop(session) for session in idle[: len(self._open) - _OPEN_MAX]]

    def take_all(self) -> list[Any]:
        """Remove and return all objects, if they are the kit's to close."""
        if self._keep:
            return []
        with self._lock:
            found = list(self._open.values())
            self._open.clear()
        return found


class SessionsHandle(StoreHandle):
    """A handle whose store is a `Sessions`."""

    async def call(self, session: str, method: str, *arguments: Any) -> Any:
        """Call a method of the session's object; without arguments it may be a property."""
        with self.store.using(session) as found:
            member = getattr(found, method)
            answer = await self.settle(member(*arguments) if callable(member) else member)
        surplus = self.store.take_surplus()
        if self.awaited:
            await close_all(surplus)
        else:
            close_all_blocking(surplus)
        return answer


# Closing


async def close_all(objects: list[Any]) -> None:
    """Close objects, awaiting the answers that are awaitable."""
    for found in objects:
        answer = close_object(found)
        if inspect.isawaitable(answer):
            await answer


def close_all_blocking(objects: list[Any]) -> None:
    """Close objects from code that does not await."""
    if objects:
        loop = Loop()
        try:
            loop.settle(close_all(objects))
        finally:
            loop.close()


def close_object(found: Any) -> Any:
    """Close an object by its own method, or else the database engine that it opened."""
    for name in ("aclose", "close"):
        if callable(method := getattr(found, name, None)):
            return method()
    for name in ("async_engine", "engine"):
        if callable(dispose := getattr(getattr(found, name, None), "dispose", None)):
            return dispose()
    return None


# What the kit calls


class OpenedStore:
    """A handle whose methods are awaited, or run like plain functions; and how to close it.

    With a `prefix`, the store knows no workspace: its sessions carry the workspace's name.
    """

    def __init__(self, handle: StoreHandle, close: Callable[[], Any], *, prefix: str = "") -> None:
        self.inner = handle
        self.close = close
        self._prefix = prefix

    @property
    def exchanged(self) -> Any:
        """What was last passed in or out, as the very object: it shows shared memory."""
        return getattr(self.inner, "exchanged", None)

    def __getattr__(self, method: str) -> Any:
        coroutine = getattr(self.inner, method)

        async def call(*arguments: Any, **options: Any) -> Any:
            # The arguments that name a session come first; only `fork` has two.
            count = {"sessions": 0, "fork": 2}.get(method, 1)
            sessions = [self._prefix + session for session in arguments[:count]]
            answer = await coroutine(*sessions, *arguments[count:], **options)
            if method != "sessions" or not self._prefix:
                return answer
            own = [each for each in answer if str(each).startswith(self._prefix)]
            return [each.removeprefix(self._prefix) for each in own]

        def call_blocking(*arguments: Any, **options: Any) -> Any:
            return run_blocking(call(*arguments, **options))

        found: Any = call if self.inner.awaited else call_blocking
        # The parameters of a method tell what a store offers.
        found.__signature__ = inspect.signature(coroutine)
        return found


def run_blocking(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise IsAwaited("what it returns is to be awaited")
