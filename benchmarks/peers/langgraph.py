"""Savers and stores of LangGraph."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import PutOp
from langgraph.store.postgres import PostgresStore
from langgraph.store.postgres.aio import AsyncPostgresStore
from langgraph.store.sqlite import SqliteStore
from langgraph.store.sqlite.aio import AsyncSqliteStore
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

from benchmarks.peers.peer import Message, Peer

ALL = 1_000_000


class Savers(Peer):
    """A graph's state with its messages: every append is a checkpoint of its own."""

    used = (
        "a graph of `MessagesState` compiled with the saver; an append is `graph.update_state`, "
        "a read `graph.get_state`, a rollback `update_state` on an older checkpoint"
    )
    prepared = "one `update_state` with all messages"
    snapshot_is = "every append is one"

    def _compile(self, saver: Any) -> None:
        saver.setup()
        built = StateGraph(MessagesState)
        built.add_node("talk", lambda _state: {})
        built.add_edge(START, "talk")
        self._graph = built.compile(checkpointer=saver)

    def append(self, session: str, messages: Sequence[Message]) -> None:
        theirs = [
            HumanMessage(each.text) if each.role == "user" else AIMessage(each.text)
            for each in messages
        ]
        self._graph.update_state(_thread(session), {"messages": theirs}, as_node="talk")

    fill = append

    def load(self, session: str) -> list[str]:
        state = self._graph.get_state(_thread(session)).values
        return [each.content for each in state.get("messages", [])]

    def last(self, session: str, count: int) -> list[str]:
        return self.load(session)[-count:]

    def snapshot(self, session: str) -> Any:
        """The newest checkpoint: it is there already."""
        return self._graph.get_state(_thread(session)).config

    def rollback(self, session: str, snapshot: Any) -> None:  # noqa: ARG002 (it names the thread)
        self._graph.update_state(snapshot, {"messages": []}, as_node="talk")


def _thread(session: str) -> RunnableConfig:
    return {"configurable": {"thread_id": session}}


class SqliteSavers(Savers):
    """Each checkpoint holds the whole state."""

    def open(self, place: str) -> None:
        self._db = sqlite3.connect(place, check_same_thread=False)
        self._compile(SqliteSaver(self._db))

    def close(self) -> None:
        self._db.close()


class PostgresSavers(Savers):
    """Each version of a channel is a row of its own."""

    def open(self, place: str) -> None:
        settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        self._pool: Any = ConnectionPool(place, max_size=20, kwargs=settings, open=True)
        self._compile(PostgresSaver(self._pool))

    def close(self) -> None:
        self._pool.close()


def _puts(session: str, messages: Sequence[Message]) -> list[PutOp]:
    return [
        PutOp((session,), str(uuid.uuid4()), {"role": each.role, "content": each.text})
        for each in messages
    ]


def _texts(found: Sequence[Any]) -> list[str]:
    return [each.value["content"] for each in reversed(found)]


class Stores(Peer):
    """An item for each message, in a namespace for each session; found newest first."""

    used = (
        "an item for each message with a random key: `put`, `batch` for a turn, `search(limit=…)`"
    )
    _store: Any
    _opened: Any

    def open(self, place: str) -> None:
        self._opened = self._made(place)
        self._store = self._opened.__enter__()
        self._store.setup()

    def _made(self, place: str) -> Any:
        raise NotImplementedError

    def append(self, session: str, messages: Sequence[Message]) -> None:
        self._store.batch(_puts(session, messages))

    def last(self, session: str, count: int) -> list[str]:
        return _texts(self._store.search((session,), limit=count))

    def load(self, session: str) -> list[str]:
        return self.last(session, ALL)

    def close(self) -> None:
        self._opened.__exit__(None, None, None)


class SqliteStores(Stores):
    """Autocommit and a rollback journal, by its own choice."""

    def _made(self, place: str) -> Any:
        return SqliteStore.from_conn_string(place)


class PostgresStores(Stores):
    """A pool of connections, so that threads need not wait for one another."""

    def _made(self, place: str) -> Any:
        return PostgresStore.from_conn_string(place, pool_config={"min_size": 1, "max_size": 20})


class AwaitedStores(Peer):
    """The awaited twins, which send what is asked in one turn of the loop as one batch."""

    used = "the same, awaited: what waits in one turn of the event loop is one batch"
    _store: Any
    _opened: Any

    async def open(self, place: str) -> None:
        self._opened = self._made(place)
        self._store = await self._opened.__aenter__()
        await self._store.setup()

    def _made(self, place: str) -> Any:
        raise NotImplementedError

    async def append(self, session: str, messages: Sequence[Message]) -> None:
        if len(messages) == 1:
            (put,) = _puts(session, messages)
            await self._store.aput(put.namespace, put.key, put.value)
        else:
            await self._store.abatch(_puts(session, messages))

    async def last(self, session: str, count: int) -> list[str]:
        return _texts(await self._store.asearch((session,), limit=count))

    async def load(self, session: str) -> list[str]:
        return await self.last(session, ALL)

    async def close(self) -> None:
        await self._opened.__aexit__(None, None, None)


class AwaitedSqliteStores(AwaitedStores):
    """On aiosqlite."""

    def _made(self, place: str) -> Any:
        return AsyncSqliteStore.from_conn_string(place)


class AwaitedPostgresStores(AwaitedStores):
    """On psycopg."""

    def _made(self, place: str) -> Any:
        return AsyncPostgresStore.from_conn_string(place)
