"""The other side of `processes`: a process that forks workers, and what a worker does."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import time
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from pathlib import Path
from typing import Any

from indelible.contract.adapter import Adapter, Conflict, Flavour
from indelible.contract.calling import Log, Program, is_not_found, outcome_of, run, run_async, said
from indelible.contract.handles import Loop, close, open_handle


def main() -> None:
    """Import what the store needs, then fork on demand until the kit lets go."""
    control = Connection(int(sys.argv[1]))
    try:
        sys.path[:], folder = control.recv()
        os.chdir(folder)
        adapter: Adapter = control.recv()
        adapter.factory("blocking")
        adapter.factory("async")
    except Exception as error:  # noqa: BLE001 -- told to the kit, which says it to a person
        control.send((False, said(error)))
        return
    control.send((True, ""))
    # Ctrl-C is the kit's to handle; workers are not waited for one by one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with contextlib.suppress(EOFError, OSError):
        while control.recv() == "fork":
            handle = recv_handle(control)
            if os.fork() == 0:
                control.close()
                _work(adapter, Connection(handle))
            os.close(handle)


def _work(adapter: Adapter, connection: Connection) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with contextlib.suppress(EOFError, OSError):
        connection.send(("ok", os.getpid()))
        worker = _Worker(adapter)
        while True:
            job, *arguments = connection.recv()
            connection.send(_answer(getattr(worker, job), arguments))
    # Not through the way out of the process that forked us.
    os._exit(0)


def _answer(job: Any, arguments: list[Any]) -> tuple[str, Any]:
    try:
        answer = job(*arguments)
        pickle.dumps(answer)
    except Exception as error:  # noqa: BLE001 -- whatever a store raises goes to the kit
        return _kind(error), said(error)
    return "ok", answer


def _kind(error: Exception) -> str:
    if is_not_found(error):
        return "not found"
    if isinstance(error, Conflict) or type(error).__name__ == "ConflictError":
        return "conflict"
    return "refused" if outcome_of(error) == "fail" else "raised"


class _Worker:
    """The jobs that the kit may give."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._handle: Any = None
        self._loop: Loop | None = None

    def open(self, workspace: Path, flavour: Flavour) -> None:
        self._loop = Loop() if flavour == "async" else None
        self._handle = open_handle(self._adapter, workspace, flavour, self._loop)

    def call(self, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        answer = getattr(self._handle, method)(*arguments, **options)
        return self._loop.settle(answer) if self._loop is not None else answer

    def run(self, program: Program, names: dict[str, Any], start_ns: int) -> Log:
        log = Log()
        time.sleep(max(0.0, (start_ns - time.monotonic_ns()) / 1e9))
        if self._loop is None:
            run(self._handle, program, names, log)
        else:
            self._loop.settle(run_async(self._handle, program, names, log))
        return log

    def close(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            close(handle, self._loop)
        if self._loop is not None:
            self._loop.close()
