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

from memory_contract.calls import Call, format_error
from memory_contract.case_context import CaseContext, CaseNotClaimed, CaseNotRun
from memory_contract.cases.case import case
from memory_contract.cases.deadlines import in_time, patience_s
from memory_contract.cases.network import programs_of
from memory_contract.cases.proxied_store import (
    appending,
    begun,
    between,
    first_on,
    insist,
    read_all,
)
from memory_contract.client import Client
from memory_contract.faults.proxy import Proxy, ProxyFault
from memory_contract.faults.servers.managed import KINDS, POSTGRES, Missing, Ours, ours
from memory_contract.faults.servers.postgres import PostgresServer, with_standby
from memory_contract.faults.servers.process import ServerError
from memory_contract.history import Operation

# After how many requests a server is struck.
REQUESTS_BEFORE_A_STRIKE: Final = 25


@contextmanager
def _own_server(context: CaseContext) -> Iterator[tuple[Ours, str]]:
    """A server of our own like the store's, and its URL; afterwards it is well again."""
    if not (context.adapter.server or "").startswith(KINDS):
        raise CaseNotClaimed("the store names no server of a kind that the kit has one of")
    assert context.adapter.server is not None
    try:
        server = ours(context.adapter.server)
        url = server.fresh()
    except Missing as error:
        raise CaseNotRun(str(error)) from error
    except ServerError as error:
        raise CaseNotRun(f"a server of the kit's own did not start: {error}") from error
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
def server_restart(context: CaseContext) -> None:
    """Kill the server with -9 and start it again while four workers write."""
    _claims_to_survive(context)
    with _own_server(context) as (server, url), between(context, url) as proxy:
        store = first_on(context, proxy.url)
        sessions = [begun(context, store, proxy.url) for _ in range(2)]

        def restart() -> None:
            server.kill()
            server.start()

        with _Striking(context, proxy, "kill -9 of the server", restart) as striking:
            context.race(programs_of(context, sessions, 14), server=proxy.url, ready=striking.begin)
        insist(context, store, appending(context, store, sessions[0]), server=proxy.url)
        read_all(context, sessions, url)


@case(
    "faults",
    catches="a store that stays with a server which is gone, or loses what its standby has",
    reach="machine",
    modes=("processes",),
    overlaps=False,
    tier="server",
)
def server_failover(context: CaseContext) -> None:
    """Kill a PostgreSQL primary under load; its synchronous standby takes over in its place."""
    _claims_to_survive(context)
    if not (context.adapter.server or "").startswith(POSTGRES):
        raise CaseNotClaimed("the kit can start a standby of PostgreSQL alone")
    with _with_standby() as (primary, standby), between(context, primary.url()) as proxy:
        store = first_on(context, proxy.url)
        sessions = [begun(context, store, proxy.url) for _ in range(2)]

        def take_over() -> None:
            primary.kill()
            standby.promote()
            proxy.lead_to(standby.url())
            proxy.cut()

        with _Striking(context, proxy, "failover", take_over) as striking:
            context.race(programs_of(context, sessions, 14), server=proxy.url, ready=striking.begin)
        insist(context, store, appending(context, store, sessions[0]), server=proxy.url)
        read_all(context, sessions, standby.url())


def _claims_to_survive(context: CaseContext) -> None:
    if context.adapter.durability == "none":
        raise CaseNotClaimed("the store does not claim to survive the end of its server")


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
        raise CaseNotRun(f"servers of the kit's own did not start: {error}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Striking:
    """Does something to the server, once, when some requests passed."""

    def __init__(
        self, context: CaseContext, proxy: Proxy, name: str, act: Callable[[], None]
    ) -> None:
        self._context = context
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
        self._proxy.arm(ProxyFault("freeze", nth=REQUESTS_BEFORE_A_STRIKE))
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._failed:
            raise CaseNotRun(f"the server did not come back: {self._failed[0]}")

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
            self._context.record_fault(self._name, began_ns, time.monotonic_ns())
        finally:
            self._proxy.heal()


@case(
    "faults",
    catches="a write that is sent again because its answer is late, and lands twice",
    reach="machine",
    tier="server",
)
def server_frozen(context: CaseContext) -> None:
    """Stop the server during an append and let it go on: the append landed once, or not."""
    with _own_server(context) as (server, url):
        session = begun(context, first_on(context, url), url)
        store = context.open_in_process(server=url, wait_s=patience_s(context))
        store.attempt(Call(op="read", session=session))
        in_time(context, store, session, "the server is stopped", server.freeze)
        server.thaw()
        insist(context, store, appending(context, store, session), server=url)
        read_all(context, [session], url)


@case(
    "faults",
    catches="a store that goes on showing, or adding to, what its server lost",
    reach="machine",
    tier="server",
)
def server_emptied(context: CaseContext) -> None:
    """Empty the server under a store: it shows nothing of before, or raises; new handles work."""
    with _own_server(context) as (server, url):
        store = first_on(context, url)
        session = begun(context, store, url, 3)
        store.attempt(Call(op="read", session=session))
        versioned = context.adapter.claims(["expected"])
        version = store.ask("version", session) if versioned else None
        began_ns = time.monotonic_ns()
        server.empty(url)
        _record_as_cleared(context, session, began_ns)
        if versioned:
            _is_told(context, store, session, version)
        # What the open handle says now is judged: old entries are as wrong as lost new ones.
        for _ in range(2):
            store.attempt(Call(op="read", session=session))
            store.attempt(appending(context, store, session)())
        context.record_fault("the server was emptied", began_ns, time.monotonic_ns())
        try:
            fresh = context.open(server=url)
        except Exception as error:  # noqa: BLE001 -- whatever a store raises
            context.fail(
                "does not recover", f"a new handle cannot be opened: {format_error(error)}"
            )
        insist(context, fresh, appending(context, fresh, session), server=url)
        read_all(context, [session], url)


def _is_told(context: CaseContext, store: Client, session: str, version: object) -> None:
    """Whoever answers a conversation that the server lost hears that it is not there any more."""
    call = Call(op="append", session=session, ids=store.draw(), expected=version)
    context.expect(
        store.attempt(call).outcome != "ok",
        "hidden loss",
        f"an append to {session} expected what the server had lost, and was not refused",
        session=session,
    )


def _record_as_cleared(context: CaseContext, session: str, began_ns: int) -> None:
    """To the checker, somebody cleared the session; nobody may show what was there before."""
    emptied = Operation(
        worker="storm",
        session=session,
        op="clear",
        invoke_ns=began_ns,
        complete_ns=time.monotonic_ns(),
        outcome="ok",
    )
    context.record(emptied)
