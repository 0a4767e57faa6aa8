"""kill -9 at every step to a file, and power loss at every change to a disk."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from memory_contract.adapter import Refused
from memory_contract.calls import Call, Log, Program, format_error
from memory_contract.case_context import (
    CaseContext,
    CaseNotClaimed,
    CaseUnknown,
    CaseVacuous,
    Client,
)
from memory_contract.cases.case import case
from memory_contract.cases.disk_recording import (
    build_look_back,
    forget_outcome,
    record_disk,
    restore_image,
)
from memory_contract.cases.perturbation import (
    Perturbation,
    RecordedPerturbation,
    draw_positions,
    find_error,
    is_violated,
)
from memory_contract.cases.workload import Verb, build_append, build_calls, list_changes
from memory_contract.checker import judge
from memory_contract.checker.verdict import Violated
from memory_contract.faults.vfs.faulty_disk import FaultyDisk
from memory_contract.faults.vfs.images import DAMAGE_MODES, Image
from memory_contract.history import Operation
from memory_contract.workers.pool import StoreRaised, Worker, WorkerLost

# How many kills a check makes in each operation, and while a store is first opened.
KILLS: Final = 5
KILLS_IN_FIRST_OPEN: Final = 12
KILLS_S: Final = 6.0
# After so many kills, the checker looks whether they have proved something already.
JUDGED_AFTER: Final = 10
# The share of kills that are followed by another one in the process that opens the store next.
KILLED_AGAIN: Final = 0.25
# How many power cuts a check makes, and how many of them are followed by others in recovery.
POWER_CUTS: Final = 160
CUT_AGAIN: Final = 4
POWER_CUTS_S: Final = 5.0
# A process opens so many stores one after the other, then a fresh one goes on.
PER_PROCESS: Final = 50


@case(
    "crash",
    catches="half a write: a file that is emptied before it is filled, or a yes before the commit",
    modes=("processes",),
)
def kill_at_every_step(context: CaseContext) -> None:
    """Kill a writer at each step to its files: acknowledged entries stay, batches are whole."""
    kill_everywhere(context, list_changes(context), KILLS, KILLS_IN_FIRST_OPEN, within_s=KILLS_S)


@case(
    "crash",
    catches="an acknowledgement before the disk has it: no sync, or a commit that comes later",
    modes=("processes",),
)
def power_loss(context: CaseContext) -> None:
    """Cut the power at any moment: what was acknowledged is there when it comes back."""
    cut_power(context, POWER_CUTS, within_s=POWER_CUTS_S)


def kill_everywhere(
    context: CaseContext, verbs: Sequence[Verb], most: int, most_at_first: int, *, within_s: float
) -> int:
    """Kill at up to `most` steps of each operation; how many kills there were."""
    return Kills(context, verbs, most, most_at_first).run(within_s=within_s)


def cut_power(context: CaseContext, wanted: int, *, within_s: float) -> int:
    """Hold a store to its durability with so many power cuts; how many there were."""
    loop = PowerCuts(context, wanted)
    count = loop.run(within_s=within_s, wanted=wanted)
    if not count:
        raise CaseVacuous("nothing was ever at stake")
    return count


class Kills(Perturbation[tuple[Verb | None, int]]):
    """Kills writers at steps of operations, and processes that first open a store.

    After each kill, a witness reopens the store through a fresh handle.
    """

    noun = "kills"
    least = 45

    def __init__(
        self, context: CaseContext, verbs: Sequence[Verb], most: int, most_at_first: int
    ) -> None:
        super().__init__(context)
        self._verbs = verbs
        self._most = most
        self._most_at_first = most_at_first
        self._witness = context.open_in_process(plugin=FaultyDisk(context.workspace))
        self._witness.handle.worker.ask("close")
        # How many steps it takes to open a store that exists.
        self._steps_to_reopen = 1

    def positions(self) -> list[tuple[Verb | None, int]]:
        """Steps of each operation, and of the first opening (no verb), in random order."""
        if not self._count_steps("append"):
            raise CaseNotClaimed("no step of an append touches a file")
        at_first = draw_positions(self.context, self._count_first_steps(), self._most_at_first)
        found: list[tuple[Verb | None, int]] = [(None, nth) for nth in at_first]
        for verb in self._verbs:
            # One step more than there are: a kill right after the acknowledgement.
            steps = self._count_steps(verb) + 1
            found += [(verb, nth) for nth in draw_positions(self.context, steps, self._most)]
        self.context.random.shuffle(found)
        return found

    def disturb(self, position: tuple[Verb | None, int]) -> None:
        """Kill a process at a step."""
        verb, nth = position
        if verb is None:
            self._kill_in_first_open(nth)
        else:
            self._kill_in_operation(verb, nth)

    def is_proved(self) -> bool:
        """Whether the kills so far proved a violation."""
        due = self.count % JUDGED_AFTER == 0
        return due and isinstance(judge(self.context.history), Violated)

    def _count_steps(self, verb: Verb) -> int:
        writer, _, call = self._prepare(verb)
        worker = writer.handle.worker
        worker.call_plugin("kill_at_step", 0)
        writer.make(call)
        steps: int = worker.call_plugin("steps")
        worker.kill()
        return steps

    def _count_first_steps(self) -> int:
        folder = self.context.create_sibling_workspace()
        worker = self.start_worker(folder, python=True)
        worker.ask("open", folder, self.context.flavour)
        steps: int = worker.call_plugin("steps")
        worker.kill()
        return steps

    def _prepare(self, verb: Verb) -> tuple[Client, list[Call], Call]:
        """A writer that made the calls which lead to an operation; those calls; the operation."""
        disk = FaultyDisk(self.context.workspace, python=True)
        writer = self.context.open_in_process(plugin=disk)
        self._steps_to_reopen = max(1, writer.handle.worker.call_plugin("steps"))
        *before, call = build_calls(self.context, verb)
        for each in before:
            writer.make(each)
        return writer, before, call

    def _kill_in_operation(self, verb: Verb, nth: int) -> None:
        """Kill a writer at a step of an operation, at the latest when it was acknowledged."""
        writer, before, call = self._prepare(verb)
        writer.handle.worker.call_plugin("kill_at_step", nth)
        began = time.monotonic_ns()
        op = writer.attempt(call)
        writer.handle.worker.kill()
        self.context.record_fault(f"kill -9 in {verb}", began, time.monotonic_ns())
        self.count += 1
        where = f"a kill at step {nth} of {verb}"
        if self.context.random.random() < KILLED_AGAIN:
            again = self.context.random.randint(1, self._steps_to_reopen)
            self._kill_while_opening(self.context.workspace, again)
            where += ", and another one while the store was opened again"
        with self._reopened(self.context.workspace, call.session, where) as witness:
            witness.make(Call(op="read", session=call.session))
            if call.op == "fork" and call.target is not None:
                witness.make(Call(op="read", session=call.target))
            witness.make(build_append(self.context, call.session))
            witness.make(Call(op="read", session=call.session))
            taken = [each.snapshot for each in before if each.op == "snapshot"]
            if call.op == "snapshot" and op.outcome == "ok":
                taken.append(call.snapshot)
            for name in taken if self.context.adapter.claims(["rollback"]) else ():
                witness.make(Call(op="rollback", session=call.session, snapshot=name))
                witness.make(Call(op="read", session=call.session))

    def _kill_in_first_open(self, nth: int) -> None:
        """Kill a process while it opens a store for the first time; the next one must manage."""
        folder, session = self.context.create_sibling_workspace(), self.context.new_session()
        began = time.monotonic_ns()
        self._kill_while_opening(folder, nth)
        self.count += 1
        where = f"a kill at step {nth} of the first opening"
        with self._reopened(folder, session, where) as witness:
            witness.make(build_append(self.context, session))
            witness.make(Call(op="read", session=session))
        self.context.record_fault("kill -9 while it opens", began, time.monotonic_ns())

    def _kill_while_opening(self, folder: Path, nth: int) -> None:
        worker = self.context.start_worker()
        with contextlib.suppress(WorkerLost):
            worker.ask("install_plugin", FaultyDisk(folder, kill_at=nth, python=True))
            worker.ask("open", folder, self.context.flavour)
        worker.kill()

    @contextlib.contextmanager
    def _reopened(self, folder: Path, session: str, where: str) -> Iterator[Client]:
        """The witness with a fresh handle; if that cannot be used, the store failed."""
        worker = self._witness.handle.worker
        try:
            worker.ask("open", folder, self.context.flavour)
            yield self._witness
        except (StoreRaised, Refused) as error:
            self.context.fail(
                "unusable after a kill",
                f"after {where}, a fresh process meets {format_error(error)}",
                session=session,
            )
        finally:
            worker.ask("close")


@dataclass(frozen=True, slots=True)
class PowerCut:
    """What a power cut left behind; `between` happened after an earlier one."""

    image: Image
    between: Sequence[Operation] = ()


class PowerCuts(RecordedPerturbation[PowerCut]):
    """Opens what power cuts left behind, and looks whether everything is there."""

    noun = "power cuts"
    least = 60

    def __init__(self, context: CaseContext, wanted: int) -> None:
        super().__init__(context, record_disk(context))
        self._wanted = wanted
        self._durability = context.adapter.durability
        self._struck: dict[int, Operation] = {}
        self._lost = self._damaged = 0

    def positions(self) -> Iterator[PowerCut]:
        """Power cuts, first those in the recovery from another one: nothing else is like them."""
        drawn = 0
        for image in [*self.recording.build_images(CUT_AGAIN, self.context.random)]:
            for cut in self._cut_recovery(image, self._wanted // 8 // CUT_AGAIN):
                drawn += 1
                yield cut
        rest = self.recording.build_images(self._wanted - drawn, self.context.random)
        yield from map(PowerCut, rest)

    def _cut_recovery(self, image: Image, wanted: int) -> Iterable[PowerCut]:
        """Cut the power again while the store is reopened."""
        program = build_look_back(self.context, self.recording, image.after)
        with restore_image(self.context, self.recording, image) as folder:
            worker = self.context.start_worker()
            try:
                disk = FaultyDisk(folder, remember=True)
                worker.ask("install_plugin", disk)
                log = self._run(worker, folder, program)
                changes = worker.call_plugin("changes")
            except (StoreRaised, Refused):
                # The image itself, or one like it, is looked at later.
                return
            except WorkerLost as error:
                raise CaseUnknown(f"a process was lost after a power cut: {error}") from error
            finally:
                worker.kill()
        second = replace(self.recording, changes=changes, base=image.files)
        # Nobody knows how much of this the second power cut took.
        between = [
            replace(forget_outcome(op), worker="between")
            for op in log.operations
            if op.op != "read"
        ]
        for again in second.build_images(wanted, self.context.random):
            yield PowerCut(replace(again, after=image.after), between)

    def disturb(self, position: PowerCut) -> None:
        """Open what a power cut left behind, and hold the store to what it claims."""
        image = position.image
        self.count += 1
        if op := self.recording.find_running(image.after):
            self._struck[id(op)] = op
        program = build_look_back(self.context, self.recording, image.after)
        with restore_image(self.context, self.recording, image) as folder:
            if self.count % PER_PROCESS == 0:
                self.close()
            try:
                log, why = self._run(self.reopening_worker(folder), folder, program), ""
            except (StoreRaised, Refused) as error:
                log, why = Log(), str(error)
            except WorkerLost as error:
                raise CaseUnknown(f"a process was lost after a power cut: {error}") from error
        self._judge(position, log, why or find_error(log))

    def _run(self, worker: Worker, folder: Path, program: Program) -> Log:
        try:
            return self.open_and_run(worker, folder, program)
        finally:
            worker.ask("close")

    def _judge(self, cut: PowerCut, log: Log, why: str) -> None:
        after = [*cut.between, *log.operations]
        durable = [*self.recording.build_history(cut.image.after, durable=True), *after]
        doubtful = [*self.recording.build_history(cut.image.after, durable=False), *after]
        # A store that keeps what was acknowledged also keeps what is in doubt.
        lost = is_violated(durable)
        if why or (lost and is_violated(doubtful)):
            self._damaged += 1
            if self._durability != "none":
                history = doubtful if self._durability == "process" else durable
                self._fail(cut.image, history, f"the store cannot be used: {why}" if why else "")
        elif lost:
            self._lost += 1
            if self._durability not in ("none", "process"):
                self._fail(cut.image, durable, "")

    def _fail(self, image: Image, history: list[Operation], why: str) -> None:
        op = self.recording.find_running(image.after)
        doing = f"during {op.op} on {op.session}" if op else "between two operations"
        change = self.recording.changes[image.after - 1]
        what = (
            f"a power cut {doing}, after the disk's {change.what} of {change.name or 'a folder'},"
            f" which kept {DAMAGE_MODES[image.mode]} of what was not synced"
        )
        self.context.record_fault("power cut", history[0].invoke_ns if history else 0)
        self.fail_after(history, "damage" if why else "not durable", why, image, what)

    def summarize(self) -> None:
        """Record the faults, and note what a store lost that claims less."""
        for op in self._struck.values():
            self.context.record_fault(f"power cut during {op.op}", op.invoke_ns, op.complete_ns)
        if not self.count or self._durability in ("power", "replicated"):
            return
        seen = f"of {self.count} power cuts, {self._lost} took acknowledged changes with them"
        if self._damaged:
            seen += f" and {self._damaged} left something that cannot be used"
        if self._durability == "none":
            raise CaseNotClaimed(f"the store claims no durability: {seen}")
        self.context.note(seen)
