"""Processes that share nothing with the tests, and do what they are told."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier, Event
from typing import Any

# How long a test waits for a process before it fails; no test expects to wait that long.
PATIENCE_S = 120.0
GOODBYE_S = 30.0
CREW_SIZE = 16

# Each is forked from a process that has imported what most of them need, and done nothing else.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    [
        "indelible.backends.postgres.driver",
        "indelible.backends.redis.driver",
        "indelible.backends.sqlite",
        "tests.support.store_workers",
    ]
)


class Member:
    """A process that takes one order after another."""

    def __init__(self, *shared: Any) -> None:
        self._pipe, theirs = _context.Pipe()
        self._process = _context.Process(target=_obey, args=(theirs, *shared), daemon=True)
        self._process.start()
        theirs.close()
        self._orders = 0

    def give(self, function: Callable[..., Any], *args: Any) -> None:
        """Have a function of an importable module called; do not wait for it."""
        self._orders += 1
        self._pipe.send((self._orders, function, args))

    def answer(self) -> Any:
        """What the newest order gave."""
        while True:
            assert self._pipe.poll(PATIENCE_S), "a process does not answer"
            order, done, result = self._pipe.recv()
            if order == self._orders:
                assert done, f"in another process:\n{result}"
                return result

    def dismiss(self) -> None:
        """Let it end, and end it if it does not."""
        self._pipe.close()
        self._process.join(GOODBYE_S)
        self._process.kill()
        self._process.join()


def _obey(pipe: Connection, *shared: Any) -> None:
    while True:
        try:
            order, function, args = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((order, True, function(*shared, *args)))
        except BaseException:  # noqa: BLE001 (it is raised again, in the test)
            pipe.send((order, False, traceback.format_exc()))


class WorkerPool:
    """Sixteen processes with a gate that opens when all stand before it, and one that looks on."""

    def __init__(self) -> None:
        self._gate: Barrier = _context.Barrier(CREW_SIZE, timeout=PATIENCE_S)
        self._over: Event = _context.Event()
        self._members = [Member(self._gate, index) for index in range(CREW_SIZE)]
        self._watcher = Member(self._over)

    def run(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Have all call `function(gate, index, *args)`; gives what each answered."""
        for member in self._members:
            member.give(function, *args)
        return [member.answer() for member in self._members]

    @contextmanager
    def watched(self, function: Callable[..., Any], *args: Any) -> Iterator[None]:
        """Have `function(over, *args)` called beside what happens meanwhile, until `over`."""
        self._over.clear()
        self._watcher.give(function, *args)
        try:
            yield
        finally:
            self._over.set()
        self._watcher.answer()

    def dismiss(self) -> None:
        """Let all end."""
        for member in (*self._members, self._watcher):
            member.dismiss()


def in_another_process(function: Callable[..., Any], *args: Any) -> Any:
    """What a function gives in a process of its own, which has ended by then."""
    member = Member()
    try:
        member.give(function, *args)
        return member.answer()
    finally:
        member.dismiss()


class Doomed:
    """A process that reports, and is killed."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self._reports, theirs = _context.Pipe(duplex=False)
        self._process: BaseProcess = _context.Process(
            target=function, args=(*args, theirs), daemon=True
        )
        self._process.start()
        theirs.close()

    def report(self) -> Any:
        """The next report."""
        assert self._reports.poll(PATIENCE_S), "a process does not report"
        return self._reports.recv()

    def kill(self) -> list[Any]:
        """End it by SIGKILL; gives the reports that it had made by then."""
        self._process.kill()
        self._process.join(PATIENCE_S)
        late = []
        while True:
            try:
                late.append(self._reports.recv())
            except EOFError:
                self._reports.close()
                return late
