"""kill -9 at every step to a file, of SQLite's and of Python's own, and a look at what is left."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from memory_contract.adapter import Refused
from memory_contract.calls import Call, format_error
from memory_contract.case_context import CaseContext, CaseNotClaimed
from memory_contract.cases.case import case
from memory_contract.cases.pacing import paced
from memory_contract.cases.verbs import Verb, append, calls_of, changing
from memory_contract.checker import judge
from memory_contract.checker.verdict import Violated
from memory_contract.client import Client
from memory_contract.faults.vfs.faulty_disk import FaultyDisk
from memory_contract.workers.pool import StoreRaised, WorkerLost

# How many kills a check makes in each operation, and while a store is first opened; drawn by seed.
KILLS: Final = 5
KILLS_AT_FIRST: Final = 12
# They take no longer than this, if that is enough for a few.
WITHIN_S: Final = 6.0
LEAST: Final = 45
# After so many, whether they have proved something already.
CHECKED: Final = 10
# How many kills are followed by another one in the process that opens the store next.
AGAIN: Final = 0.25


@case(
    "crash",
    catches="half a write: a file that is emptied before it is filled, or a yes before the commit",
    reach="machine",
    modes=("processes",),
)
def kill_at_every_step(context: CaseContext) -> None:
    """Kill a writer at each step to its files: acknowledged entries stay, batches are whole."""
    kill_everywhere(context, changing(context), KILLS, KILLS_AT_FIRST, within_s=WITHIN_S)


def kill_everywhere(
    context: CaseContext, verbs: Sequence[Verb], most: int, most_at_first: int, *, within_s: float
) -> int:
    """Kill at up to so many steps of each operation; how many kills there were."""
    killer = _Killer(context)
    if not killer.steps_of("append"):
        raise CaseNotClaimed("no step of an append touches a file")
    kills: list[tuple[Verb | None, int]] = [
        *((None, nth) for nth in _drawn(context, killer.steps_at_first(), most_at_first)),
        *(
            (verb, nth)
            for verb in verbs
            for nth in _drawn(context, killer.steps_of(verb) + 1, most)
        ),
    ]
    context.random.shuffle(kills)
    for verb, nth in paced(context, kills, "kills", within_s=within_s, least=LEAST):
        if verb is None:
            killer.kill_at_first(nth)
        else:
            killer.kill(verb, nth)
        if killer.kills % CHECKED == 0 and isinstance(judge(context.history), Violated):
            # It has been proved; more of it would prove no more.
            break
    return killer.kills


def _drawn(context: CaseContext, steps: int, most: int) -> list[int]:
    return context.random.sample(range(1, steps + 1), min(steps, most))


def _disk(folder: Path, kill_at: int = 0) -> FaultyDisk:
    # What a killed process wrote, the system has: nothing has to be synced.
    return FaultyDisk(folder, python=True, syncing=False, kill_at=kill_at)


class _Killer:
    """Makes processes, ends them, and looks at what they left through a fresh handle each time."""

    def __init__(self, context: CaseContext) -> None:
        self._context = context
        self._witness = context.open_in_process(plugin=FaultyDisk(context.workspace, syncing=False))
        self._witness.handle.worker.ask("close")
        self.kills = 0
        # How many steps it takes to open a store that is there.
        self._reopening = 1

    def steps_of(self, verb: Verb) -> int:
        """How many steps an operation takes, when nothing is wrong."""
        writer = self._writer()
        worker = writer.handle.worker
        self._reopening = max(1, worker.call_plugin("steps"))
        *before, call = calls_of(self._context, verb)
        for each in before:
            writer.make(each)
        worker.call_plugin("kill_at_step", 0)
        writer.make(call)
        steps: int = worker.call_plugin("steps")
        worker.kill()
        return steps

    def kill(self, verb: Verb, nth: int) -> None:
        """End a writer at one step of an operation, at the latest when it was acknowledged."""
        writer = self._writer()
        *before, call = calls_of(self._context, verb)
        for each in before:
            writer.make(each)
        writer.handle.worker.call_plugin("kill_at_step", nth)
        began = time.monotonic_ns()
        op = writer.attempt(call)
        writer.handle.worker.kill()
        self._context.record_fault(f"kill -9 in {verb}", began, time.monotonic_ns())
        self.kills += 1
        where = f"a kill at step {nth} of {verb}"
        if self._context.random.random() < AGAIN:
            self._kill_recovery()
            where += ", and another one while the store was opened again"
        with self._look(self._context.workspace, call.session, where) as witness:
            witness.make(Call(op="read", session=call.session))
            if call.op == "fork" and call.target is not None:
                witness.make(Call(op="read", session=call.target))
            witness.make(append(self._context, call.session))
            witness.make(Call(op="read", session=call.session))
            taken = [each.snapshot for each in before if each.op == "snapshot"]
            if call.op == "snapshot" and op.outcome == "ok":
                taken.append(call.snapshot)
            for name in taken if self._context.adapter.claims(["rollback"]) else ():
                witness.make(Call(op="rollback", session=call.session, snapshot=name))
                witness.make(Call(op="read", session=call.session))

    def steps_at_first(self) -> int:
        """How many steps it takes to open a store that is not there yet."""
        folder = self._context.create_sibling_workspace()
        worker = self._context.start_worker()
        worker.ask("install_plugin", _disk(folder))
        worker.ask("open", folder, self._context.flavour)
        steps: int = worker.call_plugin("steps")
        worker.kill()
        return steps

    def kill_at_first(self, nth: int) -> None:
        """End a process while it opens a store for the first time; the next one must manage."""
        folder = self._context.create_sibling_workspace()
        session = self._context.new_session()
        worker = self._context.start_worker()
        began = time.monotonic_ns()
        with contextlib.suppress(WorkerLost):
            worker.ask("install_plugin", _disk(folder, kill_at=nth))
            worker.ask("open", folder, self._context.flavour)
        worker.kill()
        self.kills += 1
        with self._look(folder, session, f"a kill at step {nth} of the first opening") as witness:
            witness.make(append(self._context, session))
            witness.make(Call(op="read", session=session))
        self._context.record_fault("kill -9 while it opens", began, time.monotonic_ns())

    def _kill_recovery(self) -> None:
        """End whoever opens the store next, while it finds its way."""
        nth = self._context.random.randint(1, self._reopening)
        worker = self._context.start_worker()
        with contextlib.suppress(WorkerLost):
            worker.ask("install_plugin", _disk(self._context.workspace, kill_at=nth))
            worker.ask("open", self._context.workspace, self._context.flavour)
        worker.kill()

    def _writer(self) -> Client:
        return self._context.open_in_process(plugin=_disk(self._context.workspace))

    @contextlib.contextmanager
    def _look(self, folder: Path, session: str, where: str) -> Iterator[Client]:
        """A fresh handle on what is left; one that cannot be used is the store's failure."""
        worker = self._witness.handle.worker
        try:
            worker.ask("open", folder, self._context.flavour)
            yield self._witness
        except (StoreRaised, Refused) as error:
            self._context.fail(
                "unusable after a kill",
                f"after {where}, a fresh process meets {format_error(error)}",
                session=session,
            )
        finally:
            worker.ask("close")
