"""The loop of all cases that disturb a store below its files.

Record what operations do to the files, disturb the n-th step, reopen the store on a disk that
works, and judge what is there. A subclass says what can be disturbed, and how.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from memory_contract.calls import Log, Program
from memory_contract.case_context import CaseContext
from memory_contract.cases.disk_recording import DiskRecording
from memory_contract.cases.workload import pace
from memory_contract.checker import judge
from memory_contract.checker.verdict import Violated
from memory_contract.faults.vfs.disk import Kind
from memory_contract.faults.vfs.faulty_disk import FaultyDisk
from memory_contract.faults.vfs.images import Image
from memory_contract.history import Operation
from memory_contract.workers.pool import Worker

Position = TypeVar("Position")


class Perturbation(ABC, Generic[Position]):
    """One way to disturb a store."""

    # What is counted, in notes; and how many of them are tried even if the store is slow.
    noun: ClassVar[str]
    least: ClassVar[int] = 1

    def __init__(self, context: CaseContext) -> None:
        self.context = context
        # How many disturbances took effect.
        self.count = 0
        self._worker: Worker | None = None

    @abstractmethod
    def positions(self) -> Iterable[Position]:
        """Where the store is disturbed; drawn by the seed, and recorded before."""

    @abstractmethod
    def disturb(self, position: Position) -> None:
        """Disturb the store there, reopen it, and judge what is there."""

    def is_proved(self) -> bool:
        """Whether more of it would prove no more."""
        return False

    def summarize(self) -> None:
        """Note what is worth knowing and no failure."""

    def run(self, *, within_s: float = math.inf, wanted: int | None = None) -> int:
        """Disturb one position after the other; how many disturbances took effect."""
        positions = pace(
            self.context,
            self.positions(),
            self.noun,
            count=wanted,
            within_s=within_s,
            least=self.least,
        )
        try:
            for position in positions:
                self.disturb(position)
                if self.is_proved():
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

    def start_worker(self, folder: Path, *, python: bool = False) -> Worker:
        """A process with a disk that can be disturbed; it has opened nothing."""
        worker = self.context.start_worker()
        worker.ask("install_plugin", FaultyDisk(folder, python=python))
        return worker

    def reopening_worker(self, folder: Path) -> Worker:
        """The process that opens one store after the other."""
        if self._worker is None:
            self._worker = self.start_worker(folder)
        return self._worker

    def open_and_run(self, worker: Worker, folder: Path, program: Program) -> Log:
        """Open the store of a folder in a process, and run a program there."""
        worker.ask("open", folder, self.context.flavour)
        log: Log = worker.ask("run", program, self.context.names, 0)
        return log


class RecordedPerturbation(Perturbation[Position]):
    """Disturbs what a store wrote to a disk that recorded everything."""

    def __init__(self, context: CaseContext, recording: DiskRecording) -> None:
        super().__init__(context)
        self.recording = recording

    def fail_after(
        self, history: Sequence[Operation], name: str, why: str, image: Image, what: str
    ) -> None:
        """Accuse the store, with the history that proves it."""
        place = f"change {image.after} of {len(self.recording.changes)}"
        self.context.history[:] = history
        self.context.fail(name, f"{why or 'seen'} after {what} ({place})")


@dataclass(frozen=True, slots=True)
class DiskFailure:
    """Which call to the disk fails."""

    kind: Kind
    nth: int
    full: bool
    once: bool

    def __str__(self) -> str:
        """For a proof."""
        what = "the disk was full" if self.full else f"a {self.kind} failed"
        return f"{what} at call {self.nth}{'' if self.once else ' and from then on'}"


def begin_failure(worker: Worker, failure: DiskFailure) -> None:
    """Let the disk of a process fail from now on."""
    worker.call_plugin("fail", (failure.kind,), failure.nth, failure.full, failure.once)


def draw_failures(
    context: CaseContext, calls: dict[Kind, int], most: int, *, full: bool, both: bool
) -> Iterator[DiskFailure]:
    """Up to `most` failures among the calls of each kind.

    With `both`, each call fails once and from then on; otherwise the seed decides.
    """
    for kind, count in calls.items():
        for nth in sorted(draw_positions(context, count, most)):
            for once in (True, False) if both else (context.random.choice((True, False)),):
                yield DiskFailure(kind, nth, full=full, once=once)


def draw_positions(context: CaseContext, count: int, most: int) -> list[int]:
    """Up to `most` of the numbers from 1 to `count`."""
    return context.random.sample(range(1, count + 1), min(count, most))


def count_calls(worker: Worker, before: dict[Kind, int]) -> dict[Kind, int]:
    """How many calls of each kind there were since then."""
    after: dict[Kind, int] = worker.call_plugin("calls")
    return {kind: count - before.get(kind, 0) for kind, count in after.items()}


def is_violated(history: Sequence[Operation]) -> bool:
    """Whether the checker proves a violation without searching."""
    return isinstance(judge(list(history), search_steps=0), Violated)


def find_error(log: Log) -> str:
    """What the first failed call raised. A store may refuse to roll back to a lost snapshot."""
    return next((w for at, w, _ in log.errors if log.operations[at].op != "rollback"), "")
