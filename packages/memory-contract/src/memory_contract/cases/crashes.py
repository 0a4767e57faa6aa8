"""kill -9 at every step to a file, and power loss at every change to a disk."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from memory_contract.adapter import Refused
from memory_contract.calls import Call, Log, Program
from memory_contract.case_context import (
    CaseContext,
    CaseNotClaimed,
    CaseUnknown,
    CaseVacuous,
    Client,
)
from memory_contract.cases.case import case
from memory_contract.cases.disk_recording import forget_outcome, record_disk
from memory_contract.cases.perturbation import (
    Perturbation,
    draw_positions,
    find_error,
    is_violated,
)
from memory_contract.cases.workload import Verb, build_append, build_calls, list_changes
from memory_contract.faults.vfs.faulty_disk import FaultyDisk
from memory_contract.faults.vfs.images import DAMAGE_MODES, Image
from memory_contract.history import Operation
from memory_contract.workers.pool import StoreRaised, WorkerLost

# How many kills a check makes in each operation, and while a store is first opened.
KILLS: Final = 5
KILLS_IN_FIRST_OPEN: Final = 12
KILLS_S: Final = 6.0
# The share of kills that are followed by another one in the process that opens the store next.
KILLED_AGAIN: Final = 0.25
# How many power cuts a check makes, and how many of them are followed by others in recovery.
POWER_CUTS: Final = 160
UNCLAIMED_CUTS: Final = 40
CUT_AGAIN: Final = 4
POWER_CUTS_S: Final = 5.0


@case(
    "crash",
    catches="a torn write: a file truncated before it is written, or an early acknowledgement",
    modes=("processes",),
)
def kill_at_every_step(context: CaseContext) -> None:
    """Kill a writer at each step to its files: acknowledged entries stay, batches are whole."""
    Kills(context, list_changes(context), KILLS, KILLS_IN_FIRST_OPEN).run(within_s=KILLS_S)


@case(
    "crash",
    catches="an acknowledgement before the disk has it: no sync, or a commit that comes later",
    modes=("processes",),
)
def power_loss(context: CaseContext) -> None:
    """Cut the power at any moment: what was acknowledged is there when it comes back."""
    # A store that claims nothing cannot fail; it is only told what it would lose.
    wanted = POWER_CUTS if context.adapter.durability != "none" else UNCLAIMED_CUTS
    PowerCuts(context, wanted).run(within_s=POWER_CUTS_S)


class Kills(Perturbation[tuple[Verb | None, int]]):
    """Kills writers at steps of operations, and processes that first open a store."""

    noun = "kills"
    least = 45

    def __init__(
        self, context: CaseContext, verbs: Sequence[Verb], most: int, most_at_first: int
    ) -> None:
        super().__init__(context)
        self._verbs = verbs
        self._most = most
        self._most_at_first = most_at_first
        # How many steps it takes to open a store that exists.
        self._steps_to_reopen = 1

    def list_positions(self) -> list[tuple[Verb | None, int]]:
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

    def _count_steps(self, verb: Verb) -> int:
        writer, _, call = self._prepare(verb)
        writer.worker.call_plugin("kill_at_step", 0)
        writer.make(call)
        steps: int = writer.worker.call_plugin("steps")
        writer.worker.kill()
        return steps

    def _count_first_steps(self) -> int:
        folder = self.context.create_sibling_workspace()
        worker = self.start_worker(FaultyDisk(folder, python=True))
        worker.ask("open", folder, self.context.flavour)
        steps: int = worker.call_plugin("steps")
        worker.kill()
        return steps

    def _prepare(self, verb: Verb) -> tuple[Client, list[Call], Call]:
        """A writer that made the calls which lead to an operation; those calls; the operation."""
        disk = FaultyDisk(self.context.workspace, python=True)
        writer = self.context.open_in_process(plugin=disk)
        self._steps_to_reopen = max(1, writer.worker.call_plugin("steps"))
        *before, call = build_calls(self.context, verb)
        for each in before:
            writer.make(each)
        return writer, before, call

    def disturb(self, position: tuple[Verb | None, int]) -> None:
        """Kill a process at a step, at the latest when the operation was acknowledged."""
        verb, nth = position
        if verb is None:
            folder, session = self.context.create_sibling_workspace(), self.context.new_session()
            with self.context.fault("kill -9 while it opens"):
                self._kill_while_opening(folder, nth)
                where = f"a kill at step {nth} of the first opening"
                self._expect_usable(folder, where, self._build_look_back(session))
            return
        writer, before, call = self._prepare(verb)
        writer.worker.call_plugin("kill_at_step", nth)
        with self.context.fault(f"kill -9 in {verb}"):
            op = writer.attempt(call)
            writer.worker.kill()
        where = f"a kill at step {nth} of {verb}"
        if self.context.random.random() < KILLED_AGAIN:
            again = self.context.random.randint(1, self._steps_to_reopen)
            self._kill_while_opening(self.context.workspace, again)
            where += ", and another one while the store was opened again"
        taken = [each.snapshot for each in before if each.op == "snapshot"]
        if call.op == "snapshot" and op.outcome == "ok":
            taken.append(call.snapshot)
        forks = [call.target] if call.target is not None else []
        looks = [
            *(Call(op="read", session=session) for session in (call.session, *forks)),
            *self._build_look_back(call.session),
        ]
        for name in taken if self.context.claims("rollback") else ():
            looks.append(Call(op="rollback", session=call.session, snapshot=name))
            looks.append(Call(op="read", session=call.session))
        self._expect_usable(self.context.workspace, where, looks)

    def _kill_while_opening(self, folder: Path, nth: int) -> None:
        worker = self.context.start_worker()
        with contextlib.suppress(WorkerLost):
            worker.ask("install_plugin", FaultyDisk(folder, kill_at=nth, python=True))
            worker.ask("open", folder, self.context.flavour)
        worker.kill()

    def _build_look_back(self, session: str) -> list[Call]:
        return [build_append(self.context, session), Call(op="read", session=session)]

    def _expect_usable(self, folder: Path, where: str, calls: Sequence[Call]) -> None:
        """Expect that a fresh process can use the store; the checker judges what it saw."""
        self.count += 1
        log = self.reopen(folder, Program("after", tuple(calls)))
        self.context.add_log(log)
        touched = {call.session for call in calls}
        self.is_over = is_violated([op for op in self.context.history if op.session in touched])
        if log.errors:
            proof = f"after {where}, a fresh process meets {log.errors[0][1]}"
            self.context.fail("unusable after a kill", proof, session=calls[0].session)


@dataclass(frozen=True, slots=True)
class PowerCut:
    """What a power cut left behind; `between` happened after an earlier one."""

    image: Image
    between: Sequence[Operation] = ()


class PowerCuts(Perturbation[PowerCut]):
    """Opens what power cuts left behind, and looks whether everything is there."""

    noun = "power cuts"
    least = 60

    def __init__(self, context: CaseContext, wanted: int) -> None:
        super().__init__(context)
        self._recording = record_disk(context)
        self._wanted = wanted
        self._durability = context.adapter.durability
        self._struck: dict[int, Operation] = {}
        self._lost = self._damaged = 0

    def list_positions(self) -> Iterator[PowerCut]:
        """Power cuts, first those in the recovery from another one: nothing else is like them."""
        drawn = 0
        for image in [*self._recording.build_images(CUT_AGAIN)]:
            for cut in self._cut_recovery(image, self._wanted // 8 // CUT_AGAIN):
                drawn += 1
                yield cut
        yield from map(PowerCut, self._recording.build_images(self._wanted - drawn))

    def _cut_recovery(self, image: Image, wanted: int) -> Iterable[PowerCut]:
        """Cut the power again while the store is reopened."""
        program = self._recording.build_look_back(image.after)
        with self._recording.restore(image) as folder:
            worker = self.start_worker(FaultyDisk(folder, remember=True))
            try:
                log = self.open_and_run(worker, folder, program)
                changes = worker.call_plugin("changes")
            except (StoreRaised, Refused):
                # The image itself, or one like it, is looked at later.
                return
            except WorkerLost as error:
                raise CaseUnknown(f"a process was lost after a power cut: {error}") from error
            finally:
                worker.kill()
        second = replace(self._recording, changes=changes, base=image.files)
        # The second power cut may have taken any part of this.
        between = [
            replace(forget_outcome(op), worker="between")
            for op in log.operations
            if op.op != "read"
        ]
        for again in second.build_images(wanted):
            yield PowerCut(replace(again, after=image.after), between)

    def disturb(self, position: PowerCut) -> None:
        """Open what a power cut left behind, and hold the store to what it claims."""
        image = position.image
        self.count += 1
        if op := self._recording.find_running(image.after):
            self._struck[id(op)] = op
        with self._recording.restore(image) as folder:
            log = self.reopen(folder, self._recording.build_look_back(image.after))
        self._judge(position, log)

    def _judge(self, cut: PowerCut, log: Log) -> None:
        after, raised = [*cut.between, *log.operations], find_error(log)
        why = f"the store cannot be used: {raised}" if raised else ""
        durable, doubtful = (
            [*self._recording.build_history(cut.image.after, durable=each), *after]
            for each in (True, False)
        )
        # A store that keeps what was acknowledged also keeps what is in doubt.
        lost = is_violated(durable)
        if why or (lost and is_violated(doubtful)):
            self._damaged += 1
            if self._durability != "none":
                self._fail(cut.image, doubtful if self._durability == "process" else durable, why)
        elif lost:
            self._lost += 1
            if self._durability not in ("none", "process"):
                self._fail(cut.image, durable, "")

    def _fail(self, image: Image, history: list[Operation], why: str) -> None:
        op = self._recording.find_running(image.after)
        doing = f"during {op.op} on {op.session}" if op else "between two operations"
        change = self._recording.changes[image.after - 1]
        what = (
            f"power cut {doing}, after the disk's {change.what} of {change.name or 'a folder'},"
            f" which kept {DAMAGE_MODES[image.mode]} of what was not synced"
        )
        self.context.record_fault(what, history[0].invoke_ns if history else 0)
        self._recording.fail(history, "damage" if why else "not durable", why, image, f"a {what}")

    def summarize(self) -> None:
        """Record the faults, and note what a store lost that claims less."""
        if not self.count:
            raise CaseVacuous("nothing was ever at stake")
        for op in self._struck.values():
            self.context.record_fault(f"power cut during {op.op}", op.invoke_ns, op.complete_ns)
        if self._durability in ("power", "replicated"):
            return
        seen = f"of {self.count} power cuts, {self._lost} took acknowledged changes with them"
        if self._damaged:
            seen += f" and {self._damaged} left something that cannot be used"
        if self._durability == "none":
            raise CaseNotClaimed(f"the store claims no durability: {seen}")
        self.context.note(seen)
