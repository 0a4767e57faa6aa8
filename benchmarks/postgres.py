"""What an append, a read, a snapshot and a rollback cost on PostgreSQL, beside the bare server."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg

import indelible
from benchmarks.measure import Result, interleaved, shown
from benchmarks.store import ENVELOPE, LONG, SHORT, TEXT
from indelible import ChatMessage
from indelible.contract.faults.servers.postgres import PostgresServer


def all_results(_folder: Path) -> Iterator[Result]:
    """Every figure of this file, one after the other, on a server of its own."""
    # Not inside the given folder: the server may run as somebody who cannot enter that.
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        server = PostgresServer(Path(place) / "server")
        server.create()
        server.start()
        try:
            yield append_beside_a_bare_insert(server.url())
            yield from long_beside_short(server)
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

            for _ in range(500):
                append()
                insert()
            mine, theirs, ratio = interleaved(append, insert, calls=50, rounds=41)
    return Result(
        name="PostgreSQL: append, against a bare insert with its commit",
        subject=shown(mine),
        baseline=shown(theirs),
        figure=ratio,
        target=1.4,
        bound="at most",
    )


def long_beside_short(server: PostgresServer) -> Iterator[Result]:
    """The same work on a long session and on a short one: the length must not show."""
    store = indelible.open(server.url())
    lengths = {"long": LONG, "short": SHORT}
    for name, length in lengths.items():
        batch = [ChatMessage(role="user", content=TEXT)] * 100
        for _ in range(length // len(batch)):
            store.add_messages(name, batch)
    server.sql("ANALYZE")
    snapshots = {name: store.save_snapshot(name).id for name in lengths}

    def last_20(name: str) -> None:
        store.get_history(name, last=20)

    def snapshot(name: str) -> None:
        store.save_snapshot(name)

    def rollback(name: str) -> None:
        store.rollback_to_snapshot(name, snapshots[name])

    def append(name: str) -> None:
        store.add_message(name, "user", TEXT)

    # Appending comes last: it makes the short session longer.
    for work in (last_20, snapshot, rollback, append):
        mine, theirs, ratio = interleaved(
            lambda work=work: work("long"),  # type: ignore[misc]
            lambda work=work: work("short"),  # type: ignore[misc]
            calls=25,
            rounds=31,
        )
        yield Result(
            name=f"PostgreSQL: {work.__name__.replace('_', ' ')} at {LONG:,}, against {SHORT}",
            subject=shown(mine),
            baseline=shown(theirs),
            figure=ratio,
            target=1.3,
            bound="at most",
        )
    store.close()
