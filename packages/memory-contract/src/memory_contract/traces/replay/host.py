"""The host of a replay's workers: threads or tasks of this process, or of another one.

A host keeps handles open and makes calls when it is told to. It answers in lines of a trace: what
a replay sees is taken down exactly as a recorder takes it down.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from memory_contract.adapter import Adapter, Flavour
from memory_contract.calls import format_error
from memory_contract.handles import close, open_handle, to_coroutine
from memory_contract.stacks import read_stacks
from memory_contract.timeouts import start_thread
from memory_contract.traces.format import TraceCall
from memory_contract.traces.recorder.call_records import CallRecord
from memory_contract.traces.recorder.hasher import Hasher, Policy
from memory_contract.traces.recorder.methods import build_handle_methods
from memory_contract.workers.pool import StoreRaised

# A bound on what hangs, not on what is slow.
ANSWER_S_MAX: Final = 60.0
# What the threads of a replay are called.
THREADS: Final = "memory-contract-replay"
# How long a thread is made to give way, and after how many calls within the store's code at most.
PAUSE_S: Final = 0.001
CALLS_IN_MAX: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """One call to make: a method of a handle, when, and for which worker."""

    lane: str
    method: str
    session: str
    # What follows the session.
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    start_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """The result of a call: its line, what it raised, and the store's id of a snapshot."""

    line: TraceCall
    raised: str = ""
    snapshot: Any = None


class CallHungError(Exception):
    """A call did not come back."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        # Where all threads and tasks stood at that time.
        self.stacks = read_stacks()


@dataclass(slots=True)
class _Lane:
    """A worker: the handle that it calls, and its latest call."""

    owner: str
    answer: futures.Future[CallResult] | None = None
    thread: threading.Thread | None = None
    task: asyncio.Task[Any] | None = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)


class ReplayHost:
    """Open handles, and the workers (lanes) that call them. It is pickled before it is used."""

    def __init__(
        self, adapter: Adapter, workspace: Path, flavour: Flavour, *, key: bytes, preempted: bool
    ) -> None:
        self._adapter = adapter
        self._workspace = workspace
        self._flavour = flavour
        self._key = key
        # Whether threads are made to give way in the middle of a call. They may at any time, but
        # calls of a store in memory are over before they do.
        self._preempted = preempted
        # Whether the lanes of a group call one handle.
        self._shared = flavour == "async" or adapter.thread_safe or adapter.reach == "handle"

    def install(self) -> None:
        """Start, in the process that makes the calls."""
        self._hasher = Hasher(Policy(), self._key)
        self._methods = build_handle_methods(self._hasher)
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

    def start(self, request: CallRequest) -> TraceCall:
        """Start a call; `finish` waits for it. Return its line if it is never heard of again."""
        lane = self._lanes[request.lane]
        method = getattr(self._handles[lane.owner], request.method)
        spec = self._methods[request.method]
        record = spec.describe(request.session, *request.arguments, **request.options)
        record.worker, record.verb = request.lane, request.method
        record.invoke_ns = time.monotonic_ns()
        announced = record.to_line()
        if self._loop is not None:
            lane.begun.clear()
            lane.answer = self._loop.submit(self._call_async(lane, method, request, record))
        else:
            call = partial(self._call, method, request, record)
            lane.thread, lane.answer = start_thread(call, THREADS)
        return announced

    def finish(self, lane: str) -> CallResult:
        """Wait for the call of a lane and return its result."""
        answer = self._lanes[lane].answer
        assert answer is not None
        futures.wait([answer], ANSWER_S_MAX)
        if not answer.done():
            raise CallHungError(f"a call did not come back within {ANSWER_S_MAX:.0f} s")
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

    # One call

    def _call(self, method: Any, request: CallRequest, record: CallRecord) -> CallResult:
        time.sleep(max(0.0, (request.start_ns - time.monotonic_ns()) / 1e9))
        raced = self._preempted and request.start_ns
        pause = _pause_once(request) if raced else contextlib.nullcontext()
        record.invoke_ns = time.monotonic_ns()
        try:
            with pause:
                answer = method(request.session, *request.arguments, **request.options)
        except BaseException as error:  # noqa: BLE001 -- whatever a store raises is an outcome
            return self._fail(record, error)
        return self._complete(record, answer)

    async def _call_async(
        self, lane: _Lane, method: Any, request: CallRequest, record: CallRecord
    ) -> CallResult:
        await asyncio.sleep(max(0.0, (request.start_ns - time.monotonic_ns()) / 1e9))
        lane.task = asyncio.current_task()
        lane.begun.set()
        record.invoke_ns = time.monotonic_ns()
        try:
            answer = method(request.session, *request.arguments, **request.options)
            if inspect.isawaitable(answer):
                answer = await answer
        except BaseException as error:  # noqa: BLE001 -- whatever a store raises is an outcome
            return self._fail(record, error)
        return self._complete(record, answer)

    def _fail(self, record: CallRecord, error: BaseException) -> CallResult:
        record.set_error(error)
        return CallResult(line=record.to_line(), raised=format_error(error))

    def _complete(self, record: CallRecord, answer: Any) -> CallResult:
        record.complete_ns = time.monotonic_ns()
        record.outcome = "ok"
        read_result = self._methods[record.verb].read_result
        if read_result is not None:
            read_result(record, answer, self._hasher)
        snapshot = answer if record.verb == "snapshot" else None
        return CallResult(line=record.to_line(), snapshot=snapshot)


async def _cancel_task(lane: _Lane, after_s: float) -> None:
    answer = lane.answer
    await lane.begun.wait()
    await asyncio.sleep(after_s)
    # The lane may have gone on to its next call.
    if lane.task is not None and lane.answer is answer:
        lane.task.cancel()


@contextlib.contextmanager
def _pause_once(request: CallRequest) -> Iterator[None]:
    """Let other threads run once in a call, somewhere in the store's own code."""
    left = Random(f"{request.lane} {request.start_ns}").randrange(1, CALLS_IN_MAX)  # noqa: S311

    def count(_: object, event: str, __: object) -> None:
        nonlocal left
        if event in ("call", "c_call"):
            left -= 1
            if left == 0:
                time.sleep(PAUSE_S)

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(before)


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
