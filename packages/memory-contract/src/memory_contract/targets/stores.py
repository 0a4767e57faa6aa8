"""Frameworks whose stores hold every session, made by `factory(workspace)`.

A factory gives the store itself, or a context manager that gives one, as some frameworks open
theirs; each blocking or to be awaited.

A handle of such a store is written once, as coroutines. Where the store blocks, nothing in them
ever waits, and they are run to their end like plain functions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from memory_contract.adapter import Adapter, imported
from memory_contract.targets import TargetError
from memory_contract.targets.factories import (
    adapted,
    close_all,
    close_all_blocking,
    factory_named,
    made,
    server_of,
)

_TAKES: Final = "workspace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A framework's kind of store: what it is called, and the methods that it is known by."""

    package: str
    module: str
    called: str
    methods: tuple[str, ...]

    def is_met_by(self, found: Any) -> bool:
        """Whether it can be driven as such a store."""
        return all(callable(getattr(found, method, None)) for method in self.methods)

    def expect(self, found: Any, name: str) -> Any:
        """The store, if it is one."""
        if self.is_met_by(found):
            return found
        raise TargetError(
            f"the factory {name} gave {type(found).__name__}: expected {self.called}, or a "
            "context manager that gives one"
        )


class StoreHandle:
    """A store that is open, in the kit's words."""

    def __init__(self, store: Any, *, awaited: bool) -> None:
        self.store = store
        self.awaited = awaited

    async def settled(self, answer: Any) -> Any:
        """What an answer of the store comes to."""
        if not inspect.isawaitable(answer):
            return answer
        if self.awaited:
            return await answer
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError("the store is to be awaited")


class Opened:
    """What is open, and how it is let go of."""

    def __init__(self, handle: StoreHandle, leave: Callable[[], Any]) -> None:
        self._handle = handle
        self._leave = leave


class Awaited(Opened):
    """A handle whose methods are awaited."""

    def __getattr__(self, method: str) -> Any:
        return getattr(self._handle, method)

    async def close(self) -> None:
        """Let go of the store."""
        answer = self._leave()
        if inspect.isawaitable(answer):
            await answer


class Blocking(Opened):
    """A handle whose methods are plain functions."""

    def __getattr__(self, method: str) -> Any:
        coroutine = getattr(self._handle, method)

        def call(*arguments: Any, **options: Any) -> Any:
            return _ended(coroutine(*arguments, **options))

        # What a method takes tells what a store offers.
        call.__signature__ = inspect.signature(coroutine)  # type: ignore[attr-defined]
        return call

    def close(self) -> None:
        """Let go of the store."""
        self._leave()


def _ended(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns that has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise TypeError("the store is to be awaited")


@dataclass(frozen=True, slots=True)
class OpenStore:
    """Opens a store by the name of its factory, so that other processes can."""

    name: str
    kind: Kind
    handle: type[StoreHandle]
    awaited: bool = False
    # Whether what the factory made is left open, since it is shared.
    keep: bool = False

    def __call__(self, workspace: Path, *, server: str | None = None) -> Any:
        """A handle, or something to await for it."""
        found = made(imported(self.name), workspace, server=server)
        return self._opened_soon(found) if self.awaited else self._opened(found)

    def _opened(self, found: Any) -> Blocking:
        if not self.kind.is_met_by(found):
            if inspect.iscoroutine(found):
                found.close()
            if inspect.isawaitable(found) or hasattr(found, "__aenter__"):
                raise TypeError("it is opened by awaiting")
            if hasattr(found, "__enter__"):
                return self._blocking(found.__enter__(), partial(found.__exit__, *(None,) * 3))
        return self._blocking(found, partial(close_all_blocking, [] if self.keep else [found]))

    def _blocking(self, store: Any, leave: Callable[[], Any]) -> Blocking:
        return Blocking(self.handle(self.kind.expect(store, self.name), awaited=False), leave)

    async def _opened_soon(self, found: Any) -> Awaited:
        if not self.kind.is_met_by(found):
            if inspect.isawaitable(found):
                found = await found
            for enter, leave in (("__aenter__", "__aexit__"), ("__enter__", "__exit__")):
                if hasattr(found, enter) and not self.kind.is_met_by(found):
                    store = getattr(found, enter)()
                    store = await store if inspect.isawaitable(store) else store
                    return self._awaited(store, partial(getattr(found, leave), *(None,) * 3))
        return self._awaited(found, partial(close_all, [] if self.keep else [found]))

    def _awaited(self, store: Any, leave: Callable[[], Any]) -> Awaited:
        return Awaited(self.handle(self.kind.expect(store, self.name), awaited=True), leave)


def adapter_of_store(
    name: str,
    framework: str,
    kind: Kind,
    *,
    blocking: type[StoreHandle] | None = None,
    awaited: type[StoreHandle] | None = None,
    own: Callable[[type], bool] | None = None,
    **claims: Any,
) -> Adapter:
    """The adapter of a factory, driven by handles for each way to call such a store.

    `own` says of a class whether its awaited methods are its own, and not the blocking ones.
    """
    factory = factory_named(name, kind.package, kind.module, _TAKES)
    adapter = Adapter(
        open=OpenStore(name, kind, blocking) if blocking else None,
        open_async=OpenStore(name, kind, awaited, awaited=True) if awaited else None,
        name=f"{framework}:{name}",
        server=server_of(factory, name),
        **claims,
    )
    return adapted(adapter, factory, awaited=own)
