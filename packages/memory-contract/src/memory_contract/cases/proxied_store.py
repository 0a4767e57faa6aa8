"""What cases need that stand between a store and its server: a proxy, and patience afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from memory_contract.calls import Call, format_error
from memory_contract.case_context import CaseContext, CaseNotClaimed, CaseUnknown
from memory_contract.cases.lock_bounds import Heartbeat
from memory_contract.client import Client
from memory_contract.faults.proxy import Proxy, ProxyError, ProxyFault
from memory_contract.history import Operation

# The requests of one operation that are struck, one after the other.
REQUESTS_MAX: Final = 12
# How long a store may need to find its server again once nothing is wrong any more.
RECOVERS_S: Final = 20.0
PAUSE_S: Final = 0.02


@contextmanager
def between(context: CaseContext, server: str | None = None) -> Iterator[Proxy]:
    """A proxy before the store's server; at the end nothing is wrong any more."""
    server = server or context.adapter.server
    if server is None:
        raise CaseNotClaimed("the adapter names no server that the kit could stand before")
    try:
        proxy = context.enter(Proxy(server))
    except ProxyError as error:
        raise CaseNotClaimed(str(error)) from error
    try:
        yield proxy
    finally:
        proxy.heal()


def strike(
    context: CaseContext, proxy: Proxy, fault: ProxyFault, act: Callable[[], object]
) -> bool:
    """Do something while a trouble waits for it; whether it came about."""
    before = len(proxy.struck)
    proxy.arm(fault)
    act()
    proxy.heal()
    return tell(context, proxy, before)


def tell(context: CaseContext, proxy: Proxy, before: int = 0) -> bool:
    """Record the troubles that came about since; whether there were any."""
    struck = proxy.struck[before:]
    for fault, name, began_ns, ended_ns in struck:
        what = f"answer {fault.reply}" if fault.reply else fault.what
        context.record_fault(f"{what}: {name}", began_ns, ended_ns)
    return bool(struck)


def insist(
    context: CaseContext, client: Client, call_of: Callable[[], Call], *, server: str | None
) -> Operation:
    """Make a call until it succeeds, now that nothing is wrong any more."""
    began = time.monotonic()
    with Heartbeat() as heart:
        while (done := client.attempt(call_of())).outcome != "ok":
            if time.monotonic() - began > RECOVERS_S:
                break
            time.sleep(PAUSE_S)
    if done.outcome != "ok":
        _accuse(context, done, heart, server)
    return done


def _accuse(context: CaseContext, last: Operation, heart: Heartbeat, server: str | None) -> None:
    """Say that a handle is lost, if a new one shows that the server is not to blame."""
    failed = f"for {RECOVERS_S:g} s after the trouble was over, every {last.op} failed"
    if heart.late_s > RECOVERS_S / 4:
        raise CaseUnknown(f"the machine itself stood still for {heart.late_s:.1f} s")
    try:
        context.open(server=server).append(context.new_session())
    except Exception as error:
        raise CaseUnknown(f"{failed}, and so it did on a new handle") from error
    context.fail(
        "does not recover", f"{failed}; on a new handle all was well", session=last.session
    )


def read_all(context: CaseContext, sessions: Sequence[str], server: str | None = None) -> None:
    """What a fresh process sees at the end, with nobody in between; it may take a few attempts."""
    reader = context.open_in_process(server=server)
    for session in sessions:
        call = partial(Call, op="read", session=session)
        insist(context, reader, call, server=server)


def appending(
    context: CaseContext, client: Client, session: str, count: int = 2
) -> Callable[[], Call]:
    """Appends of new entries, one for each time that it is asked."""
    size = context.adapter.at_once(count)
    return lambda: Call(op="append", session=session, ids=client.draw(size))


def first_on(context: CaseContext, url: str) -> Client:
    """The first handle on a fresh server; a store that wants more than that says so here."""
    try:
        return context.open(server=url)
    except Exception as error:
        raise CaseNotClaimed(
            f"it cannot be opened on a server of the kit's: {format_error(error)}"
        ) from error


def begun(context: CaseContext, client: Client, server: str, appends: int = 1) -> str:
    """A session with something in it."""
    session = context.new_session()
    for _ in range(appends):
        insist(context, client, appending(context, client, session), server=server)
    return session
