"""Chat stores that LlamaIndex ships."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

# Imported here, where workers are forked from, and not by each of them when it first opens a file.
import sqlalchemy.dialects.postgresql.asyncpg
import sqlalchemy.dialects.postgresql.psycopg
import sqlalchemy.dialects.sqlite.aiosqlite
import sqlalchemy.dialects.sqlite.pysqlite  # noqa: F401
from llama_index.core.storage.chat_store import SimpleChatStore
from llama_index.storage.chat_store.postgres import PostgresChatStore
from llama_index.storage.chat_store.redis import RedisChatStore
from llama_index.storage.chat_store.sqlite import SQLiteChatStore

from scoreboard.factories.places import POSTGRES, REDIS, corner, number

STORES: Final[dict[Path, Any]] = {}


def simple(workspace: Path) -> Any:
    """One object for the whole program; to persist it is a call that its user makes."""
    return STORES.setdefault(workspace, SimpleChatStore())


def sqlite(workspace: Path) -> Any:
    """A table in a SQLite file."""
    return SQLiteChatStore.from_params(database=str(workspace / "chat.db"))


def redis(workspace: Path, server: str = REDIS) -> Any:
    """A list for each session. Keys have no prefix: a workspace has a numbered database."""
    return RedisChatStore(redis_url=f"{server}/{number(workspace)}")


def postgres(workspace: Path, server: str = POSTGRES) -> Any:
    """A table in PostgreSQL."""
    return PostgresChatStore.from_params(
        table_name=corner(workspace),
        connection_string=server.replace("postgresql://", "postgresql+psycopg://"),
        async_connection_string=server.replace("postgresql://", "postgresql+asyncpg://"),
    )
