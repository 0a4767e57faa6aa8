"""Checkpoint savers and stores that LangGraph ships, and those of indelible for it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import PostgresStore
from langgraph.store.postgres.aio import AsyncPostgresStore
from langgraph.store.sqlite import SqliteStore
from langgraph.store.sqlite.aio import AsyncSqliteStore

import indelible
from indelible.adapters.langgraph import IndelibleLangGraphStore, IndelibleSaver
from scoreboard.factories.places import POSTGRES, corner, in_schema, make_schema, once

SAVERS: Final[dict[Path, Any]] = {}
STORES: Final[dict[Path, Any]] = {}


def saver_in_memory(workspace: Path) -> Any:
    """One object for the whole program."""
    return SAVERS.setdefault(workspace, InMemorySaver())


def saver_sqlite(workspace: Path) -> Any:
    """A SQLite file."""
    return SqliteSaver.from_conn_string(str(workspace / "checkpoints.db"))


def saver_sqlite_awaited(workspace: Path) -> Any:
    """A SQLite file, through aiosqlite."""
    return AsyncSqliteSaver.from_conn_string(str(workspace / "checkpoints.db"))


@contextlib.contextmanager
def saver_postgres(workspace: Path, server: str = POSTGRES) -> Iterator[Any]:
    """Tables in PostgreSQL, made beforehand."""
    url = in_schema(workspace, server)
    once(workspace, server, lambda: _set_up(PostgresSaver, workspace, server))
    with PostgresSaver.from_conn_string(url) as saver:
        yield saver


@contextlib.asynccontextmanager
async def saver_postgres_awaited(workspace: Path, server: str = POSTGRES) -> AsyncIterator[Any]:
    """The same, awaited."""
    url = in_schema(workspace, server)
    once(workspace, server, lambda: _set_up(PostgresSaver, workspace, server))
    async with AsyncPostgresSaver.from_conn_string(url) as saver:
        yield saver


@contextlib.contextmanager
def saver_indelible(workspace: Path) -> Iterator[Any]:
    """Ours, on a SQLite file."""
    with indelible.open(workspace / "agent.db") as store:
        yield IndelibleSaver(store, on_conflict="refuse")


@contextlib.contextmanager
def saver_indelible_postgres(workspace: Path, server: str = POSTGRES) -> Iterator[Any]:
    """Ours, in PostgreSQL."""
    with indelible.open(server, namespace=corner(workspace)) as store:
        yield IndelibleSaver(store, on_conflict="refuse")


def store_in_memory(workspace: Path) -> Any:
    """One object for the whole program."""
    return STORES.setdefault(workspace, InMemoryStore())


@contextlib.contextmanager
def store_sqlite(workspace: Path) -> Iterator[Any]:
    """A SQLite file, whose tables are made beforehand."""
    with SqliteStore.from_conn_string(str(workspace / "store.db")) as store:
        once(workspace, "", store.setup)
        yield store


@contextlib.asynccontextmanager
async def store_sqlite_awaited(workspace: Path) -> AsyncIterator[Any]:
    """The same, through aiosqlite."""
    async with AsyncSqliteStore.from_conn_string(str(workspace / "store.db")) as store:
        await store.setup()
        yield store


@contextlib.contextmanager
def store_postgres(workspace: Path, server: str = POSTGRES) -> Iterator[Any]:
    """Tables in PostgreSQL, made beforehand."""
    url = in_schema(workspace, server)
    once(workspace, server, lambda: _set_up(PostgresStore, workspace, server))
    with PostgresStore.from_conn_string(url) as store:
        yield store


@contextlib.asynccontextmanager
async def store_postgres_awaited(workspace: Path, server: str = POSTGRES) -> AsyncIterator[Any]:
    """The same, awaited."""
    url = in_schema(workspace, server)
    once(workspace, server, lambda: _set_up(PostgresStore, workspace, server))
    async with AsyncPostgresStore.from_conn_string(url) as store:
        yield store


@contextlib.contextmanager
def store_indelible(workspace: Path) -> Iterator[Any]:
    """Ours, on a SQLite file."""
    with indelible.open(workspace / "agent.db") as store:
        yield IndelibleLangGraphStore(store)


@contextlib.contextmanager
def store_indelible_postgres(workspace: Path, server: str = POSTGRES) -> Iterator[Any]:
    """Ours, in PostgreSQL."""
    with indelible.open(server, namespace=corner(workspace)) as store:
        yield IndelibleLangGraphStore(store)


def _set_up(kind: Any, workspace: Path, server: str) -> None:
    make_schema(workspace, server)
    with kind.from_conn_string(in_schema(workspace, server)) as made:
        made.setup()
