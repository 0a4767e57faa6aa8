"""Servers of the kit's own that are killed, frozen and emptied under a store."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from memory_contract.calling import Call, said
from memory_contract.cases import case
from memory_contract.client import Client
from memory_contract.faults.proxy import Proxy, Trouble
from memory_contract.faults.servers.ours import KINDS, POSTGRES, Missing, Ours, ours
from memory_contract.faults.servers.postgres import PostgresServer, with_standby
from memory_contract.faults.servers.process import ServerError
from memory_contract.gates.between import (
    appending,
    begun,
    between,
    first_on,
    insist,
    read_all,
)
from memory_contract.gates.deadlines import in_time, patience_s
from memory_contract.gates.network import programs_of
from memory_contract.history import Operation
from memory_contract.room import NotClaimed, NotRun, Room

# After how many requests a server is struck.
REQUESTS_BEFORE_A_STRIKE: Final = 25


@contextmanager
def _own_server(room: Room) -> Iterator[tuple[Ours, str]]:
    """A server of our own like the store's, and its URL; afterwards it is well again."""
    if not (room.adapter.server or "").startswith(KINDS):
        raise NotClaimed("the store names no server of a kind that the kit has one of")
    assert room.adapter.server is not None
    try:
        server = ours(room.adapter.server)
        url = server.fresh()
    except Missing as error:
        raise NotRun(str(error)) from error
    except ServerError as error:
        raise NotRun(f"a server of the kit's own did not start: {error}") from error
    try:
        yield server, url
    finally:
        server.thaw()


@case(
    "faults",
    catches="what was acknowledged is gone, or there twice, after the server was killed",
    reach="machine",
    modes=("tasks", "processes"),
    overlaps=False,
    tier="server",
)
def server_restart(room: Room) -> None:
    """Kill the server with -9 and start it again while four workers write."""
    _claims_to_survive(room)
    with _own_server(room) as (server, url), between(room, url) as proxy:
        store = first_on(room, proxy.url)
        sessions = [begun(room, store, proxy.url) for _ in range(2)]

        def restart() -> None:
            server.kill()
            server.start()

        with _Striking(room, proxy, "kill -9 of the server", restart) as striking:
            room.race(programs_of(room, sessions, 14), server=proxy.url, ready=striking.begin)
        insist(room, store, appending(room, store, sessions[0]), server=proxy.url)
        read_all(room, sessions, url)


@case(
    "faults",
    catches="a store that stays with a server which is gone, or loses what its standby has",
    reach="machine",
    modes=("processes",),
    overlaps=False,
    tier="server",
)
def server_failover(room: Room) -> None:
    """Kill a PostgreSQL primary under load; its synchronous standby takes over in its place."""
    _claims_to_survive(room)
    if not (room.adapter.server or "").startswith(POSTGRES):
        raise NotClaimed("the kit can start a standby of PostgreSQL alone")
    with _with_standby() as (primary, standby), between(room, primary.url()) as proxy:
        store = first_on(room, proxy.url)
        sessions = [begun(room, store, proxy.url) for _ in range(2)]

        def take_over() -> None:
            primary.kill()
            standby.promote()
            proxy.lead_to(standby.url())
            proxy.cut()

        with _Striking(room, proxy, "failover", take_over) as striking:
            room.race(programs_of(room, sessions, 14), server=proxy.url, ready=striking.begin)
        insist(room, store, appending(room, store, sessions[0]), server=proxy.url)
        read_all(room, sessions, standby.url())


def _claims_to_survive(room: Room) -> None:
    if room.adapter.durability == "none":
        raise NotClaimed("the store does not claim to survive the end of its server")


