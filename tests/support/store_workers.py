"""What the processes of these tests do. Only paths and plain values travel to them and back."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path
from typing import Any

import indelible
from indelible.backends.sqlite import SqliteDatabase, SqliteOptions
from indelible.backends.sqlite.connection import COMMIT
from indelible.core.clock import system_clock
from indelible.core.embedded import EmbeddedBackend
from indelible.core.settings import Settings
from tests.support.ledger import SESSION, Write, batch_of, batches_in
from tests.support.worker_processes import CREW_SIZE, PATIENCE_S

KEPT_BY_TRIM = 5


# Who may write when, and in which order, does not depend on the disk; so nor do these tests, unless
# they are about what survives. And others are waited for as long as a test waits.
HOW: dict[str, Any] = {"durability": "process", "busy_timeout_s": PATIENCE_S}


def opened(path: str, **more: Any) -> indelible.MemoryStore:
    """A store as these tests open it."""
    return indelible.open(path, **{**HOW, **more})


def opened_async(path: str, **more: Any) -> indelible.openers.Opening:
    """The same, awaited."""
    return indelible.open_async(path, **{**HOW, **more})


def is_intact(path: str) -> bool:
    """Whether the engine finds its file intact, and every row in it."""
    with opened(path) as store:
        return store.verify().findings == ()


def write(store: indelible.MemoryStore, writer: str, number: int) -> Write:
    """Append a writer's n-th batch and note what it was told, and when."""
    batch = batch_of(writer, number)
    invoked_ns = time.monotonic_ns()
    receipt = store.add_messages(SESSION, batch)
    acknowledged_ns = time.monotonic_ns()
    first, stop = receipt.positions.start, receipt.positions.stop
    return Write(writer, number, first, stop, invoked_ns, acknowledged_ns)


async def write_async(store: indelible.AsyncMemoryStore, writer: str, number: int) -> Write:
    """The same, awaited."""
    batch = batch_of(writer, number)
    invoked_ns = time.monotonic_ns()
    receipt = await store.add_messages(SESSION, batch)
    acknowledged_ns = time.monotonic_ns()
    first, stop = receipt.positions.start, receipt.positions.stop
    return Write(writer, number, first, stop, invoked_ns, acknowledged_ns)


def write_all(store: indelible.MemoryStore, writer: str, batches: int) -> list[Write]:
    """A writer's batches, one after the other."""
    return [write(store, writer, number) for number in range(batches)]


async def write_all_async(
    store: indelible.AsyncMemoryStore, writer: str, batches: int
) -> list[Write]:
    """The same, awaited."""
    return [await write_async(store, writer, number) for number in range(batches)]


def write_in_threads(store: indelible.MemoryStore, writers: list[str], batches: int) -> list[Write]:
    """A thread for each writer."""
    with ThreadPoolExecutor(len(writers)) as pool:
        done = pool.map(lambda writer: write_all(store, writer, batches), writers)
        return [write for writes in done for write in writes]


async def write_in_tasks(
    store: indelible.AsyncMemoryStore, writers: list[str], batches: int
) -> list[Write]:
    """A task for each writer."""
    done = await asyncio.gather(*(write_all_async(store, writer, batches) for writer in writers))
    return [write for writes in done for write in writes]


def writer_process(gate: Barrier, index: int, path: str, batches: int) -> list[Write]:
    """One writer to a process."""
    with opened(path) as store:
        gate.wait()
        return write_all(store, f"process{index}", batches)


def mixed_process(gate: Barrier, index: int, path: str, batches: int) -> list[Write]:
    """Two threads in every other process, two tasks in the rest."""
    writers = [f"process{index}.{part}" for part in range(2)]

    async def in_tasks() -> list[Write]:
        async with opened_async(path) as store:
            gate.wait()
            return await write_in_tasks(store, writers, batches)

    if index % 2:
        return asyncio.run(in_tasks())
    with opened(path) as store:
        gate.wait()
        return write_in_threads(store, writers, batches)


def opening_process(gate: Barrier, index: int, path: str) -> list[Write]:
    """Open at the same moment as all others, and write."""
    gate.wait()
    with opened(path) as store:
        return write_all(store, f"process{index}", 3)


def watch(over: Event, path: str) -> None:
    """Read again and again: each state begins with the one before, and no batch is cut."""
    seen: list[str] = []
    with opened(path) as store:
        while True:
            last = over.is_set()
            now = [message.content for message in store.get_history(SESSION)]
            assert now[: len(seen)] == seen, "a read does not begin with what was read before"
            list(batches_in(now))
            seen = now
            if last:
                return


def retry_process(gate: Barrier, index: int, path: str, rounds: int) -> list[tuple[Any, ...]]:
    """All send the same append with the same key at the same moment."""
    receipts = []
    with opened(path) as store:
        for number in range(rounds):
            gate.wait()
            receipt = store.add_messages(SESSION, batch_of("anyone", number), key=f"key {number}")
            receipts.append((receipt.positions.start, receipt.version, receipt.replayed))
    return receipts


