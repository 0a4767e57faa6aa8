"""Stores for tests: empty, separate from all others, and erased afterwards."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

import indelible
from indelible import AsyncMemoryStore, MemoryStore
from indelible.connect import ENGINES, Storage, find_engine
from indelible.core.backend import Backend
from indelible.core.plan import Operation
from indelible.core.uncancellable import call_in_thread
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
    """Open a store as `open_fresh` does, async, for any number of event loops."""
    with open_fresh(url, folders) as store:
        yield AsyncMemoryStore(_ThreadedBackend(store._backend), store._settings)  # noqa: SLF001


class _ThreadedBackend:
    """A blocking backend whose calls run in threads, so that it belongs to no event loop."""

    def __init__(self, blocking: Backend) -> None:
        self._blocking = blocking

    async def prepare(self) -> None:
        await call_in_thread(self._blocking.prepare)

    async def perform(self, op: Operation[T]) -> T:
        return await call_in_thread(partial(self._blocking.perform, op))

    async def claims(self) -> Claims:
        return await call_in_thread(self._blocking.claims)

    async def close(self) -> None:
        await call_in_thread(self._blocking.close)


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
