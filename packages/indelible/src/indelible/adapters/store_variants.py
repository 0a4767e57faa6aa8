"""One logic for blocking and async frameworks: it awaits, and a blocking store answers at once.

Adapters are written against the awaited verbs. For blocking code a `MemoryStore` is dressed so that
no await ever waits, and the coroutine is run to its end in one go; for async code its calls are
made in threads. An `AsyncMemoryStore` is used as it is, and serves async code alone.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from indelible import AsyncMemoryStore, MemoryStore, UsageError
from indelible.core.uncancellable import UncancellableFuture

T = TypeVar("T")

Store = MemoryStore | AsyncMemoryStore


def check_store(store: Store) -> Store:
    """The store, if it is one: a URL or a path is opened by whoever will close it."""
    if not isinstance(store, MemoryStore | AsyncMemoryStore):
        raise UsageError(
            f"an open store is needed, not {store!r}: hand in indelible.open(…), or the awaited"
            " indelible.open_async(…)",
            value=store,
        )
    return store


def to_async(store: Store) -> AsyncMemoryStore:
    """The store as async code calls it."""
    if isinstance(store, AsyncMemoryStore):
        return store
    return cast("AsyncMemoryStore", _AwaitableStore(store, _call_in_thread))


def to_blocking(store: Store) -> AsyncMemoryStore:
    """The store for `run_blocking`: its awaits are over at once."""
    if isinstance(store, AsyncMemoryStore):
        raise UsageError(
            "this was given an AsyncMemoryStore, which must be awaited: use the async methods, or"
            " hand in a store of indelible.open(…), which serves both"
        )
    return cast("AsyncMemoryStore", _AwaitableStore(store, _call_directly))


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as ended:
        return cast("T", ended.value)
    work.close()
    raise AssertionError("a blocking store made its caller wait")


class _AwaitableStore:
    """A blocking store whose verbs are awaited."""

    def __init__(
        self,
        store: MemoryStore,
        call: Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]],
    ) -> None:
        self._store = store
        self._call = call

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        verb = getattr(self._store, name)
        return lambda *given, **named: self._call(functools.partial(verb, *given, **named))


async def _call_directly(work: Callable[[], T]) -> T:
    return work()


async def _call_in_thread(work: Callable[[], T]) -> T:
    """Call in a thread. Whoever is cancelled meanwhile learns of it when the outcome is known."""
    loop = asyncio.get_running_loop()
    outcome: UncancellableFuture[T] = UncancellableFuture(loop=loop)
    context = contextvars.copy_context()
    future = loop.run_in_executor(None, functools.partial(context.run, work))

    def tell(done: asyncio.Future[T]) -> None:
        error = done.exception()
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(done.result())

    future.add_done_callback(tell)
    return await outcome
