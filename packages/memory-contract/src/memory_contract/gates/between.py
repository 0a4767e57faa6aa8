"""What cases need that stand between a store and its server: a proxy, and patience afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from memory_contract.calling import Call, said
from memory_contract.client import Client
from memory_contract.faults.proxy import Proxy, ProxyError, Trouble
from memory_contract.gates.locking import Heartbeat
from memory_contract.history import Operation
from memory_contract.room import NotClaimed, Room, Unsure

# The requests of one operation that are struck, one after the other.
REQUESTS_MAX: Final = 12
# How long a store may need to find its server again once nothing is wrong any more.
RECOVERS_S: Final = 20.0
PAUSE_S: Final = 0.02


@contextmanager
def between(room: Room, server: str | None = None) -> Iterator[Proxy]:
    """A proxy before the store's server; at the end nothing is wrong any more."""
    server = server or room.adapter.server
    if server is None:
        raise NotClaimed("the adapter names no server that the kit could stand before")
    try:
        proxy = room.hold(Proxy(server))
    except ProxyError as error:
        raise NotClaimed(str(error)) from error
    try:
        yield proxy
    finally:
        proxy.heal()


def strike(room: Room, proxy: Proxy, trouble: Trouble, act: Callable[[], object]) -> bool:
    """Do something while a trouble waits for it; whether it came about."""
    before = len(proxy.struck)
    proxy.arm(trouble)
    act()
    proxy.heal()
    return tell(room, proxy, before)


def tell(room: Room, proxy: Proxy, before: int = 0) -> bool:
    """Record the troubles that came about since; whether there were any."""
    struck = proxy.struck[before:]
    for trouble, name, began_ns, ended_ns in struck:
        said = f"answer {trouble.reply}" if trouble.reply else trouble.what
        room.struck(f"{said}: {name}", began_ns, ended_ns)
    return bool(struck)


def insist(
    room: Room, client: Client, call_of: Callable[[], Call], *, server: str | None
) -> Operation:
    """Make a call until it succeeds, now that nothing is wrong any more."""
    began = time.monotonic()
    with Heartbeat() as heart:
        while (done := client.attempt(call_of())).outcome != "ok":
            if time.monotonic() - began > RECOVERS_S:
                break
            time.sleep(PAUSE_S)
    if done.outcome != "ok":
        _accuse(room, done, heart, server)
    return done


def _accuse(room: Room, last: Operation, heart: Heartbeat, server: str | None) -> None:
    """Say that a handle is lost, if a new one shows that the server is not to blame."""
    said = f"for {RECOVERS_S:g} s after the trouble was over, every {last.op} failed"
    if heart.late_s > RECOVERS_S / 4:
        raise Unsure(f"the machine itself stood still for {heart.late_s:.1f} s")
    try:
        room.open(server=server).append(room.session())
    except Exception as error:
        raise Unsure(f"{said}, and so it did on a new handle") from error
    room.fail("does not recover", f"{said}; on a new handle all was well", session=last.session)


def read_all(room: Room, sessions: Sequence[str], server: str | None = None) -> None:
    """What a fresh process sees at the end, with nobody in between; it may take a few attempts."""
    reader = room.elsewhere(server=server)
    for session in sessions:
        call = partial(Call, op="read", session=session)
        insist(room, reader, call, server=server)


def appending(room: Room, client: Client, session: str, count: int = 2) -> Callable[[], Call]:
    """Appends of new entries, one for each time that it is asked."""
    size = room.adapter.at_once(count)
    return lambda: Call(op="append", session=session, ids=client.draw(size))


def first_on(room: Room, url: str) -> Client:
    """The first handle on a fresh server; a store that wants more than that says so here."""
    try:
        return room.open(server=url)
    except Exception as error:
        raise NotClaimed(f"it cannot be opened on a server of the kit's: {said(error)}") from error


def begun(room: Room, client: Client, server: str, appends: int = 1) -> str:
    """A session with something in it."""
    session = room.session()
    for _ in range(appends):
        insist(room, client, appending(room, client, session), server=server)
    return session
