"""One implementation of adapters for sync and async frameworks.

Adapters await the verbs of a store. For sync code, a `MemoryStore` is wrapped so that its awaits
never suspend, and `run_blocking` runs the coroutine to its end. For async code, its calls run in
threads. An `AsyncMemoryStore` is used directly, by async code only.

    class History(StoreVariants):
        async def _get_messages(self, store: AsyncMemoryStore, last: int) -> list[ChatMessage]:
            return await store.get_history(self.session_id, last=last)

        get_messages, aget_messages = make_pair(_get_messages)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from indelible import AsyncMemoryStore, MemoryStore, UsageError
from indelible.core.uncancellable import call_in_thread

T = TypeVar("T")
P = ParamSpec("P")

Store = MemoryStore | AsyncMemoryStore


def check_store(store: Store) -> Store:
    """Check that this is an open store: who opens a URL or a path must also close it."""
    if not isinstance(store, MemoryStore | AsyncMemoryStore):
        raise UsageError(
            f"an open store is needed, not {store!r}: hand in indelible.open(…), or the awaited"
            " indelible.open_async(…)",
            value=store,
        )
    return store


def to_async(store: Store) -> AsyncMemoryStore:
    """Return the store with awaitable verbs."""
    if isinstance(store, AsyncMemoryStore):
        return store
    return cast("AsyncMemoryStore", _AwaitableStore(store, call_in_thread))


def to_blocking(store: Store) -> AsyncMemoryStore:
    """Return the store for `run_blocking`: its awaits never suspend."""
    if isinstance(store, AsyncMemoryStore):
        raise UsageError(
            "this was given an AsyncMemoryStore, which must be awaited: use the async methods, or"
            " hand in a store of indelible.open(…), which serves both"
        )
    return cast("AsyncMemoryStore", _AwaitableStore(store, _call_directly))


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration as ended:
        return cast("T", ended.value)
    work.close()
    raise AssertionError("a blocking store made its caller wait")


class HasVariants(Protocol):
    """An adapter with its store, or what it has made of it, for `run_blocking` and awaited."""

    @property
    def _blocking(self) -> Any: ...

    @property
    def _awaited(self) -> Any: ...


class StoreVariants:
    """An adapter whose methods take its store."""

    _store: Store

    @property
    def _blocking(self) -> AsyncMemoryStore:
        return to_blocking(self._store)

    @property
    def _awaited(self) -> AsyncMemoryStore:
        return to_async(self._store)


A = TypeVar("A", bound=HasVariants)


def make_pair(
    work: Callable[Concatenate[A, Any, P], Coroutine[Any, Any, T]],
    awaited: str | None = None,
) -> tuple[Callable[Concatenate[A, P], T], Callable[Concatenate[A, P], Coroutine[Any, Any, T]]]:
    """Make the blocking and the async method of an adapter from one that takes a variant.

    From `_get`, they are `get` and `aget`, unless the async one is called as `awaited` says.
    """

    def call(self: A, /, *args: P.args, **named: P.kwargs) -> T:
        return run_blocking(work(self, self._blocking, *args, **named))

    async def call_async(self: A, /, *args: P.args, **named: P.kwargs) -> T:
        return await work(self, self._awaited, *args, **named)

    signature = inspect.signature(work)
    own, _, *others = signature.parameters.values()
    blocking = work.__name__.removeprefix("_")
    methods: tuple[Any, Any] = call, call_async
    for method, name in zip(methods, (blocking, awaited or f"a{blocking}"), strict=True):
        functools.update_wrapper(method, work)
        method.__name__ = name
        method.__qualname__ = f"{work.__qualname__.removesuffix(work.__name__)}{name}"
        method.__signature__ = signature.replace(parameters=[own, *others])
    return methods


class _AwaitableStore:
    """A sync store with awaitable verbs."""

    def __init__(
        self,
        store: MemoryStore,
        call: Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]],
    ) -> None:
        self.wrapped = store
        self._call = call

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        verb = getattr(self.wrapped, name)
        return lambda *given, **named: self._call(functools.partial(verb, *given, **named))


async def _call_directly(work: Callable[[], T]) -> T:
    return work()
