"""The work that every engine is asked for: one message, long sessions, many tasks at once."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator

import indelible
from benchmarks.measure import Result, compare, compute_noise
from indelible import ChatMessage
from indelible.openers import Opening

TEXT = "What did we agree on for the delivery of order 4711? " * 2
# What a caller hands in, and what indelible writes for it: the bare engine is given the same bytes.
MESSAGE = json.dumps({"role": "user", "content": TEXT}, separators=(",", ":")).encode()
ENVELOPE = b'{"sum":"%b","v":1,"message":%b}' % (b"0" * 16, MESSAGE)

SHORT, MIDDLE, LONG = 10, 10_000, 100_000
TASKS = 64
_BATCH = 1000

Task = Callable[[], Awaitable[object]]


def fill(store: indelible.MemoryStore, session: str, length: int) -> None:
    """Let a session have this many messages, the last of them by itself, as an agent adds one."""
    message = ChatMessage(role="user", content=TEXT)
    for start in range(0, length - 1, _BATCH):
        store.add_messages(session, [message] * min(_BATCH, length - 1 - start))
    store.add_message(session, "user", TEXT)


def measure_growth(store: indelible.MemoryStore, *, where: str) -> Iterator[Result]:
    """The same work on long sessions and on short ones: the length must not show."""
    # Another comes behind them: on SQLite, the session at the end of the file has it easier.
    for name, length in (("long", LONG), ("middle", MIDDLE), ("short", SHORT), ("other", SHORT)):
        fill(store, name, length)
    taken = {name: store.save_snapshot(name).id for name in ("middle", "short")}
    yield compare(
        f"append {where} at {LONG:,} messages, against {SHORT}",
        lambda: store.add_message("long", "user", TEXT),
        lambda: store.add_message("short", "user", TEXT),
        at_most=1.1,
    )
    yield compare(
        f"last 20 {where} of {LONG:,}, against of {MIDDLE:,}",
        lambda: store.get_history("long", last=20),
        lambda: store.get_history("middle", last=20),
        at_most=1.1,
    )
    yield compare(
        f"snapshot {where} at {MIDDLE:,} messages, against {SHORT}",
        lambda: store.save_snapshot("middle"),
        lambda: store.save_snapshot("short"),
        at_most=1.1,
    )
    yield compare(
        f"rollback {where} at {MIDDLE:,} messages, against {SHORT}",
        lambda: store.rollback_to_snapshot("middle", taken["middle"]),
        lambda: store.rollback_to_snapshot("short", taken["short"]),
        at_most=1.1,
    )


def compare_with_one_row(
    store: indelible.MemoryStore, row: Callable[[], object], *, where: str, at_most: float = 2
) -> Iterator[Result]:
    """A snapshot of 10,000 messages, and the way back to it, beside one bare row and its commit."""
    fill(store, "s", MIDDLE)
    snapshot = store.save_snapshot("s").id
    yield compare(
        f"snapshot {where} of {MIDDLE:,} messages, against one bare row",
        lambda: store.save_snapshot("s"),
        row,
        at_most=at_most,
        calls=5,
    )
    yield compare(
        f"rollback {where} to {MIDDLE:,} messages, against one bare row",
        lambda: store.rollback_to_snapshot("s", snapshot),
        row,
        at_most=at_most,
        calls=5,
    )


async def measure_rate(task: Task, *, each: int) -> float:
    """Calls per second of many tasks at once."""

    async def work() -> None:
        for _ in range(each):
            await task()

    started = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(TASKS)))
    return TASKS * each / (time.perf_counter() - started)


async def measure_tasks(
    opening: Opening, bare: Task, *, where: str, beside: str, at_least: float
) -> Result:
    """Messages per second of 64 tasks, beside those of 64 that share no commit and no trip."""
    mine: list[float] = []
    theirs: list[float] = []
    async with opening as store:

        async def append() -> None:
            await store.add_message("tasks", "user", TEXT)

        await measure_rate(append, each=5)
        await measure_rate(bare, each=1)
        for _ in range(7):
            theirs.append(await measure_rate(bare, each=3))
            mine.append(await measure_rate(append, each=15))
    ratios = [one / other for one, other in zip(mine, theirs, strict=True)]
    return Result(
        name=f"{TASKS} tasks appending {where}, against {beside}",
        subject=f"{statistics.median(mine):,.0f}/s",
        baseline=f"{statistics.median(theirs):,.0f}/s",
        figure=statistics.median(ratios),
        noise=compute_noise(ratios),
        target=at_least,
        bound="at least",
    )
