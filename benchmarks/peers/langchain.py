"""Chat message histories of LangChain."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Sequence
from typing import Any

import psycopg
from langchain_community.chat_message_histories import (
    RedisChatMessageHistory,
    SQLChatMessageHistory,
)
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, message_to_dict
from langchain_postgres import PostgresChatMessageHistory
from sqlalchemy import create_engine

from benchmarks.peers.peer import Message, Peer


def _theirs(message: Message) -> BaseMessage:
    kind = HumanMessage if message.role == "user" else AIMessage
    return kind(content=message.text)


class Histories(Peer):
    """One history object for each session, kept; the newest 20 are cut from all of them."""

    def open(self, place: str) -> None:
        self._place = place
        self._histories: dict[str, Any] = {}

    def _made(self, session: str) -> Any:
        raise NotImplementedError

    def _history(self, session: str) -> Any:
        if session not in self._histories:
            self._histories[session] = self._made(session)
        return self._histories[session]

    def append(self, session: str, messages: Sequence[Message]) -> None:
        self._history(session).add_messages([_theirs(each) for each in messages])

    def last(self, session: str, count: int) -> list[str]:
        return [each.content for each in self._history(session).messages[-count:]]

    def load(self, session: str) -> list[str]:
        return [each.content for each in self._history(session).messages]


class Sqlite(Histories):
    """Through SQLAlchemy; the table has no index on the session."""

    used = "`SQLChatMessageHistory(id, connection=engine)`, one engine; rollback journal"

    def open(self, place: str) -> None:
        super().open(place)
        self._engine = create_engine(f"sqlite:///{place}")

    def _made(self, session: str) -> Any:
        return SQLChatMessageHistory(session, connection=self._engine)

    def close(self) -> None:
        self._engine.dispose()


class Redis(Histories):
    """A list for each session, newest first."""

    used = "`RedisChatMessageHistory` of langchain-community (langchain-redis needs RediSearch)"
    prepared = "LPUSH of what it writes itself, a thousand at once"

    def _made(self, session: str) -> Any:
        return RedisChatMessageHistory(session, url=self._place)

    def fill(self, session: str, messages: Sequence[Message]) -> None:
        history = self._history(session)
        written = [json.dumps(message_to_dict(_theirs(each))) for each in messages]
        history.redis_client.lpush(history.key, *written)


class Postgres(Histories):
    """A row for each message."""

    used = "`PostgresChatMessageHistory(table, id, sync_connection=…)`, a connection per thread"

    def open(self, place: str) -> None:
        super().open(place)
        self._own = threading.local()
        with psycopg.connect(place) as connection:
            PostgresChatMessageHistory.create_tables(connection, "chat_history")

    def _history(self, session: str) -> Any:
        if not hasattr(self._own, "connection"):
            self._own.connection = psycopg.connect(self._place)
            self._own.histories = {}
        if session not in self._own.histories:
            self._own.histories[session] = PostgresChatMessageHistory(
                "chat_history",
                str(uuid.uuid5(uuid.NAMESPACE_OID, session)),
                sync_connection=self._own.connection,
            )
        return self._own.histories[session]
