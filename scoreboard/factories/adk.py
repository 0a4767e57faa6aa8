"""Session services that Google's Agent Development Kit ships."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

# Imported here, where workers are forked from, and not by each of them when it first opens a file.
import sqlalchemy.dialects.postgresql.asyncpg
import sqlalchemy.dialects.sqlite.aiosqlite  # noqa: F401
from google.adk.sessions.database_session_service import DatabaseSessionService
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService

from scoreboard.factories.places import POSTGRES, corner, make_schema, once

SERVICES: Final[dict[Path, Any]] = {}


def in_memory(workspace: Path) -> Any:
    """One object for the whole program."""
    return SERVICES.setdefault(workspace, InMemorySessionService())


def sqlite(workspace: Path) -> Any:
    """A SQLite file."""
    return SqliteSessionService(str(workspace / "sessions.db"))


def database_sqlite(workspace: Path) -> Any:
    """Tables in a SQLite file, through SQLAlchemy and aiosqlite."""
    return DatabaseSessionService(f"sqlite+aiosqlite:///{workspace / 'sessions.db'}")


def database_postgres(workspace: Path, server: str = POSTGRES) -> Any:
    """Tables in PostgreSQL, through SQLAlchemy and asyncpg."""
    once(workspace, server, lambda: make_schema(workspace, server))
    return DatabaseSessionService(
        server.replace("postgresql://", "postgresql+asyncpg://"),
        connect_args={"server_settings": {"search_path": corner(workspace)}},
    )
