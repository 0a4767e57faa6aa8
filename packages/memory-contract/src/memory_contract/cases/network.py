"""Faults between a store and its server: lost replies, cut connections, refusals, silence."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Final

from memory_contract.calls import Call
from memory_contract.case_context import CaseContext, CaseNotClaimed, Client
from memory_contract.cases.case import case
from memory_contract.cases.concurrency import build_writers
from memory_contract.cases.locks import expect_append_in_time, get_patience_s
from memory_contract.cases.proxied_store import (
    CUTS,
    REQUESTS_MAX,
    append_until_ok,
    call_with_fault,
    in_background,
    insert_proxy,
    read_everything,
    record_proxy_faults,
    retry_until_ok,
    start_session,
)
from memory_contract.cases.workload import Verb, build_append, build_calls, list_changes, pace
from memory_contract.faults.proxy import Proxy, ProxyFault
from memory_contract.faults.proxy.fault_queue import CONNECT, What
from memory_contract.gates import MANY_WORKERS

# Error replies of a server that executed nothing.
REFUSALS: Final = {
    "redis": ("READONLY", "LOADING", "NOSCRIPT", "MOVED", "MISCONF", "CLUSTERDOWN"),
    "postgresql": ("40001", "40P01", "53100", "57P01", "25006"),
}
DISK_FULL: Final = {"redis": "MISCONF", "postgresql": "53100"}
# How many requests of one change are struck.
SAMPLED: Final = 4
# How often every connection is cut, and after how many requests each time.
CUTS_MAX: Final = 5
REQUESTS_BETWEEN_CUTS: Final = 12
FLAPS: Final[tuple[What, ...]] = ("cut before", "cut before", "cut after", "cut midway", "slice")


@case("faults", catches="a retry after a lost reply that stores a message twice")
def reply_lost(context: CaseContext) -> None:
    """Lose the reply to each request of an append; a retry with its key stores it once."""
    with insert_proxy(context) as proxy:
        store, keyed = context.open(server=proxy.url), context.claims("keys")
        sessions = []
        for what, appends in product(CUTS, (0, 1)):
            for nth in range(1, REQUESTS_MAX + 1):
                session = start_session(store, proxy.url, appends)
                sessions.append(session)
                call = build_append(context, session, 2)
                if keyed:
                    call = replace(call, key=f"{what} {nth}")
                struck = call_with_fault(proxy, ProxyFault(what, nth=nth), store, call)
                if keyed and context.history[-1].outcome != "ok":
                    retry_until_ok(store, call, server=proxy.url)
                store.attempt(Call(op="read", session=session))
                if not struck:
                    break
        read_everything(context, sessions)


@case(
    "faults",
    catches="an error that says that nothing was written, although it was",
)
def error_but_applied_is_marked(context: CaseContext) -> None:
    """Lose the reply to each request of every change; what is reported as not done was not done."""
    with insert_proxy(context) as proxy:
        store, sessions = context.open(server=proxy.url), []
        for verb in pace(context, list_changes(context), "changes", within_s=8.0):
            call = _lead_to(store, verb, proxy.url)
            before = proxy.passed
            store.attempt(call)
            requests = max(1, proxy.passed - before)
            drawn = context.random.sample(range(1, requests + 1), min(requests, SAMPLED))
            # The last request, which commits, is among them.
            for nth in sorted({*drawn, requests}):
                call = _lead_to(store, verb, proxy.url)
                sessions += [name for name in (call.session, call.target) if name]
                call_with_fault(proxy, ProxyFault("cut after", nth=nth), store, call)
                store.attempt(Call(op="read", session=call.session))
        read_everything(context, sessions)


def _lead_to(store: Client, verb: Verb, server: str) -> Call:
    """Make the calls that lead to an operation, and return the operation."""
    *before, call = build_calls(store.context, verb)
    for each in before:
        retry_until_ok(store, each, server=server)
    return call


@case(
    "faults",
    catches="an append that is acknowledged although the server was out of memory",
)
def oom_reply(context: CaseContext) -> None:
    """Refuse each request of an append as a server without memory does, until there is some."""
    with insert_proxy(context) as proxy:
        if _get_scheme(proxy) != "redis":
            raise CaseNotClaimed("only Redis refuses writes for want of memory")
        _refuse_requests(context, proxy, ("OOM",), times=0)


@case(
    "faults",
    catches="an append that is acknowledged although the server's disk was full",
)
def server_disk_full(context: CaseContext) -> None:
    """Refuse each request of an append as a server with a full disk does, until there is room."""
    with insert_proxy(context) as proxy:
        _refuse_requests(context, proxy, (DISK_FULL[_get_scheme(proxy)],), times=0)


@case(
    "faults",
    catches="a refusal of the server that is taken for success, or retried in part",
)
def injected_replies(context: CaseContext) -> None:
    """Refuse each request of an append once: as a replica, while starting, for a full disk, ..."""
    with insert_proxy(context) as proxy:
        _refuse_requests(context, proxy, REFUSALS[_get_scheme(proxy)], times=1)


def _get_scheme(proxy: Proxy) -> str:
    return "redis" if proxy.url.startswith("redis") else "postgresql"


def _refuse_requests(
    context: CaseContext, proxy: Proxy, replies: Sequence[str], *, times: int
) -> None:
    store, sessions = context.open(server=proxy.url), []
    for reply in pace(context, replies, "refusals", within_s=8.0):
        for nth in range(1, REQUESTS_MAX + 1):
            session = start_session(store, proxy.url)
            sessions.append(session)
            fault = ProxyFault("answer", nth=nth, times=times, reply=reply)
            if not call_with_fault(proxy, fault, store, build_append(context, session, 2)):
                break
            store.attempt(Call(op="read", session=session))
            append_until_ok(store, session, proxy.url)
    read_everything(context, sessions)


@case(
    "faults",
    catches="writes that are lost, doubled or torn when connections come and go",
    modes=MANY_WORKERS,
    overlaps=False,
)
def connection_flap(context: CaseContext) -> None:
    """Cut every connection again and again, before and after requests, while four workers write."""
    with insert_proxy(context) as proxy:
        store = context.open(server=proxy.url)
        sessions = [start_session(store, proxy.url) for _ in range(2)]
        chance = context.random
        faults = [
            ProxyFault(chance.choice(FLAPS), nth=1 + 4 * place + chance.randrange(4))
            for place in range(14)
        ]

        def cut_again_and_again(over: threading.Event) -> None:
            seen, cuts = proxy.passed, 0
            while cuts < CUTS_MAX and not over.wait(0.002):
                if proxy.passed < seen + REQUESTS_BETWEEN_CUTS:
                    continue
                with context.fault("cut all connections"):
                    # The first new connections are cut as well. Refusing all of them for a moment
                    # would be enough for a quick store to fail in all that it has to do.
                    proxy.arm(ProxyFault("cut before", CONNECT, times=2))
                    proxy.cut()
                seen, cuts = proxy.passed, cuts + 1

        programs = build_writers(context, 4, sessions, 12, batch=2)
        with in_background(lambda: proxy.arm(*faults), cut_again_and_again) as begin:
            context.race(programs, server=proxy.url, ready=begin)
        proxy.heal()
        record_proxy_faults(context, proxy)
        read_everything(context, sessions)


@case(
    "faults",
    catches="a call that never ends while the server is away, or a store that never reconnects",
)
def refused_connection(context: CaseContext) -> None:
    """Refuse every connection: an append ends in time, and works again when the server is back."""
    _check_deadline(context, "refuse connections", Proxy.down)


@case(
    "faults",
    catches="a call without a deadline: a silent server blocks the agent forever",
)
def slow_server_deadline(context: CaseContext) -> None:
    """Answer nothing on open connections: an append still ends in time."""
    _check_deadline(context, "answer nobody", Proxy.freeze)


def _check_deadline(context: CaseContext, fault: str, begin: Callable[[Proxy], None]) -> None:
    with insert_proxy(context) as proxy:
        store = context.open_in_process(server=proxy.url, wait_s=get_patience_s(context))
        session = start_session(store, proxy.url)
        with context.fault(fault):
            begin(proxy)
            expect_append_in_time(store, session, "the server")
        proxy.heal()
        append_until_ok(store, session, proxy.url)
        store.attempt(Call(op="read", session=session))
        read_everything(context, [session])
