"""Kills and stops worker processes in the middle of a call."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from statistics import median
from typing import Any, Final

from memory_contract.calls import Call, ask, failed, succeeded
from memory_contract.case_context import CaseContext, Client
from memory_contract.history import Operation
from memory_contract.workers.pool import ANSWER_S_MAX, Worker

# How long the kernel may take to end a process that was killed.
ENDING_S_MAX: Final = 10.0
# Assumed duration of a call before any was timed.
CALL_S: Final = 0.005


class PendingCall:
    """A call that a worker was told to make, and whose answer was not read yet."""

    def __init__(self, context: CaseContext, client: Client, call: Call) -> None:
        self.client = client
        self.call = call
        self._context = context
        self._began = time.monotonic_ns()
        ask(_Told(get_worker(client)), call, context.names)

    def finish(self, wait_s: float = ANSWER_S_MAX) -> Operation:
        """Wait for the answer and record the call; if the worker ended, the outcome is unknown."""
        context, name = self._context, self.client.name
        try:
            answer = get_worker(self.client).answer(wait_s)
        except Exception as error:  # noqa: BLE001 -- whatever a store raises is an outcome
            return context.record(failed(name, self.call, self._began, error), error)
        return context.record(succeeded(name, self.call, self._began, answer, context.names))


class _Told:
    """A handle whose calls are sent and not waited for."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def __getattr__(self, method: str) -> Callable[..., None]:
        def call(*arguments: Any, **options: Any) -> None:
            self._worker.tell("call", method, arguments, options)

        return call


def get_worker(client: Client) -> Worker:
    """The process that a client's handle is in."""
    worker: Worker = client.handle.worker
    return worker


def median_append_s(operations: Sequence[Operation]) -> float:
    """The median duration of answered appends."""
    return median(_took(operations) or [CALL_S])


def fastest_append_s(operations: Sequence[Operation]) -> float:
    """The shortest duration of answered appends."""
    return min(_took(operations) or [CALL_S])


def _took(operations: Sequence[Operation]) -> list[float]:
    return [
        (op.complete_ns - op.invoke_ns) / 1e9
        for op in operations
        if op.outcome == "ok" and op.complete_ns is not None and op.op == "append"
    ]


def kill_process(context: CaseContext, worker: Worker) -> None:
    """Kill a process and wait until it is gone. What it answered can still be read."""
    began = time.monotonic_ns()
    worker.strike()
    until = time.monotonic() + ENDING_S_MAX
    # Its files and locks are released before its process id is.
    while _exists(worker.pid) and time.monotonic() < until:
        time.sleep(0.001)
    context.record_fault("kill -9", began, time.monotonic_ns())


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class PausedProcess:
    """Stops a process while this context lasts."""

    def __init__(self, context: CaseContext, worker: Worker) -> None:
        self._context = context
        self._pid = worker.pid

    def __enter__(self) -> None:
        self._began = time.monotonic_ns()
        os.kill(self._pid, signal.SIGSTOP)

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGCONT)
        self._context.record_fault("SIGSTOP", self._began, time.monotonic_ns())
