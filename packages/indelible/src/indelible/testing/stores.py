"""Stores for tests: empty, separate from all others, and erased afterwards."""

from __future__ import annotations

import asyncio
import secrets
import warnings
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import indelible
from indelible import AsyncMemoryStore, MemoryStore
from indelible.connect import ENGINES, Storage, find_engine
from indelible.core.backend import AsyncBackend
from indelible.core.plan import Operation
from indelible.core.settings import Settings
from indelible.model import Claims
from indelible.session_copy import iter_session_ids

T = TypeVar("T")

# Asks for a file of its own: the name of an engine, such as `sqlite:`.
NEW_FILES = {
    name: engine
    for engine in ENGINES
    if engine.storage is Storage.FILE
    for name in (engine.name, f"{engine.name}:")
}


class Folders(Protocol):
    """Creates folders for tests, such as pytest's `tmp_path_factory`."""

    def mktemp(self, basename: str) -> Any:
        """Create a folder."""


@contextmanager
def open_fresh(url: str, folders: Folders) -> Iterator[MemoryStore]:
    """Open a store in a namespace of its own; erase its sessions at the end."""
    place, namespace = _choose_url(url, folders), _create_namespace()
    with _erase_afterwards(url, namespace):
        with _ignore_warnings():
            store = indelible.open(place, namespace=namespace)
        with store:
            yield store


@contextmanager
def open_fresh_async(url: str, folders: Folders) -> Iterator[AsyncMemoryStore]:
    """Open a store as `open_fresh` does, async, on first use, in the event loop of the test."""
    place, namespace = _choose_url(url, folders), _create_namespace()
    with _erase_afterwards(url, namespace):
        backend = _LazyBackend(place, namespace)
        try:
            yield AsyncMemoryStore(backend, Settings())
        finally:
            backend.close_all()


class _LazyBackend:
    """A backend that is opened on first use, by the event loop that uses it.

    Connections to a server belong to a loop: each loop of a test opens its own, which is closed
    with the loop. A file or memory is opened once and shared.
    """

    def __init__(self, url: str, namespace: str) -> None:
        self._url = url
        self._namespace = namespace
        self._shared = find_engine(url).storage is not Storage.SERVER
        self._tasks: dict[asyncio.AbstractEventLoop | None, asyncio.Task[AsyncMemoryStore]] = {}
        self._held: list[AsyncGenerator[None, None]] = []

    async def _open_backend(self) -> AsyncBackend:
        key = None if self._shared else asyncio.get_running_loop()
        if key not in self._tasks:
            self._tasks[key] = asyncio.ensure_future(self._open())
        task = self._tasks[key]
        # Shielded: if this caller is cancelled, others still wait for the same store.
        store = task.result() if task.done() else await asyncio.shield(task)
        return store._backend  # noqa: SLF001 (what a store is made of, for another store)

    async def _open(self) -> AsyncMemoryStore:
        with _ignore_warnings():
            store = await indelible.open_async(self._url, namespace=self._namespace)
        if not self._shared:
            self._held.append(_close_with_loop(store))
            await anext(self._held[-1])
        return store

    async def prepare(self) -> None:
        """Open the store."""
        await self._open_backend()

    async def perform(self, op: Operation[T]) -> T:
        """Open the store if needed, and perform an operation."""
        return await (await self._open_backend()).perform(op)

    async def claims(self) -> Claims:
        """Return the claims of the store."""
        return await (await self._open_backend()).claims()

    async def close(self) -> None:
        """Close the store of this loop, if it was opened."""
        if self._tasks:
            await (await self._open_backend()).close()

    def close_all(self) -> None:
        """Close the stores that no loop has closed."""
        for key, task in self._tasks.items():
            if key is None:
                with ThreadPoolExecutor(1) as thread:
                    thread.submit(asyncio.run, task.result().close()).result()
            elif not key.is_closed() and not key.is_running():
                key.run_until_complete(task.result().close())


async def _close_with_loop(store: AsyncMemoryStore) -> AsyncGenerator[None, None]:
    """Close a store with its event loop, which closes its async generators before it ends."""
    try:
        yield
    finally:
        await store.close()


@contextmanager
def _ignore_warnings() -> Iterator[None]:
    """Ignore warnings about durability, which do not matter in a test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def _choose_url(url: str, folders: Folders) -> str:
    engine = NEW_FILES.get(url)
    if engine is None:
        return url
    return f"{engine.schemes[0]}:///{folders.mktemp('memory_store')}/memory.db"


def _create_namespace() -> str:
    return f"test-{secrets.token_hex(8)}"


@contextmanager
def _erase_afterwards(url: str, namespace: str) -> Iterator[None]:
    """Erase the sessions of a namespace on a server, even if the test has closed its store."""
    try:
        yield
    finally:
        if url not in NEW_FILES and find_engine(url).storage is not Storage.MEMORY:
            with _ignore_warnings(), indelible.open(url, namespace=namespace) as store:
                for name in list(iter_session_ids(store, expired=True)):
                    store.forget(name)
