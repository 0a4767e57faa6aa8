"""Where stores keep what the scoreboard writes: a folder, or a corner of a server of its own."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

# `make scoreboard` starts servers and names them here; by hand, name some of your own.
REDIS: Final = os.environ.get("SCOREBOARD_REDIS", "redis://127.0.0.1:6379")
POSTGRES: Final = os.environ.get(
    "SCOREBOARD_POSTGRES", "postgresql://postgres@127.0.0.1:5432/postgres"
)

# How many numbered databases a server of the scoreboard has. A plain server has 16.
DATABASES: Final = 16_384


def file_name(session_id: str) -> str:
    """A file name for any session, for stores that leave file names to their users."""
    return hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()


def as_uuid(session_id: str) -> str:
    """A UUID for any session, for stores whose sessions are UUIDs."""
    return str(uuid.UUID(file_name(session_id)[:32]))


def corner(workspace: Path) -> str:
    """A prefix of keys, a table or a schema that is the workspace's own."""
    return "w" + hashlib.sha256(str(workspace).encode()).hexdigest()[:16]


def number(workspace: Path) -> int:
    """The number of a database of Redis that is the workspace's own: the kit counts workspaces."""
    count = workspace.name.rpartition("-")[2]
    if count.isdecimal():
        return int(count)
    return DATABASES - 1 - int(corner(workspace)[1:], 16) % (DATABASES // 2)


def once(workspace: Path, server: str, prepare: Callable[[], Any]) -> None:
    """Prepare a server before anybody works on it, as a deployment does: one caller, one time."""
    done = workspace / f"prepared-{hashlib.sha256(server.encode()).hexdigest()[:16]}"
    with (workspace / "preparing").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            prepare()
            done.touch()


def in_schema(workspace: Path, server: str) -> str:
    """The URL of a schema that is the workspace's own, for psycopg."""
    return f"{server}?options=-csearch_path%3D{corner(workspace)}"


def make_schema(workspace: Path, server: str) -> None:
    """Make that schema."""
    import psycopg  # noqa: PLC0415 -- only stores on PostgreSQL need it

    with contextlib.closing(psycopg.connect(server, autocommit=True)) as connection:
        # Made of a digest by us.
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {corner(workspace)}".encode())
