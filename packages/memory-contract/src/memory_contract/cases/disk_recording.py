"""Records what a store does to its disk, so that it can be disturbed after any change.

A recording has every operation that the store claims, and every change to its files with the bytes
written. From that, the files after a kill or a power cut at any moment can be built.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final

from memory_contract.calls import Call, Program
from memory_contract.case_context import CaseContext, CaseNotClaimed, CaseNotRun, Client
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

    ops: tuple[RecordedOp, ...]
    changes: tuple[Change, ...]
    # What was there before, and what is there beside the files of SQLite.
    base: Files
    others: Files

    def count_acknowledged(self, after: int) -> int:
        """How many operations were over when the disk had seen so many changes."""
        return sum(recorded.ended <= after for recorded in self.ops)

    def build_images(self, wanted: int, random: Random) -> Iterator[Image]:
        """Power cuts in it."""
        return build_images(
            self.changes,
            wanted=wanted,
            random=random,
            base=self.base,
            stage=self.count_acknowledged,
        )

    def find_running(self, after: int) -> Operation | None:
        """The operation in progress after so many changes."""
        return next((each.op for each in self.ops if each.began < after < each.ended), None)

    def build_history(self, after: int, *, durable: bool) -> list[Operation]:
        """What had been done by then. Unless it is `durable`, its outcome is unknown."""
        found = []
        for recorded in self.ops:
            if recorded.ended <= after and durable:
                found.append(recorded.op)
            elif recorded.began < after:
                found.append(forget_outcome(recorded.op))
        return found


def forget_outcome(op: Operation) -> Operation:
    """An operation whose outcome, and what it saw, nobody knows."""
    return replace(op, outcome="info", complete_ns=None, value=None)


def record_disk(context: CaseContext) -> DiskRecording:
    """Let a store do everything that it claims, from its first opening on."""
    disk = FaultyDisk(context.workspace, remember=True)
    client = context.open_in_process(plugin=disk)
    worker = client.handle.worker
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
    changes: list[Change] = worker.call_plugin("changes")
    others = _find_other_files(context, client, changes)
    worker.kill()
    return DiskRecording(ops=tuple(ops), changes=tuple(changes), base={}, others=others)


def _find_other_files(context: CaseContext, client: Client, changes: Sequence[Change]) -> Files:
    """Files that were not recorded. A store that writes data to them cannot be judged."""
    there = read_files(context.workspace)
    if not changes:
        missing = client.handle.worker.call_plugin("missing")
        if missing and any(data.startswith(SQLITE) for data in there.values()):
            raise CaseNotRun(f"power loss on the standard library's SQLite: {missing}")
        raise CaseNotClaimed("the store keeps no SQLite file in its workspace")
    known = build_final_files(changes, {})
    for name, data in there.items():
        if data and known.get(name) != data:
            file = Path(name).name
            raise CaseNotClaimed(f"the store writes {file} in ways that the kit cannot see")
    return {name: data for name, data in there.items() if name not in known}


@contextmanager
def restore_image(context: CaseContext, recording: DiskRecording, image: Image) -> Iterator[Path]:
    """A workspace with the files of an image."""
    folder = context.create_sibling_workspace()
    try:
        write_files(recording.others | image.files, folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def build_look_back(context: CaseContext, recording: DiskRecording, after: int) -> Program:
    """Read everything that was begun by then, return to every snapshot, and go on."""
    done = [recorded.op for recorded in recording.ops if recorded.began < after]
    sessions = dict.fromkeys(name for op in done for name in (op.session, op.target) if name)
    calls = [Call(op="read", session=session) for session in sessions]
    for recorded in recording.ops:
        op = recorded.op
        taken = op.op == "snapshot" and recorded.ended <= after
        if taken and context.adapter.claims(["rollback"]):
            calls.append(Call(op="rollback", session=op.session, snapshot=op.snapshot))
            calls.append(Call(op="read", session=op.session))
    for session in [*list(sessions)[:1], context.new_session()]:
        calls.append(build_append(context, session))
        calls.append(Call(op="read", session=session))
    return Program("after", tuple(calls))
