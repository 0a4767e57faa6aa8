"""What an append, a read, a search, a snapshot and a rollback cost on PostgreSQL."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg

import indelible
from benchmarks.measure import Result, interleaved, shown
from benchmarks.store import ENVELOPE, TEXT, long_beside_short, many_tasks_beside_one
from indelible.contract.faults.servers.postgres import PostgresServer


def all_results(_folder: Path) -> Iterator[Result]:
    """Every figure of this file, on a server of its own."""
    # Not inside the given folder: the server may run as somebody who cannot enter that.
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        server = PostgresServer(Path(place) / "server")
        server.create()
        server.start()
        try:
            yield append_beside_a_bare_insert(server.url())
            yield search_with_pgvector_beside_one_without(server)
            tasks = indelible.open_async(server.url(), namespace="tasks")
            yield many_tasks_beside_one(tasks, where="on PostgreSQL", at_least=4)
            stores = [indelible.open(server.url(), namespace=name) for name in ("long", "short")]
            yield from long_beside_short(*stores, where=" on PostgreSQL")
        finally:
            server.kill()


def append_beside_a_bare_insert(url: str) -> Result:
    """An append with key, order, TTL and version, beside an insert of the same bytes."""
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as bare:
        bare.execute("CREATE TABLE bare (id bigserial PRIMARY KEY, payload bytea NOT NULL)")
        with indelible.open(url) as store:

            def append() -> None:
                store.add_message("s", "user", TEXT)

            def insert() -> None:
                bare.execute("INSERT INTO bare (payload) VALUES (%s)", (ENVELOPE,))

            # Until the server has its plans and its pages at hand.
            for _ in range(500):
                append()
                insert()
            mine, theirs, ratio = interleaved(append, insert, calls=5, rounds=401)
    return Result(
        name="append on PostgreSQL, against a bare insert with its commit",
        subject=shown(mine),
        baseline=shown(theirs),
        figure=ratio,
        target=1.4,
        bound="at most",
    )


def search_with_pgvector_beside_one_without(server: PostgresServer) -> Result:
    """The same search over 400 summaries of 384 dimensions, in two databases."""
    draw = random.Random(384)
    query, *vectors = ([draw.gauss(0, 1) for _ in range(384)] for _ in range(401))
    with ExitStack() as stack:
        stores = []
        for name in ("with_pgvector", "without"):
            server.sql(f"CREATE DATABASE {name}")
            stores.append(stack.enter_context(indelible.open(server.url(name))))
            for number, vector in enumerate(vectors):
                stores[-1].add_summary("s", str(number), vector)
        with psycopg.connect(server.url("with_pgvector")) as connection:
            connection.execute("CREATE EXTENSION vector")
        mine, theirs, ratio = interleaved(
            lambda: stores[0].search_summaries("s", query),
            lambda: stores[1].search_summaries("s", query),
            calls=1,
            rounds=21,
        )
    return Result(
        name="search on PostgreSQL with pgvector, against one without",
        subject=shown(mine),
        baseline=shown(theirs),
        figure=ratio,
        target=0.5,
        bound="at most",
    )
