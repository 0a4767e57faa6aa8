"""A disk that fails or is full: an error that says what landed, all or nothing, and then go on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from memory_contract.adapter import Refused
from memory_contract.calls import Call, format_error
from memory_contract.case_context import CaseContext, CaseNotClaimed, CaseNotRun
from memory_contract.cases.case import case
from memory_contract.cases.lock_bounds import is_sqlite
from memory_contract.cases.verbs import Verb, append, calls_of, claimed
from memory_contract.client import Client
from memory_contract.faults.vfs.disk import ERRORS, Kind
from memory_contract.faults.vfs.faulty_disk import FaultyDisk
from memory_contract.workers.pool import StoreRaised, WorkerLost

# How many failures a check makes in each operation and for each kind of call; drawn by its seed.
FAILURES: Final = 2
# How long a healthy process may take for what another's failure could have blocked.
WAIT_S: Final = 30.0


@case(
    "faults",
    catches="a lock that stays after an error, an error that is swallowed, half a batch",
    reach="machine",
    modes=("processes",),
)
def io_error_loop(context: CaseContext) -> None:
    """Fail the n-th open, read, write, sync, truncate and delete, once and from then on."""
    fail_everywhere(context, tuple(ERRORS), full=False, most=FAILURES)


@case(
    "faults",
    catches="a full disk that nobody hears of, or that a store does not come back from",
    reach="machine",
    modes=("processes",),
)
def disk_full_loop(context: CaseContext) -> None:
    """Let the disk be full from the n-th write on, then free some space and go on."""
    fail_everywhere(context, ("write",), full=True, most=2 * FAILURES)


def fail_everywhere(
    context: CaseContext, kinds: Sequence[Kind], *, full: bool, most: int, both: bool = False
) -> int:
    """Fail up to so many calls of each kind in each operation; how many times a call failed.

    With `both`, each is failed once and from then on; else a draw says which.
    """
    failing = _Failing(context, full=full)

    def drawn(calls: dict[Kind, int]) -> Iterator[Failure]:
        for kind in kinds:
            count = calls.get(kind, 0)
            for nth in sorted(context.random.sample(range(1, count + 1), min(count, most))):
                for once in (True, False) if both else (context.random.choice((True, False)),):
                    yield Failure(kind, nth, full=full, once=once)

    for verb in claimed(context):
        for failure in drawn(failing.calls_of(verb)):
            failing.try_out(failure, verb)
    for failure in drawn(failing.calls_of_opening()):
        failing.try_opening(failure)
    failing.tell()
    return failing.failures


@dataclass(frozen=True, slots=True)
class Failure:
    """Which call fails."""

    kind: Kind
    nth: int
    full: bool
    once: bool

    def __str__(self) -> str:
        what = "the disk was full" if self.full else f"a {self.kind} failed"
        return f"{what} at call {self.nth}{'' if self.once else ' and from then on'}"


class _Failing:
    """A writer on a disk that fails, and a witness in another process whose disk is well."""

    def __init__(self, context: CaseContext, *, full: bool) -> None:
        self._context = context
        self._witness = self._new_client()
        self._writer = self._new_client()
        self._what = "a full disk" if full else "a disk error"
        self.failures = 0
        self._gone = self._tried = 0

    def calls_of(self, verb: Verb) -> dict[Kind, int]:
        """How many calls of each kind an operation makes through a fresh handle."""
        call = self._prepared(verb)
        with self._counted() as calls:
            self._writer.make(call)
        return calls

    def calls_of_opening(self) -> dict[Kind, int]:
        """How many calls of each kind it takes to open the store."""
        worker = self._writer.handle.worker
        worker.ask("close")
        with self._counted() as calls:
            self._open()
        return calls

    @contextmanager
    def _counted(self) -> Iterator[dict[Kind, int]]:
        worker = self._writer.handle.worker
        before: dict[Kind, int] = worker.call_plugin("calls")
        made: dict[Kind, int] = {}
        yield made
        after: dict[Kind, int] = worker.call_plugin("calls")
        if not after:
            missing = worker.call_plugin("missing")
            files = [path for path in self._context.workspace.rglob("*") if path.is_file()]
            if missing and any(map(is_sqlite, files)):
                raise CaseNotRun(f"faults below the standard library's SQLite: {missing}")
            raise CaseNotClaimed("the store keeps no SQLite file")
        made |= {kind: count - before.get(kind, 0) for kind, count in after.items()}

    def try_opening(self, failure: Failure) -> None:
        """Fail a call while the store is opened; then it can be, by others and here."""
        worker = self._writer.handle.worker
        worker.ask("close")
        self._begin(failure)
        began = time.monotonic_ns()
        with contextlib.suppress(StoreRaised, Refused, WorkerLost):
            self._open()
        if not self._heal(failure, "opening", began):
            return
        session = self._context.new_session()
        self._expect_witness_goes_on(failure, "opening", Call(op="read", session=session))
        self._tried += 1
        try:
            worker.ask("close")
            self._open()
        except (StoreRaised, Refused):
            self._gone += 1
            self._replace_writer()

    def try_out(self, failure: Failure, verb: Verb) -> None:
        """Fail a call of one operation; then all is well, and must be so for everybody."""
        call = self._prepared(verb)
        self._begin(failure)
        began = time.monotonic_ns()
        self._writer.attempt(call)
        if not self._heal(failure, verb, began):
            return
        self._expect_witness_goes_on(failure, verb, call)
        self._tried += 1
        again = self._writer.attempt(append(self._context, call.session))
        seen = self._writer.attempt(Call(op="read", session=call.session))
        if again.outcome != "ok" or seen.outcome != "ok":
            # It said so. Whether a new handle in the same process is better, the next one shows.
            self._gone += 1
            self._replace_writer()

    def tell(self) -> None:
        """Say how a handle fares when its disk is well again."""
        if self._gone:
            self._context.note(
                f"after {self._what}, the same handle could not be used in {self._gone} of"
                f" {self._tried} cases, and said so; a new one could"
            )

    def _heal(self, failure: Failure, doing: str, began: int) -> bool:
        """End the fault; whether the writer is still there to go on with."""
        try:
            fired: list[int] = self._writer.handle.worker.call_plugin("heal")
        except WorkerLost:
            self._context.note(f"in {doing} {failure}, and the store did not come back from it")
            self._replace_writer()
            return False
        if fired:
            self.failures += 1
            self._context.record_fault(f"{failure} in {doing}", began, max(fired))
        return True

    def _prepared(self, verb: Verb) -> Call:
        """What leads to an operation is done by the witness; the writer opens the store anew."""
        *before, call = calls_of(self._context, verb)
        for each in before:
            self._witness.make(each)
        self._writer.handle.worker.ask("close")
        self._open()
        return call

    def _open(self) -> None:
        self._writer.handle.worker.ask("open", self._context.workspace, self._context.flavour)

    def _begin(self, failure: Failure) -> None:
        order = ((failure.kind,), failure.nth, failure.full, failure.once)
        self._writer.handle.worker.call_plugin("fail", *order)

    def _expect_witness_goes_on(self, failure: Failure, doing: str, call: Call) -> None:
        after = f"after {doing}, in which {failure}, and when the disk was well again"
        try:
            self._witness.make(append(self._context, call.session))
            self._witness.make(Call(op="read", session=call.session))
            if call.target is not None:
                self._witness.make(Call(op="read", session=call.target))
        except (StoreRaised, Refused, WorkerLost) as error:
            self._writer.handle.worker.kill()
            released = self._context.open_in_process(wait_s=WAIT_S).attempt(
                append(self._context, call.session)
            )
            lock = released.outcome == "ok"
            self._context.fail(
                "stranded lock" if lock else "unusable after a fault",
                f"{after}, another process met {format_error(error)}"
                + (", until the first one was killed" if lock else ""),
                session=call.session,
            )

    def _new_client(self) -> Client:
        # Nobody cuts the power here: nothing has to reach a real disk.
        disk = FaultyDisk(self._context.workspace, syncing=False)
        return self._context.open_in_process(wait_s=WAIT_S, plugin=disk)

    def _replace_writer(self) -> None:
        self._writer.handle.worker.kill()
        self._writer = self._new_client()
