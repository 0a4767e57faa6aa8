"""Fixtures for tests of programs that use indelible: `pytest_plugins = ["indelible.testing"]`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from indelible import AsyncMemoryStore, MemoryStore
from indelible.testing.processes import Started, run_in_process, starting
from indelible.testing.stores import open_fresh, open_fresh_async


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the store that the fixtures open."""
    group = parser.getgroup("indelible", "stores for tests")
    group.addoption(
        "--memory-store",
        default=None,
        metavar="URL",
        help="What the fixtures memory_store and async_memory_store open: memory: (the default),"
        " sqlite: for a new file, or any URL of indelible.",
    )
    parser.addini("memory_store", "The same as --memory-store.", default="memory:")


@pytest.fixture
def memory_store_url(pytestconfig: pytest.Config) -> str:
    """The URL that memory_store and async_memory_store open; override it to change that."""
    asked = pytestconfig.getoption("memory_store")
    return str(asked or pytestconfig.getini("memory_store"))


@pytest.fixture
def memory_store(
    memory_store_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MemoryStore]:
    """An empty store for each test, separate from all others and erased afterwards."""
    with open_fresh(memory_store_url, tmp_path_factory) as store:
        yield store


@pytest.fixture
def async_memory_store(
    memory_store_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AsyncMemoryStore]:
    """The same as memory_store, async; its calls run in threads.

    It needs no plugin itself; an async test may need one.
    """
    with open_fresh_async(memory_store_url, tmp_path_factory) as store:
        yield store


@pytest.fixture(name="run_in_process")
def run_in_process_fixture() -> Callable[..., Any]:
    """Run a function in a new process: its result comes back, or what it raised is raised."""
    return run_in_process


@pytest.fixture(name="start_in_process")
def start_in_process_fixture() -> Iterator[Callable[..., Started]]:
    """Start a function in a new process, to be killed or waited for; none outlives its test."""
    with starting() as start:
        yield start
