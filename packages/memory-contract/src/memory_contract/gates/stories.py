"""A store at work on a disk that remembers: what was done, and how far the disk was by then."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final

from memory_contract.calling import Call, Program
from memory_contract.client import Client
from memory_contract.faults.vfs.disk import Change
from memory_contract.faults.vfs.equipment import BadDisk
from memory_contract.faults.vfs.images import (
    Files,
    Image,
    files_of,
    images,
    in_the_end,
    lay_down,
)
from memory_contract.gates.locking import SQLITE
from memory_contract.gates.verbs import append, calls_of, changing
from memory_contract.history import Operation
from memory_contract.room import NotClaimed, NotRun, Room

# Appends before and after everything else: a log that grows, and is moved into its file.
APPENDS: Final = 6


@dataclass(frozen=True, slots=True)
class Deed:
    """An operation, and how many changes the disk had seen when it began and when it was over."""

    op: Operation
    began: int
    ended: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """All deeds of a store, and all that they did to its disk."""

    deeds: tuple[Deed, ...]
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


def recorded(room: Room) -> Story:
    """Let a store do all that it claims, from its first opening on, on a disk that remembers."""
    disk = BadDisk(room.workspace, remember=True, syncing=False)
    client = room.elsewhere(equipment=disk)
    worker = client.handle.worker
    deeds: list[Deed] = []
    for chapter in _chapters(room):
        for call in chapter:
            began = worker.gear("length")
            op = client.make(call)
            deeds.append(Deed(op, began, worker.gear("length")))
        # Whoever closes a store moves a log into its file; whoever opens it looks for one.
        worker.ask("close")
        worker.ask("open", room.workspace, room.flavour)
    changes: list[Change] = worker.gear("changes")
    beside = _beside(room, client, changes)
    worker.kill()
    return Story(deeds=tuple(deeds), changes=tuple(changes), base={}, beside=beside)


def _chapters(room: Room) -> Iterator[Sequence[Call]]:
    session = room.session()
    yield [append(room, session, 1 + n % 3) for n in range(APPENDS)]
    yield [call for verb in changing(room) for call in calls_of(room, verb)]
    yield [append(room, session, 1 + n % 3) for n in range(APPENDS)]


def _beside(room: Room, client: Client, changes: Sequence[Change]) -> Files:
    """What else is in the workspace; a store that keeps something there is not for this."""
    there = files_of(room.workspace)
    if not changes:
        missing = client.handle.worker.gear("missing")
        if missing and any(data.startswith(SQLITE) for data in there.values()):
            raise NotRun(f"power loss on the standard library's SQLite: {missing}")
        raise NotClaimed("the store keeps no SQLite file in its workspace")
    known = in_the_end(changes, {})
    for name, data in there.items():
        if data and known.get(name) != data:
            raise NotClaimed(f"the store writes {Path(name).name} in ways that the kit cannot see")
    return {name: data for name, data in there.items() if name not in known}


@contextmanager
def laid_down(room: Room, story: Story, image: Image) -> Iterator[Path]:
    """A workspace as a bad moment left it, for as long as it is looked at."""
    folder = room.workspace_beside()
    try:
        lay_down(story.beside | image.files, folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def looking_back(room: Room, story: Story, after: int) -> Program:
    """Read everything that was begun by then, return to every snapshot, and go on."""
    done = [deed.op for deed in story.deeds if deed.began < after]
    sessions = dict.fromkeys(name for op in done for name in (op.session, op.target) if name)
    calls = [Call(op="read", session=session) for session in sessions]
    for deed in story.deeds:
        if deed.op.op == "snapshot" and deed.ended <= after:
            session = deed.op.session
            if room.adapter.claims(["rollback"]):
                calls.append(Call(op="rollback", session=session, snapshot=deed.op.snapshot))
                calls.append(Call(op="read", session=session))
    for session in [*list(sessions)[:1], room.session()]:
        calls.append(append(room, session))
        calls.append(Call(op="read", session=session))
    return Program("after", tuple(calls))
