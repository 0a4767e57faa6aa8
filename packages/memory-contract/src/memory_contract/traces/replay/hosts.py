"""The hosts of a replay's workers: threads or tasks of this process, or of worker processes.

A host keeps handles open, and runs a program of one call when it is told to: which call comes next,
and when, depends on what came of those of all others.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sys
import threading
import time
from concurrent import futures
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from memory_contract.adapter import Adapter, Flavour
from memory_contract.calls import Log, Program, format_error, run, run_async
from memory_contract.handles import close, open_handle, to_coroutine
from memory_contract.runner import StoreUnderTest
from memory_contract.timeouts import WorkTimedOut, start_thread
from memory_contract.traces.format import WorkerKind
from memory_contract.traces.replay.plan import ReplayStep, has_tasks, list_processes
from memory_contract.workers.pool import StoreRaised, Worker, WorkerPool

# A bound on what hangs, not on what is slow.
ANSWER_S_MAX: Final = 60.0
# What the threads of a replay are called.
THREADS: Final = "memory-contract-replay"
# How long a thread is made to give way, and after how many calls within the store's code at most.
PAUSE_S: Final = 0.001
CALLS_IN_MAX: Final = 10
# Calls of other processes begin together at a moment by which all have been told.
TOLD_NS: Final = {"processes": 1_000_000, "threads": 300_000, "tasks": 300_000}
TELLING_NS: Final = {"processes": 500_000, "threads": 200_000, "tasks": 100_000}


@dataclass(slots=True)
class _Lane:
    """A worker: the handle that it calls, and its latest call."""

    owner: str
    answer: futures.Future[Log] | None = None
    thread: threading.Thread | None = None
    task: asyncio.Task[Any] | None = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)


class ReplayHost:
    """Open handles, and the workers (lanes) that call them. It is pickled before it is used."""

    def __init__(
        self, adapter: Adapter, workspace: Path, flavour: Flavour, *, preempted: bool
    ) -> None:
        self._adapter = adapter
        self._workspace = workspace
        self._flavour = flavour
        # Whether threads are made to give way in the middle of a call. They may at any time, but
        # calls of a store in memory are over before they do.
        self._preempted = preempted
        # Whether the lanes of a group call one handle.
        self._shared = flavour == "async" or adapter.thread_safe or adapter.reach == "handle"

    def install(self) -> None:
        """Start, in the process that makes the calls."""
        self._handles: dict[str, Any] = {}
        self._lanes: dict[str, _Lane] = {}
        self._loop = _LoopThread() if self._flavour == "async" else None

    def open(self, lane: str, group: str) -> None:
        """Open the handle of a lane, unless its group has one already."""
        owner = group if self._shared else lane
        if owner not in self._handles:
            try:
                self._handles[owner] = open_handle(
                    self._adapter, self._workspace, self._flavour, self._loop
                )
            except Exception as error:
                raise StoreRaised(format_error(error)) from error
        self._lanes.setdefault(lane, _Lane(owner))

    def start(self, program: Program, names: dict[str, Any], start_ns: int) -> None:
        """Start the program of a lane at a moment; `finish` waits for it."""
        lane = self._lanes[program.worker]
        handle = self._handles[lane.owner]
        if self._loop is not None:
            lane.begun.clear()
            lane.answer = self._loop.submit(_run_later(lane, handle, program, names, start_ns))
        else:
            if self._preempted and start_ns:
                handle = _PreemptedHandle(handle, f"{program.worker} {start_ns}")
            work = partial(_run_at, handle, program, names, start_ns)
            lane.thread, lane.answer = start_thread(work, THREADS)

    def finish(self, lane: str) -> Log:
        """Wait for the program of a lane and return what it recorded."""
        answer = self._lanes[lane].answer
        assert answer is not None
        futures.wait([answer], ANSWER_S_MAX)
        if not answer.done():
            raise WorkTimedOut(f"a call did not come back within {ANSWER_S_MAX:.0f} s")
        return answer.result()

    def cancel(self, lane: str, after_s: float) -> None:
        """Cancel the call of a lane, where it is a task, so long after it began."""
        if self._loop is not None:
            self._loop.submit(_cancel_task(self._lanes[lane], after_s))

    def leave(self, lane: str) -> None:
        """End a lane; the last one of a handle closes the handle."""
        gone = self._lanes.pop(lane)
        if gone.thread is not None and gone.answer is not None and gone.answer.done():
            gone.thread.join(ANSWER_S_MAX)
        if all(each.owner != gone.owner for each in self._lanes.values()):
            # How a store ends is for the cases to judge.
            with contextlib.suppress(Exception):
                close(self._handles.pop(gone.owner), self._loop)

    def end(self) -> None:
        """Close what is open."""
        for lane in list(self._lanes):
            self.leave(lane)
        if self._loop is not None:
            self._loop.end()


def _run_at(handle: Any, program: Program, names: dict[str, Any], start_ns: int) -> Log:
    time.sleep(max(0.0, (start_ns - time.monotonic_ns()) / 1e9))
    log = Log()
    run(handle, program, names, log)
    return log


async def _run_later(
    lane: _Lane, handle: Any, program: Program, names: dict[str, Any], start_ns: int
) -> Log:
    await asyncio.sleep(max(0.0, (start_ns - time.monotonic_ns()) / 1e9))
    lane.task = asyncio.current_task()
    lane.begun.set()
    log = Log()
    # A call that is cancelled is recorded before this is raised.
    with contextlib.suppress(asyncio.CancelledError):
        await run_async(handle, program, names, log)
    return log


async def _cancel_task(lane: _Lane, after_s: float) -> None:
    answer = lane.answer
    await lane.begun.wait()
    await asyncio.sleep(after_s)
    # The lane may have gone on to its next call.
    if lane.task is not None and lane.answer is answer:
        lane.task.cancel()


class _PreemptedHandle:
    """A handle whose calls let other threads run once, somewhere in the store's own code."""

    def __init__(self, handle: Any, seed: str) -> None:
        self._handle = handle
        self._left = Random(seed).randrange(1, CALLS_IN_MAX)  # noqa: S311 -- runs must repeat

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._handle, name)

        def call(*arguments: Any, **options: Any) -> Any:
            before = sys.getprofile()
            sys.setprofile(self._count)
            try:
                return method(*arguments, **options)
            finally:
                sys.setprofile(before)

        return call

    def _count(self, _: object, event: str, __: object) -> None:
        if event in ("call", "c_call"):
            self._left -= 1
            if self._left == 0:
                time.sleep(PAUSE_S)


