"""Programs run by tasks of one event loop."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Generator, Sequence
from typing import Any

from memory_contract.calls import Log, Program, run_async


class Suspensions:
    """Counts how often awaited calls suspended. Without any, tasks cannot overlap."""

    def __init__(self) -> None:
        self.count = 0


async def race(
    programs: Sequence[Program], names: dict[str, Any], handle: Any, suspensions: Suspensions
) -> list[Log]:
    """Run each program in a task, all on one handle."""
    gate = asyncio.Event()
    logs = [Log() for _ in programs]

    async def work(program: Program, log: Log) -> None:
        await gate.wait()
        await _count_suspensions(run_async(handle, program, dict(names), log), suspensions)

    loop = asyncio.get_running_loop()
    tasks = [
        loop.create_task(work(program, log), name=program.worker)
        for program, log in zip(programs, logs, strict=True)
    ]
    gate.set()
    await asyncio.gather(*tasks)
    return logs


@types.coroutine
def _count_suspensions(
    awaitable: Awaitable[None], suspensions: Suspensions
) -> Generator[Any, Any, None]:
    inner = awaitable.__await__()
    thrown: BaseException | None = None
    while True:
        try:
            step = next(inner) if thrown is None else inner.throw(thrown)
        except StopIteration:
            return
        suspensions.count += 1
        thrown = None
        try:
            yield step
        except BaseException as error:  # noqa: BLE001 -- a cancellation goes where it belongs
            thrown = error