def racing_process(gate: Barrier, index: int, path: str, rounds: int) -> list[str | None]:
    """All answer the same state at the same moment; gives the version made, None if refused."""
    won: list[str | None] = []
    with opened(path) as store:
        for number in range(rounds):
            gate.wait()
            version = store.get_history(SESSION).version
            gate.wait()
            try:
                batch = batch_of(f"process{index}", number)
                won.append(store.add_messages(SESSION, batch, expected=version).version)
            except indelible.ConflictError as refused:
                if refused.reason != "version":
                    raise
                won.append(None)
    return won


def counting_process(gate: Barrier, index: int, path: str, rounds: int) -> int:
    """All count up the same memory, and each one of its own; gives how often it was refused."""
    refused = 0
    with opened(path, durability=None) as store:
        gate.wait()
        for number in range(rounds):
            while True:
                shared = store.get_memory(SESSION, "shared")
                value = shared.value + 1 if shared else 1
                expected = shared.position if shared else indelible.ABSENT
                try:
                    store.remember(SESSION, value=value, id="shared", expected=expected)
                    break
                except indelible.ConflictError as conflict:
                    if conflict.details["reason"] != "item":
                        raise
                    refused += 1
            own = store.get_memory(SESSION, f"own {index}")
            expected = own.position if own else indelible.ABSENT
            store.remember(SESSION, value=number, id=f"own {index}", expected=expected)
    return refused


def trimming_process(
    gate: Barrier, index: int, path: str, batches: int
) -> tuple[list[Write], list[tuple[tuple[int, ...], str]]]:
    """Two of the processes trim for as long as the others append.

    Gives the writes, and for each trim what it dropped, and the version that it made.
    """
    in_the_end = (CREW_SIZE - 2) * sum(len(batch_of("", number)) for number in range(batches))
    deadline = time.monotonic() + PATIENCE_S
    with opened(path) as store:
        gate.wait()
        if index >= 2:
            return write_all(store, f"process{index}", batches), []
        trims = []
        while store.session(SESSION).logged < in_the_end:
            trims.append(store.trim(SESSION, keep_last=KEPT_BY_TRIM, align=None))
            assert time.monotonic() < deadline, "the others do not append"
        trims.append(store.trim(SESSION, keep_last=KEPT_BY_TRIM, align=None))
        return [], [(trim.dropped, trim.version) for trim in trims]


def save_snapshot(path: str, content: str) -> str:
    """Say something, and write the state down."""
    with opened(path) as store:
        store.add_message(SESSION, "user", content)
        return store.save_snapshot(SESSION, label=content).id


def roll_back(path: str, snapshot_id: str) -> tuple[list[str], list[str]]:
    """Roll back; gives what the session shows and the snapshots that it has."""
    with opened(path) as store:
        store.rollback_to_snapshot(SESSION, snapshot_id)
    return look(path)


def look(path: str) -> tuple[list[str], list[str]]:
    """What the session shows, and the ids of its snapshots."""
    with opened(path) as store:
        shown = [message.content for message in store.get_history(SESSION)]
        return shown, [snapshot.id for snapshot in store.list_snapshots(SESSION)]


def stream(path: str, durability: str, reports: Connection) -> None:
    """Append for ever, and report each append that was acknowledged."""
    store = opened(path, durability=durability)
    number = 0
    while True:
        reports.send(write(store, "stream", number))
        number += 1


def stream_async(path: str, durability: str, reports: Connection) -> None:
    """The same from many tasks, which share commits."""

    async def keep_writing(store: indelible.AsyncMemoryStore, writer: str) -> None:
        number = 0
        while True:
            reports.send(await write_async(store, writer, number))
            number += 1

    async def stream_all() -> None:
        async with opened_async(path, durability=durability) as store:
            await asyncio.gather(*(keep_writing(store, f"task{n}") for n in range(16)))

    asyncio.run(stream_all())


def copy_up_to(path: str, commit: int, when: str, reports: Connection) -> None:
    """Fork a session into "copy", and stand still just before, or just after, the n-th commit."""
    _standing_still(path, commit, when, reports).fork(SESSION, "copy")
    reports.send("done")


def copy_over_up_to(source: str, path: str, commit: int, when: str, reports: Connection) -> None:
    """Copy all sessions into another file, and stand still at the n-th commit in that."""
    target = _standing_still(path, commit, when, reports)
    indelible.copy_sessions(indelible.open(source), target)
    reports.send("done")


def _standing_still(
    path: str, commit: int, when: str, reports: Connection
) -> indelible.MemoryStore:
    """A store that reports, and goes no further, just before or after its n-th commit."""
    commits = 0

    def stand_still() -> None:
        reports.send("there")
        threading.Event().wait()

    def seam(statement: str, call: Callable[[], Any]) -> Any:
        nonlocal commits
        if statement != COMMIT:
            return call()
        commits += 1
        if (commits, when) == (commit, "before"):
            stand_still()
        answer = call()
        if (commits, when) == (commit, "after"):
            stand_still()
        return answer

    options = SqliteOptions(
        path=Path(path),
        namespace="",
        durability=indelible.Durability.POWER,
        busy_timeout_s=5,
        clock=system_clock,
        seam=seam,
    )
    return indelible.MemoryStore(EmbeddedBackend(SqliteDatabase(options)), Settings())