class _LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._stopped = asyncio.Event()
        self._thread, _ = start_thread(self._run, THREADS)

    def _run(self) -> None:
        # What still runs is cancelled at the end.
        with self._runner:
            self._runner.run(to_coroutine(self._stopped.wait()))

    def submit(self, coroutine: Any) -> futures.Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def settle(self, answer: Any) -> Any:
        if inspect.isawaitable(answer):
            return self.submit(to_coroutine(answer)).result(ANSWER_S_MAX)
        return answer

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(ANSWER_S_MAX)


@dataclass(frozen=True, slots=True)
class WorkerMode:
    """How the workers of a replay run."""

    workers: WorkerKind
    flavour: Flavour


def choose_worker_mode(
    subject: StoreUnderTest, steps: list[ReplayStep], asked: WorkerKind | None
) -> WorkerMode:
    """Choose how workers run: as in the trace, or as close to it as the store allows."""
    adapter, flavours = subject.adapter, subject.flavours
    wanted = asked
    if wanted is None and len(list_processes(steps)) > 1:
        wanted = "processes"
    elif wanted is None and has_tasks(steps):
        wanted = "tasks"
    elif wanted is None and not list_processes(steps) and subject.worker_pool is not None:
        # A history that does not say how it ran.
        wanted = "processes"
    if wanted == "processes" and subject.worker_pool is not None:
        awaited = has_tasks(steps) or "blocking" not in flavours
        return WorkerMode("processes", "async" if awaited and "async" in flavours else "blocking")
    if "async" in flavours and (wanted == "tasks" or "blocking" not in flavours):
        return WorkerMode("tasks", "async")
    if adapter.reach == "handle" and not adapter.thread_safe and "async" in flavours:
        return WorkerMode("tasks", "async")
    return WorkerMode("threads", "blocking")


