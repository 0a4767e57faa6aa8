"""A process that stands still in the middle of a write, and wakes when others have gone on."""

from __future__ import annotations

import time
from typing import Final

from memory_contract.calls import Call
from memory_contract.case_context import CaseContext
from memory_contract.cases.case import case
from memory_contract.client import Client
from memory_contract.faults.process_faults import (
    PausedProcess,
    PendingCall,
    fastest_append_s,
    get_worker,
)

PAUSES: Final = 5
# Longer than the short leases that people put on locks; the long ones nobody waits for.
PAUSE_S: Final = 0.8
TAKEOVERS_MAX: Final = 4


@case(
    "crash",
    catches="a writer that slept through its lease and writes over what came since",
    reach="machine",
    modes=("processes",),
)
def paused_writer(context: CaseContext) -> None:
    """Stop a writer in the middle of an append, let another take over, and wake the first."""
    sleeper, other, session = (
        context.open_in_process(),
        context.open_in_process(),
        context.new_session(),
    )
    for _ in range(3):
        sleeper.append(session)
        other.append(session)
    took_s = fastest_append_s(context.history)
    for _ in range(PAUSES):
        asleep = _append(context, sleeper, session)
        time.sleep(context.random.uniform(0.2, 0.8) * took_s)
        with PausedProcess(context, get_worker(sleeper)):
            meanwhile = _takes_over(context, other, session)
        # Who waits for what the sleeper holds has it now.
        for pending in (asleep, meanwhile):
            if pending is not None:
                pending.finish()
        for reader in (sleeper, other):
            reader.attempt(Call(op="read", session=session))
    context.read_with_fresh_client([session])


def _append(context: CaseContext, client: Client, session: str) -> PendingCall:
    return PendingCall(context, client, Call(op="append", session=session, ids=client.draw()))


def _takes_over(context: CaseContext, other: Client, session: str) -> PendingCall | None:
    """Append while the other one sleeps; an append that is still waiting at the end is returned."""
    until = time.monotonic() + PAUSE_S
    for _ in range(TAKEOVERS_MAX):
        pending = _append(context, other, session)
        if not get_worker(other).has_answered(max(0.0, until - time.monotonic())):
            return pending
        pending.finish()
    return None
