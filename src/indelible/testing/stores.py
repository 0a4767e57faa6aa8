"""Stores for one test: empty, apart from all others, and gone after it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import indelible
from indelible import AsyncMemoryStore, MemoryStore
from indelible.core.plan import Step
from indelible.core.settings import Settings
from indelible.core.waist import AsyncBackend
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
    with _erased(url, namespace), indelible.open(place, namespace=namespace) as store:
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
    """A backend that is opened by the loop that first asks for something."""

    def __init__(self, url: str, namespace: str) -> None:
        self._opening = indelible.open_async(url, namespace=namespace)
        self._task: asyncio.Task[AsyncMemoryStore] | None = None

    async def _backend(self) -> AsyncBackend:
        if self._task is None:
            self._task = asyncio.ensure_future(self._open())
        # Whoever waits may be cancelled; others wait for the same store.
        store = self._task.result() if self._task.done() else await asyncio.shield(self._task)
        return store._backend  # noqa: SLF001 (what a store is made of, for another store)

    async def _open(self) -> AsyncMemoryStore:
        return await self._opening

    async def prepare(self) -> None:
        """Open it."""
        await self._backend()

    async def perform(self, step: Step[T]) -> T:
        """Do one step, in the store that is opened now at the latest."""
        return await (await self._backend()).perform(step)

    async def claims(self) -> Claims:
        """What it promises."""
        return await (await self._backend()).claims()

    def owns(self, path: Path) -> bool:
        """Whether a file is part of the store itself."""
        task = self._task
        return task is not None and task.done() and task.result()._backend.owns(path)  # noqa: SLF001

    async def close(self) -> None:
        """Let go of the engine, if it was ever asked for anything."""
        if self._task is not None:
            await (await self._backend()).close()

    def end(self) -> None:
        """Close it in its own loop, if that can still run, else in another."""
        if self._task is None:
            return
        loop = self._task.get_loop()
        if loop.is_closed() or loop.is_running():
            with ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, self.close()).result()
        else:
            loop.run_until_complete(self.close())


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
        if url not in (*NEW_FILE, "memory:"):
            with indelible.open(url, namespace=namespace) as store:
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
