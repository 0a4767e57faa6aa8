"""Between a store and its server: replies that are lost, connections that end, refusals."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Self

from memory_contract.calls import Call, Program
from memory_contract.case_context import CaseContext, CaseNotClaimed
from memory_contract.cases.case import MANY_WORKERS, case
from memory_contract.cases.concurrency import Writing
from memory_contract.cases.pacing import paced
from memory_contract.cases.proxied_store import (
    REQUESTS_MAX,
    appending,
    begun,
    between,
    insist,
    read_all,
    strike,
    tell,
)
from memory_contract.cases.verbs import Verb, calls_of, changing
from memory_contract.client import Client
from memory_contract.faults.proxy import Proxy, ProxyFault
from memory_contract.faults.proxy.fault_queue import CONNECT, What

# Refusals of a server that did nothing of what it was asked.
REFUSALS: Final = {
    "redis": ("READONLY", "LOADING", "NOSCRIPT", "MOVED", "MISCONF", "CLUSTERDOWN"),
    "postgresql": ("40001", "40P01", "53100", "57P01", "25006"),
}
# Of the requests of one change, those that are struck.
SAMPLED: Final = 4
# How often every connection is cut, and after how many requests each time.
CUTS_MAX: Final = 5
REQUESTS_BETWEEN_CUTS: Final = 12
FLAPS: Final[tuple[What, ...]] = ("cut before", "cut before", "cut after", "cut midway", "slice")


@case("faults", reach="machine", catches="a retry after a lost reply that stores a message twice")
def reply_lost(context: CaseContext) -> None:
    """Lose the reply to each request of an append; with a key it is asked again, and once there."""
    with between(context) as proxy:
        store, keyed = context.open(server=proxy.url), context.adapter.claims(["keys"])
        sessions = []
        for what, appends in _combined(("cut after", "cut midway"), (0, 1)):
            for nth in range(1, REQUESTS_MAX + 1):
                session = begun(context, store, proxy.url, appends)
                sessions.append(session)
                call = appending(context, store, session)()
                if keyed:
                    call = _keyed(call, f"{what} {nth}")
                struck = strike(context, proxy, ProxyFault(what, nth=nth), _attempting(store, call))
                if keyed and context.history[-1].outcome != "ok":
                    insist(context, store, partial(_itself, call), server=proxy.url)
                store.attempt(Call(op="read", session=session))
                if not struck:
                    break
        read_all(context, sessions)


def _combined(kinds: Sequence[What], appends: Sequence[int]) -> list[tuple[What, int]]:
    return [(what, before) for what in kinds for before in appends]


def _keyed(call: Call, key: str) -> Call:
    return Call(op=call.op, session=call.session, ids=call.ids, key=key)


@case(
    "faults",
    reach="machine",
    catches="an error that says that nothing was written, although it was",
)
def error_but_applied_is_marked(context: CaseContext) -> None:
    """Lose the reply to each request of every change; what failed by its words did not happen."""
    with between(context) as proxy:
        store, sessions = context.open(server=proxy.url), []
        for verb in paced(context, changing(context), "changes", within_s=8.0):
            for nth in _sampled(context, proxy, store, verb):
                call = _led_to(context, store, verb, proxy.url)
                sessions += [call.session] if call.target is None else [call.session, call.target]
                act = _attempting(store, call)
                strike(context, proxy, ProxyFault("cut after", nth=nth), act)
                store.attempt(Call(op="read", session=call.session))
        read_all(context, sessions)


def _sampled(context: CaseContext, proxy: Proxy, store: Client, verb: Verb) -> list[int]:
    """Some of the requests of a change, by chance; the last one, which decides, is among them."""
    call = _led_to(context, store, verb, proxy.url)
    before = proxy.passed
    store.attempt(call)
    requests = max(1, proxy.passed - before)
    chosen = context.random.sample(range(1, requests + 1), min(requests, SAMPLED))
    return sorted({*chosen, requests})


def _itself(call: Call) -> Call:
    return call


def _attempting(store: Client, call: Call) -> Callable[[], object]:
    return lambda: store.attempt(call)


def _led_to(context: CaseContext, store: Client, verb: Verb, server: str) -> Call:
    """An operation, after what must be there for it to change anything."""
    *before, call = calls_of(context, verb)
    for each in before:
        insist(context, store, partial(_itself, each), server=server)
    return call


@case(
    "faults",
    reach="machine",
    catches="a server that is full, and a store that says that all went well",
)
def oom_reply(context: CaseContext) -> None:
    """Refuse each request of an append as a server without memory does, until there is some."""
    with between(context) as proxy:
        if not proxy.url.startswith("redis"):
            raise CaseNotClaimed("only Redis refuses writes for want of memory")
        _refused(context, proxy, ("OOM",), times=0)


@case(
    "faults",
    reach="machine",
    catches="a refusal of the server that is taken for success, or retried in part",
)
def injected_replies(context: CaseContext) -> None:
    """Refuse each request of an append once: as a replica, while starting, for a full disk, ..."""
    with between(context) as proxy:
        scheme = "redis" if proxy.url.startswith("redis") else "postgresql"
        _refused(context, proxy, REFUSALS[scheme], times=1)


def _refused(context: CaseContext, proxy: Proxy, replies: Sequence[str], *, times: int) -> None:
    store, sessions = context.open(server=proxy.url), []
    for reply in paced(context, replies, "refusals", within_s=8.0):
        for nth in range(1, REQUESTS_MAX + 1):
            session = begun(context, store, proxy.url)
            sessions.append(session)
            act = _attempting(store, appending(context, store, session)())
            if not strike(
                context, proxy, ProxyFault("answer", nth=nth, times=times, reply=reply), act
            ):
                break
            store.attempt(Call(op="read", session=session))
            insist(context, store, appending(context, store, session), server=proxy.url)
    read_all(context, sessions)


@case(
    "faults",
    catches="writes that are lost or doubled when connections come and go",
    reach="machine",
    modes=MANY_WORKERS,
    overlaps=False,
)
def connection_flap(context: CaseContext) -> None:
    """Cut every connection again and again, before and after requests, while four workers write."""
    with between(context) as proxy:
        store = context.open(server=proxy.url)
        sessions = [begun(context, store, proxy.url) for _ in range(2)]
        chance = context.random
        faults = [
            ProxyFault(chance.choice(FLAPS), nth=1 + 4 * place + chance.randrange(4))
            for place in range(14)
        ]
        with _Flapping(context, proxy, faults) as flapping:
            context.race(programs_of(context, sessions, 12), server=proxy.url, ready=flapping.begin)
        proxy.heal()
        tell(context, proxy)
        read_all(context, sessions)


class _Flapping:
    """Cuts all connections, and the next new ones, whenever some requests passed."""

    def __init__(self, context: CaseContext, proxy: Proxy, faults: Sequence[ProxyFault]) -> None:
        self._context = context
        self._proxy = proxy
        self._troubles = faults
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._flap, daemon=True)

    def __enter__(self) -> Self:
        return self

    def begin(self) -> None:
        """All handles are open: now."""
        self._proxy.arm(*self._troubles)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _flap(self) -> None:
        seen, cuts = self._proxy.passed, 0
        while cuts < CUTS_MAX and not self._over.wait(0.002):
            if self._proxy.passed < seen + REQUESTS_BETWEEN_CUTS:
                continue
            began_ns = time.monotonic_ns()
            # Those who come back first are sent away again; a moment without any would be enough
            # for a quick store to fail in all that it has to do.
            self._proxy.arm(ProxyFault("cut before", CONNECT, times=2))
            self._proxy.cut()
            self._context.record_fault("cut all connections", began_ns, time.monotonic_ns())
            seen, cuts = self._proxy.passed, cuts + 1


def programs_of(context: CaseContext, sessions: Sequence[str], appends: int) -> list[Program]:
    """Four workers that write and read."""
    writing = Writing(context)
    return [writing.writer(f"w{n}", sessions, appends) for n in range(4)]
