"""Programs run by processes of their own, each forked from one that has done nothing.

Starting Python takes longer than most cases. So one process imports the kit and the packages that
the store stands on, opens nothing, starts no thread, and forks whenever a fresh process is asked
for. The store's own modules are imported after that, in each worker anew: what they keep for a
process is a process's own. But for those of which the store's opener says, in `modules`, that they
keep nothing.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Protocol

from memory_contract.adapter import Adapter, Conflict, Flavour, NotFound, Refused
from memory_contract.calls import Log, Program
from memory_contract.stacks import ask_for_dump

# A bound on what hangs, not on what is slow.
ANSWER_S_MAX: Final = 120.0
# Until then all workers have been told what to do: they begin at the same moment.
START_NS: Final = 4_000_000
# The answer of a process that has threads after importing what it was asked to.
THREADED: Final = "threads"
_APART: Final = ("memory_contract.",)
_MAIN: Final = "from memory_contract.workers.fork_server import main; main()"


class StoreRaised(Exception):  # noqa: N818 -- names what happened
    """The store raised this in another process; whether it took effect is not known."""


class WorkerLost(Exception):  # noqa: N818 -- names what happened
    """A worker process ended or did not answer."""

    def __init__(self, words: str, stacks: tuple[str, ...] = ()) -> None:
        super().__init__(words)
        # Where the process stood that did not answer.
        self.stacks = stacks


class WorkersUnavailable(Exception):  # noqa: N818 -- names what happened
    """The store under test cannot be built in another process."""


# How an error crosses: by what it says of the data, since its class may not be picklable.
KINDS: Final = {"conflict": Conflict, "not found": NotFound, "refused": Refused}


class WorkerPlugin(Protocol):
    """What a worker is given before it opens the store: a way to make its day a bad one.

    It travels by pickle; `Worker.gear` calls its methods where it went.
    """

    def install(self) -> None:
        """Take effect, in the worker."""


class Worker:
    """A process that opens the store and does what it is told."""

    def __init__(self, connection: Connection, stacks: int) -> None:
        """`stacks`: the end of the pipe from which its stacks are read when it hangs."""
        self._connection = connection
        self._stacks = stacks
        self._struck = False
        self.pid: int = 0
        try:
            self.pid = self.answer()
        except BaseException:
            self._close()
            raise

    def tell(self, *message: Any) -> None:
        """Ask for something without waiting for it."""
        try:
            self._connection.send(message)
        except OSError as error:
            raise WorkerLost("a worker process ended") from error

    def answer(self, wait_s: float = ANSWER_S_MAX) -> Any:
        """What came of the oldest thing asked for; an error of the store is raised here."""
        kind, value = self._receive(wait_s)
        if kind == "ok":
            return value
        raise KINDS.get(kind, StoreRaised)(value)

    def has_answered(self, wait_s: float) -> bool:
        """Whether there is an answer to read, or nobody left to give one, by then."""
        return self._connection.poll(wait_s)

    def ask(self, *message: Any, wait_s: float = ANSWER_S_MAX) -> Any:
        """Ask and wait."""
        self.tell(*message)
        return self.answer(wait_s)

    def call_plugin(self, method: str, *arguments: Any) -> Any:
        """Call a method of the equipment."""
        return self.ask("call_plugin", method, arguments)

    @property
    def ended(self) -> bool:
        """Whether it was let go."""
        return self._connection.closed

    def strike(self) -> None:
        """Kill it, wherever it is; what it answered before can still be read."""
        # Once: its number may be another's then.
        struck, self._struck = self._struck, True
        if not struck:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def kill(self) -> None:
        """End it at once, and hear no more of it."""
        self.strike()
        self._close()

    def _close(self) -> None:
        if not self._connection.closed:
            os.close(self._stacks)
        self._connection.close()

    def stacks(self) -> tuple[str, ...]:
        """Where its threads and tasks stand, if it is there to say so."""
        if self.ended or self._struck or not self.pid:
            return ()
        return ask_for_dump(self.pid, self._stacks)

    def end(self) -> None:
        """Close its handle and let it go."""
        with contextlib.suppress(WorkerLost, StoreRaised, Refused):
            self.ask("close")
        self.kill()

    def _receive(self, wait_s: float) -> Any:
        try:
            if self._connection.poll(wait_s):
                return self._connection.recv()
        except (EOFError, OSError) as error:
            raise WorkerLost("a worker process ended") from error
        raise WorkerLost(f"a worker process did not answer for {wait_s:.0f} s", self.stacks())


class WorkerPool:
    """Fresh processes for one store under test."""

    def __init__(self, adapter: Adapter, preload: Sequence[str] = ()) -> None:
        """`preload`: modules of the store that keep nothing for a process, and may be imported."""
        self._workers: list[Worker] = []
        try:
            packed = pickle.dumps(adapter)
        except Exception as error:
            raise WorkersUnavailable(f"cannot be built in another process: {error}") from error
        worth = [*_packages(adapter), *_modules(adapter), *preload]
        if self._start(packed, worth) == THREADED:
            # Forking a process with threads is not safe: then let each worker import everything.
            self.close()
            self._start(packed, [])

    def _start(self, packed: bytes, packages: list[str]) -> str:
        self._control, theirs = Pipe()
        self._zygote = subprocess.Popen(  # noqa: S603 -- this very Python
            [sys.executable, "-c", _MAIN, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            # Many frameworks import numpy, whose threads would keep it from being forked.
            env={"OPENBLAS_NUM_THREADS": "1", **os.environ},
        )
        theirs.close()
        try:
            # Where the kit finds modules, so must they; before anything is unpickled.
            self._control.send((sys.path, str(Path.cwd()), packages))
            self._control.send_bytes(packed)
            why: str = self._control.recv()
        except (OSError, EOFError) as error:
            self.close()
            raise WorkersUnavailable(f"cannot be built in another process: {error!r}") from error
        if why and why != THREADED:
            self.close()
            raise WorkersUnavailable(f"cannot be built in another process: {why}")
        return why

    def worker(self) -> Worker:
        """A process that has done nothing yet."""
        ours, theirs = Pipe()
        stacks, stacks_end = os.pipe()
        self._control.send("fork")
        send_handle(self._control, theirs.fileno(), self._zygote.pid)
        send_handle(self._control, stacks_end, self._zygote.pid)
        theirs.close()
        os.close(stacks_end)
        worker = Worker(ours, stacks)
        self._workers = [each for each in self._workers if not each.ended]
        self._workers.append(worker)
        return worker

    def stacks(self) -> tuple[str, ...]:
        """Where all processes stand that somebody still works with."""
        return tuple(line for worker in self._workers for line in worker.stacks())

    def close(self) -> None:
        """End every process: also those that a case left behind."""
        for worker in self._workers:
            if not worker.ended:
                worker.kill()
        self._control.close()
        self._zygote.kill()
        self._zygote.wait()


def _packages(adapter: Adapter) -> list[str]:
    """Installed modules that the store stands on, but for those of the store itself."""
    own = {name.partition(".")[0] for name in _rooms(adapter)}
    return [
        name
        for name in _reached_from(set(_modules(adapter)) or own)
        if name.partition(".")[0] not in own
        and "site-packages" in (getattr(sys.modules[name], "__file__", None) or "")
    ]


def _reached_from(tops: set[str]) -> Iterator[str]:
    """Modules that others name, from the store's own on; in the order in which they came in.

    A store that says which modules it stands on begins there, and not at all of its package.
    Whatever else this process has imported is nothing to the store, and takes long to import.
    """
    own = tuple(f"{top}." for top in tops)
    found = {name for name in sys.modules if f"{name}.".startswith(own)}
    ahead = list(found)
    while ahead:
        here = ahead.pop()
        for attribute, value in list(vars(sys.modules[here]).items()):
            name = value.__name__ if isinstance(value, ModuleType) else _module_of(value)
            # A package has its submodules as attributes, whoever imported them; how a module was
            # loaded, and what pytest writes into one (`@pytest_ar`), is nothing to the store.
            if name == f"{here}.{attribute}" or attribute.startswith(("__", "@")):
                continue
            if name not in found and name in sys.modules and not _leads_astray(name):
                found.add(name)
                ahead.append(name)
    return (name for name in list(sys.modules) if name in found)


def _leads_astray(name: str) -> bool:
    """Whether a module names what is no part of the store: Python has a `sys.stdout` of pytest."""
    return name.partition(".")[0] in sys.stdlib_module_names or f"{name}.".startswith(_APART)


def _module_of(value: object) -> str:
    # Some objects answer anything they are asked for, and some raise.
    with contextlib.suppress(Exception):
        if isinstance(name := getattr(value, "__module__", None), str):
            return name
    return ""


def _modules(adapter: Adapter) -> Iterator[str]:
    """Modules of the store itself that keep nothing: what its opener names, and all of ours."""
    for opener in (adapter.open, adapter.open_async):
        yield from getattr(opener, "modules", ())
    yield from (name for name in _rooms(adapter) if name.startswith("memory_contract."))


def _rooms(adapter: Adapter) -> Iterator[str]:
    return (name.partition(":")[0] for name in _names(adapter))


def _names(adapter: Adapter) -> Iterator[str]:
    for opener in (adapter.open, adapter.open_async):
        if isinstance(opener, str):
            yield opener
        elif opener is not None:
            yield str(getattr(opener, "name", None) or getattr(opener, "__module__", ""))


def race(
    worker_pool: WorkerPool,
    workspace: Path,
    programs: Sequence[Program],
    names: dict[str, Any],
    flavours: Sequence[Flavour],
    *,
    server: str | None = None,
    ready: Callable[[], None] | None = None,
) -> list[Log]:
    """Run each program in a process of its own, all at once; flavours take turns.

    `ready` is called when all are open.
    """
    workers = [worker_pool.worker() for _ in programs]
    try:
        for place, worker in enumerate(workers):
            worker.tell("open", workspace, flavours[place % len(flavours)], server)
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
