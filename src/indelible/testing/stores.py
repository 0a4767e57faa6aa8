"""Stores for one test: empty, apart from all others, and gone after it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import indelible
from indelible import AsyncMemoryStore, MemoryStore

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
    """The same for async code, opened and closed apart from the loop that the test runs in."""
    place, namespace = _place(url, folders), _namespace()
    with _erased(url, namespace), ThreadPoolExecutor(1) as thread:

        def finished(work: Coroutine[Any, Any, T]) -> T:
            return thread.submit(asyncio.run, work).result()

        store = finished(_opened(place, namespace))
        try:
            yield store
        finally:
            finished(store.close())


def _place(url: str, folders: Folders) -> str:
    return str(folders.mktemp("memory_store") / "memory.db") if url in NEW_FILE else url


def _namespace() -> str:
    return f"test-{secrets.token_hex(8)}"


async def _opened(url: str, namespace: str) -> AsyncMemoryStore:
    return await indelible.open_async(url, namespace=namespace)


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
