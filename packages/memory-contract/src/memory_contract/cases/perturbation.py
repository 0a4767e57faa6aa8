"""The loop of all cases that disturb a store below its files.

Record what operations do to the files, disturb the n-th step, reopen the store on a disk that
works, and judge what is there. A subclass says what can be disturbed, and how.
"""

from __future__ import annotations

import contextlib
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Final, Generic, TypeVar

from memory_contract.adapter import Refused
from memory_contract.calls import Log, Program, build_failure
from memory_contract.case_context import CaseContext, CaseUnknown
from memory_contract.cases.workload import pace
from memory_contract.checker import judge
from memory_contract.checker.verdict import Violated
from memory_contract.faults.vfs.faulty_disk import FaultyDisk
from memory_contract.history import Operation
from memory_contract.workers.pool import StoreRaised, Worker, WorkerLost

Position = TypeVar("Position")
# A process opens so many stores one after the other, then a fresh one goes on.
PER_PROCESS: Final = 50


class Perturbation(ABC, Generic[Position]):
    """One way to disturb a store."""

    # What is counted, in notes; and how many of them are tried even if the store is slow.
    noun: ClassVar[str]
    least: ClassVar[int] = 1

    def __init__(self, context: CaseContext) -> None:
        self.context = context
        # How many disturbances took effect.
        self.count = 0
        # Set when the recorded history breaks the contract: the checker names it at the end.
        self.is_over = False
        self._worker: Worker | None = None
        self._opened = 0

    @abstractmethod
    def list_positions(self) -> Iterable[Position]:
        """Where the store is disturbed; drawn by the seed, and recorded before."""

    @abstractmethod
    def disturb(self, position: Position) -> None:
        """Disturb the store there, reopen it, and judge what is there."""

    def summarize(self) -> None:
        """Add notes that do not affect the verdict."""

    def run(self, *, within_s: float = math.inf) -> int:
        """Disturb one position after the other; how many disturbances took effect."""
        found = self.list_positions()
        try:
            for each in pace(self.context, found, self.noun, within_s=within_s, least=self.least):
                self.disturb(each)
                if self.is_over:
                    break
        finally:
            self.close()
        self.summarize()
        return self.count

    def close(self) -> None:
        """End the process that reopens stores."""
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def start_worker(self, disk: FaultyDisk) -> Worker:
        """A process with a disk that can be disturbed; it has opened nothing."""
        worker = self.context.start_worker()
        worker.ask("install_plugin", disk)
        return worker

    def reopening_worker(self, folder: Path) -> Worker:
        """The process that opens one store after the other."""
        self._opened += 1
        if self._opened % PER_PROCESS == 0:
            self.close()
        if self._worker is None:
            self._worker = self.start_worker(FaultyDisk(folder))
        return self._worker

    def open_and_run(self, worker: Worker, folder: Path, program: Program) -> Log:
        """Open the store of a folder in a process, run a program there, and close it."""
        try:
            worker.ask("open", folder, self.context.flavour)
            log: Log = worker.ask("run", program, self.context.names, 0)
        except (StoreRaised, Refused):
            with contextlib.suppress(StoreRaised, Refused, WorkerLost):
                worker.ask("close")
            raise
        worker.ask("close")
        return log

    def reopen(self, folder: Path, program: Program) -> Log:
        """Run a program on the store of a folder, on a disk that works.

        If the store cannot be opened, the first call of the program is the one that fails.
        """
        began = time.monotonic_ns()
        try:
            return self.open_and_run(self.reopening_worker(folder), folder, program)
        except (StoreRaised, Refused) as error:
            log = Log()
            log.add(build_failure(program.worker, program.calls[0], began, error), error)
            return log
        except WorkerLost as error:
            raise CaseUnknown(f"a process was lost that opened the store again: {error}") from error


def draw_positions(context: CaseContext, count: int, most: int) -> list[int]:
    """Up to `most` of the numbers from 1 to `count`."""
    return context.random.sample(range(1, count + 1), min(count, most))


def is_violated(history: Sequence[Operation]) -> bool:
    """Whether the checker proves a violation without searching."""
    return isinstance(judge(list(history), search_steps=0), Violated)


def find_error(log: Log) -> str:
    """What the first failed call raised. A store may refuse to roll back to a lost snapshot."""
    return next((w for at, w, _ in log.errors if log.operations[at].op != "rollback"), "")
