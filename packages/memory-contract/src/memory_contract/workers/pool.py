"""A pool of worker processes, each forked from a server that has opened nothing.

Starting Python takes longer than most cases. So the fork server imports the kit and the packages
that the store uses, starts no thread, and forks a fresh process on demand. The store's own modules
are imported in each worker anew, because they may keep state for their process; except for those
that the store's opener lists in `modules`.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import Any, Final, Protocol

from memory_contract.adapter import Adapter, Conflict, NotFound, Refused

# For workers that hang; slow ones must fit in easily.
ANSWER_S_MAX: Final = 120.0
# The answer of a fork server that has threads after its imports.
THREADED: Final = "threads"
# The signal on which a worker writes its stacks.
DUMP_STACKS: Final = signal.SIGUSR2
_MAIN: Final = "from memory_contract.workers.fork_server import main; main()"


class StoreRaised(Exception):  # noqa: N818 -- names what happened
    """The store raised this in another process; whether the call took effect is unknown."""


class WorkerLost(Exception):  # noqa: N818 -- names what happened
    """A worker process ended or did not answer."""


class WorkersUnavailable(Exception):  # noqa: N818 -- names what happened
    """The store under test cannot be built in another process."""


# Errors cross by what they say of the data, since their class may not be picklable.
KINDS: Final = {"conflict": Conflict, "not found": NotFound, "refused": Refused}


class WorkerPlugin(Protocol):
    """Installed in a worker before it opens the store, to inject faults there.

    It is pickled. `Worker.call_plugin` calls methods, and reads attributes, of what `install`
    returned in the worker, or else of the plugin itself.
    """

    def install(self) -> object | None:
        """Take effect, in the worker."""


class Worker:
    """A process that opens the store and does what it is told.

    One that does not answer in time is killed, so that no late answer is read in place of a later
    one.
    """

    def __init__(self, connection: Connection, wait_s: float = ANSWER_S_MAX) -> None:
        self._connection = connection
        self._struck = False
        # How many answers were not read yet; the first is its process id.
        self._owed = 1
        # A case that hangs and the pool may close it at the same time.
        self._closing = threading.Lock()
        # 0 until the worker has sent it: `os.kill(0, ...)` would end the kit and all its children.
        self.pid: int = 0
        try:
            self.pid = self.answer(wait_s)
        except BaseException:
            self._close()
            raise

    def tell(self, *message: Any) -> None:
        """Send a job without waiting for its answer."""
        try:
            self._connection.send(message)
        except OSError as error:
            raise WorkerLost("a worker process ended") from error
        self._owed += 1

    def answer(self, wait_s: float = ANSWER_S_MAX) -> Any:
        """The answer to the oldest job; an error of the store is raised here."""
        kind, value = self._receive(wait_s)
        self._owed -= 1
        if kind == "ok":
            return value
        raise KINDS.get(kind, StoreRaised)(value)

    def has_answered(self, wait_s: float) -> bool:
        """Whether there is an answer to read within this time, or the process ended."""
        return self._connection.poll(wait_s)

    def ask(self, *message: Any, wait_s: float = ANSWER_S_MAX) -> Any:
        """Send a job and wait for its answer."""
        self.tell(*message)
        return self.answer(wait_s)

    def call_plugin(self, method: str, *arguments: Any) -> Any:
        """Call a method of the plugin there, or read an attribute."""
        return self.ask("call_plugin", method, arguments)

    @property
    def ended(self) -> bool:
        """Whether it was closed."""
        return self._connection.closed

    def strike(self) -> None:
        """Kill it; what it answered before can still be read."""
        # Only once: the process id may be reused.
        struck, self._struck = self._struck, True
        if self.pid and not struck:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def kill(self) -> None:
        """Kill it, and close the connection."""
        self.strike()
        self._close()

    def _close(self) -> None:
        with self._closing:
            self._connection.close()

    def dump_stacks(self) -> None:
        """Have it write the stacks of its threads to stderr, if it is alive."""
        if self.pid and not self.ended and not self._struck:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, DUMP_STACKS)

    def end(self) -> None:
        """Close its handle, unless it is in the middle of a job, and end it."""
        if not self._owed:
            with contextlib.suppress(WorkerLost, StoreRaised, Refused):
                self.ask("close")
        self.kill()

    def _receive(self, wait_s: float) -> Any:
        try:
            if self._connection.poll(wait_s):
                return self._connection.recv()
        except (EOFError, OSError) as error:
            raise WorkerLost("a worker process ended") from error
        self.kill()
        raise WorkerLost(f"a worker process did not answer for {wait_s:.0f} s")


@dataclass(frozen=True, slots=True)
class Imports:
    """The modules that a fork server imports: named ones, and dependencies of the store."""

    modules: list[str]
    # The packages of the store, which may keep state for their process.
    own: set[str]


class WorkerPool:
    """Fresh processes for one store under test."""

    def __init__(self, adapter: Adapter, preload: Sequence[str] = ()) -> None:
        """`preload`: modules of the store without state, which the fork server may import."""
        self._workers: list[Worker] = []
        try:
            packed = pickle.dumps(adapter)
        except Exception as error:
            raise WorkersUnavailable(f"cannot be built in another process: {error}") from error
        own = {name.partition(".")[0] for name in list_own_modules(adapter)}
        imports = Imports([*_list_stateless_modules(adapter), *preload], own)
        if self._start(packed, imports) == THREADED:
            # Forking a process with threads is not safe: let each worker import everything.
            self.close()
            self._start(packed, None)

    def _start(self, packed: bytes, imports: Imports | None) -> str:
        self._control, theirs = Pipe()
        self._fork_server = subprocess.Popen(  # noqa: S603 -- this very Python
            [sys.executable, "-c", _MAIN, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            # Many frameworks import numpy, whose threads would prevent forking.
            env={"OPENBLAS_NUM_THREADS": "1", **os.environ},
        )
        theirs.close()
        try:
            # Workers must find the same modules; sent before anything is unpickled.
            self._control.send((sys.path, str(Path.cwd()), imports))
            self._control.send_bytes(packed)
            why: str = self._control.recv()
        except (OSError, EOFError) as error:
            self.close()
            raise WorkersUnavailable(f"cannot be built in another process: {error!r}") from error
        if why and why != THREADED:
            self.close()
            raise WorkersUnavailable(f"cannot be built in another process: {why}")
        return why

    def start_worker(self) -> Worker:
        """Start a process that has opened nothing."""
        ours, theirs = Pipe()
        self._control.send("fork")
        send_handle(self._control, theirs.fileno(), self._fork_server.pid)
        theirs.close()
        worker = Worker(ours)
        self._workers = [each for each in self._workers if not each.ended]
        self._workers.append(worker)
        return worker

    def dump_stacks(self) -> None:
        """Have all processes in use write the stacks of their threads to stderr."""
        for worker in self._workers:
            worker.dump_stacks()

    def close(self) -> None:
        """End every process, including those that a case left behind."""
        for worker in self._workers:
            if not worker.ended:
                worker.kill()
        self._control.close()
        self._fork_server.kill()
        self._fork_server.wait()


def _list_stateless_modules(adapter: Adapter) -> Iterator[str]:
    """Modules of the store without state: those that its opener lists, and the kit's."""
    for opener in (adapter.open, adapter.open_async):
        yield from getattr(opener, "modules", ())
    yield from (name for name in list_own_modules(adapter) if name.startswith("memory_contract."))


def list_own_modules(adapter: Adapter) -> Iterator[str]:
    """The modules that open the store."""
    for opener in (adapter.open, adapter.open_async):
        if opener is not None:
            name = opener if isinstance(opener, str) else getattr(opener, "name", None)
            yield str(name or getattr(opener, "__module__", "")).partition(":")[0]
