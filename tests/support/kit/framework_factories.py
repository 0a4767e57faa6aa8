"""Factories of real stores of real frameworks, as the kit's targets name them."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import warnings
from contextlib import closing

with warnings.catch_warnings():
    # One says that it is no longer maintained, another that it is on its way out.
    warnings.simplefilter("ignore")
    from langchain_community.chat_message_histories import (
        FileChatMessageHistory,
        SQLChatMessageHistory,
    )
    from langchain_core.chat_history import InMemoryChatMessageHistory

# Imported here, where workers are forked from, and not by each of them when it first opens a file.
import sqlalchemy.dialects.sqlite.aiosqlite
import sqlalchemy.dialects.sqlite.pysqlite  # noqa: F401
from agents import SQLiteSession
from agents.extensions.memory import AsyncSQLiteSession, SQLAlchemySession
from sqlalchemy.pool import NullPool

KEPT = {}
ITEMS = {}


def plain_name(session_id):
    """A file name for any session."""
    return hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()


# LangChain


def in_files(session_id, workspace):
    return FileChatMessageHistory(str(workspace / f"{plain_name(session_id)}.json"))


def in_sql(session_id, workspace):
    url = f"sqlite:///{workspace / 'history.db'}"
    return SQLChatMessageHistory(session_id, connection=url, engine_args={"poolclass": NullPool})


def in_sql_prepared(session_id, workspace):
    """The table is there before LangChain looks for it, so nobody makes it twice."""
    with closing(sqlite3.connect(workspace / "history.db", timeout=60)) as database:
        database.execute(
            "CREATE TABLE IF NOT EXISTS message_store"
            " (id INTEGER PRIMARY KEY, session_id TEXT, message TEXT)"
        )
    return in_sql(session_id, workspace)


def in_sql_awaited(session_id, workspace):
    url = f"sqlite+aiosqlite:///{workspace / 'history.db'}"
    return SQLChatMessageHistory(
        session_id, connection=url, async_mode=True, engine_args={"poolclass": NullPool}
    )


def in_memory(session_id, workspace):
    """One object for each session, kept by whoever makes them, as applications do."""
    # At once: two threads may ask for the same new session.
    return KEPT.setdefault((str(workspace), session_id), in_memory_each(session_id, workspace))


def in_memory_each(session_id, workspace):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return InMemoryChatMessageHistory()


# The Agents SDK


def sqlite_session(session_id, workspace):
    return SQLiteSession(session_id, workspace / "sessions.db")


def async_sqlite_session(session_id, workspace):
    return AsyncSQLiteSession(session_id, workspace / "sessions.db")


def sqlalchemy_session(session_id, workspace):
    url = f"sqlite+aiosqlite:///{workspace / 'sessions.db'}"
    return SQLAlchemySession.from_url(session_id, url=url, create_tables=True)


class Forgetful:
    """Reads all items, gives way, writes all items."""

    def __init__(self, session_id, workspace):
        self.session_id = session_id
        self._key = (str(workspace), session_id)

    async def get_items(self, limit=None):
        items = list(ITEMS.get(self._key, []))
        return items if limit is None else items[-limit:]

    async def add_items(self, items):
        seen = await self.get_items()
        await asyncio.sleep(0)
        ITEMS[self._key] = seen + items

    async def pop_item(self):
        items = ITEMS.get(self._key, [])
        return items.pop() if items else None

    async def clear_session(self):
        ITEMS.pop(self._key, None)


no_factory = 7