@contextmanager
def _with_standby() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    folder = Path(tempfile.mkdtemp(prefix="indelible-standby-"))
    # PostgreSQL refuses to be root, and whoever it is then must get in.
    folder.chmod(0o755)
    try:
        primary, standby = with_standby(folder)
        try:
            yield primary, standby
        finally:
            primary.kill()
            standby.kill()
    except ServerError as error:
        raise NotRun(f"servers of the kit's own did not start: {error}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Striking:
    """Does something to the server, once, when some requests passed."""

    def __init__(self, room: Room, proxy: Proxy, name: str, act: Callable[[], None]) -> None:
        self._room = room
        self._proxy = proxy
        self._name = name
        self._act = act
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._strike, daemon=True)
        self._failed: list[BaseException] = []

    def __enter__(self) -> Self:
        return self

    def begin(self) -> None:
        """All handles are open: from now on, requests count."""
        # Held back, the requests of that moment are surely open when the server is struck.
        self._proxy.arm(Trouble("freeze", nth=REQUESTS_BEFORE_A_STRIKE))
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._failed:
            raise NotRun(f"the server did not come back: {self._failed[0]}")

    def _strike(self) -> None:
        while not self._proxy.struck:
            if self._over.wait(0.002):
                return
        began_ns = time.monotonic_ns()
        try:
            self._act()
        except ServerError as error:
            self._failed.append(error)
        else:
            self._room.struck(self._name, began_ns, time.monotonic_ns())
        finally:
            self._proxy.heal()


@case(
    "faults",
    catches="a write that is sent again because its answer is late, and lands twice",
    reach="machine",
    tier="server",
)
def server_frozen(room: Room) -> None:
    """Stop the server during an append and let it go on: the append landed once, or not."""
    with _own_server(room) as (server, url):
        session = begun(room, first_on(room, url), url)
        store = room.elsewhere(server=url, wait_s=patience_s(room))
        store.attempt(Call(op="read", session=session))
        in_time(room, store, session, "the server is stopped", server.freeze)
        server.thaw()
        insist(room, store, appending(room, store, session), server=url)
        read_all(room, [session], url)


@case(
    "faults",
    catches="a store that goes on showing, or adding to, what its server lost",
    reach="machine",
    tier="server",
)
def server_emptied(room: Room) -> None:
    """Empty the server under a store: it shows nothing of before, or raises; new handles work."""
    with _own_server(room) as (server, url):
        store = first_on(room, url)
        session = begun(room, store, url, 3)
        store.attempt(Call(op="read", session=session))
        versioned = room.adapter.claims(["expected"])
        version = store.ask("version", session) if versioned else None
        began_ns = time.monotonic_ns()
        server.empty(url)
        _record_as_cleared(room, session, began_ns)
        if versioned:
            _is_told(room, store, session, version)
        # What the open handle says now is judged: old entries are as wrong as lost new ones.
        for _ in range(2):
            store.attempt(Call(op="read", session=session))
            store.attempt(appending(room, store, session)())
        room.struck("the server was emptied", began_ns, time.monotonic_ns())
        try:
            fresh = room.open(server=url)
        except Exception as error:  # noqa: BLE001 -- whatever a store raises
            room.fail("does not recover", f"a new handle cannot be opened: {said(error)}")
        insist(room, fresh, appending(room, fresh, session), server=url)
        read_all(room, [session], url)


def _is_told(room: Room, store: Client, session: str, version: object) -> None:
    """Whoever answers a conversation that the server lost hears that it is not there any more."""
    call = Call(op="append", session=session, ids=store.draw(), expected=version)
    room.expect(
        store.attempt(call).outcome != "ok",
        "hidden loss",
        f"an append to {session} expected what the server had lost, and was not refused",
        session=session,
    )


def _record_as_cleared(room: Room, session: str, began_ns: int) -> None:
    """To the checker, somebody cleared the session; nobody may show what was there before."""
    emptied = Operation(
        worker="storm",
        session=session,
        op="clear",
        invoke_ns=began_ns,
        complete_ns=time.monotonic_ns(),
        outcome="ok",
    )
    room.record(emptied)
