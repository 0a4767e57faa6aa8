"""A disk that fails while a store finds its way back after a kill."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from memory_contract.adapter import Refused
from memory_contract.calls import Log, Program, format_error
from memory_contract.case_context import CaseContext, CaseNotClaimed, CaseUnknown, CaseVacuous
from memory_contract.cases.case import case
from memory_contract.cases.disk_errors import Failure
from memory_contract.cases.disk_recording import DiskRecording, laid_down, looking_back, recorded
from memory_contract.cases.pacing import paced
from memory_contract.checker import judge
from memory_contract.checker.verdict import Violated
from memory_contract.faults.vfs.disk import ERRORS, Kind
from memory_contract.faults.vfs.faulty_disk import FaultyDisk
from memory_contract.faults.vfs.images import Image, build_final_files
from memory_contract.history import Operation
from memory_contract.workers.pool import StoreRaised, Worker, WorkerLost

# How many kills a check looks at, and how many failures of each kind it makes after each of them.
KILLS: Final = 3
FAILURES: Final = 2
# They take no longer than this, if that is enough for a few.
WITHIN_S: Final = 5.0
LEAST: Final = 12
# How many sessions are read while the disk fails: a recovery is over with the first.
READS: Final = 3
# What a store that was killed leaves behind for whoever comes next.
LOGS: Final = ("-wal", "-journal")


@case(
    "faults",
    catches="a recovery that gives up what it could not read, or begins anew",
    reach="machine",
    modes=("processes",),
)
def io_error_in_recovery(context: CaseContext) -> None:
    """Kill a store; fail the n-th call of whoever opens it next, once and from then on."""
    fail_in_recovery(context, kills=KILLS, most=FAILURES, within_s=WITHIN_S)


def fail_in_recovery(
    context: CaseContext, *, kills: int, most: int, within_s: float, both: bool = False
) -> int:
    """Fail up to so many calls of each kind after each kill; how many times a call failed.

    With `both`, each is failed once and from then on; else a draw says which.
    """
    if context.adapter.durability == "none":
        raise CaseNotClaimed("the store does not claim to survive the end of its process")
    story = recorded(context)
    recovering = _Recovering(context, story)

    def drawn() -> Iterator[tuple[Image, Failure]]:
        for image in _killed(context, story, kills):
            for kind, count in sorted(recovering.calls(image).items()):
                for nth in sorted(context.random.sample(range(1, count + 1), min(count, most))):
                    for once in (True, False) if both else (context.random.choice((True, False)),):
                        yield image, Failure(kind, nth, full=False, once=once)

    try:
        count = kills * most * len(ERRORS)
        for image, failure in paced(
            context, drawn(), "failures", count=count, within_s=within_s, least=LEAST
        ):
            recovering.try_out(image, failure)
    finally:
        recovering.close()
    recovering.tell()
    return recovering.failures


def _killed(context: CaseContext, story: DiskRecording, wanted: int) -> list[Image]:
    """What kills leave behind, at moments when a log or a journal is needed to come back."""
    places = [at for at in range(1, len(story.changes)) if story.under_way(at) is not None]
    context.random.shuffle(places)
    found: list[Image] = []
    for after in places:
        files = build_final_files(story.changes[:after], story.base)
        if any(data and name.endswith(LOGS) for name, data in files.items()):
            found.append(Image(after=after, manner="everything", files=files))
        if len(found) == wanted:
            break
    if not found:
        raise CaseVacuous("a kill never left anything behind that had to be recovered")
    return found


class _Recovering:
    """Opens what a kill left behind on a disk that fails, and again when it is well."""

    def __init__(self, context: CaseContext, story: DiskRecording) -> None:
        self._context = context
        self._story = story
        self._worker: Worker | None = None
        self.failures = 0
        self._gone = 0

    def calls(self, image: Image) -> dict[Kind, int]:
        """How many calls of each kind it takes to come back."""
        with laid_down(self._context, self._story, image) as folder:
            worker = self._at(folder)
            before: dict[Kind, int] = worker.call_plugin("calls")
            self._opened(worker, folder, self._reads(image))
            after: dict[Kind, int] = worker.call_plugin("calls")
            worker.ask("close")
        return {kind: count - before.get(kind, 0) for kind, count in after.items()}

    def try_out(self, image: Image, failure: Failure) -> None:
        """Fail one call; then all is well, and all must be there."""
        with laid_down(self._context, self._story, image) as folder:
            worker = self._at(folder)
            worker.call_plugin("fail", (failure.kind,), failure.nth, failure.full, failure.once)
            during = Log()
            try:
                with contextlib.suppress(StoreRaised, Refused):
                    during = self._opened(worker, folder, self._reads(image))
                fired: list[int] = worker.call_plugin("heal")
            except WorkerLost:
                self._context.note(f"{failure} in a recovery, and the process did not survive it")
                self.close()
                fired = [0]
            if not fired:
                return
            self.failures += 1
            op = self._op(image)
            told = f"{failure} in the recovery from a kill during {op.op}"
            self._context.record_fault(told, op.invoke_ns, op.complete_ns)
            self._judge(image, failure, during, self._afterwards(image, failure, folder))

    def tell(self) -> None:
        """Say how a process fares when its disk is well again."""
        if self._gone:
            self._context.note(
                f"in {self._gone} of {self.failures} cases the process whose disk had failed could"
                " not open the store when it was well again; a new one could"
            )

    def close(self) -> None:
        """Let the process go."""
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def _afterwards(self, image: Image, failure: Failure, folder: Path) -> Log:
        """What is there when the disk is well again: here, or else for a fresh process."""
        program = looking_back(self._context, self._story, image.after)
        with contextlib.suppress(StoreRaised, Refused, WorkerLost):
            worker = self._at(folder)
            with contextlib.suppress(StoreRaised, Refused):
                worker.ask("close")
            log = self._opened(worker, folder, program)
            worker.ask("close")
            return log
        self._gone += 1
        self.close()
        worker = self._at(folder)
        try:
            log = self._opened(worker, folder, program)
            worker.ask("close")
        except (StoreRaised, Refused) as error:
            self._fail(image, failure, f"the store cannot be opened: {format_error(error)}")
        except WorkerLost as error:
            raise CaseUnknown(f"a process was lost after a kill: {error}") from error
        return log

    def _judge(self, image: Image, failure: Failure, during: Log, after: Log) -> None:
        done = self._story.history(image.after, sure=True)
        history = [*done, *during.operations, *after.operations]
        self._context.history[:] = history
        if isinstance(judge(history, search_steps=0), Violated):
            self._fail(image, failure, "seen")
        raised = [words for at, words, _ in after.errors if after.operations[at].op != "rollback"]
        if raised:
            self._fail(image, failure, f"the store cannot be used: {raised[0]}")
        self._context.history[:] = [deed.op for deed in self._story.deeds]

    def _fail(self, image: Image, failure: Failure, why: str) -> None:
        op = self._op(image)
        self._context.fail(
            "lost in recovery" if why == "seen" else "unusable after a fault",
            f"{why} after a kill during {op.op} on {op.session} (change {image.after} of"
            f" {len(self._story.changes)}) and a recovery in which {failure}",
        )

    def _op(self, image: Image) -> Operation:
        op = self._story.under_way(image.after)
        assert op is not None
        return op

    def _reads(self, image: Image) -> Program:
        calls = looking_back(self._context, self._story, image.after).calls
        return Program("meanwhile", tuple(c for c in calls if c.op == "read")[:READS])

    def _opened(self, worker: Worker, folder: Path, program: Program) -> Log:
        worker.ask("open", folder, self._context.flavour)
        log: Log = worker.ask("run", program, self._context.names, 0)
        return log

    def _at(self, folder: Path) -> Worker:
        if self._worker is None:
            self._worker = self._context.start_worker()
            self._worker.ask("install_plugin", FaultyDisk(folder, syncing=False))
        return self._worker