class HostPool:
    """Finds, opens and ends the hosts of one run."""

    def __init__(
        self,
        subject: StoreUnderTest,
        workspace: Path,
        way: WorkerMode,
    ) -> None:
        self._adapter: Adapter = subject.adapter
        self._worker_pool: WorkerPool | None = subject.worker_pool
        self._workspace = workspace
        self.way = way
        # Hosts in this process, or processes with a host each.
        self._hosts: dict[str, ReplayHost | Worker] = {}
        # The host of each open lane.
        self._lanes: dict[str, str] = {}

    def open(self, lane: str, group: str) -> None:
        """Open the handle of a lane, unless it is open."""
        if lane in self._lanes:
            return
        where = group if self.way.workers == "processes" else ""
        # Everybody shares a handle where a store has only one.
        group = "" if self._adapter.reach == "handle" else group
        if where not in self._hosts:
            self._hosts[where] = self._create(remote=self.way.workers == "processes")
        self._lanes[lane] = where
        self.call(lane, "open", lane, group)

    def call(self, lane: str, method: str, *arguments: Any) -> Any:
        """Call a method of the host of an open lane."""
        return _call_host(self._hosts[self._lanes[lane]], method, *arguments)

    def _create(self, *, remote: bool) -> ReplayHost | Worker:
        preempted = self.way.workers == "threads"
        host = ReplayHost(self._adapter, self._workspace, self.way.flavour, preempted=preempted)
        if remote:
            assert self._worker_pool is not None
            worker = self._worker_pool.start_worker()
            worker.ask("install_plugin", host)
            return worker
        host.install()
        return host

    def open_fresh(self, lane: str) -> None:
        """Open a lane for the last reads, in a fresh process where the store allows it."""
        if self._adapter.reach == "handle" and self._hosts:
            self.open(lane, "")
            return
        remote = self._adapter.reach == "machine" and self._worker_pool is not None
        self._hosts[lane] = self._create(remote=remote)
        self._lanes[lane] = lane
        self.call(lane, "open", lane, lane)

    def leave(self, lane: str) -> None:
        """End a lane."""
        # Where one handle is all there is, it stays open for the last reads.
        if lane in self._lanes and self._adapter.reach != "handle":
            self.call(lane, "leave", lane)
        self._lanes.pop(lane, None)

    def kill(self, lane: str) -> bool:
        """Kill the process of a lane; False if it has none of its own."""
        where = self._lanes[lane]
        host = self._hosts[where]
        if not isinstance(host, Worker):
            return False
        host.kill()
        del self._hosts[where]
        self._lanes = {name: at for name, at in self._lanes.items() if at != where}
        return True

    def plan_moment(self, calls: int) -> int:
        """Choose a moment to start so many calls: by then all hosts have received theirs."""
        ahead = TOLD_NS[self.way.workers] + calls * TELLING_NS[self.way.workers]
        return time.monotonic_ns() + ahead if calls > 1 else 0

    def end(self) -> None:
        """Close everything."""
        for host in self._hosts.values():
            with contextlib.suppress(Exception):
                _call_host(host, "end")
            if isinstance(host, Worker):
                host.kill()
        self._hosts = {}


def _call_host(host: ReplayHost | Worker, method: str, *arguments: Any) -> Any:
    if isinstance(host, Worker):
        # One that hangs is lost; what the host itself raises is the store's doing.
        return host.ask("call_plugin", method, arguments, wait_s=ANSWER_S_MAX)
    return getattr(host, method)(*arguments)
