"""What the spawned processes do. Each gets a way to open a store and a path, and no open store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Final, NamedTuple

from examples.demo.conversation import Line, Turn, make_conversation
from examples.demo.sides import REFUSALS, Memory, Transcript

# Eight interpreters start on perhaps one core: generous, since the wait ends when they are there.
START_TIMEOUT_S: Final = 60.0
SNAPSHOTS: Final = 3
TURNS_PER_SNAPSHOT: Final = 4
# If nobody kills the endless writer, it ends by itself.
ENDLESS_TURNS: Final = 5000


class Talked(NamedTuple):
    """What one process was told about its turns."""

    acknowledged: list[Turn]
    refused: list[Turn]


class Taken(NamedTuple):
    """A snapshot, and what the session showed when it was taken."""

    snapshot_id: str
    lines: list[Line]


class Seen(NamedTuple):
    """The snapshots that a process found, and what each rollback that it tried showed."""

    left: list[str]
    states: list[list[Line] | None]


def talk(
    start: Barrier, opener: Callable[[Path], Transcript], path: Path, turns: list[Turn]
) -> Talked:
    """Save one's turns as fast as possible, beginning together with all the others."""
    talked = Talked([], [])
    with closing(opener(path)) as memory:
        start.wait(START_TIMEOUT_S)
        for turn in turns:
            try:
                memory.save_turn(turn)
            except REFUSALS:
                talked.refused.append(turn)
            else:
                talked.acknowledged.append(turn)
    return talked


def take_snapshots(opener: Callable[[Path], Memory], path: Path) -> list[Taken]:
    """Process A: talk a little, take a snapshot, and again."""
    taken = []
    with closing(opener(path)) as memory:
        for n in range(1, SNAPSHOTS + 1):
            for turn in make_conversation(speaker=n, turns=TURNS_PER_SNAPSHOT):
                memory.save_turn(turn)
            taken.append(Taken(memory.save_snapshot(f"checkpoint {n}"), memory.lines()))
    return taken


def err_and_roll_back(
    opener: Callable[[Path], Memory], path: Path, snapshot_id: str
) -> list[Line] | None:
    """Process B: let the agent call a tool that it should not have called, and take that back."""
    with closing(opener(path)) as memory:
        memory.save_call("refund", "every order")
        return _roll_back(memory, snapshot_id)


def look_back(opener: Callable[[Path], Memory], path: Path, snapshot_ids: list[str]) -> Seen:
    """Process C: list the snapshots that are left, and go to one after the other."""
    with closing(opener(path)) as memory:
        left = memory.snapshots()
        return Seen(left, [_roll_back(memory, snapshot_id) for snapshot_id in snapshot_ids])


def _roll_back(memory: Memory, snapshot_id: str) -> list[Line] | None:
    """What the session shows after a rollback; None if the store cannot do it any more."""
    try:
        memory.rollback(snapshot_id)
    except REFUSALS:
        return None
    return memory.lines()


def talk_until_killed(opener: Callable[[Path], Transcript], path: Path) -> Iterator[Turn]:
    """Save turn after turn, and acknowledge each one only after the store did."""
    with closing(opener(path)) as memory:
        for turn in make_conversation(speaker=1, turns=ENDLESS_TURNS):
            memory.save_turn(turn)
            yield turn
