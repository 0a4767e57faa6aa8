"""Chat message histories that LangChain ships."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import psycopg

from scoreboard.factories.places import POSTGRES, REDIS, as_uuid, corner, file_name, once

with warnings.catch_warnings():
    # One says that it is no longer maintained, another that it is on its way out.
    warnings.simplefilter("ignore")
    from langchain_community.chat_message_histories import (
        FileChatMessageHistory,
        RedisChatMessageHistory,
        SQLChatMessageHistory,
    )
    from langchain_postgres import PostgresChatMessageHistory

# Imported here, where workers are forked from, and not by each of them when it first opens a file.
import sqlalchemy.dialects.sqlite.aiosqlite
import sqlalchemy.dialects.sqlite.pysqlite  # noqa: F401


def file(session_id: str, workspace: Path) -> Any:
    """A JSON file for each session."""
    return FileChatMessageHistory(str(workspace / f"{file_name(session_id)}.json"))


def sql(session_id: str, workspace: Path) -> Any:
    """A table in a SQLite file."""
    return SQLChatMessageHistory(session_id, connection=f"sqlite:///{workspace / 'history.db'}")


def sql_awaited(session_id: str, workspace: Path) -> Any:
    """The same through aiosqlite."""
    url = f"sqlite+aiosqlite:///{workspace / 'history.db'}"
    return SQLChatMessageHistory(session_id, connection=url, async_mode=True)


def redis(session_id: str, workspace: Path, server: str = REDIS) -> Any:
    """A list for each session."""
    return RedisChatMessageHistory(session_id, url=server, key_prefix=f"{corner(workspace)}:")


def postgres(session_id: str, workspace: Path, server: str = POSTGRES) -> Any:
    """A table, made beforehand; its sessions are UUIDs."""
    connection = psycopg.connect(server)
    table = corner(workspace)
    once(workspace, server, lambda: PostgresChatMessageHistory.create_tables(connection, table))
    return PostgresChatMessageHistory(table, as_uuid(session_id), sync_connection=connection)
