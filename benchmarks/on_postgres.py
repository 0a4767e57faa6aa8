"""What memory costs on PostgreSQL, beside the bare server with the same bytes and commits."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
from psycopg_pool import AsyncConnectionPool

import indelible
from benchmarks.conversation import (
    ENVELOPE,
    TEXT,
    compare_with_one_row,
    measure_growth,
    measure_tasks,
)
from benchmarks.measure import Result, Work, compare
from memory_contract.faults.servers.postgres import PostgresServer

INSERT = "INSERT INTO bare (payload) VALUES (%s)"
# As many as indelible opens itself.
CONNECTIONS = 8


def all_results(_folder: Path) -> Iterator[Result]:
    """Every figure of this file, on a server of its own."""
    # Not inside the given folder: the server may run as somebody who cannot enter that.
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        server = PostgresServer(Path(place) / "server")
        server.create()
        server.start()
        try:
            yield from beside_a_bare_insert(server.url())
            yield asyncio.run(tasks(server.url()))
            with indelible.open(server.url(), namespace="growth") as store:
                yield from measure_growth(store, where="on PostgreSQL")
            yield search_with_pgvector_beside_one_without(server)
        finally:
            server.kill()


def beside_a_bare_insert(url: str) -> Iterator[Result]:
    """An append with key, order, TTL and version, a snapshot, and a rollback."""
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as bare:
        bare.execute("CREATE TABLE bare (id bigserial PRIMARY KEY, payload bytea NOT NULL)")
        with (
            indelible.open(url) as store,
            indelible.open(url, namespace="unindexed", search=False) as unindexed,
        ):
            row: Work = lambda: bare.execute(INSERT, (ENVELOPE,))  # noqa: E731
            # Until the server has its plans and its pages at hand.
            for _ in range(200):
                store.add_message("s", "user", TEXT)
                unindexed.add_message("s", "user", TEXT)
                row()
            yield compare(
                "append on PostgreSQL without search, against a bare insert with its commit",
                lambda: unindexed.add_message("s", "user", TEXT),
                row,
                at_most=1.3,
                calls=5,
                seconds=6,
            )
            yield compare(
                "append on PostgreSQL, against one without search",
                lambda: store.add_message("s", "user", TEXT),
                lambda: unindexed.add_message("s", "user", TEXT),
                at_most=1.3,
                calls=5,
                seconds=6,
            )
            yield from compare_with_one_row(store, row, where="on PostgreSQL")


async def tasks(url: str) -> Result:
    """Many tasks, beside as many that insert and commit over a pool."""
    async with AsyncConnectionPool(
        url, min_size=CONNECTIONS, max_size=CONNECTIONS, kwargs={"autocommit": True}
    ) as pool:

        async def insert() -> None:
            async with pool.connection() as connection:
                await connection.execute(INSERT, (ENVELOPE,))

        return await measure_tasks(
            indelible.open_async(url, namespace="tasks", search=False),
            insert,
            where="on PostgreSQL without search",
            beside=f"an insert each over {CONNECTIONS} connections",
            at_least=3,
        )


def search_with_pgvector_beside_one_without(server: PostgresServer) -> Result:
    """The same search over 200 summaries of 384 dimensions, in two databases."""
    draw = random.Random(384)
    query, *vectors = ([draw.gauss(0, 1) for _ in range(384)] for _ in range(201))
    with ExitStack() as stack:
        stores = []
        for name in ("with_pgvector", "without"):
            server.sql(f"CREATE DATABASE {name}")
            stores.append(stack.enter_context(indelible.open(server.url(name))))
            for number, vector in enumerate(vectors):
                stores[-1].add_summary("s", str(number), vector)
        with psycopg.connect(server.url("with_pgvector")) as connection:
            connection.execute("CREATE EXTENSION vector")
        return compare(
            "search on PostgreSQL with pgvector, against one without",
            lambda: stores[0].search_summaries("s", query),
            lambda: stores[1].search_summaries("s", query),
            at_most=0.5,
            calls=1,
            seconds=1,
        )
