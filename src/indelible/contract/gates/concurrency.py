"""Many threads, tasks and processes at once. The checker judges what they recorded."""

from __future__ import annotations

from indelible.contract.calling import Call, Program
from indelible.contract.cases import case
from indelible.contract.room import Room


@case("concurrency", catches="read-modify-write: the second writer erases the first one's turn")
def append_storm(room: Room) -> None:
    """Four writers append to shared sessions while they read them."""
    room.open()
    sessions = [room.session() for _ in range(2)]
    room.race([writer(room, f"w{number}", sessions, 16) for number in range(4)])
    room.read_afresh(sessions)


def writer(room: Room, worker: str, sessions: list[str], appends: int, batch: int = 1) -> Program:
    """Appends to sessions in turn by chance, with a read after each few."""
    ids, calls = room.ids(worker), []
    for _ in range(appends):
        session = room.random.choice(sessions)
        drawn = ids.draw(batch, pairs=room.adapter.pairs)
        calls.append(Call(op="append", session=session, ids=drawn))
        if room.random.random() < 0.4:
            calls.append(Call(op="read", session=session))
    calls.append(Call(op="read", session=sessions[0]))
    return Program(worker, tuple(calls))
