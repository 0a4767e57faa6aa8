"""A disk that fails or is full, in operations, while a store is opened, and in a recovery."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from memory_contract.adapter import Refused
from memory_contract.calls import Call, Log, Program, format_error
from memory_contract.case_context import (
    CaseContext,
    CaseNotClaimed,
    CaseNotRun,
    CaseVacuous,
    Client,
)
from memory_contract.cases.case import case
from memory_contract.cases.disk_recording import record_disk
from memory_contract.cases.locks import is_sqlite
from memory_contract.cases.perturbation import (
    Perturbation,
    draw_positions,
    find_error,
    is_violated,
)
from memory_contract.cases.workload import Verb, build_append, build_calls, list_verbs
from memory_contract.faults.vfs.disk import ERRORS, Kind
from memory_contract.faults.vfs.faulty_disk import FaultyDisk
from memory_contract.faults.vfs.images import Image, build_final_files
from memory_contract.history import Operation
from memory_contract.workers.pool import StoreRaised, Worker, WorkerLost

# How many calls of each kind fail in each operation, once and from then on.
FAILURES: Final = 1
# How long a process with a working disk may take for what another's failure could have blocked.
WAIT_S: Final = 30.0
# After how many kills a recovery is disturbed, and for how long a check does that.
KILLS: Final = 3
RECOVERY_S: Final = 5.0
# How many sessions are read while the disk fails: a recovery is over with the first.
READS: Final = 3
# What a killed store leaves behind for the next process that opens it.
LOGS: Final = ("-wal", "-journal")


@case(
    "faults",
    catches="a lock that stays after an error, an error that is swallowed, half a batch",
    modes=("processes",),
)
def io_error_loop(context: CaseContext) -> None:
    """Fail the n-th open, read, write, sync, truncate and delete, once and from then on."""
    DiskErrors(context, tuple(ERRORS), full=False, most=FAILURES).run()


@case(
    "faults",
    catches="a full disk that is not reported, or that a store does not recover from",
    modes=("processes",),
)
def disk_full_loop(context: CaseContext) -> None:
    """Let the disk be full from the n-th write on, then free some space and go on."""
    DiskErrors(context, ("write",), full=True, most=2 * FAILURES).run()


@case(
    "faults",
    catches="a recovery that discards what it could not read, or starts empty",
    modes=("processes",),
    durable=True,
)
def io_error_in_recovery(context: CaseContext) -> None:
    """Kill a store; fail the n-th call of whoever opens it next, once and from then on."""
    RecoveryErrors(context, kills=KILLS, most=FAILURES).run(within_s=RECOVERY_S)


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

    def begin(self, worker: Worker) -> None:
        """Let the disk of a process fail from now on."""
        worker.call_plugin("fail", (self.kind,), self.nth, self.full, self.once)


def _draw_failures(
    context: CaseContext, calls: dict[Kind, int], most: int, *, full: bool
) -> Iterator[DiskFailure]:
    """Up to `most` of the calls of each kind fail, once and from then on."""
    for kind, count in calls.items():
        for nth in sorted(draw_positions(context, count, most)):
            for once in (True, False):
                yield DiskFailure(kind, nth, full=full, once=once)


def _count_calls(worker: Worker, before: dict[Kind, int]) -> dict[Kind, int]:
    """How many calls of each kind there were since then."""
    after: dict[Kind, int] = worker.call_plugin("calls")
    return {kind: count - before.get(kind, 0) for kind, count in after.items()}


class DiskErrors(Perturbation[tuple[Verb | None, DiskFailure]]):
    """Fails a writer's disk in each operation and while it opens the store.

    A witness in another process, whose disk works, must be able to go on.
    """

    noun = "failures"

    def __init__(
        self, context: CaseContext, kinds: Sequence[Kind], *, full: bool, most: int
    ) -> None:
        super().__init__(context)
        self._kinds = kinds
        self._full = full
        self._most = most
        self._witness = self._new_client()
        self._writer = self._new_client()
        # How often the writer could be tried again on a disk that works, and how often in vain.
        self._tried = self._unusable = 0

    def _new_client(self) -> Client:
        disk = FaultyDisk(self.context.workspace)
        return self.context.open_in_process(wait_s=WAIT_S, plugin=disk)

    def _replace_writer(self) -> None:
        self._writer.worker.kill()
        self._writer = self._new_client()

    def _open(self) -> None:
        self._writer.worker.ask("open", self.context.workspace, self.context.flavour)

    def list_positions(self) -> Iterator[tuple[Verb | None, DiskFailure]]:
        """Calls of each operation, then those of opening the store."""
        for verb in (*list_verbs(self.context), None):
            made = self._count_calls(verb)
            calls = {kind: made.get(kind, 0) for kind in self._kinds}
            for failure in _draw_failures(self.context, calls, self._most, full=self._full):
                yield verb, failure

    def _count_calls(self, verb: Verb | None) -> dict[Kind, int]:
        call, worker = self._prepare(verb), self._writer.worker
        before: dict[Kind, int] = worker.call_plugin("calls")
        if call is None:
            self._open()
        else:
            self._writer.make(call)
        calls = _count_calls(worker, before)
        if not calls:
            missing = worker.call_plugin("missing")
            files = [path for path in self.context.workspace.rglob("*") if path.is_file()]
            if missing and any(map(is_sqlite, files)):
                raise CaseNotRun(f"faults below the standard library's SQLite: {missing}")
            raise CaseNotClaimed("the store keeps no SQLite file")
        return calls

    def _prepare(self, verb: Verb | None) -> Call | None:
        """Let the witness make the calls that lead to an operation, and reopen the writer."""
        self._writer.worker.ask("close")
        if verb is None:
            return None
        *before, call = build_calls(self.context, verb)
        for each in before:
            self._witness.make(each)
        self._open()
        return call

    def disturb(self, position: tuple[Verb | None, DiskFailure]) -> None:
        """Fail one call; on a disk that works again, witness and writer must go on."""
        verb, failure = position
        call, doing = self._prepare(verb), verb or "opening"
        failure.begin(self._writer.worker)
        began = time.monotonic_ns()
        if call is None:
            with contextlib.suppress(StoreRaised, Refused, WorkerLost):
                self._open()
        else:
            self._writer.attempt(call)
        try:
            failed: list[int] = self._writer.worker.call_plugin("heal")
        except WorkerLost:
            self.context.note(f"in {doing} {failure}, and the store did not come back from it")
            self._replace_writer()
            return
        if failed:
            self.count += 1
            self.context.record_fault(f"{failure} in {doing}", began, max(failed))
        read = Call(op="read", session=self.context.new_session())
        self._expect_witness_goes_on(f"{doing}, in which {failure}", call or read)
        self._tried += 1
        if not self._is_usable(call):
            # The handle reported the error. A new one may work.
            self._unusable += 1
            self._replace_writer()

    def _is_usable(self, call: Call | None) -> bool:
        if call is None:
            try:
                self._writer.worker.ask("close")
                self._open()
            except (StoreRaised, Refused):
                return False
            return True
        again = self._writer.attempt(build_append(self.context, call.session))
        seen = self._writer.attempt(Call(op="read", session=call.session))
        return again.outcome == "ok" and seen.outcome == "ok"

    def _expect_witness_goes_on(self, what: str, call: Call) -> None:
        try:
            self._witness.make(build_append(self.context, call.session))
            self._witness.make(Call(op="read", session=call.session))
            if call.target is not None:
                self._witness.make(Call(op="read", session=call.target))
        except (StoreRaised, Refused, WorkerLost) as error:
            self._writer.worker.kill()
            fresh = self.context.open_in_process(wait_s=WAIT_S)
            released = fresh.attempt(build_append(self.context, call.session))
            met = f"when the disk was well again, another process met {format_error(error)}"
            proof = f"after {what}, and {met}"
            if released.outcome == "ok":
                proof += ", until the first one was killed"
                self.context.fail("stranded lock", proof, session=call.session)
            self.context.fail("unusable after a fault", proof, session=call.session)

    def summarize(self) -> None:
        """Note whether the same handle could be used when its disk worked again."""
        if self._unusable:
            what = "a full disk" if self._full else "a disk error"
            cases = f"{self._unusable} of {self._tried} cases, and said so; a new one could"
            self.context.note(f"after {what}, the same handle could not be used in {cases}")


class RecoveryErrors(Perturbation[tuple[Image, DiskFailure]]):
    """Opens what a kill left behind on a disk that fails, and again when it works."""

    noun = "failures"
    least = 12

    def __init__(self, context: CaseContext, *, kills: int, most: int) -> None:
        super().__init__(context)
        self._recording = record_disk(context)
        self._kills = kills
        self._most = most
        self._unusable = 0

    def list_positions(self) -> Iterator[tuple[Image, DiskFailure]]:
        """Calls of the recovery from each kill."""
        for image in self._draw_kills():
            with self._recording.restore(image) as folder:
                worker = self.reopening_worker(folder)
                before: dict[Kind, int] = worker.call_plugin("calls")
                self.open_and_run(worker, folder, self._build_reads(image))
                calls = dict(sorted(_count_calls(worker, before).items()))
            for failure in _draw_failures(self.context, calls, self._most, full=False):
                yield image, failure

    def _draw_kills(self) -> list[Image]:
        """What kills leave behind, at moments when a log or a journal is needed to come back."""
        recording = self._recording
        places = [at for at in range(1, len(recording.changes)) if recording.find_running(at)]
        self.context.random.shuffle(places)
        found: list[Image] = []
        for after in places:
            files = build_final_files(recording.changes[:after], recording.base)
            if any(data and name.endswith(LOGS) for name, data in files.items()):
                found.append(Image(after=after, mode="everything", files=files))
            if len(found) == self._kills:
                break
        if not found:
            raise CaseVacuous("a kill never left anything behind that had to be recovered")
        return found

    def disturb(self, position: tuple[Image, DiskFailure]) -> None:
        """Fail one call of a recovery; on a disk that works again, everything must be there."""
        image, failure = position
        with self._recording.restore(image) as folder:
            worker, during = self.reopening_worker(folder), Log()
            failure.begin(worker)
            try:
                with contextlib.suppress(StoreRaised, Refused):
                    during = self.open_and_run(worker, folder, self._build_reads(image))
                failed: list[int] = worker.call_plugin("heal")
            except WorkerLost:
                self.context.note(f"{failure} in a recovery, and the process did not survive it")
                self.close()
                failed = [0]
            if failed:
                self.count += 1
                self._judge(image, failure, during, self._look_back(image, folder))

    def _look_back(self, image: Image, folder: Path) -> Log:
        """What is there when the disk works again: in this process, else in a fresh one."""
        program = self._recording.build_look_back(image.after)
        with contextlib.suppress(StoreRaised, Refused, WorkerLost):
            return self.open_and_run(self.reopening_worker(folder), folder, program)
        self._unusable += 1
        self.close()
        return self.reopen(folder, program)

    def _judge(self, image: Image, failure: DiskFailure, during: Log, after: Log) -> None:
        op = self._recording.find_running(image.after)
        assert op is not None
        what = f"a kill during {op.op} on {op.session} and a recovery in which {failure}"
        self.context.record_fault(what, op.invoke_ns, op.complete_ns)
        done = self._recording.build_history(image.after, durable=True)
        history: list[Operation] = [*done, *during.operations, *after.operations]
        if is_violated(history):
            self._recording.fail(history, "lost in recovery", "", image, what)
        if raised := find_error(after):
            why = f"the store cannot be used: {raised}"
            self._recording.fail(history, "unusable after a fault", why, image, what)

    def summarize(self) -> None:
        """Note whether the process whose disk had failed could open the store again."""
        if self._unusable:
            cases = f"in {self._unusable} of {self.count} cases the process whose disk had failed"
            well = "could not open the store when it was well again; a new one could"
            self.context.note(f"{cases} {well}")

    def _build_reads(self, image: Image) -> Program:
        calls = self._recording.build_look_back(image.after).calls
        return Program("meanwhile", tuple(c for c in calls if c.op == "read")[:READS])
