"""The other side of `processes`: a process that forks workers, and what a worker does."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import os
import pickle
import signal
import sys
import threading
import time
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from pathlib import Path
from typing import Any, Final

from memory_contract.adapter import Adapter, Conflict, Flavour
from memory_contract.calls import (
    Log,
    Program,
    classify_outcome,
    format_error,
    is_not_found,
    run,
    run_async,
)
from memory_contract.handles import Loop, close, open_handle
from memory_contract.workers.pool import DUMP_STACKS, THREADED, WorkerPlugin, list_own_modules
from memory_contract.workers.races import race_tasks, race_threads

# The time limit of a forked child: some stores wait for a lock before they refuse.
CHILD_S_MAX: Final = 15.0
# Ends a process when the one that forked it ends. Linux alone has it.
PR_SET_PDEATHSIG: Final = 1
# Many workers use this module, so the fork server imports it once.
PLUGIN: Final = "memory_contract.faults.vfs.faulty_disk"


def main() -> None:
    """Import packages, then fork on demand until the kit closes the connection."""
    control = Connection(int(sys.argv[1]))
    sys.path[:], folder, imports = control.recv()
    os.chdir(folder)
    packed = control.recv_bytes()
    # The kit handles Ctrl-C; ended workers are reaped by the system.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    why, brought = "", list[str]()
    if imports is not None:
        _import([PLUGIN, *imports.modules])
        why = THREADED if _has_threads() else ""
    if not why:
        why, brought = _try_to_build(packed, imports.own if imports is not None else set())
    if not why and imports is not None:
        _import(brought)
        why = THREADED if _has_threads() else ""
    control.send(why)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with contextlib.suppress(EOFError, OSError):
        while control.recv() == "fork":
            handle = recv_handle(control)
            if os.fork() == 0:
                control.close()
                _serve(packed, Connection(handle))
            os.close(handle)


def _import(modules: list[str]) -> None:
    for name in modules:
        # A module that cannot be imported raises again where it is needed.
        with contextlib.suppress(BaseException):
            importlib.import_module(name)


def _has_threads() -> bool:
    """Whether there are threads beside this one, including those that Python does not know."""
    try:
        return len(os.listdir("/proc/self/task")) > 1  # noqa: PTH208 -- names are all that is asked
    except OSError:
        return threading.active_count() > 1


def _try_to_build(packed: bytes, own: set[str]) -> tuple[str, list[str]]:
    """Build the store in a forked process: the error, and installed modules that it imports."""
    ours, theirs = Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        try:
            adapter: Adapter = pickle.loads(packed)  # noqa: S301 -- from the kit that started us
            adapter.factory("blocking")
            adapter.factory("async")
            _import([*list_own_modules(adapter)])
            theirs.send(("", _list_installed(own)))
        except BaseException as error:  # noqa: BLE001 -- told to the kit, which says it
            theirs.send((format_error(error), []))
        finally:
            os._exit(0)
    theirs.close()
    found: tuple[str, list[str]]
    try:
        found = ours.recv()
    except EOFError:
        found = "a process that tried to ended at once", []
    os.waitpid(pid, 0)
    return found


def _list_installed(own: set[str]) -> list[str]:
    return [
        name
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] not in own
        and "site-packages" in (getattr(module, "__file__", None) or "")
    ]


def _serve(packed: bytes, connection: Connection) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    faulthandler.register(DUMP_STACKS)
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with contextlib.suppress(EOFError, OSError):
        connection.send(("ok", os.getpid()))
        worker = _Worker(pickle.loads(packed))  # noqa: S301 -- from the kit that started us
        while True:
            job, *arguments = connection.recv()
            connection.send(_run_job(getattr(worker, job), arguments))
    # Skip the exit handlers of the process that forked this one.
    os._exit(0)


def _run_job(job: Any, arguments: list[Any]) -> tuple[str, Any]:
    try:
        answer = job(*arguments)
        pickle.dumps(answer)
    except BaseException as error:  # noqa: BLE001 -- whatever a store raises goes to the kit
        return _classify_error(error), format_error(error)
    return "ok", answer


def _classify_error(error: BaseException) -> str:
    if is_not_found(error):
        return "not found"
    if isinstance(error, Conflict) or type(error).__name__ == "ConflictError":
        return "conflict"
    return "refused" if classify_outcome(error) == "fail" else "raised"


def _sleep_until(start_ns: int) -> None:
    time.sleep(max(0.0, (start_ns - time.monotonic_ns()) / 1e9))


class _Worker:
    """The jobs of a worker, by name."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._handle: Any = None
        self._loop: Loop | None = None
        # In a forked child: the parent's loop. Finalizing it here would remove its waker from the
        # epoll that parent and child share, and the parent would sleep forever.
        self._parents_loop: Loop | None = None
        self._plugin: object = None

    def install_plugin(self, plugin: WorkerPlugin) -> None:
        installed = plugin.install()
        self._plugin = plugin if installed is None else installed

    def call_plugin(self, name: str, arguments: tuple[Any, ...]) -> Any:
        found = getattr(self._plugin, name)
        return found(*arguments) if callable(found) else found

    def open(
        self, workspace: Path, flavour: Flavour, server: str | None = None, start_ns: int = 0
    ) -> None:
        _sleep_until(start_ns)
        self._loop = Loop() if flavour == "async" else None
        self._handle = open_handle(self._adapter, workspace, flavour, self._loop, server)

    def call(self, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        answer = getattr(self._handle, method)(*arguments, **options)
        return self._loop.settle(answer) if self._loop is not None else answer

    def run(self, program: Program, names: dict[str, Any], start_ns: int) -> Log:
        log = Log()
        _sleep_until(start_ns)
        if self._loop is None:
            run(self._handle, program, names, log)
        else:
            self._loop.settle(run_async(self._handle, program, names, log))
        return log

    def race(
        self,
        programs: list[Program],
        names: dict[str, Any],
        start_ns: int,
        cancels: dict[str, float],
    ) -> list[Log]:
        """Run programs at once, on the same open handle."""
        if self._loop is None and len(programs) == 1:
            # In the thread that opened the handle: no other may use that of some stores.
            return [self.run(programs[0], names, start_ns)]
        _sleep_until(start_ns)
        handles = [self._handle] * len(programs)
        if self._loop is None:
            return race_threads(programs, names, handles=handles)
        race = race_tasks(programs, names, handles, cancels=cancels)
        found: list[Log] = self._loop.settle(race)
        return found

    def fork(self, ours: Program, childs: Program, names: dict[str, Any]) -> tuple[Log, Log | None]:
        """Fork, and run a program here and another in the child, on the same open handle.

        The second log is None if the child ended early or did not end in time.
        """
        reader, writer = Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            # No code of the parent may run here, not even after an error.
            try:
                self._parents_loop = self._loop
                self._loop = Loop() if self._loop is not None else None
                writer.send(self.run(childs, names, 0))
            finally:
                os._exit(0)
        writer.close()
        log, childs_log = self.run(ours, names, 0), None
        with contextlib.suppress(EOFError, OSError):
            if reader.poll(CHILD_S_MAX):
                childs_log = reader.recv()
        # The child is done.
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return log, childs_log

    def close(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            close(handle, self._loop)
        if self._loop is not None:
            self._loop.close()
