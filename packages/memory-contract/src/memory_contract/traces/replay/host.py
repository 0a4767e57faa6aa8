"""The host of a replay's workers: threads or tasks of this process, or of another one.

A host keeps handles open and makes calls when it is told to. It answers in lines of a trace: what
a replay sees is taken down exactly as a recorder takes it down.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from memory_contract.adapter import Adapter, Flavour
from memory_contract.calls import format_error
from memory_contract.handles import close, open_handle, to_coroutine
from memory_contract.stacks import read_stacks
from memory_contract.traces.format import TraceCall
from memory_contract.traces.recorder.call_records import CallRecord
from memory_contract.traces.recorder.hasher import Hasher, Policy
from memory_contract.traces.recorder.methods import MethodSpecs, build_handle_methods
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
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    start_ns: int = 0
    # By when it was asked for: a call that is never heard of again began no earlier.
    asked_ns: int = field(default_factory=time.monotonic_ns)


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


class ReplayHost:
    """Open handles, and the workers (lanes) that call them. It is pickled before it is used."""

    def __init__(
        self,
        adapter: Adapter,
        workspace: Path,
        flavour: Flavour,
        *,
        key: bytes,
        shared: bool,
        preempted: bool = False,
    ) -> None:
        self._adapter = adapter
        self._workspace = workspace
        self._flavour = flavour
        self._key = key
        # Whether the lanes of a group call one handle.
        self._shared = shared
        # Whether threads are made to give way in the middle of a call. They may at any time, but
        # calls of a store in memory are over before they do.
        self._preempted = preempted

    def install(self) -> None:
        """Start, in the process that makes the calls."""
        self._hasher = Hasher(Policy(), self._key)
        self._methods = build_handle_methods(self._hasher)
        self._handles: dict[str, Any] = {}
        self._lanes: dict[str, _Lane] = {}
        self._loop = _LoopThread() if self._flavour == "async" else None

    def open(self, lane: str, group: str, server: str | None = None) -> None:
        """Open the handle of a lane, unless its group has one already.

        `server` is the one to stand on in place of the adapter's own.
        """
        owner = group if self._shared else lane
        if owner not in self._handles:
            try:
                self._handles[owner] = open_handle(
                    self._adapter, self._workspace, self._flavour, self._loop, server
                )
            except Exception as error:
                raise StoreRaised(format_error(error)) from error
        # A lane of the trace may have the name of ours: where its handle stays, so does its thread.
        if lane not in self._lanes:
            self._lanes[lane] = _Lane(owner, None if self._loop is not None else _Thread())

    def start(self, request: CallRequest) -> None:
        """Start a call; `finish` waits for it."""
        lane = self._lanes[request.lane]
        handle = self._handles[lane.owner]
        if self._loop is not None:
            lane.answer = self._loop.submit(self._call_async(handle, request))
        else:
            assert lane.thread is not None
            lane.answer = lane.thread.submit(lambda: self._call(handle, request))

    def finish(self, lane: str) -> CallResult:
        """Wait for the call of a lane and return its result."""
        answer = self._lanes[lane].answer
        assert answer is not None
        try:
            return answer.result(ANSWER_S_MAX)
        except futures.TimeoutError as error:
            raise CallHungError(f"a call did not come back within {ANSWER_S_MAX:.0f} s") from error

    def cancel(self, lane: str) -> None:
        """Cancel the call of a lane, where it is a task."""
        answer = self._lanes[lane].answer
        if answer is not None and self._loop is not None:
            answer.cancel()

    def leave(self, lane: str) -> None:
        """End a lane; the last one of a handle closes the handle."""
        gone = self._lanes.pop(lane)
        if gone.thread is not None:
            hangs = gone.answer is not None and not gone.answer.done()
            gone.thread.end(wait_s=0.0 if hangs else ANSWER_S_MAX)
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

    def _call(self, handle: Any, request: CallRequest) -> CallResult:
        time.sleep(max(0.0, (request.start_ns - time.monotonic_ns()) / 1e9))
        record = describe_call(request, self._methods)
        method = getattr(handle, request.method)
        raced = self._preempted and request.start_ns
        pause = _pause_once(request) if raced else contextlib.nullcontext()
        record.invoke_ns = time.monotonic_ns()
        try:
            with pause:
                answer = method(request.session, *request.arguments, **request.options)
        except BaseException as error:  # noqa: BLE001 -- whatever a store raises is an outcome
            return self._fail(record, error)
        return self._complete(record, answer)

    async def _call_async(self, handle: Any, request: CallRequest) -> CallResult:
        await asyncio.sleep(max(0.0, (request.start_ns - time.monotonic_ns()) / 1e9))
        record = describe_call(request, self._methods)
        method = getattr(handle, request.method)
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


def describe_call(request: CallRequest, methods: MethodSpecs) -> CallRecord:
    """Describe a call as the recorder does."""
    record = methods[request.method].describe(
        request.session, *request.arguments, **request.options
    )
    record.worker, record.verb, record.invoke_ns = request.lane, request.method, request.asked_ns
    return record


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


@dataclass(slots=True)
class _Lane:
    owner: str
    thread: _Thread | None
    answer: futures.Future[CallResult] | None = None


class _Thread:
    """A thread that makes one call after the other."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=THREADS, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], CallResult]) -> futures.Future[CallResult]:
        done: futures.Future[CallResult] = futures.Future()
        self._jobs.put((job, done))
        return done

    def end(self, wait_s: float) -> None:
        """End the thread; one that hangs ends with its call."""
        self._jobs.put(None)
        self._thread.join(wait_s)

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, done = item
            try:
                done.set_result(job())
            except BaseException as error:  # noqa: BLE001 -- raised again where it is waited for
                done.set_exception(error)


class _LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=THREADS, daemon=True)
        self._thread.start()

    def submit(self, coroutine: Any) -> futures.Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def settle(self, answer: Any) -> Any:
        if inspect.isawaitable(answer):
            return self.submit(to_coroutine(answer)).result(ANSWER_S_MAX)
        return answer

    def end(self) -> None:
        with contextlib.suppress(Exception):
            self.settle(_cancel_rest())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ANSWER_S_MAX)
        if not self._thread.is_alive():
            self._loop.close()


async def _cancel_rest() -> None:
    rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
