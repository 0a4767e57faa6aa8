"""Servers that are not there or do not answer: whoever asks them hears of it in time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from memory_contract.adapter import Refused
from memory_contract.calls import Call
from memory_contract.case_context import CaseContext, CaseNotClaimed, CaseUnknown
from memory_contract.cases.case import case
from memory_contract.cases.lock_bounds import UNDECLARED_S, Heartbeat
from memory_contract.cases.proxied_store import appending, begun, between, insist, read_all
from memory_contract.client import Client
from memory_contract.faults.proxy import Proxy
from memory_contract.workers.pool import StoreRaised, WorkerLost

# Of what the store may take: so late, and the machine is as much to blame as the store.
_LATE: Final = 0.25


def patience_s(context: CaseContext) -> float:
    """How long an operation may take; of who names no bound, how long it is watched."""
    return context.adapter.patience_s or UNDECLARED_S


@case(
    "faults",
    catches="a store that waits for ever for a server that is not there, or never looks again",
    reach="machine",
)
def refused_connection(context: CaseContext) -> None:
    """Refuse every connection: an append ends in time, and works again when the server is back."""
    with between(context) as proxy:
        store = context.open_in_process(server=proxy.url, wait_s=patience_s(context))
        session = begun(context, store, proxy.url)
        in_time(context, store, session, "refuse connections", proxy.down)
        proxy.heal()
        _goes_on(context, store, session, proxy)


@case(
    "faults",
    catches="a call without a deadline: a silent server holds the agent for ever",
    reach="machine",
)
def slow_server_deadline(context: CaseContext) -> None:
    """Answer nothing, on connections that stay open: an append ends in time all the same."""
    with between(context) as proxy:
        store = context.open_in_process(server=proxy.url, wait_s=patience_s(context))
        session = begun(context, store, proxy.url)
        in_time(context, store, session, "answer nobody", proxy.freeze)
        proxy.heal()
        _goes_on(context, store, session, proxy)


def _goes_on(context: CaseContext, store: Client, session: str, proxy: Proxy) -> None:
    insist(context, store, appending(context, store, session), server=proxy.url)
    store.attempt(Call(op="read", session=session))
    read_all(context, [session])


def in_time(
    context: CaseContext, store: Client, session: str, fault: str, begin: Callable[[], None]
) -> None:
    """Begin a trouble and append: that must end within what the store says it takes."""
    bound_s, began_ns = patience_s(context), time.monotonic_ns()
    begin()
    with Heartbeat() as heart:
        ended = _ends(store, session)
    context.record_fault(fault, began_ns, time.monotonic_ns())
    if ended:
        return
    if heart.late_s > bound_s * _LATE:
        raise CaseUnknown(f"the machine itself stood still for {heart.late_s:.1f} s")
    if context.adapter.patience_s is None:
        raise CaseNotClaimed(f"it waits for a server longer than {bound_s:g} s and names no bound")
    context.fail(
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
