"""What memory costs on SQLite, beside the bare engine with the same bytes and the same syncs."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw

import indelible
from benchmarks.conversation import (
    ENVELOPE,
    MESSAGE,
    MIDDLE,
    TEXT,
    compare_with_one_row,
    fill,
    measure_growth,
    measure_tasks,
)
from benchmarks.measure import Result, compare

ROLLBACKS = 500
MESSAGES = 20_000


def all_results(folder: Path) -> Iterator[Result]:
    """Every figure of this file, one after the other."""
    bare = Bare(folder / "bare.db")
    with (
        indelible.open(folder / "append.db") as store,
        indelible.open(folder / "unindexed.db", search=False) as unindexed,
    ):
        # Until its log has been checkpointed once, a file still grows with every commit.
        for _ in range(1100):
            store.add_message("s", "user", TEXT)
            unindexed.add_message("s", "user", TEXT)
            bare.insert()
        yield compare(
            "append on SQLite at power without search, against a bare insert",
            lambda: unindexed.add_message("s", "user", TEXT),
            bare.insert,
            at_most=1.5,
            seconds=5,
        )
        yield compare(
            "append on SQLite at power, against one without search",
            lambda: store.add_message("s", "user", TEXT),
            lambda: unindexed.add_message("s", "user", TEXT),
            at_most=1.3,
            seconds=5,
        )
        yield from compare_with_one_row(store, bare.insert, where="on SQLite at power", at_most=2.5)
    yield asyncio.run(
        measure_tasks(
            indelible.open_async(folder / "tasks.db", search=False),
            lambda: asyncio.to_thread(bare.insert),
            where="on SQLite at power without search",
            beside="a bare insert each",
            at_least=5,
        )
    )
    with indelible.open(folder / "growth.db", durability="process") as store:
        yield from measure_growth(store, where="on SQLite at process")
    yield from measure_reads(folder)
    yield measure_snapshot_row(folder)
    yield measure_disk(folder, search=False, at_most=120)
    yield measure_disk(folder, search=True, at_most=200)


class Bare:
    """SQLite with one table and no promises but the sync; threads take turns."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._db = apsw.Connection(str(path))
        self._db.pragma("journal_mode", "wal")
        self._db.pragma("synchronous", "full")
        self._db.execute("CREATE TABLE entry (id INTEGER PRIMARY KEY, payload BLOB NOT NULL)")

    def insert(self) -> None:
        """One row, and its commit."""
        with self._lock:
            self._db.execute("INSERT INTO entry (payload) VALUES (?)", (ENVELOPE,))


def measure_reads(folder: Path) -> Iterator[Result]:
    """Messages, checked and validated, beside fetching and `json.loads` of the same rows."""
    with indelible.open(folder / "reads.db", durability="process") as store:
        fill(store, "s", MIDDLE)
        bare = apsw.Connection(str(folder / "reads.db"))

        def fetch(last: int) -> list[object]:
            rows = bare.execute("SELECT payload FROM entry ORDER BY id DESC LIMIT ?", (last,))
            return [json.loads(payload) for (payload,) in rows][::-1]

        yield compare(
            f"load all {MIDDLE:,} on SQLite, against fetch and json.loads",
            lambda: store.get_history("s"),
            lambda: fetch(MIDDLE),
            at_most=2,
            calls=1,
            seconds=3,
        )
        yield compare(
            f"last 20 of {MIDDLE:,} on SQLite, against fetch and json.loads",
            lambda: store.get_history("s", last=20),
            lambda: fetch(20),
            at_most=3,
        )
        bare.close()


def measure_snapshot_row(folder: Path) -> Result:
    """The bytes that a snapshot adds, after a life of many rollbacks."""
    path = folder / "snapshot-row.db"
    with indelible.open(path, durability="process") as store:
        fill(store, "s", MIDDLE)
        for _ in range(ROLLBACKS):
            store.save_context("s", "question", "answer")
            snapshot = store.save_snapshot("s")
            store.add_message("s", "assistant", "a bad answer")
            store.rollback_to_snapshot("s", snapshot.id)
    db = apsw.Connection(str(path))
    size = db.execute("SELECT max(length(extents) + length(id) + 60) FROM snapshot").get
    db.close()
    return Result(
        name=f"a snapshot's row on SQLite, after {ROLLBACKS} rollbacks",
        subject=f"{size:,} bytes",
        baseline="",
        figure=size,
        target=4096,
        bound="at most",
        unit=" bytes",
    )


def measure_disk(folder: Path, *, search: bool, at_most: float) -> Result:
    """The bytes of the file for each message, beyond the JSON that a caller would keep of it."""
    path = folder / f"disk-{search}.db"
    with indelible.open(path, durability="process", search=search) as store:
        for _ in range(MESSAGES):
            store.add_message("s", "user", TEXT)
    each = path.stat().st_size / MESSAGES
    return Result(
        name=f"disk on SQLite for a message {'with' if search else 'without'} search,"
        " beyond its own bytes",
        subject=f"{each:.0f} bytes",
        baseline=f"{len(MESSAGE)} bytes",
        figure=each - len(MESSAGE),
        target=at_most,
        bound="at most",
        unit=" bytes",
    )
