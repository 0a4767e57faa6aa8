"""Bad moments for worker processes: to be killed or stopped in the middle of a call."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from statistics import median
from typing import Any, Final

from memory_contract.calling import Call, ask, failed, succeeded
from memory_contract.client import Client
from memory_contract.drivers.processes import ANSWER_S_MAX, Worker
from memory_contract.history import Operation
from memory_contract.room import Room

# How long the kernel may take to end a process that was killed.
ENDING_S_MAX: Final = 10.0
# What a call takes as long as none was timed.
CALL_S: Final = 0.005


class Pending:
    """A call that a worker was told to make, and whose answer nobody has read yet."""

    def __init__(self, room: Room, client: Client, call: Call) -> None:
        self.client = client
        self.call = call
        self._room = room
        self._began = time.monotonic_ns()
        ask(_Told(worker_of(client)), call, room.names)

    def finish(self, wait_s: float = ANSWER_S_MAX) -> Operation:
        """Wait for the answer and record the call; of a worker that is no more, it is unknown."""
        room, name = self._room, self.client.name
        try:
            answer = worker_of(self.client).answer(wait_s)
        except Exception as error:  # noqa: BLE001 -- whatever a store raises is an outcome
            return room.record(failed(name, self.call, self._began, error), error)
        return room.record(succeeded(name, self.call, self._began, answer, room.names))


class _Told:
    """A handle whose calls are begun and not waited for."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def __getattr__(self, method: str) -> Callable[..., None]:
        def call(*arguments: Any, **options: Any) -> None:
            self._worker.tell("call", method, arguments, options)

        return call


def worker_of(client: Client) -> Worker:
    """The process that a client's handle is in."""
    worker: Worker = client.handle.worker
    return worker


def usual_s(operations: Sequence[Operation]) -> float:
    """How long an append took, as a rule, among those that were answered."""
    return median(_took(operations) or [CALL_S])


def quickest_s(operations: Sequence[Operation]) -> float:
    """How long an append takes if nothing is in its way."""
    return min(_took(operations) or [CALL_S])


def _took(operations: Sequence[Operation]) -> list[float]:
    return [
        (op.complete_ns - op.invoke_ns) / 1e9
        for op in operations
        if op.outcome == "ok" and op.complete_ns is not None and op.op == "append"
    ]


def kill_9(room: Room, worker: Worker) -> None:
    """End a process at once; comes back when it is gone. What it answered can still be read."""
    began = time.monotonic_ns()
    worker.strike()
    until = time.monotonic() + ENDING_S_MAX
    # Its files and locks are let go of before its number is.
    while _exists(worker.pid) and time.monotonic() < until:
        time.sleep(0.001)
    room.struck("kill -9", began, time.monotonic_ns())


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Paused:
    """A process that stands still while this context lasts."""

    def __init__(self, room: Room, worker: Worker) -> None:
        self._room = room
        self._pid = worker.pid

    def __enter__(self) -> None:
        self._began = time.monotonic_ns()
        os.kill(self._pid, signal.SIGSTOP)

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGCONT)
        self._room.struck("SIGSTOP", self._began, time.monotonic_ns())
