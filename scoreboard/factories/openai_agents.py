"""Sessions that the OpenAI Agents SDK ships."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Imported here, where workers are forked from, and not by each of them when it first opens a file.
import sqlalchemy.dialects.postgresql.asyncpg
import sqlalchemy.dialects.sqlite.aiosqlite  # noqa: F401
from agents import SQLiteSession
from agents.extensions.memory import (
    AdvancedSQLiteSession,
    AsyncSQLiteSession,
    RedisSession,
    SQLAlchemySession,
)

from scoreboard.factories.places import POSTGRES, REDIS, corner


def sqlite(session_id: str, workspace: Path) -> Any:
    """A SQLite file."""
    return SQLiteSession(session_id, workspace / "sessions.db")


def sqlite_awaited(session_id: str, workspace: Path) -> Any:
    """A SQLite file, through aiosqlite."""
    return AsyncSQLiteSession(session_id, workspace / "sessions.db")


def sqlite_advanced(session_id: str, workspace: Path) -> Any:
    """A SQLite file, with branches and usage."""
    return AdvancedSQLiteSession(
        session_id=session_id, db_path=workspace / "sessions.db", create_tables=True
    )


def sqlalchemy_sqlite(session_id: str, workspace: Path) -> Any:
    """Tables in a SQLite file, through SQLAlchemy and aiosqlite."""
    url = f"sqlite+aiosqlite:///{workspace / 'sessions.db'}"
    return SQLAlchemySession.from_url(session_id, url=url, create_tables=True)


def sqlalchemy_postgres(session_id: str, workspace: Path, server: str = POSTGRES) -> Any:
    """Tables in PostgreSQL, through SQLAlchemy and asyncpg."""
    return SQLAlchemySession.from_url(
        session_id,
        url=server.replace("postgresql://", "postgresql+asyncpg://"),
        create_tables=True,
        sessions_table=f"{corner(workspace)}_sessions",
        messages_table=f"{corner(workspace)}_messages",
    )


def redis(session_id: str, workspace: Path, server: str = REDIS) -> Any:
    """A list for each session."""
    return RedisSession.from_url(session_id, url=server, key_prefix=corner(workspace))
