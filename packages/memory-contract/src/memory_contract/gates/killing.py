"""Processes that end in the middle of something, and those that come after them."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Final, Literal

from memory_contract.adapter import Refused
from memory_contract.calling import Call, said
from memory_contract.cases import case
from memory_contract.client import Client
from memory_contract.drivers.processes import StoreRaised, Worker, WorkerLost
from memory_contract.faults.striking import Pending, kill_9, quickest_s, usual_s, worker_of
from memory_contract.room import Room, Unsure

WRITERS: Final = 3
KILLS: Final = 8
FIRST_OPENS: Final = 5
# How long a store that names no bound may be out of order after somebody died in it. What holds a
# lock for longer by design is not accused: only who cannot be read at all.
RECOVERY_S: Final = 8.0


@case(
    "crash",
    catches="an entry that was acknowledged and dies with its writer, or half of a batch",
    reach="machine",
)
def kill9_under_load(room: Room) -> None:
    """Kill writers in the middle of appends, again and again; who comes after finds all of it."""
    sessions = [room.session(), room.session()]
    writers = [room.elsewhere() for _ in range(WRITERS)]
    for number in range(KILLS):
        victim = number % WRITERS
        # By turns in a crowd, where most of a call is waiting, and alone, where all of it is work.
        at_once = writers if number % 2 else [writers[victim]]
        _round(room, at_once, sessions)
        if not _round(room, at_once, sessions, writers[victim]):
            break
        writers[victim] = reopened(room)
    back_in_order(room, sessions)


def _round(
    room: Room, writers: list[Client], sessions: list[str], victim: Client | None = None
) -> bool:
    """Every writer appends a batch at the same time; the victim does not live to tell.

    Gives whether anyone can still write, as far as is known.
    """
    chance, alone = room.random, len(writers) == 1
    took_s = quickest_s(room.history) if alone else 1.4 * usual_s(room.history[-len(writers) :])
    pending = []
    for writer in writers:
        ids = writer.draw(room.adapter.at_once(chance.choice((1, 2, 3))))
        call = Call(op="append", session=chance.choice(sessions), ids=ids)
        pending.append(Pending(room, writer, call))
    if victim is not None:
        # Before it begins, in the middle of it, or when it has just been answered.
        time.sleep(chance.uniform(0.0, 1.0) * took_s)
        kill_9(room, worker_of(victim))
    done = [begun.finish() for begun in pending]
    return alone or any(op.outcome == "ok" for op in done)


@case(
    "crash",
    catches="a first start that was cut short, and no start ever after",
    reach="machine",
)
def kill9_in_first_open(room: Room) -> None:
    """Kill a process while it opens a store that nobody opened before; the next one can."""
    took_s = _time_to_open(room)
    for _ in range(FIRST_OPENS):
        where, session = room.workspace_beside(), room.session()
        worker = _warm(room)
        dying = Dying(room, worker, where, session)
        time.sleep(room.random.uniform(0.0, 1.1) * took_s)
        kill_9(room, worker)
        dying.finish()
        worker.kill()
        back_in_order(room, [session], where)


class Dying:
    """A process that was told to open a store and to append to it."""

    def __init__(self, room: Room, worker: Worker, where: Path, session: str) -> None:
        client = room.caller_in(worker)
        worker.tell("open", where, room.flavour, None)
        ids = client.draw(room.adapter.at_once(2))
        self._pending = Pending(room, client, Call(op="append", session=session, ids=ids))

    def finish(self) -> None:
        """Record what came of the append, which nobody acknowledged if the store never opened."""
        with contextlib.suppress(Exception):
            # Of a store that could not be opened, the append says the same.
            worker_of(self._pending.client).answer()
        self._pending.finish()


def _warm(room: Room) -> Worker:
    """A process that has imported all that the store needs, and holds nothing open."""
    worker = room.worker()
    worker.ask("open", room.workspace, room.flavour, None)
    worker.ask("close")
    return worker


def _time_to_open(room: Room) -> float:
    worker, where = _warm(room), room.workspace_beside()
    began = time.monotonic()
    worker.ask("open", where, room.flavour, None)
    took_s = time.monotonic() - began
    worker.end()
    return took_s


def reopened(room: Room, where: Path | None = None) -> Client:
    """The store in a fresh process; it may take as long as it says to get over what happened."""
    until = time.monotonic() + _recovery_s(room)
    while True:
        try:
            return room.elsewhere(workspace=where)
        except WorkerLost as lost:
            raise Unsure(f"the store did not open after a kill: {lost}") from lost
        except (StoreRaised, Refused) as error:
            if time.monotonic() > until:
                words = (
                    f"a process was killed, and no other can open the store since: {said(error)}"
                )
                room.fail("unusable after a kill", words)
            time.sleep(0.05)


def back_in_order(room: Room, sessions: list[str], where: Path | None = None) -> None:
    """A fresh process can read all there is, and go on."""
    next_one = reopened(room, where)
    for session in sessions:
        _within(room, next_one, "read", session)
        _within(room, next_one, "append", session)
        _within(room, next_one, "read", session)
    next_one.close()


def _within(room: Room, client: Client, op: Literal["append", "read"], session: str) -> None:
    """Make a call until it is answered."""
    until = time.monotonic() + _recovery_s(room)
    while True:
        # A new entry each time: of one that was not answered nobody knows whether it is there.
        ids = client.draw() if op == "append" else ()
        if client.attempt(Call(op=op, session=session, ids=ids)).outcome == "ok":
            return
        error = room.raised[-1]
        if isinstance(error, WorkerLost):
            raise Unsure(f"{op} after a kill was not answered: {error}")
        if time.monotonic() > until:
            words = f"a process was killed, and {op} raises ever since: {said(error)}"
            # A lock that outlives its holder may have an end that nobody told us.
            if op == "append" and room.adapter.patience_s is None:
                raise Unsure(f"{words}; the store names no bound")
            room.fail("unusable after a kill", words, session=session)
        time.sleep(0.05)


def _recovery_s(room: Room) -> float:
    return room.adapter.patience_s or RECOVERY_S
