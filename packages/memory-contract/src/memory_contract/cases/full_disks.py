"""Disks of servers that are really full, and then have room again."""

from __future__ import annotations

import time
from typing import Final

from memory_contract.calls import Call
from memory_contract.case_context import CaseContext, CaseNotClaimed, CaseNotRun
from memory_contract.cases.case import case
from memory_contract.cases.proxied_store import appending, begun, first_on, insist, read_all
from memory_contract.client import Client
from memory_contract.faults.servers import small_disk
from memory_contract.faults.servers.filled import Small, start_on_small_disk
from memory_contract.faults.servers.managed import KINDS, Missing
from memory_contract.faults.servers.process import ServerError

# How many appends are tried on a full disk: a server has some room in what it took before.
APPENDS_MAX: Final = 300
ENTRIES: Final = 8
# How many of them are refused, so that a store is also seen after the first time; one that tries
# until its deadline has tried often enough by then.
REFUSED: Final = 3
ENOUGH_S: Final = 1.0


@case(
    "faults",
    catches="a server whose disk is full, and a store that says that all went well",
    reach="machine",
    tier="privileges",
)
def server_disk_full(context: CaseContext) -> None:
    """Fill the disk of the server: an append is refused truly, and works when there is room."""
    server = _on_a_small_disk(context)
    url = server.url
    store = first_on(context, url)
    session = begun(context, store, url, 2)
    began_ns = time.monotonic_ns()
    server.fill()
    try:
        refused = _append_until_refused(context, store, session)
    finally:
        server.free()
    if refused:
        context.record_fault("the server's disk was full", began_ns, time.monotonic_ns())
    insist(context, store, appending(context, store, session), server=url)
    read_all(context, [session], url)


def _append_until_refused(context: CaseContext, store: Client, session: str) -> int:
    """How many appends were not acknowledged."""
    refused, began = 0, time.monotonic()
    for _ in range(APPENDS_MAX):
        if store.attempt(appending(context, store, session, ENTRIES)()).outcome != "ok":
            refused += 1
            # What is there can still be seen, or it is said that it cannot.
            store.attempt(Call(op="read", session=session))
        if refused == REFUSED or (refused and time.monotonic() - began > ENOUGH_S):
            break
    return refused


def _on_a_small_disk(context: CaseContext) -> Small:
    """A server of our own like the store's, on a disk that can be filled."""
    server = context.adapter.server or ""
    if not server.startswith(KINDS):
        raise CaseNotClaimed("the store names no server of a kind that the kit has one of")
    if why := small_disk.missing():
        raise CaseNotRun(why)
    try:
        return start_on_small_disk(server)
    except Missing as error:
        raise CaseNotRun(str(error)) from error
    except ServerError as error:
        raise CaseNotRun(f"a server of the kit's own did not start: {error}") from error
