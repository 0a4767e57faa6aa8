"""What an append, a read, a snapshot and a rollback cost on Redis, beside the bare server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import indelible
from benchmarks.measure import Result, interleaved, shown
from benchmarks.store import ENVELOPE, TEXT, long_beside_short, many_tasks_beside_one
from indelible.contract.faults.servers.valkey import Valkey
from indelible.model import Never


def all_results(folder: Path) -> Iterator[Result]:
    """Every figure of this file, on servers of its own."""
    # As a server comes: it keeps nothing on disk, so that the round trip is what is measured.
    plain = Valkey(folder / "plain", {"appendonly": "no"})
    # A script's writes are a transaction in the append-only file, and a push is one line.
    kept = Valkey(folder / "kept", {"appendfsync": "no"})
    try:
        plain.start()
        kept.start()
        yield append_beside_a_bare_push(plain, what="append", at_most=1.45)
        # A new deadline is one more field and one more look; the target is our own.
        yield append_beside_a_bare_push(plain, what="append with a ttl", at_most=1.6, ttl=3600)
        yield append_beside_a_bare_push(kept, what="append with a file", at_most=1.45)
        opening = indelible.open_async(plain.url, durability="none")
        yield many_tasks_beside_one(opening, where="on Redis", at_least=4)
        stores = [
            indelible.open(plain.url, namespace=name, durability="none")
            for name in ("long", "short")
        ]
        yield from long_beside_short(*stores, where=" on Redis")
    finally:
        plain.stop()
        kept.stop()


def append_beside_a_bare_push(
    server: Valkey, *, what: str, at_most: float, ttl: float | Never = indelible.NEVER
) -> Result:
    """An append with key, order, TTL and version, beside a push of the same bytes."""
    client = server.client()
    with indelible.open(server.url, ttl=ttl, durability="none") as store:

        def append() -> None:
            store.add_message("s", "user", TEXT)

        def push() -> None:
            client.rpush("bare", ENVELOPE)

        # In short turns: whatever else the machine does, it does to both.
        mine, theirs, ratio = interleaved(append, push, calls=20, rounds=301)
    client.close()
    return Result(
        name=f"{what} on Redis, against a bare RPUSH",
        subject=shown(mine),
        baseline=shown(theirs),
        figure=ratio,
        target=at_most,
        bound="at most",
    )
