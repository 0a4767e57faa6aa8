"""Sessions of the OpenAI Agents SDK."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agents import SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession, RedisSession, SQLAlchemySession
from sqlalchemy.ext.asyncio import create_async_engine

from benchmarks.peers.peer import Message, Peer


class Sessions(Peer):
    """One session object for each session, kept; items as plain dicts."""

    def open(self, place: str) -> Any:
        self._place = place
        self._sessions: dict[str, Any] = {}

    def _made(self, session: str) -> Any:
        raise NotImplementedError

    def _session(self, session: str) -> Any:
        if session not in self._sessions:
            self._sessions[session] = self._made(session)
        return self._sessions[session]

    async def append(self, session: str, messages: Sequence[Message]) -> None:
        items = [{"role": each.role, "content": each.text} for each in messages]
        await self._session(session).add_items(items)

    async def last(self, session: str, count: int) -> list[str]:
        return [each["content"] for each in await self._session(session).get_items(limit=count)]

    async def load(self, session: str) -> list[str]:
        return [each["content"] for each in await self._session(session).get_items()]


class Sqlite(Sessions):
    """The default of the SDK."""

    used = "`SQLiteSession(id, path)`, `add_items`, `get_items(limit=20)`; WAL by its own choice"

    def _made(self, session: str) -> Any:
        return SQLiteSession(session, self._place)

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()


class Advanced(Sqlite):
    """With turns and branches."""

    used = (
        "`AdvancedSQLiteSession(…, create_tables=True)`; "
        "a rollback is `create_branch_from_turn` from the branch main, and copies what was before"
    )
    snapshot_is = "a turn's number"

    def _made(self, session: str) -> Any:
        return AdvancedSQLiteSession(session_id=session, db_path=self._place, create_tables=True)

    async def snapshot(self, session: str) -> int:
        """The newest turn of the branch main: the user's messages are counted."""
        return len(await self._session(session).get_conversation_turns("main"))

    async def rollback(self, session: str, snapshot: int) -> None:
        await self._session(session).switch_to_branch("main")
        await self._session(session).create_branch_from_turn(snapshot)


class Sql(Sessions):
    """Through SQLAlchemy, on SQLite or PostgreSQL."""

    used = (
        "`SQLAlchemySession(id, engine=…, create_tables=True)`, one engine (aiosqlite or asyncpg)"
    )

    def open(self, place: str) -> Any:
        super().open(place)
        url = (
            place.replace("postgresql://", "postgresql+asyncpg://")
            if "://" in place
            else f"sqlite+aiosqlite:///{place}"
        )
        self._engine = create_async_engine(url)

    def _made(self, session: str) -> Any:
        return SQLAlchemySession(session, engine=self._engine, create_tables=True)

    async def close(self) -> None:
        await self._engine.dispose()


class Redis(Sessions):
    """A list and a hash for each session."""

    used = "`RedisSession.from_url(id, url=…)`, nothing set"

    def _made(self, session: str) -> Any:
        return RedisSession.from_url(session, url=self._place)

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()
