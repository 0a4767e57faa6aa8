"""A disk that fails or is full, in operations, while a store is opened, and in a recovery."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from memory_contract.adapter import Refused
from memory_contract.calls import Call, Log, Program, format_error
from memory_contract.case_context import (
    CaseContext,
    CaseNotClaimed,
    CaseNotRun,
    CaseUnknown,
    CaseVacuous,
    Client,
)
from memory_contract.cases.case import case
from memory_contract.cases.disk_recording import (
    build_look_back,
    record_disk,
    restore_image,
)
from memory_contract.cases.locks import is_sqlite
from memory_contract.cases.perturbation import (
    DiskFailure,
    Perturbation,
    RecordedPerturbation,
    begin_failure,
    count_calls,
    draw_failures,
    find_error,
    is_violated,
)
from memory_contract.cases.workload import Verb, build_append, build_calls, list_verbs
from memory_contract.faults.vfs.disk import ERRORS, Kind
from memory_contract.faults.vfs.faulty_disk import FaultyDisk
from memory_contract.faults.vfs.images import Image, build_final_files
from memory_contract.history import Operation
from memory_contract.workers.pool import StoreRaised, Worker, WorkerLost

# How many failures a check makes in each operation and for each kind of call.
FAILURES: Final = 2
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
    fail_everywhere(context, tuple(ERRORS), full=False, most=FAILURES)


@case(
    "faults",
    catches="a full disk that nobody hears of, or that a store does not come back from",
    modes=("processes",),
)
def disk_full_loop(context: CaseContext) -> None:
    """Let the disk be full from the n-th write on, then free some space and go on."""
    fail_everywhere(context, ("write",), full=True, most=2 * FAILURES)


@case(
    "faults",
    catches="a recovery that gives up what it could not read, or begins anew",
    modes=("processes",),
)
def io_error_in_recovery(context: CaseContext) -> None:
    """Kill a store; fail the n-th call of whoever opens it next, once and from then on."""
    fail_in_recovery(context, kills=KILLS, most=FAILURES, within_s=RECOVERY_S)


def fail_everywhere(
    context: CaseContext, kinds: Sequence[Kind], *, full: bool, most: int, both: bool = False
) -> int:
    """Fail up to `most` calls of each kind in each operation; how many times a call failed.

    With `both`, each call fails once and from then on; otherwise the seed decides.
    """
    return DiskErrors(context, kinds, full=full, most=most, both=both).run()


def fail_in_recovery(
    context: CaseContext, *, kills: int, most: int, within_s: float, both: bool = False
) -> int:
    """Fail up to `most` calls of each kind after each kill; how many times a call failed."""
    if context.adapter.durability == "none":
        raise CaseNotClaimed("the store does not claim to survive the end of its process")
    loop = RecoveryErrors(context, kills=kills, most=most, both=both)
    return loop.run(within_s=within_s, wanted=kills * most * len(ERRORS))


class DiskErrors(Perturbation[tuple[Verb | None, DiskFailure]]):
    """Fails a writer's disk in each operation and while it opens the store.

    A witness in another process, whose disk works, must be able to go on.
    """

    noun = "failures"

    def __init__(
        self, context: CaseContext, kinds: Sequence[Kind], *, full: bool, most: int, both: bool
    ) -> None:
        super().__init__(context)
        self._kinds = kinds
        self._full = full
        self._most = most
        self._both = both
        self._witness = self._new_client()
        self._writer = self._new_client()
        # How often the writer could be tried again on a disk that works, and how often in vain.
        self._tried = self._unusable = 0

    @property
    def _process(self) -> Worker:
        worker: Worker = self._writer.handle.worker
        return worker

    def positions(self) -> Iterator[tuple[Verb | None, DiskFailure]]:
        """Calls of each operation, then those of opening the store."""
        for verb in (*list_verbs(self.context), None):
            calls = self._count_calls(verb)
            wanted = {kind: calls.get(kind, 0) for kind in self._kinds}
            for failure in draw_failures(
                self.context, wanted, self._most, full=self._full, both=self._both
            ):
                yield verb, failure

    def _count_calls(self, verb: Verb | None) -> dict[Kind, int]:
        call = self._prepare(verb)
        before: dict[Kind, int] = self._process.call_plugin("calls")
        if call is None:
            self._open()
        else:
            self._writer.make(call)
        calls = count_calls(self._process, before)
        if not calls:
            missing = self._process.call_plugin("missing")
            files = [path for path in self.context.workspace.rglob("*") if path.is_file()]
            if missing and any(map(is_sqlite, files)):
                raise CaseNotRun(f"faults below the standard library's SQLite: {missing}")
            raise CaseNotClaimed("the store keeps no SQLite file")
        return calls

    def disturb(self, position: tuple[Verb | None, DiskFailure]) -> None:
        """Fail one call; on a disk that works again, witness and writer must go on."""
        verb, failure = position
        doing = verb or "opening"
        call = self._prepare(verb)
        begin_failure(self._process, failure)
        began = time.monotonic_ns()
        if call is None:
            with contextlib.suppress(StoreRaised, Refused, WorkerLost):
                self._open()
        else:
            self._writer.attempt(call)
        if not self._heal(failure, doing, began):
            return
        read = Call(op="read", session=self.context.new_session())
        self._expect_witness_goes_on(failure, doing, call or read)
        self._tried += 1
        if not self._is_usable(call):
            # It said so. The next writer shows whether a new handle is better.
            self._unusable += 1
            self._replace_writer()

    def _is_usable(self, call: Call | None) -> bool:
        if call is None:
            try:
                self._process.ask("close")
                self._open()
            except (StoreRaised, Refused):
                return False
            return True
        again = self._writer.attempt(build_append(self.context, call.session))
        seen = self._writer.attempt(Call(op="read", session=call.session))
        return again.outcome == "ok" and seen.outcome == "ok"

    def summarize(self) -> None:
        """Note whether the same handle could be used when its disk worked again."""
        if self._unusable:
            what = "a full disk" if self._full else "a disk error"
            self.context.note(
                f"after {what}, the same handle could not be used in {self._unusable} of"
                f" {self._tried} cases, and said so; a new one could"
            )

    def _heal(self, failure: DiskFailure, doing: str, began: int) -> bool:
        """End the failure; whether the writer is still there."""
        try:
            failed: list[int] = self._process.call_plugin("heal")
        except WorkerLost:
            self.context.note(f"in {doing} {failure}, and the store did not come back from it")
            self._replace_writer()
            return False
        if failed:
            self.count += 1
            self.context.record_fault(f"{failure} in {doing}", began, max(failed))
        return True

    def _prepare(self, verb: Verb | None) -> Call | None:
        """Let the witness make the calls that lead to an operation, and reopen the writer."""
        call = None
        if verb is not None:
            *before, call = build_calls(self.context, verb)
            for each in before:
                self._witness.make(each)
        self._process.ask("close")
        if verb is not None:
            self._open()
        return call

    def _open(self) -> None:
        self._process.ask("open", self.context.workspace, self.context.flavour)

    def _expect_witness_goes_on(self, failure: DiskFailure, doing: str, call: Call) -> None:
        try:
            self._witness.make(build_append(self.context, call.session))
            self._witness.make(Call(op="read", session=call.session))
            if call.target is not None:
                self._witness.make(Call(op="read", session=call.target))
        except (StoreRaised, Refused, WorkerLost) as error:
            self._process.kill()
            fresh = self.context.open_in_process(wait_s=WAIT_S)
            released = fresh.attempt(build_append(self.context, call.session))
            lock = released.outcome == "ok"
            self.context.fail(
                "stranded lock" if lock else "unusable after a fault",
                f"after {doing}, in which {failure}, and when the disk was well again,"
                f" another process met {format_error(error)}"
                + (", until the first one was killed" if lock else ""),
                session=call.session,
            )

    def _new_client(self) -> Client:
        disk = FaultyDisk(self.context.workspace)
        return self.context.open_in_process(wait_s=WAIT_S, plugin=disk)

    def _replace_writer(self) -> None:
        self._process.kill()
        self._writer = self._new_client()


class RecoveryErrors(RecordedPerturbation[tuple[Image, DiskFailure]]):
    """Opens what a kill left behind on a disk that fails, and again when it works."""

    noun = "failures"
    least = 12

    def __init__(self, context: CaseContext, *, kills: int, most: int, both: bool) -> None:
        super().__init__(context, record_disk(context))
        self._kills = kills
        self._most = most
        self._both = both
        self._unusable = 0

    def positions(self) -> Iterator[tuple[Image, DiskFailure]]:
        """Calls of the recovery from each kill."""
        for image in self._draw_kills():
            calls = dict(sorted(self._count_calls(image).items()))
            for failure in draw_failures(
                self.context, calls, self._most, full=False, both=self._both
            ):
                yield image, failure

    def _draw_kills(self) -> list[Image]:
        """What kills leave behind, at moments when a log or a journal is needed to come back."""
        recording = self.recording
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

    def _count_calls(self, image: Image) -> dict[Kind, int]:
        with restore_image(self.context, self.recording, image) as folder:
            worker = self.reopening_worker(folder)
            before: dict[Kind, int] = worker.call_plugin("calls")
            self.open_and_run(worker, folder, self._build_reads(image))
            calls = count_calls(worker, before)
            worker.ask("close")
        return calls

    def disturb(self, position: tuple[Image, DiskFailure]) -> None:
        """Fail one call of a recovery; on a disk that works again, everything must be there."""
        image, failure = position
        with restore_image(self.context, self.recording, image) as folder:
            worker = self.reopening_worker(folder)
            begin_failure(worker, failure)
            during = Log()
            try:
                with contextlib.suppress(StoreRaised, Refused):
                    during = self.open_and_run(worker, folder, self._build_reads(image))
                failed: list[int] = worker.call_plugin("heal")
            except WorkerLost:
                self.context.note(f"{failure} in a recovery, and the process did not survive it")
                self.close()
                failed = [0]
            if not failed:
                return
            self.count += 1
            op = self._find_killed(image)
            what = f"{failure} in the recovery from a kill during {op.op}"
            self.context.record_fault(what, op.invoke_ns, op.complete_ns)
            self._judge(image, failure, during, self._reopen(image, failure, folder))

    def _reopen(self, image: Image, failure: DiskFailure, folder: Path) -> Log:
        """What is there when the disk works again: in this process, else in a fresh one."""
        program = build_look_back(self.context, self.recording, image.after)
        with contextlib.suppress(StoreRaised, Refused, WorkerLost):
            worker = self.reopening_worker(folder)
            with contextlib.suppress(StoreRaised, Refused):
                worker.ask("close")
            log = self.open_and_run(worker, folder, program)
            worker.ask("close")
            return log
        self._unusable += 1
        self.close()
        worker = self.reopening_worker(folder)
        try:
            log = self.open_and_run(worker, folder, program)
            worker.ask("close")
        except (StoreRaised, Refused) as error:
            self._fail(image, failure, f"the store cannot be opened: {format_error(error)}")
        except WorkerLost as error:
            raise CaseUnknown(f"a process was lost after a kill: {error}") from error
        return log

    def _judge(self, image: Image, failure: DiskFailure, during: Log, after: Log) -> None:
        done = self.recording.build_history(image.after, durable=True)
        self.context.history[:] = [*done, *during.operations, *after.operations]
        if is_violated(self.context.history):
            self._fail(image, failure, "")
        if raised := find_error(after):
            self._fail(image, failure, f"the store cannot be used: {raised}")
        self.context.history[:] = [recorded.op for recorded in self.recording.ops]

    def _fail(self, image: Image, failure: DiskFailure, why: str) -> None:
        op = self._find_killed(image)
        what = f"a kill during {op.op} on {op.session} and a recovery in which {failure}"
        name = "unusable after a fault" if why else "lost in recovery"
        self.fail_after(self.context.history, name, why, image, what)

    def summarize(self) -> None:
        """Note whether the process whose disk had failed could open the store again."""
        if self._unusable:
            self.context.note(
                f"in {self._unusable} of {self.count} cases the process whose disk had failed could"
                " not open the store when it was well again; a new one could"
            )

    def _find_killed(self, image: Image) -> Operation:
        op = self.recording.find_running(image.after)
        assert op is not None
        return op

    def _build_reads(self, image: Image) -> Program:
        calls = build_look_back(self.context, self.recording, image.after).calls
        return Program("meanwhile", tuple(c for c in calls if c.op == "read")[:READS])
