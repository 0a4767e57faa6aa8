"""Servers of the kit that are killed, frozen, emptied or replaced."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from memory_contract.calls import Call, build_success, format_error
from memory_contract.case_context import CaseContext, CaseNotClaimed, CaseNotRun, Client
from memory_contract.cases.case import case
from memory_contract.cases.concurrency import build_writers
from memory_contract.cases.locks import expect_append_in_time, get_patience_s
from memory_contract.cases.proxied_store import (
    append_until_ok,
    in_background,
    insert_proxy,
    read_everything,
    start_session,
)
from memory_contract.cases.workload import build_append
from memory_contract.faults.proxy import Proxy, ProxyFault
from memory_contract.faults.servers.managed import (
    KINDS,
    POSTGRES,
    ServerMissing,
    start_managed,
)
from memory_contract.faults.servers.postgres import PostgresServer, start_with_standby
from memory_contract.faults.servers.process import ServerError
from memory_contract.faults.servers.valkey import ValkeyServer

# After how many requests a server is struck.
REQUESTS_BEFORE_A_STRIKE: Final = 25


@contextmanager
def _report_missing_servers() -> Iterator[None]:
    """A server that this machine does not have, or that does not start, is no verdict."""
    try:
        yield
    except ServerMissing as error:
        raise CaseNotRun(str(error)) from error
    except ServerError as error:
        raise CaseNotRun(f"a server of the kit's own did not start: {error}") from error


def _get_server_url(context: CaseContext) -> str:
    url = context.adapter.server or ""
    if not url.startswith(KINDS):
        raise CaseNotClaimed("the store names no server of a kind that the kit has one of")
    return url


@contextmanager
def _use_managed_server(
    context: CaseContext,
) -> Iterator[tuple[ValkeyServer | PostgresServer, str]]:
    """A server of the kit like the store's, and its URL; afterwards it runs again."""
    url = _get_server_url(context)
    with _report_missing_servers():
        server = start_managed(url)
        fresh = server.fresh_url()
    try:
        yield server, fresh
    finally:
        server.thaw()


@case(
    "faults",
    catches="what was acknowledged is gone, or there twice, after the server was killed",
    modes=("tasks", "processes"),
    overlaps=False,
    durable=True,
    tier="server",
)
def server_restart(context: CaseContext) -> None:
    """Kill the server with -9 and start it again while four workers write."""
    with _use_managed_server(context) as (server, url), insert_proxy(context, url) as proxy:

        def restart() -> None:
            server.kill()
            server.start()

        _strike_under_load(context, proxy, url, "kill -9 of the server", restart)


@case(
    "faults",
    catches="a store that stays with a server which is gone, or loses what its standby has",
    modes=("processes",),
    overlaps=False,
    durable=True,
    tier="server",
)
def server_failover(context: CaseContext) -> None:
    """Kill a PostgreSQL primary under load; its synchronous standby takes over in its place."""
    if not (context.adapter.server or "").startswith(POSTGRES):
        raise CaseNotClaimed("the kit can start a standby of PostgreSQL alone")
    with _start_with_standby() as (primary, standby), insert_proxy(context, primary.url()) as proxy:

        def take_over() -> None:
            primary.kill()
            standby.promote()
            proxy.lead_to(standby.url())
            proxy.cut()

        _strike_under_load(context, proxy, standby.url(), "failover", take_over)


def _strike_under_load(
    context: CaseContext, proxy: Proxy, url: str, name: str, act: Callable[[], None]
) -> None:
    """Act on the server while four workers write; then read everything where it is, at `url`."""
    store = _open_first(context, proxy.url)
    sessions = [start_session(store, proxy.url) for _ in range(2)]
    with _strike_once(context, proxy, name, act) as begin:
        programs = build_writers(context, 4, sessions, 14)
        context.race(programs, server=proxy.url, ready=begin)
    append_until_ok(store, sessions[0], proxy.url)
    read_everything(context, sessions, url)


def _open_first(context: CaseContext, url: str) -> Client:
    """Open the first handle on a fresh server."""
    try:
        return context.open(server=url)
    except Exception as error:
        why = f"it cannot be opened on a server of the kit: {format_error(error)}"
        raise CaseNotClaimed(why) from error


@contextmanager
def _start_with_standby() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    folder = Path(tempfile.mkdtemp(prefix="indelible-standby-"))
    # PostgreSQL refuses to be root; its user must be able to enter.
    folder.chmod(0o755)
    try:
        with _report_missing_servers():
            primary, standby = start_with_standby(folder)
        try:
            yield primary, standby
        finally:
            primary.kill()
            standby.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _strike_once(
    context: CaseContext, proxy: Proxy, name: str, act: Callable[[], None]
) -> Iterator[Callable[[], None]]:
    """Act on the server once, after some requests; the yielded function starts counting."""
    failed: list[ServerError] = []

    def arm() -> None:
        # Requests of that moment are held back, so that they are open when the server is struck.
        proxy.arm(ProxyFault("freeze", nth=REQUESTS_BEFORE_A_STRIKE))

    def strike(over: threading.Event) -> None:
        while not proxy.struck:
            if over.wait(0.002):
                return
        try:
            with context.fault(name):
                act()
        except ServerError as error:
            failed.append(error)
        finally:
            proxy.heal()

    try:
        with in_background(arm, strike) as begin:
            yield begin
    finally:
        if failed:
            raise CaseNotRun(f"the server did not come back: {failed[0]}")


@case(
    "faults",
    catches="a write that is sent again because its reply is late, and is stored twice",
    tier="server",
)
def server_frozen(context: CaseContext) -> None:
    """Stop the server during an append and let it go on: the append is stored once, or not."""
    with _use_managed_server(context) as (server, url):
        session = start_session(_open_first(context, url), url)
        store = context.open_in_process(server=url, wait_s=get_patience_s(context))
        store.attempt(Call(op="read", session=session))
        with context.fault("the server is stopped"):
            server.freeze()
            expect_append_in_time(store, session, "the server")
        server.thaw()
        append_until_ok(store, session, url)
        read_everything(context, [session], url)


@case(
    "faults",
    catches="a store that goes on showing, or adding to, what its server lost",
    tier="server",
)
def server_emptied(context: CaseContext) -> None:
    """Empty the server under a store: it shows nothing of before, or raises; new handles work."""
    with _use_managed_server(context) as (server, url):
        store = _open_first(context, url)
        session = start_session(store, url, 3)
        store.attempt(Call(op="read", session=session))
        version = store.ask("version", session) if context.claims("expected") else None
        began_ns = time.monotonic_ns()
        server.empty(url)
        # As a clear, so that the checker accepts no older entries.
        cleared = Call(op="clear", session=session)
        context.record(build_success("storm", cleared, began_ns, None, {}))
        if version is not None:
            call = Call(op="append", session=session, ids=store.draw(), expected=version)
            refused = store.attempt(call).outcome != "ok"
            proof = f"an append to {session} expected what the server had lost, and was not refused"
            context.expect(refused, "hidden loss", proof, session=session)
        # The answers of the open handle are judged: neither old entries nor lost new ones.
        for _ in range(2):
            store.attempt(Call(op="read", session=session))
            store.attempt(build_append(context, session, 2))
        context.record_fault("the server was emptied", began_ns, time.monotonic_ns())
        try:
            fresh = context.open(server=url)
        except Exception as error:  # noqa: BLE001 -- whatever a store raises
            proof = f"a new handle cannot be opened: {format_error(error)}"
            context.fail("does not recover", proof)
        append_until_ok(fresh, session, url)
        read_everything(context, [session], url)
