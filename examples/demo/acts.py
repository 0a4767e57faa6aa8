"""The three acts: each plays one side in real processes and counts what is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from examples.demo import workers
from examples.demo.conversation import (
    Line,
    Turn,
    are_positions_dense,
    find_whole_turns,
    make_conversation,
)
from examples.demo.processes import ask, ask_all, kill_after, make_barrier
from examples.demo.sides import Memory, Transcript

PROCESSES: Final = 8
# Turns of each process: the first number at which the naive store loses something is shown.
TURNS_TRIED: Final = (20, 40, 80)
# Acknowledgements before each kill, from a short history to a longer one.
KILLED_AFTER: Final = (20, 40, 60, 80, 100)


@dataclass(frozen=True, kw_only=True, slots=True)
class Crowd:
    """Act 1, one side: many processes wrote to one session at once."""

    turns_each: int
    acknowledged: int
    refused: int
    found: int
    lost: int
    torn: int

    @property
    def held(self) -> bool:
        """All that was acknowledged is there, once; what was refused with an error may be."""
        at_most = self.acknowledged + self.refused
        whole = self.lost == 0 and self.torn == 0
        return whole and 0 < self.acknowledged <= self.found <= at_most


def run_crowd(
    opener: Callable[[Path], Transcript],
    folder: Path,
    *,
    turns_each: int,
    processes: int = PROCESSES,
) -> Crowd:
    """Processes add to one session, beginning together."""
    path = folder / f"crowd-{turns_each}"
    opener(path).close()
    parts = [make_conversation(speaker=n, turns=turns_each) for n in range(1, processes + 1)]
    start = make_barrier(processes)
    talked = ask_all(workers.talk, [(start, opener, path, part) for part in parts])
    with closing(opener(path)) as memory:
        found, torn = find_whole_turns(memory.lines(), [turn for part in parts for turn in part])
    acknowledged = {turn for one in talked for turn in one.acknowledged}
    return Crowd(
        turns_each=turns_each,
        acknowledged=len(acknowledged),
        refused=sum(len(one.refused) for one in talked),
        found=len(found),
        lost=len(acknowledged.difference(found)),
        torn=torn,
    )


def run_crowd_until_lost(opener: Callable[[Path], Transcript], folder: Path) -> Crowd:
    """A race needs no luck to be there, only to be seen: try with more turns, a few times."""
    for turns_each in TURNS_TRIED:
        result = run_crowd(opener, folder, turns_each=turns_each)
        if result.lost:
            break
    return result


class State(StrEnum):
    """How what a rollback shows compares with what its snapshot saw."""

    EXACT = "exact"
    DIFFERENT = "different"
    IMPOSSIBLE = "impossible"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollback:
    """Act 2, one side: three processes, one after the other, and a rollback in each but one."""

    taken: int
    after_mistake: State
    left: int
    back: State
    forward: State

    @property
    def held(self) -> bool:
        """Every snapshot outlived every rollback, and every rollback was exact."""
        exact = {self.after_mistake, self.back, self.forward} == {State.EXACT}
        return exact and self.left == self.taken


def run_rollback(opener: Callable[[Path], Memory], folder: Path) -> Rollback:
    """A takes snapshots and exits, B errs and rolls back, C looks what is left of them."""
    path = folder / "rollback"
    taken = ask(workers.take_snapshots, opener, path)
    first, last = taken[0], taken[-1]
    after_mistake = ask(workers.err_and_roll_back, opener, path, last.snapshot_id)
    seen = ask(workers.look_back, opener, path, [first.snapshot_id, last.snapshot_id])
    back, forward = seen.states
    return Rollback(
        taken=len(taken),
        after_mistake=_compare(after_mistake, last.lines),
        left=len({one.snapshot_id for one in taken}.intersection(seen.left)),
        back=_compare(back, first.lines),
        forward=_compare(forward, last.lines),
    )


def _compare(shown: list[Line] | None, expected: list[Line]) -> State:
    if shown is None:
        return State.IMPOSSIBLE
    return State.EXACT if shown == expected else State.DIFFERENT


@dataclass(frozen=True, kw_only=True, slots=True)
class Kill:
    """Act 3, one side, one kill: what was there when the file was opened again."""

    acknowledged: int
    found: int
    lost: int
    torn: int
    dense: bool
    unreadable: str | None = None

    @property
    def held(self) -> bool:
        """All that was acknowledged is there, whole; the turn under way may be there or not."""
        whole = self.torn == 0 and self.dense and self.unreadable is None
        return whole and self.lost == 0 and self.found <= self.acknowledged + 1


def run_kill(opener: Callable[[Path], Transcript], folder: Path, *, after: int) -> Kill:
    """Kill a writer after some acknowledgements, in whatever it is doing then, and reopen."""
    path = folder / f"kill-{after}"
    acknowledged = kill_after(after, workers.talk_until_killed, opener, path)
    return reopen(opener, path, acknowledged)


def reopen(opener: Callable[[Path], Transcript], path: Path, acknowledged: Sequence[Turn]) -> Kill:
    """What is there of the turns that were acknowledged, and of the one that was under way."""
    said = make_conversation(speaker=1, turns=len(acknowledged) + 1)
    try:
        with closing(opener(path)) as memory:
            lines = memory.lines()
    # Whatever keeps the file from being read is the finding.
    except Exception as error:  # noqa: BLE001
        return Kill(
            acknowledged=len(acknowledged),
            found=0,
            lost=len(acknowledged),
            torn=0,
            dense=False,
            unreadable=type(error).__name__,
        )
    found, torn = find_whole_turns(lines, said)
    return Kill(
        acknowledged=len(acknowledged),
        found=len(found),
        lost=len(set(acknowledged).difference(found)),
        torn=torn,
        dense=are_positions_dense(lines),
    )


@dataclass(frozen=True, slots=True)
class Kills:
    """Act 3, one side, all kills."""

    each: tuple[Kill, ...]

    @property
    def held(self) -> bool:
        """Every kill left everything."""
        return all(one.held for one in self.each)

    @property
    def acknowledged(self) -> int:
        """Turns acknowledged before the kills."""
        return sum(one.acknowledged for one in self.each)

    @property
    def found(self) -> int:
        """Whole turns found after them."""
        return sum(one.found for one in self.each)

    @property
    def lost(self) -> int:
        """Turns acknowledged and not found."""
        return sum(one.lost for one in self.each)

    @property
    def torn(self) -> int:
        """Lines that belong to no whole turn."""
        return sum(one.torn for one in self.each)

    @property
    def unreadable(self) -> int:
        """Kills after which the file could not be read."""
        return sum(one.unreadable is not None for one in self.each)


def run_kills(opener: Callable[[Path], Transcript], folder: Path) -> Kills:
    """The same number of kills for each side, and all of them are shown."""
    return Kills(tuple(run_kill(opener, folder, after=after) for after in KILLED_AFTER))
