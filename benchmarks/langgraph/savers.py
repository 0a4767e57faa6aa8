"""The checkpointers that are measured, each with a place of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import psycopg
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver

import indelible
from indelible.adapters.langgraph import IndelibleSaver
from memory_contract.faults.servers.postgres import PostgresServer
from memory_contract.faults.servers.valkey import ValkeyServer


@dataclass(frozen=True)
class Contender:
    """A saver, and how many bytes its place has; `store` if it is ours."""

    name: str
    saver: Any
    measure_bytes: Callable[[], int]
    delta: bool = False
    store: indelible.MemoryStore | None = None


@contextmanager
def open_contenders(folder: Path) -> Iterator[list[Contender]]:
    """Open all of them, on servers of their own."""
    with ExitStack() as stack:
        postgres = PostgresServer(folder / "postgres")
        stack.callback(postgres.kill)
        postgres.create()
        postgres.start()
        redis = ValkeyServer(folder / "redis", {"appendonly": "yes"})
        stack.callback(redis.kill)
        redis.start()
        yield [
            each
            for delta in (False, True)
            for each in _open_all(stack, folder, postgres, redis, delta=delta)
        ]


def _open_all(
    stack: ExitStack, folder: Path, postgres: PostgresServer, redis: ValkeyServer, *, delta: bool
) -> Iterator[Contender]:
    yield Contender("InMemorySaver", InMemorySaver(), lambda: 0, delta)
    path = folder / f"theirs-{delta}.db"
    connection = sqlite3.connect(path, check_same_thread=False)
    stack.callback(connection.close)
    theirs = SqliteSaver(connection)
    theirs.setup()
    yield Contender("SqliteSaver", theirs, lambda: _measure_theirs(path), delta)
    url = postgres.fresh_url()
    opened = stack.enter_context(PostgresSaver.from_conn_string(url))
    opened.setup()
    yield Contender("PostgresSaver", opened, lambda: _measure_postgres(url), delta)
    ours = folder / f"ours-{delta}.db"
    store = stack.enter_context(indelible.open(ours))
    saver = IndelibleSaver(store)
    yield Contender("indelible on SQLite", saver, lambda: _measure_ours(ours), delta, store)
    our_url = postgres.fresh_url()
    store = stack.enter_context(indelible.open(our_url))
    saver = IndelibleSaver(store)
    size = _measure_postgres
    yield Contender("indelible on PostgreSQL", saver, lambda: size(our_url), delta, store)
    redis_url = redis.fresh_url()
    store = stack.enter_context(indelible.open(redis_url, namespace=f"delta-{delta}"))
    saver = IndelibleSaver(store)
    yield Contender("indelible on Redis", saver, lambda: _measure_redis(redis), delta, store)


def _measure_theirs(path: Path) -> int:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path.stat().st_size


def _measure_ours(path: Path) -> int:
    # By the library that has the file open: closing it with another one would drop its locks.
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path.stat().st_size


def _measure_postgres(url: str) -> int:
    query = (
        "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = relnamespace"
        " WHERE relkind IN ('r', 'p') AND nspname NOT IN ('pg_catalog', 'information_schema')"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        ((size,),) = connection.execute(query).fetchall()
    return int(size)


def _measure_redis(server: ValkeyServer) -> int:
    with server.client() as client:
        return int(client.info("memory")["used_memory_dataset"])
