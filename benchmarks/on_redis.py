"""What memory costs on Redis, beside the bare server with the same bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from redis.asyncio import Redis

import indelible
from benchmarks.conversation import (
    ENVELOPE,
    TASKS,
    TEXT,
    compare_with_one_row,
    measure_growth,
    measure_tasks,
)
from benchmarks.measure import Result, compare
from indelible.model import Never
from memory_contract.faults.servers.valkey import ValkeyServer


def all_results(folder: Path) -> Iterator[Result]:
    """Every figure of this file, on servers of its own."""
    # As a server comes: it keeps nothing on disk, so that the round trip is what is measured.
    plain = ValkeyServer(folder / "plain", {"appendonly": "no"})
    # A script's writes are a transaction in the append-only file, and a push is one line.
    kept = ValkeyServer(folder / "kept", {"appendfsync": "everysec"})
    # Only here is a write a commit.
    synced = ValkeyServer(folder / "synced", {"appendfsync": "always"})
    servers = (plain, kept, synced)
    try:
        for server in servers:
            server.start()
        yield append(plain, what="append on Redis", at_most=1.5)
        yield append(plain, what="append with a ttl on Redis", at_most=1.5, ttl=3600)
        yield append(kept, what="append on Redis with a file, everysec", at_most=1.5)
        yield asyncio.run(tasks(plain))
        with indelible.open(plain.url, namespace="growth", durability="none") as store:
            yield from measure_growth(store, where="on Redis")
        yield from views(synced, where="on Redis at power", at_most=2.5)
        yield from views(plain, where="on Redis", at_most=2.5)
    finally:
        for server in servers:
            server.stop()


def append(
    server: ValkeyServer, *, what: str, at_most: float, ttl: float | Never = indelible.NEVER
) -> Result:
    """An append with key, order, version and perhaps a TTL, beside a push of the same bytes."""
    client = server.client()
    with indelible.open(server.url, ttl=ttl, durability="none") as store:
        result = compare(
            f"{what}, against a bare RPUSH",
            lambda: store.add_message("s", "user", TEXT),
            lambda: client.rpush("bare", ENVELOPE),
            at_most=at_most,
            seconds=4,
        )
    client.close()
    return result


def views(server: ValkeyServer, *, where: str, at_most: float) -> Iterator[Result]:
    """A snapshot and a rollback, beside a push."""
    client = server.client()
    with indelible.open(server.url, namespace="views", durability="none") as store:
        row = lambda: client.rpush("row", ENVELOPE)  # noqa: E731
        yield from compare_with_one_row(store, row, where=where, at_most=at_most)
    client.close()


async def tasks(server: ValkeyServer) -> Result:
    """Many tasks, beside as many with a client that sends each push by itself."""
    async with Redis.from_url(server.url, max_connections=TASKS) as client:
        return await measure_tasks(
            indelible.open_async(server.url, durability="none"),
            lambda: client.rpush("tasks", ENVELOPE),
            where="on Redis",
            beside="an RPUSH each",
            at_least=1.8,
        )
