"""A store at work on a disk that remembers: what was done, and how far the disk was by then."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final

from memory_contract.calls import Call, Program
from memory_contract.case_context import CaseContext, CaseNotClaimed, CaseNotRun
from memory_contract.cases.lock_bounds import SQLITE
from memory_contract.cases.verbs import append, calls_of, changing
from memory_contract.client import Client
from memory_contract.faults.vfs.disk import Change
from memory_contract.faults.vfs.faulty_disk import FaultyDisk
from memory_contract.faults.vfs.images import (
    Files,
    Image,
    build_final_files,
    files_of,
    images,
    write_files,
)
from memory_contract.history import Operation

# Appends before and after everything else: a log that grows, and is moved into its file.
APPENDS: Final = 6


@dataclass(frozen=True, slots=True)
class RecordedOp:
    """An operation, and how many changes the disk had seen when it began and when it was over."""

    op: Operation
    began: int
    ended: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskRecording:
    """All deeds of a store, and all that they did to its disk."""

    deeds: tuple[RecordedOp, ...]
    changes: tuple[Change, ...]
    # What was there before, and what is there beside the files of SQLite.
    base: Files
    beside: Files

    def acknowledged(self, after: int) -> int:
        """How many deeds were over when the disk had seen so many changes."""
        return sum(deed.ended <= after for deed in self.deeds)

    def images(self, wanted: int, random: Random) -> Iterator[Image]:
        """Power cuts in it."""
        return images(
            self.changes, wanted=wanted, random=random, base=self.base, stage=self.acknowledged
        )

    def under_way(self, after: int) -> Operation | None:
        """What the store was doing then."""
        return next((d.op for d in self.deeds if d.began < after < d.ended), None)

    def history(self, after: int, *, sure: bool) -> list[Operation]:
        """What had been done by then. If it is not `sure` to last, nobody knows what came of it."""
        found = []
        for deed in self.deeds:
            if deed.ended <= after and sure:
                found.append(deed.op)
            elif deed.began < after:
                found.append(in_doubt(deed.op))
        return found


def in_doubt(op: Operation) -> Operation:
    """An operation of which nobody knows what came, nor what it saw."""
    return replace(op, outcome="info", complete_ns=None, value=None)


def recorded(context: CaseContext) -> DiskRecording:
    """Let a store do all that it claims, from its first opening on, on a disk that remembers."""
    disk = FaultyDisk(context.workspace, remember=True, syncing=False)
    client = context.open_in_process(plugin=disk)
    worker = client.handle.worker
    deeds: list[RecordedOp] = []
    for chapter in _chapters(context):
        for call in chapter:
            began = worker.call_plugin("length")
            op = client.make(call)
            deeds.append(RecordedOp(op, began, worker.call_plugin("length")))
        # Whoever closes a store moves a log into its file; whoever opens it looks for one.
        worker.ask("close")
        worker.ask("open", context.workspace, context.flavour)
    changes: list[Change] = worker.call_plugin("changes")
    beside = _beside(context, client, changes)
    worker.kill()
    return DiskRecording(deeds=tuple(deeds), changes=tuple(changes), base={}, beside=beside)


def _chapters(context: CaseContext) -> Iterator[Sequence[Call]]:
    session = context.new_session()
    yield [append(context, session, 1 + n % 3) for n in range(APPENDS)]
    yield [call for verb in changing(context) for call in calls_of(context, verb)]
    yield [append(context, session, 1 + n % 3) for n in range(APPENDS)]


def _beside(context: CaseContext, client: Client, changes: Sequence[Change]) -> Files:
    """What else is in the workspace; a store that keeps something there is not for this."""
    there = files_of(context.workspace)
    if not changes:
        missing = client.handle.worker.call_plugin("missing")
        if missing and any(data.startswith(SQLITE) for data in there.values()):
            raise CaseNotRun(f"power loss on the standard library's SQLite: {missing}")
        raise CaseNotClaimed("the store keeps no SQLite file in its workspace")
    known = build_final_files(changes, {})
    for name, data in there.items():
        if data and known.get(name) != data:
            raise CaseNotClaimed(
                f"the store writes {Path(name).name} in ways that the kit cannot see"
            )
    return {name: data for name, data in there.items() if name not in known}


@contextmanager
def laid_down(context: CaseContext, story: DiskRecording, image: Image) -> Iterator[Path]:
    """A workspace as a bad moment left it, for as long as it is looked at."""
    folder = context.create_sibling_workspace()
    try:
        write_files(story.beside | image.files, folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def looking_back(context: CaseContext, story: DiskRecording, after: int) -> Program:
    """Read everything that was begun by then, return to every snapshot, and go on."""
    done = [deed.op for deed in story.deeds if deed.began < after]
    sessions = dict.fromkeys(name for op in done for name in (op.session, op.target) if name)
    calls = [Call(op="read", session=session) for session in sessions]
    for deed in story.deeds:
        if deed.op.op == "snapshot" and deed.ended <= after:
            session = deed.op.session
            if context.adapter.claims(["rollback"]):
                calls.append(Call(op="rollback", session=session, snapshot=deed.op.snapshot))
                calls.append(Call(op="read", session=session))
    for session in [*list(sessions)[:1], context.new_session()]:
        calls.append(append(context, session))
        calls.append(Call(op="read", session=session))
    return Program("after", tuple(calls))
