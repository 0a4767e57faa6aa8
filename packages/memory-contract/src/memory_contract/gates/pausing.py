"""A process that stands still in the middle of a write, and wakes when others have gone on."""

from __future__ import annotations

import time
from typing import Final

from memory_contract.calling import Call
from memory_contract.cases import case
from memory_contract.client import Client
from memory_contract.faults.striking import Paused, Pending, quickest_s, worker_of
from memory_contract.room import Room

PAUSES: Final = 5
# Longer than the short leases that people put on locks; the long ones nobody waits for.
PAUSE_S: Final = 0.8
TAKEOVERS_MAX: Final = 4


@case(
    "crash",
    catches="a writer that slept through its lease and writes over what came since",
    reach="machine",
    modes=("processes",),
)
def paused_writer(room: Room) -> None:
    """Stop a writer in the middle of an append, let another take over, and wake the first."""
    sleeper, other, session = room.elsewhere(), room.elsewhere(), room.session()
    for _ in range(3):
        sleeper.append(session)
        other.append(session)
    took_s = quickest_s(room.history)
    for _ in range(PAUSES):
        asleep = _append(room, sleeper, session)
        time.sleep(room.random.uniform(0.2, 0.8) * took_s)
        with Paused(room, worker_of(sleeper)):
            meanwhile = _takes_over(room, other, session)
        # Who waits for what the sleeper holds has it now.
        for pending in (asleep, meanwhile):
            if pending is not None:
                pending.finish()
        for reader in (sleeper, other):
            reader.attempt(Call(op="read", session=session))
    room.read_afresh([session])


def _append(room: Room, client: Client, session: str) -> Pending:
    return Pending(room, client, Call(op="append", session=session, ids=client.draw()))


def _takes_over(room: Room, other: Client, session: str) -> Pending | None:
    """Append while the other one sleeps; an append that is still waiting at the end is returned."""
    until = time.monotonic() + PAUSE_S
    for _ in range(TAKEOVERS_MAX):
        pending = _append(room, other, session)
        if not worker_of(other).has_answered(max(0.0, until - time.monotonic())):
            return pending
        pending.finish()
    return None
