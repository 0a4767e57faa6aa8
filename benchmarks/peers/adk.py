"""Session services of Google's Agent Development Kit."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from typing import Any

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events.event import Event
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.database_session_service import DatabaseSessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types
from sqlalchemy import insert

from benchmarks.peers.peer import BATCH, Message, Peer

WHO = {"app_name": "bench", "user_id": "u"}


def _event(message: Message, at: float) -> Event:
    role = "user" if message.role == "user" else "model"
    content = types.Content(role=role, parts=[types.Part(text=message.text)])
    made = Event(invocation_id="i", author=role, content=content, timestamp=at)
    made.id = made.id or Event.new_id()
    return made


def _stored(messages: Sequence[Message]) -> Iterator[dict[str, Any]]:
    """Events as they are stored, a millisecond apart; building objects would take a minute."""
    like = {
        role: _event(Message(role, ""), 0).model_dump(exclude_none=True, mode="json")
        for role in ("user", "assistant")
    }
    began = time.time() - len(messages) / 1000
    for number, message in enumerate(messages):
        event = like[message.role]
        content = {**event["content"], "parts": [{"text": message.text}]}
        at = began + number / 1000
        yield {**event, "id": Event.new_id(), "timestamp": at, "content": content}


class Services(Peer):
    """An event for each message; one session object for each session, kept and appended to."""

    _service: Any
    _sessions: dict[str, Any]

    async def _session(self, session: str) -> Any:
        if session not in self._sessions:
            try:
                made = await self._service.create_session(**WHO, session_id=session)
            except AlreadyExistsError:
                nothing = GetSessionConfig(num_recent_events=0)
                made = await self._service.get_session(**WHO, session_id=session, config=nothing)
            self._sessions[session] = made
        return self._sessions[session]

    async def append(self, session: str, messages: Sequence[Message]) -> None:
        for message in messages:
            await self._service.append_event(
                await self._session(session), _event(message, time.time())
            )

    async def _texts(self, session: str, config: GetSessionConfig | None) -> list[str]:
        found = await self._service.get_session(**WHO, session_id=session, config=config)
        return [event.content.parts[0].text for event in found.events]

    async def last(self, session: str, count: int) -> list[str]:
        return await self._texts(session, GetSessionConfig(num_recent_events=count))

    async def load(self, session: str) -> list[str]:
        return await self._texts(session, None)

    async def close(self) -> None:
        await self._service.close()


class Sqlite(Services):
    """A new connection for each call, by its own choice."""

    used = "`SqliteSessionService(path)`, `append_event` (a turn is two); rollback journal"
    prepared = "events as it writes them, into its table"

    async def open(self, place: str) -> None:
        self._place, self._sessions = place, {}
        self._service = SqliteSessionService(place)

    async def fill(self, session: str, messages: Sequence[Message]) -> None:
        await self._session(session)
        who = (*WHO.values(), session, "i")
        with sqlite3.connect(self._place) as db:
            db.executemany(
                "INSERT INTO events (app_name, user_id, session_id, invocation_id, id, timestamp, "
                "event_data) VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(*who, e["id"], e["timestamp"], json.dumps(e)) for e in _stored(messages)],
            )
        db.close()


class Database(Services):
    """Through SQLAlchemy, on SQLite or PostgreSQL."""

    used = "`DatabaseSessionService(url)` (aiosqlite or asyncpg), `append_event` (a turn is two)"
    prepared = "events as it writes them, into its table"

    async def open(self, place: str) -> None:
        self._sessions = {}
        self._service = DatabaseSessionService(
            place.replace("postgresql://", "postgresql+asyncpg://")
            if "://" in place
            else f"sqlite+aiosqlite:///{place}"
        )
        await self._service.prepare_tables()

    async def fill(self, session: str, messages: Sequence[Message]) -> None:
        await self._session(session)
        table = self._service._get_schema_classes().StorageEvent  # noqa: SLF001
        rows = [
            {
                **WHO,
                "session_id": session,
                "invocation_id": "i",
                "id": event["id"],
                "timestamp": dt.datetime.fromtimestamp(event["timestamp"], dt.UTC).replace(
                    tzinfo=None
                ),
                "event_data": event,
            }
            for event in _stored(messages)
        ]
        async with self._service._rollback_on_exception_session() as sql:  # noqa: SLF001
            for first in range(0, len(rows), BATCH):
                await sql.execute(insert(table), rows[first : first + BATCH])
            await sql.commit()
