"""What an append, a read, a snapshot and a rollback cost on SQLite, beside the bare engine."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import apsw

import indelible
from benchmarks.measure import Result, interleaved, shown
from indelible import ChatMessage
from indelible.aio import Opening

TEXT = "What did we agree on for the delivery of order 4711? " * 2
ENVELOPE = json.dumps(
    {"sum": "0" * 16, "v": 1, "message": {"role": "user", "content": TEXT}}, separators=(",", ":")
).encode()

LONG = 100_000
SHORT = 100
TASKS = 64


def all_results(folder: Path) -> Iterator[Result]:
    """Every figure of this file, one after the other."""
    yield append_beside_a_bare_insert(folder, "power", at_most=1.5)
    yield append_beside_a_bare_insert(folder, "process", at_most=2.5)
    opening = indelible.open_async(folder / "tasks.db")
    yield many_tasks_beside_one(opening, where="at power", at_least=8)
    stores = [
        indelible.open(folder / f"length-{length}.db", durability="process")
        for length in (LONG, SHORT)
    ]
    yield from long_beside_short(*stores)
    yield snapshot_row(folder)
    yield load_beside_json(folder)


def append_beside_a_bare_insert(folder: Path, durability: str, *, at_most: float) -> Result:
    """An append with key, order, TTL and version, beside an insert of the same bytes."""
    bare = apsw.Connection(str(folder / f"bare-{durability}.db"))
    level = "FULL" if durability == "power" else "NORMAL"
    bare.execute(f"PRAGMA journal_mode = WAL; PRAGMA synchronous = {level}")
    bare.execute("CREATE TABLE entry (id INTEGER PRIMARY KEY, payload BLOB NOT NULL)")
    with indelible.open(folder / f"append-{durability}.db", durability=durability) as store:

        def append() -> None:
            store.add_message("s", "user", TEXT)

        def insert() -> None:
            bare.execute("INSERT INTO entry (payload) VALUES (?)", (ENVELOPE,))

        # Until its log has been checkpointed once, a file still grows with every commit.
        for _ in range(1200):
            append()
            insert()
        mine, theirs, ratio = interleaved(append, insert, calls=100, rounds=21)
    bare.close()
    return Result(
        name=f"append at {durability}, against a bare insert",
        subject=shown(mine),
        baseline=shown(theirs),
        figure=ratio,
        target=at_most,
        bound="at most",
    )


def many_tasks_beside_one(opening: Opening, *, where: str, at_least: float) -> Result:
    """Messages per second of many tasks, beside those of one."""

    async def rate(store: indelible.AsyncMemoryStore, tasks: int, each: int) -> float:
        async def work() -> None:
            for _ in range(each):
                await store.add_message("s", "user", TEXT)

        started = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(tasks)))
        return tasks * each / (time.perf_counter() - started)

    async def both() -> tuple[float, float]:
        many, one = [], []
        async with opening as store:
            await rate(store, 1, 1200)
            for _ in range(7):
                one.append(await rate(store, 1, 100))
                many.append(await rate(store, TASKS, 25))
        return sorted(many)[3], sorted(one)[3]

    many, one = asyncio.run(both())
    return Result(
        name=f"{TASKS} tasks appending {where}, against one",
        subject=f"{many:,.0f}/s",
        baseline=f"{one:,.0f}/s",
        figure=many / one,
        target=at_least,
        bound="at least",
    )


def _fill(store: indelible.MemoryStore, length: int) -> None:
    batch = [ChatMessage(role="user", content=TEXT)] * 100
    for _ in range(length // len(batch)):
        store.add_messages("s", batch)


def long_beside_short(
    long: indelible.MemoryStore, short: indelible.MemoryStore, *, where: str = ""
) -> Iterator[Result]:
    """The same work on a long session and on a short one: the length must not show."""
    _fill(long, LONG)
    _fill(short, SHORT)
    snapshots = {store: store.save_snapshot("s").id for store in (long, short)}

    def last_20(store: indelible.MemoryStore) -> None:
        store.get_history("s", last=20)

    def snapshot(store: indelible.MemoryStore) -> None:
        store.save_snapshot("s")

    def rollback(store: indelible.MemoryStore) -> None:
        store.rollback_to_snapshot("s", snapshots[store])

    def append(store: indelible.MemoryStore) -> None:
        store.add_message("s", "user", TEXT)

    # Appending comes last: it makes the short session longer.
    for work in (last_20, snapshot, rollback, append):
        mine, theirs, ratio = interleaved(
            lambda work=work: work(long),  # type: ignore[misc]
            lambda work=work: work(short),  # type: ignore[misc]
            calls=50,
            rounds=21,
        )
        yield Result(
            name=f"{work.__name__.replace('_', ' ')}{where} at {LONG:,} entries, against {SHORT}",
            subject=shown(mine),
            baseline=shown(theirs),
            figure=ratio,
            target=1.3,
            bound="at most",
        )
    long.close()
    short.close()


def snapshot_row(folder: Path) -> Result:
    """The bytes that a snapshot adds, after a life of many rollbacks."""
    path = folder / "snapshot-row.db"
    with indelible.open(path, durability="process") as store:
        for turn in range(900):
            store.save_context("s", f"question {turn}", "answer")
            snapshot = store.save_snapshot("s")
            store.add_message("s", "assistant", "a bad answer")
            store.rollback_to_snapshot("s", snapshot.id)
    connection = apsw.Connection(str(path))
    size = connection.execute("SELECT max(length(extents) + length(id) + 60) FROM snapshot").get
    connection.close()
    return Result(
        name="bytes of a snapshot's row after 900 rollbacks",
        subject=f"{size:,}",
        baseline="",
        figure=size,
        target=4096,
        bound="at most",
        unit=" bytes",
    )


def load_beside_json(folder: Path) -> Result:
    """10,000 messages, checked and validated, beside fetching and `json.loads` of the same rows."""
    with indelible.open(folder / "load.db", durability="process") as store:
        for _ in range(100):
            store.add_messages("s", [ChatMessage(role="user", content=TEXT)] * 100)
        bare = apsw.Connection(str(folder / "load.db"))

        def fetch() -> list[object]:
            rows = bare.execute("SELECT payload FROM entry ORDER BY id")
            return [json.loads(payload) for (payload,) in rows]

        mine, theirs, ratio = interleaved(lambda: store.get_history("s"), fetch, calls=1)
        bare.close()
    return Result(
        name="load 10,000 messages, against fetch and json.loads",
        subject=shown(mine),
        baseline=shown(theirs),
        figure=ratio,
        target=2.5,
        bound="at most",
    )
