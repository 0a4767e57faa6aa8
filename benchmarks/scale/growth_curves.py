"""Stores that are made larger and larger, and what each verb costs on the way."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import indelible
from benchmarks.conversation import TEXT, fill
from indelible import ChatMessage

Shape = Literal["flat", "linear"]
Work = Callable[[], object]

CALLS = 60
TURNS = 20


@dataclass(frozen=True)
class Point:
    """One size of a store, and what was seen there: seconds of calls, bytes of the rest."""

    size: int
    seen: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Growth:
    """A way to grow: what is counted, how far it goes, and what DESIGN says of each curve."""

    name: str
    counted: str
    sizes: tuple[int, ...]
    # What is not named may be linear.
    shapes: Mapping[str, Shape]
    grow: Callable[[Path, tuple[int, ...]], Iterator[Point]]


def grow_one_session(folder: Path, sizes: tuple[int, ...]) -> Iterator[Point]:
    """One session that gets longer."""
    path = folder / "one-session.db"
    batch = [ChatMessage(role="user", content=TEXT)] * 1000
    with indelible.open(path, durability="process") as store:
        length = 0
        for size in sizes:
            while length < size:
                store.add_messages("s", batch[: size - length])
                length += len(batch[: size - length])
            yield Point(size, {**_verbs(store, "s"), **_room(path)})


def grow_many_sessions(folder: Path, sizes: tuple[int, ...]) -> Iterator[Point]:
    """More and more sessions of 20 messages each."""
    path = folder / "many-sessions.db"
    draw = random.Random(20)
    batch = [ChatMessage(role="user", content=TEXT)] * TURNS
    with indelible.open(path, durability="process") as store:
        there = 0
        for size in sizes:
            for number in range(there, size):
                store.add_messages(_name(number), batch)
            there = size
            # As a process that has not seen any of them: it knows no session's end.
            with indelible.open(path, durability="process") as other:
                yield Point(size, {**_anyones(other, size, draw), **_room(path)})


def _anyones(store: indelible.MemoryStore, known: int, draw: random.Random) -> dict[str, float]:
    """The verbs on any of the sessions that are there: what is asked for is seldom at hand."""

    def anyone() -> str:
        return _name(draw.randrange(known))

    return {
        "append": _median(lambda: store.add_message(anyone(), "user", TEXT)),
        "last 20": _median(lambda: store.get_history(anyone(), last=20)),
        "snapshot": _median(lambda: store.save_snapshot(anyone())),
        "list 100": _median(lambda: store.list_sessions(limit=100)),
    }


def grow_snapshots(folder: Path, sizes: tuple[int, ...]) -> Iterator[Point]:
    """A session of 10,000 messages with more and more snapshots."""
    path = folder / "many-snapshots.db"
    with indelible.open(path, durability="process") as store:
        fill(store, "s", 10_000)
        there = 0
        for size in sizes:
            while there < size:
                store.save_snapshot("s")
                there += 1
            # Measuring takes snapshots too; they are taken back, so that the size is what it says.
            before = {snapshot.id for snapshot in store.list_snapshots("s")}
            seen = _verbs(store, "s")
            for snapshot in store.list_snapshots("s"):
                if snapshot.id not in before:
                    store.delete_snapshot("s", snapshot.id)
            yield Point(size, {**seen, **_room(path)})


def grow_rollbacks(folder: Path, sizes: tuple[int, ...]) -> Iterator[Point]:
    """A session in which each answer fails twice: what it shows lies in more and more pieces."""
    path = folder / "many-rollbacks.db"
    with indelible.open(path, durability="process") as store:
        fill(store, "s", 10_000)
        there = 0
        for size in sizes:
            while there < size:
                store.save_context("s", "a question", "an answer")
                good = store.save_snapshot("s")
                for _ in range(min(2, size - there)):
                    store.add_message("s", "assistant", "a bad answer")
                    store.rollback_to_snapshot("s", good.id)
                    there += 1
            pieces = len(store.save_snapshot("s").extents)
            yield Point(size, {**_verbs(store, "s"), "pieces": pieces, **_room(path)})


def _verbs(store: indelible.MemoryStore, session: str) -> dict[str, float]:
    snapshot = store.save_snapshot(session).id
    return {
        "append": _median(lambda: store.add_message(session, "user", TEXT)),
        "last 20": _median(lambda: store.get_history(session, last=20)),
        "snapshot": _median(lambda: store.save_snapshot(session)),
        "rollback": _median(lambda: store.rollback_to_snapshot(session, snapshot)),
    }


def _median(work: Work) -> float:
    times = []
    for _ in range(CALLS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def _room(path: Path) -> dict[str, float]:
    """What the store takes: of the disk with its log, and of memory in this process."""
    files = (path, path.with_name(path.name + "-wal"))
    status = Path("/proc/self/status").read_text("ascii")
    return {
        "file": sum(file.stat().st_size for file in files if file.exists()),
        "memory": int(status.split("VmRSS:")[1].split()[0]) * 1024,
    }


def _name(number: int) -> str:
    return f"user-{number:06d}"


_VERBS: dict[str, Shape] = {
    "append": "flat",
    "last 20": "flat",
    "snapshot": "flat",
    "rollback": "flat",
    "memory": "flat",
}
THOUSANDS = (1, 10, 100, 250, 500, 1000)
ALL: tuple[Growth, ...] = (
    Growth(
        name="one session",
        counted="messages",
        sizes=(1_000, 10_000, 100_000, 250_000, 500_000, 1_000_000),
        shapes=_VERBS,
        grow=grow_one_session,
    ),
    Growth(
        name="sessions of 20",
        counted="sessions",
        sizes=(1_000, 5_000, 10_000, 25_000, 50_000, 100_000),
        shapes={
            "append": "flat",
            "last 20": "flat",
            "snapshot": "flat",
            "list 100": "flat",
            "memory": "flat",
        },
        grow=grow_many_sessions,
    ),
    Growth(
        name="snapshots of a session",
        counted="snapshots",
        sizes=THOUSANDS,
        shapes=_VERBS,
        grow=grow_snapshots,
    ),
    Growth(
        name="rollbacks of a session",
        counted="rollbacks",
        sizes=THOUSANDS,
        # A view is read and written as a whole, piece by piece.
        shapes={"append": "flat", "memory": "flat"},
        grow=grow_rollbacks,
    ),
)
