"""Chat stores of LlamaIndex."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.llms import ChatMessage
from llama_index.storage.chat_store.postgres import PostgresChatStore
from llama_index.storage.chat_store.redis import RedisChatStore
from llama_index.storage.chat_store.sqlite import SQLiteChatStore

from benchmarks.peers.peer import Message, Peer


def _theirs(message: Message) -> ChatMessage:
    return ChatMessage(role=message.role, content=message.text)


class Stores(Peer):
    """A turn is two calls, since there is none for several; the newest 20 are cut from all."""

    _store: Any

    async def append(self, session: str, messages: Sequence[Message]) -> None:
        for message in messages:
            await self._store.async_add_message(session, _theirs(message))

    async def last(self, session: str, count: int) -> list[str]:
        return [each.content for each in (await self._store.aget_messages(session))[-count:]]

    async def load(self, session: str) -> list[str]:
        return [each.content for each in await self._store.aget_messages(session)]


class Sqlite(Stores):
    """A row for each message."""

    used = "`SQLiteChatStore.from_uri`, `async_add_message`; rollback journal"
    prepared = "`aset_messages`, which adds"

    async def open(self, place: str) -> None:
        self._store = SQLiteChatStore.from_params(database=place)

    async def fill(self, session: str, messages: Sequence[Message]) -> None:
        await self._store.aset_messages(session, [_theirs(each) for each in messages])


class Redis(Stores):
    """A list for each session."""

    used = "`RedisChatStore(redis_url=…)`, `async_add_message`"
    prepared = "RPUSH of what it writes itself, a thousand at once"

    async def open(self, place: str) -> None:
        self._store = RedisChatStore(redis_url=place)

    async def fill(self, session: str, messages: Sequence[Message]) -> None:
        written = [_theirs(each).model_dump_json() for each in messages]
        await self._store._aredis_client.rpush(session, *written)  # noqa: SLF001


class Postgres(Stores):
    """One row for each session: an array that every append writes anew."""

    used = "`PostgresChatStore.from_params`, `async_add_message`"
    prepared = "`aset_messages` of all at once"

    async def open(self, place: str) -> None:
        self._store = PostgresChatStore.from_params(
            connection_string=place.replace("postgresql://", "postgresql+psycopg://"),
            async_connection_string=place.replace("postgresql://", "postgresql+asyncpg://"),
        )
        self._filled: dict[str, list[ChatMessage]] = {}

    async def fill(self, session: str, messages: Sequence[Message]) -> None:
        self._filled.setdefault(session, []).extend(_theirs(each) for each in messages)
        await self._store.aset_messages(session, self._filled[session])
