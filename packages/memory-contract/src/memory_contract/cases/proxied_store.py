"""Helpers for cases with a proxy between a store and its server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from memory_contract.calls import Call
from memory_contract.case_context import CaseContext, CaseNotClaimed, CaseUnknown, Client
from memory_contract.cases.locks import Heartbeat
from memory_contract.cases.workload import build_append, repeat_until_ok
from memory_contract.faults.proxy import Proxy, ProxyError, ProxyFault
from memory_contract.faults.proxy.fault_queue import What

# How a reply gets lost.
CUTS: Final[tuple[What, ...]] = ("cut after", "cut midway")
# How many requests of one operation are struck at most.
REQUESTS_MAX: Final = 12
# How long a store may need to recover once the fault is over.
RECOVERS_S: Final = 20.0


@contextmanager
def in_background(
    arm: Callable[[], None], make_faults: Callable[[threading.Event], None]
) -> Iterator[Callable[[], None]]:
    """Make faults in a thread until the block ends; the yielded function starts it."""
    over = threading.Event()
    thread = threading.Thread(target=make_faults, args=(over,), daemon=True)

    def begin() -> None:
        arm()
        thread.start()

    try:
        yield begin
    finally:
        over.set()
        if thread.is_alive():
            thread.join()


@contextmanager
def insert_proxy(context: CaseContext, server: str | None = None) -> Iterator[Proxy]:
    """A proxy before the store's server; all faults end with the block."""
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


def call_with_fault(proxy: Proxy, fault: ProxyFault, client: Client, call: Call) -> bool:
    """Make a call with a fault armed; whether the fault struck."""
    before = len(proxy.struck)
    proxy.arm(fault)
    client.attempt(call)
    proxy.heal()
    record_proxy_faults(client.context, proxy, before)
    return len(proxy.struck) > before


def record_proxy_faults(context: CaseContext, proxy: Proxy, before: int = 0) -> None:
    """Record the faults that struck since."""
    for fault, name, began_ns, ended_ns in proxy.struck[before:]:
        what = f"answer {fault.reply}" if fault.reply else fault.what
        context.record_fault(f"{what}: {name}", began_ns, ended_ns)


def retry_until_ok(client: Client, call: Call | Callable[[], Call], *, server: str | None) -> None:
    """Repeat a call, or build another one each time, until it succeeds; the faults are over.

    If it does not, and a new handle works, the server is not the cause: the store fails.
    """
    context = client.context
    with Heartbeat() as heart:
        last = repeat_until_ok(
            client, lambda: call if isinstance(call, Call) else call(), RECOVERS_S
        )
    if last.outcome == "ok":
        return
    failed = f"for {RECOVERS_S:g} s after the fault was over, every {last.op} failed"
    heart.require_calm(RECOVERS_S)
    try:
        context.open(server=server).append(context.new_session())
    except Exception as error:
        raise CaseUnknown(f"{failed}, and so it did on a new handle") from error
    proof = f"{failed}; on a new handle all was well"
    context.fail("does not recover", proof, session=last.session)


def append_until_ok(client: Client, session: str, server: str) -> None:
    """Append new entries until that succeeds."""
    retry_until_ok(client, lambda: build_append(client.context, session, 2), server=server)


def read_everything(
    context: CaseContext, sessions: Sequence[str], server: str | None = None
) -> None:
    """Read sessions at the end, in a fresh process and without the proxy; with retries."""
    reader = context.open_in_process(server=server)
    for session in sessions:
        retry_until_ok(reader, Call(op="read", session=session), server=server)


def start_session(client: Client, server: str, appends: int = 1) -> str:
    """Create a session with some entries."""
    session = client.context.new_session()
    for _ in range(appends):
        append_until_ok(client, session, server)
    return session
