"""Records what a store does to its disk, so that it can be disturbed after any change.

A recording has every operation that the store claims, and every change to its files with the bytes
written. From that, the files after a kill or a power cut at any moment can be built.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NoReturn

from memory_contract.calls import Call, Program
from memory_contract.case_context import CaseContext, CaseNotClaimed, CaseNotRun
from memory_contract.cases.locks import SQLITE
from memory_contract.cases.workload import build_append, build_calls, list_changes
from memory_contract.faults.vfs.disk import Change
from memory_contract.faults.vfs.faulty_disk import FaultyDisk
from memory_contract.faults.vfs.images import (
    Files,
    Image,
    build_final_files,
    build_images,
    read_files,
    write_files,
)
from memory_contract.history import Operation
from memory_contract.workers.pool import Worker

# Appends before and after everything else: a log that grows, and is moved into its file.
APPENDS: Final = 6


@dataclass(frozen=True, slots=True)
class RecordedOp:
    """An operation, and how many changes the disk had seen before and after it."""

    op: Operation
    began: int
    ended: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskRecording:
    """All operations of a store, and all that they did to its disk."""

    context: CaseContext
    ops: tuple[RecordedOp, ...]
    changes: Sequence[Change]
    # What is there beside the files of SQLite, and what was there before.
    others: Files
    base: Files = field(default_factory=dict)

    def build_images(self, wanted: int) -> Iterator[Image]:
        """Power cuts in it; no two leave the same after the same operations."""
        return build_images(
            self.changes,
            wanted=wanted,
            random=self.context.random,
            base=self.base,
            stage=lambda after: sum(recorded.ended <= after for recorded in self.ops),
        )

    def find_running(self, after: int) -> Operation | None:
        """The operation in progress after so many changes."""
        return next((each.op for each in self.ops if each.began < after < each.ended), None)

    def build_history(self, after: int, *, durable: bool) -> list[Operation]:
        """What had been done by then. Unless it is `durable`, its outcome is unknown."""
        return [
            each.op if each.ended <= after and durable else forget_outcome(each.op)
            for each in self.ops
            if each.began < after or (each.ended <= after and durable)
        ]

    def fail(
        self, history: Sequence[Operation], name: str, why: str, image: Image, what: str
    ) -> NoReturn:
        """Accuse the store, with the history that proves it."""
        place = f"change {image.after} of {len(self.changes)}"
        self.context.history[:] = history
        self.context.fail(name, f"{why or 'seen'} after {what} ({place})")

    @contextmanager
    def restore(self, image: Image) -> Iterator[Path]:
        """A workspace with the files of an image."""
        with restore_files(self.context, self.others | image.files) as folder:
            yield folder

    def build_look_back(self, after: int) -> Program:
        """Read everything that was begun by then, return to every snapshot, and go on."""
        done = [recorded.op for recorded in self.ops if recorded.began < after]
        sessions = dict.fromkeys(name for op in done for name in (op.session, op.target) if name)
        calls = [Call(op="read", session=session) for session in sessions]
        for each in self.ops:
            session, snapshot = each.op.session, each.op.snapshot
            taken = each.op.op == "snapshot" and each.ended <= after
            if taken and self.context.claims("rollback"):
                calls.append(Call(op="rollback", session=session, snapshot=snapshot))
                calls.append(Call(op="read", session=session))
        for session in [*list(sessions)[:1], self.context.new_session()]:
            calls.append(build_append(self.context, session))
            calls.append(Call(op="read", session=session))
        return Program("after", tuple(calls))


@contextmanager
def restore_files(context: CaseContext, files: Files) -> Iterator[Path]:
    """A workspace with these files."""
    folder = context.create_sibling_workspace()
    try:
        write_files(files, folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def forget_outcome(op: Operation) -> Operation:
    """The operation without its outcome and its value."""
    return replace(op, outcome="info", complete_ns=None, value=None)


def record_disk(context: CaseContext) -> DiskRecording:
    """Let a store do everything that it claims, from its first opening on."""
    client = context.open_in_process(plugin=FaultyDisk(context.workspace, remember=True))
    worker = client.worker
    ops: list[RecordedOp] = []
    session = context.new_session()
    appends = [build_append(context, session, 1 + n % 3) for n in range(2 * APPENDS)]
    verbs = [call for verb in list_changes(context) for call in build_calls(context, verb)]
    for calls in (appends[:APPENDS], verbs, appends[APPENDS:]):
        for call in calls:
            began = worker.call_plugin("length")
            op = client.make(call)
            ops.append(RecordedOp(op, began, worker.call_plugin("length")))
        # Closing moves a log into its file, opening looks for one.
        worker.ask("close")
        worker.ask("open", context.workspace, context.flavour)
    changes, others = stop_recording(context, worker)
    return DiskRecording(context=context, ops=tuple(ops), changes=changes, others=others)


def stop_recording(context: CaseContext, worker: Worker) -> tuple[Sequence[Change], Files]:
    """The recorded changes, and files that are not of SQLite; the process is killed.

    A store that writes data to other files cannot be judged.
    """
    changes: Sequence[Change] = worker.call_plugin("changes")
    missing = worker.call_plugin("missing")
    there = read_files(context.workspace)
    worker.kill()
    if not changes:
        if missing and any(data.startswith(SQLITE) for data in there.values()):
            raise CaseNotRun(f"power loss on the standard library's SQLite: {missing}")
        raise CaseNotClaimed("the store keeps no SQLite file in its workspace")
    known = build_final_files(changes, {})
    for name, data in there.items():
        if data and known.get(name) != data:
            file = Path(name).name
            raise CaseNotClaimed(f"the store writes {file} in ways that the kit cannot see")
    return changes, {name: data for name, data in there.items() if name not in known}
