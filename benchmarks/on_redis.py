"""What an append, a read, a snapshot and a rollback cost on Redis, beside the bare server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import indelible
from benchmarks.measure import Result, interleaved, shown
from benchmarks.store import ENVELOPE, TEXT, long_beside_short, many_tasks_beside_one
from indelible.contract.faults.servers.valkey import Valkey


def all_results(folder: Path) -> Iterator[Result]:
    """Every figure of this file, on a server of its own."""
    # The disk is the same for both sides, and not what is measured.
    server = Valkey(folder / "valkey", {"appendfsync": "no"})
    server.start()
    try:
        yield append_beside_a_bare_push(server, ttl=indelible.NEVER, what="append")
        yield append_beside_a_bare_push(server, ttl=3600, what="append with a time to live")
        yield many_tasks_beside_one(indelible.open_async(server.url), where="on Redis", at_least=4)
        stores = [indelible.open(server.url, namespace=name) for name in ("long", "short")]
        yield from long_beside_short(*stores, where=" on Redis")
    finally:
        server.stop()


def append_beside_a_bare_push(
    server: Valkey, *, ttl: float | indelible.model.Never, what: str
) -> Result:
    """An append with key, order, TTL and version, beside a push of the same bytes."""
    client = server.client()
    with indelible.open(server.url, ttl=ttl) as store:

        def append() -> None:
            store.add_message("s", "user", TEXT)

        def push() -> None:
            client.rpush("bare", ENVELOPE)

        mine, theirs, ratio = interleaved(append, push, calls=300, rounds=21)
    client.close()
    return Result(
        name=f"{what} on Redis, against a bare RPUSH",
        subject=shown(mine),
        baseline=shown(theirs),
        figure=ratio,
        target=1.45,
        bound="at most",
    )
