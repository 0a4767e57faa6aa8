"""Stores for one test: empty, apart from all others, and gone after it."""

from __future__ import annotations

import asyncio
import secrets
import warnings
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import indelible
from indelible import AsyncMemoryStore, MemoryStore
from indelible.connect import Storage, find_engine
from indelible.core.backend import AsyncBackend
from indelible.core.plan import Operation
from indelible.core.settings import Settings
from indelible.model import Claims

T = TypeVar("T")

NEW_FILE = ("sqlite:", "sqlite")


class Folders(Protocol):
    """What makes folders for tests: pytest's `tmp_path_factory`."""

    def mktemp(self, basename: str) -> Any:
        """A new folder."""


@contextmanager
def fresh(url: str, folders: Folders) -> Iterator[MemoryStore]:
    """A store in a namespace of its own; its sessions are erased at the end."""
    place, namespace = _place(url, folders), _namespace()
    with _erased(url, namespace):
        with _unconcerned():
            store = indelible.open(place, namespace=namespace)
        with store:
            yield store


@contextmanager
def fresh_async(url: str, folders: Folders) -> Iterator[AsyncMemoryStore]:
    """The same for async code. It is opened when the test first uses it, in the test's own loop."""
    place, namespace = _place(url, folders), _namespace()
    with _erased(url, namespace):
        backend = _OpenedLater(place, namespace)
        try:
            yield AsyncMemoryStore(backend, Settings())
        finally:
            backend.end()


class _OpenedLater:
    """A backend that is opened by the loop that first asks for something.

    Connections to a server belong to a loop: each loop of a test opens its own, and closes it when
    it ends. A file, or memory, is opened once and shared by all.
    """

    def __init__(self, url: str, namespace: str) -> None:
        self._url = url
        self._namespace = namespace
        self._shared = find_engine(url).storage is not Storage.SERVER
        self._tasks: dict[asyncio.AbstractEventLoop | None, asyncio.Task[AsyncMemoryStore]] = {}
        self._held: list[AsyncGenerator[None, None]] = []

    async def _backend(self) -> AsyncBackend:
        key = None if self._shared else asyncio.get_running_loop()
        if key not in self._tasks:
            self._tasks[key] = asyncio.ensure_future(self._open())
        task = self._tasks[key]
        # Whoever waits may be cancelled; others wait for the same store.
        store = task.result() if task.done() else await asyncio.shield(task)
        return store._backend  # noqa: SLF001 (what a store is made of, for another store)

    async def _open(self) -> AsyncMemoryStore:
        with _unconcerned():
            store = await indelible.open_async(self._url, namespace=self._namespace)
        if not self._shared:
            self._held.append(_until_the_loop_ends(store))
            await anext(self._held[-1])
        return store

    async def prepare(self) -> None:
        """Open it."""
        await self._backend()

    async def perform(self, step: Operation[T]) -> T:
        """Do one step, in the store that is opened now at the latest."""
        return await (await self._backend()).perform(step)

    async def claims(self) -> Claims:
        """What it promises."""
        return await (await self._backend()).claims()

    def owns(self, path: Path) -> bool:
        """Whether a file is part of the store itself."""
        opened = (task.result() for task in self._tasks.values() if task.done())
        return any(store._backend.owns(path) for store in opened)  # noqa: SLF001

    async def close(self) -> None:
        """Let go of the engine, if it was ever asked for anything."""
        if self._tasks:
            await (await self._backend()).close()

    def end(self) -> None:
        """Close what no loop has closed."""
        for key, task in self._tasks.items():
            if key is None:
                with ThreadPoolExecutor(1) as thread:
                    thread.submit(asyncio.run, task.result().close()).result()
            elif not key.is_closed() and not key.is_running():
                key.run_until_complete(task.result().close())


async def _until_the_loop_ends(store: AsyncMemoryStore) -> AsyncGenerator[None, None]:
    """Loops close the generators that they have begun before they end: this one closes a store."""
    try:
        yield
    finally:
        await store.close()


@contextmanager
def _unconcerned() -> Iterator[None]:
    """A store for a test may lose what it likes in a power cut: dangers are not warned of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def _place(url: str, folders: Folders) -> str:
    return str(folders.mktemp("memory_store") / "memory.db") if url in NEW_FILE else url


def _namespace() -> str:
    return f"test-{secrets.token_hex(8)}"


@contextmanager
def _erased(url: str, namespace: str) -> Iterator[None]:
    """Leave nothing in a store that others use, even if the test has closed its own."""
    try:
        yield
    finally:
        if url not in NEW_FILE and find_engine(url).storage is not Storage.MEMORY:
            with _unconcerned(), indelible.open(url, namespace=namespace) as store:
                for name in _sessions(store):
                    store.forget(name)


def _sessions(store: MemoryStore) -> list[str]:
    names: list[str] = []
    page = store.list_sessions()
    while True:
        names += page
        if page.cursor is None:
            return names
        page = store.list_sessions(cursor=page.cursor)
