"""Power loss: what was acknowledged is there when the power comes back, as far as it is claimed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from memory_contract.adapter import Refused
from memory_contract.calls import Log, Program
from memory_contract.case_context import CaseContext, CaseNotClaimed, CaseUnknown, CaseVacuous
from memory_contract.cases.case import case
from memory_contract.cases.disk_recording import (
    DiskRecording,
    in_doubt,
    laid_down,
    looking_back,
    recorded,
)
from memory_contract.cases.pacing import paced
from memory_contract.checker import judge
from memory_contract.checker.verdict import Violated
from memory_contract.faults.vfs.faulty_disk import FaultyDisk
from memory_contract.faults.vfs.images import DAMAGE_MODES, Image
from memory_contract.history import Operation
from memory_contract.workers.pool import StoreRaised, Worker, WorkerLost

# How many power cuts a check looks at; they are drawn by its seed.
IMAGES: Final = 160
# How many of them are followed by others, while the store finds its way back.
AGAIN: Final = 4
# They take no longer than this, if that is enough for a few.
WITHIN_S: Final = 5.0
LEAST: Final = 40
# A process opens so many stores one after the other, then a fresh one goes on.
PER_PROCESS: Final = 50


@case(
    "crash",
    catches="an acknowledgement before the disk has it: no sync, or a commit that comes later",
    reach="machine",
    modes=("processes",),
)
def power_loss(context: CaseContext) -> None:
    """Cut the power at any moment: what was acknowledged is there when it comes back."""
    cut_power(context, IMAGES, within_s=WITHIN_S)


def cut_power(context: CaseContext, wanted: int, *, within_s: float) -> int:
    """Hold a store to its durability with so many power cuts; how many there were."""
    story = recorded(context)
    finder = _Finder(context, story)
    again = wanted // 8
    try:
        # First those that are cut off again: they are few, and nothing else is like them.
        for image in [*story.images(AGAIN, context.random)]:
            finder.look_at_recovery(image, again // AGAIN)
        count = wanted - finder.looked
        images = story.images(count, context.random)
        finder.look_at(
            paced(context, images, "power cuts", count=count, within_s=within_s, least=LEAST)
        )
    finally:
        finder.close()
    for op in finder.struck.values():
        context.record_fault(f"power cut during {op.op}", op.invoke_ns, op.complete_ns)
    if not finder.looked:
        raise CaseVacuous("nothing was ever at stake")
    finder.tell()
    return finder.looked


class _Finder:
    """Opens what power cuts left behind, and looks whether all is there."""

    def __init__(self, context: CaseContext, story: DiskRecording) -> None:
        self._context = context
        self._story = story
        self.level = context.adapter.durability
        self.struck: dict[int, Operation] = {}
        self.looked = self.lost = self.damaged = 0
        self._worker: Worker | None = None
        self._left = 0

    def look_at(self, images: Iterable[Image], between: Sequence[Operation] = ()) -> None:
        """Open each, and hold the store to what it claims; `between` came after the power cut."""
        for image in images:
            self.looked += 1
            if op := self._story.under_way(image.after):
                self.struck[id(op)] = op
            with laid_down(self._context, self._story, image) as folder:
                self._judge(
                    image,
                    between,
                    *self._found(folder, looking_back(self._context, self._story, image.after)),
                )

    def look_at_recovery(self, image: Image, wanted: int) -> None:
        """Cut the power again while a store finds its way back."""
        with laid_down(self._context, self._story, image) as folder:
            disk = FaultyDisk(folder, remember=True, syncing=False)
            worker = self._context.start_worker()
            try:
                worker.ask("install_plugin", disk)
                log = self._run(
                    worker, folder, looking_back(self._context, self._story, image.after)
                )
                changes = worker.call_plugin("changes")
            except (StoreRaised, Refused):
                # This one has been looked at for itself, or another one like it will be.
                return
            except WorkerLost as error:
                raise CaseUnknown(f"a process was lost after a power cut: {error}") from error
            finally:
                worker.kill()
        second = replace(self._story, changes=changes, base=image.files)
        # Of what was done in between, nobody knows how much the second power cut took.
        between = [
            replace(in_doubt(op), worker="between") for op in log.operations if op.op != "read"
        ]
        images = second.images(wanted, self._context.random)
        self.look_at((replace(again, after=image.after) for again in images), between)

    def close(self) -> None:
        """Let the last process go."""
        if self._worker is not None:
            self._worker.kill()

    def tell(self) -> None:
        """Say what was seen of a store that claims less."""
        if self.level in ("power", "replicated"):
            return
        seen = f"of {self.looked} power cuts, {self.lost} took acknowledged changes with them"
        if self.damaged:
            seen += f" and {self.damaged} left something that cannot be used"
        if self.level == "none":
            raise CaseNotClaimed(f"the store claims no durability: {seen}")
        self._context.note(seen)

    def _found(self, folder: Path, program: Program) -> tuple[Log | None, str]:
        """What a fresh handle found; or why there is none."""
        if self._left == 0:
            self.close()
            self._worker = self._context.start_worker()
            self._worker.ask("install_plugin", FaultyDisk(folder, syncing=False))
            self._left = PER_PROCESS
        self._left -= 1
        assert self._worker is not None
        try:
            return self._run(self._worker, folder, program), ""
        except (StoreRaised, Refused) as error:
            return None, str(error)
        except WorkerLost as error:
            raise CaseUnknown(f"a process was lost after a power cut: {error}") from error

    def _run(self, worker: Worker, folder: Path, program: Program) -> Log:
        worker.ask("open", folder, self._context.flavour)
        try:
            log: Log = worker.ask("run", program, self._context.names, 0)
        finally:
            worker.ask("close")
        return log

    def _judge(self, image: Image, between: Sequence[Operation], log: Log | None, why: str) -> None:
        after = log.operations if log is not None else []
        sure = [*self._story.history(image.after, sure=True), *between, *after]
        unsure = [*self._story.history(image.after, sure=False), *between, *after]
        if log is not None:
            raised = [words for at, words, _ in log.errors if after[at].op != "rollback"]
            why = raised[0] if raised else ""
        # Whoever keeps what is sure keeps more than what is in doubt asks for.
        short = _violated(sure)
        if why or (short and _violated(unsure)):
            self.damaged += 1
            if self.level != "none":
                held = sure if self.level != "process" else unsure
                self._fail(image, held, f"the store cannot be used: {why}" if why else "")
        elif short:
            self.lost += 1
            if self.level not in ("none", "process"):
                self._fail(image, sure, "")

    def _fail(self, image: Image, history: list[Operation], why: str) -> None:
        op = self._story.under_way(image.after)
        doing = f"during {op.op} on {op.session}" if op else "between two operations"
        change = self._story.changes[image.after - 1]
        proof = (
            f"a power cut {doing}, after the disk's {change.what} of {change.name or 'a folder'}"
            f" (change {image.after} of {len(self._story.changes)}), which kept"
            f" {DAMAGE_MODES[image.manner]} of what was not synced"
        )
        self._context.record_fault("power cut", history[0].invoke_ns if history else 0)
        self._context.history[:] = history
        self._context.fail("damage" if why else "not durable", f"{why or 'seen'} after {proof}")


def _violated(history: list[Operation]) -> bool:
    return isinstance(judge(history, search_steps=0), Violated)
