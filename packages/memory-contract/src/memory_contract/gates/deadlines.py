"""Servers that are not there or do not answer: whoever asks them hears of it in time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from memory_contract.adapter import Refused
from memory_contract.calling import Call
from memory_contract.cases import case
from memory_contract.client import Client
from memory_contract.drivers.processes import StoreRaised, WorkerLost
from memory_contract.faults.proxy import Proxy
from memory_contract.gates.between import appending, begun, between, insist, read_all
from memory_contract.gates.locking import UNDECLARED_S, Heartbeat
from memory_contract.room import NotClaimed, Room, Unsure

# Of what the store may take: so late, and the machine is as much to blame as the store.
_LATE: Final = 0.25


def patience_s(room: Room) -> float:
    """How long an operation may take; of who names no bound, how long it is watched."""
    return room.adapter.patience_s or UNDECLARED_S


@case(
    "faults",
    catches="a store that waits for ever for a server that is not there, or never looks again",
    reach="machine",
)
def refused_connection(room: Room) -> None:
    """Refuse every connection: an append ends in time, and works again when the server is back."""
    with between(room) as proxy:
        store = room.elsewhere(server=proxy.url, wait_s=patience_s(room))
        session = begun(room, store, proxy.url)
        in_time(room, store, session, "refuse connections", proxy.down)
        proxy.heal()
        _goes_on(room, store, session, proxy)


@case(
    "faults",
    catches="a call without a deadline: a silent server holds the agent for ever",
    reach="machine",
)
def slow_server_deadline(room: Room) -> None:
    """Answer nothing, on connections that stay open: an append ends in time all the same."""
    with between(room) as proxy:
        store = room.elsewhere(server=proxy.url, wait_s=patience_s(room))
        session = begun(room, store, proxy.url)
        in_time(room, store, session, "answer nobody", proxy.freeze)
        proxy.heal()
        _goes_on(room, store, session, proxy)


def _goes_on(room: Room, store: Client, session: str, proxy: Proxy) -> None:
    insist(room, store, appending(room, store, session), server=proxy.url)
    store.attempt(Call(op="read", session=session))
    read_all(room, [session])


def in_time(
    room: Room, store: Client, session: str, trouble: str, begin: Callable[[], None]
) -> None:
    """Begin a trouble and append: that must end within what the store says it takes."""
    bound_s, began_ns = patience_s(room), time.monotonic_ns()
    begin()
    with Heartbeat() as heart:
        ended = _ends(store, session)
    room.struck(trouble, began_ns, time.monotonic_ns())
    if ended:
        return
    if heart.late_s > bound_s * _LATE:
        raise Unsure(f"the machine itself stood still for {heart.late_s:.1f} s")
    if room.adapter.patience_s is None:
        raise NotClaimed(f"it waits for a server longer than {bound_s:g} s and names no bound")
    room.fail(
        "unbounded wait",
        f"an append to {session} was still waiting for the server after {bound_s:g} s",
        session=session,
    )


def _ends(store: Client, session: str) -> bool:
    """Whether the append comes back at all; how is its own affair."""
    try:
        store.append(session)
    except WorkerLost:
        return False
    except (StoreRaised, Refused):
        return True
    return True
