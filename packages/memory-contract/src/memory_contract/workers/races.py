"""Programs that run at the same time: in threads, in tasks of one event loop, or in processes."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from memory_contract.adapter import Flavour
from memory_contract.calls import Log, Program, run, run_async
from memory_contract.handles import StepwiseAwait, close
from memory_contract.workers.pool import WorkerPool

# The switch interval of threads during a race: the shorter, the more interleavings of two calls
# occur. The default is 5 ms.
SWITCH_S: Final = 1e-5
_USUAL_S: Final = sys.getswitchinterval()
# The delay before the common start of processes, in which all receive their programs.
START_NS: Final = 4_000_000


def race_threads(
    programs: Sequence[Program],
    names: dict[str, Any],
    *,
    handles: Sequence[Any] = (),
    open_own: Callable[[], Any] | None = None,
    ready: Callable[[], None] | None = None,
) -> list[Log]:
    """Run each program in a thread, all at once: on these handles, or each on one of its own.

    `ready` is called when all are open.
    """
    # The stores are opened at the same time as well: that is a race of its own.
    begin = threading.Barrier(len(programs))
    gate = threading.Barrier(len(programs), action=ready)
    logs = [Log() for _ in programs]
    mishaps: list[BaseException] = []

    def work(place: int, program: Program, log: Log) -> None:
        try:
            begin.wait()
            ours = open_own() if open_own is not None else handles[place]
            try:
                gate.wait()
                run(ours, program, dict(names), log)
            finally:
                if open_own is not None:
                    close(ours)
        except BaseException as error:  # noqa: BLE001 -- raised again in the waiting thread
            gate.abort()
            mishaps.append(error)

    threads = [
        threading.Thread(target=work, args=(place, *pair), daemon=True)
        for place, pair in enumerate(zip(programs, logs, strict=True))
    ]
    with many_switches():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    causes = [error for error in mishaps if not isinstance(error, threading.BrokenBarrierError)]
    if causes:
        raise causes[0]
    return logs


@contextmanager
def many_switches() -> Iterator[None]:
    """Let threads take turns as often as they can, for a while."""
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        # Not what it was before: that may be the doing of a race that hangs and was left behind.
        sys.setswitchinterval(_USUAL_S)


async def race_tasks(
    programs: Sequence[Program],
    names: dict[str, Any],
    handles: Sequence[Any],
    *,
    on_suspension: Callable[[], None] = lambda: None,
    cancels: Mapping[str, float] = MappingProxyType({}),
) -> list[Log]:
    """Run each program in a task, all at once; cancel some workers so long after they began."""
    gate = asyncio.Event()
    logs = [Log() for _ in programs]
    loop = asyncio.get_running_loop()

    async def work(program: Program, handle: Any, log: Log) -> None:
        await gate.wait()
        if program.delay_s:
            await asyncio.sleep(program.delay_s)
        running = StepwiseAwait(run_async(handle, program, dict(names), log), on_suspension)
        task = asyncio.current_task()
        if program.worker not in cancels or task is None:
            await running
            return
        # After the delay, so that the call begins first: it is recorded before this is raised.
        loop.call_later(cancels[program.worker], task.cancel)
        with suppress(asyncio.CancelledError):
            await running

    tasks = [
        loop.create_task(work(program, handle, log), name=program.worker)
        for program, handle, log in zip(programs, handles, logs, strict=True)
    ]
    gate.set()
    await asyncio.gather(*tasks)
    return logs


def race_processes(
    worker_pool: WorkerPool,
    workspace: Path,
    programs: Sequence[Program],
    names: dict[str, Any],
    flavours: Sequence[Flavour],
    *,
    server: str | None = None,
    ready: Callable[[], None] | None = None,
) -> list[Log]:
    """Run each program in a process of its own, all at once; flavours alternate.

    `ready` is called when all handles are open.
    """
    workers = [worker_pool.start_worker() for _ in programs]
    try:
        # The stores are opened at the same time as well: that is a race of its own.
        start_ns = time.monotonic_ns() + START_NS
        for place, worker in enumerate(workers):
            worker.tell("open", workspace, flavours[place % len(flavours)], server, start_ns)
        for worker in workers:
            worker.answer()
        if ready is not None:
            ready()
        start_ns = time.monotonic_ns() + START_NS
        for worker, program in zip(workers, programs, strict=True):
            worker.tell("run", program, names, start_ns)
        return [worker.answer() for worker in workers]
    finally:
        for worker in workers:
            worker.end()
