"""Checkpoint savers and stores that LangGraph ships."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import PostgresStore
from langgraph.store.sqlite import SqliteStore

from scoreboard.factories.places import POSTGRES, in_schema, make_schema, once

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


def store_in_memory(workspace: Path) -> Any:
    """One object for the whole program."""
    return STORES.setdefault(workspace, InMemoryStore())


@contextlib.contextmanager
def store_sqlite(workspace: Path) -> Iterator[Any]:
    """A SQLite file, whose tables are made beforehand."""
    with SqliteStore.from_conn_string(str(workspace / "store.db")) as store:
        once(workspace, "", store.setup)
        yield store


@contextlib.contextmanager
def store_postgres(workspace: Path, server: str = POSTGRES) -> Iterator[Any]:
    """Tables in PostgreSQL, made beforehand."""
    url = in_schema(workspace, server)
    once(workspace, server, lambda: _set_up(PostgresStore, workspace, server))
    with PostgresStore.from_conn_string(url) as store:
        yield store


def _set_up(kind: Any, workspace: Path, server: str) -> None:
    make_schema(workspace, server)
    with kind.from_conn_string(in_schema(workspace, server)) as made:
        made.setup()
