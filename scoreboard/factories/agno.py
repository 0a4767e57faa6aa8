"""Databases that Agno ships."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

# Imported here, where workers are forked from, and not by each of them when it first opens a file.
import sqlalchemy.dialects.postgresql.psycopg
import sqlalchemy.dialects.sqlite.pysqlite  # noqa: F401
from agno.db.in_memory import InMemoryDb
from agno.db.json import JsonDb
from agno.db.postgres import PostgresDb
from agno.db.redis import RedisDb
from agno.db.sqlite import SqliteDb

from scoreboard.factories.places import POSTGRES, REDIS, corner

DATABASES: Final[dict[Path, Any]] = {}


def in_memory(workspace: Path) -> Any:
    """One object for the whole program."""
    return DATABASES.setdefault(workspace, InMemoryDb())


def json(workspace: Path) -> Any:
    """JSON files."""
    return JsonDb(db_path=str(workspace))


def sqlite(workspace: Path) -> Any:
    """A SQLite file."""
    return SqliteDb(db_file=str(workspace / "agno.db"))


def redis(workspace: Path, server: str = REDIS) -> Any:
    """Keys with a prefix."""
    return RedisDb(db_url=server, db_prefix=corner(workspace))


def postgres(workspace: Path, server: str = POSTGRES) -> Any:
    """Tables in a schema of their own, which it makes."""
    url = server.replace("postgresql://", "postgresql+psycopg://")
    return PostgresDb(db_url=url, db_schema=corner(workspace))
