"""A wall clock that is set while the store is in use."""

from __future__ import annotations

import contextlib
import time
from typing import Final

from memory_contract.calls import Call
from memory_contract.case_context import CaseContext, CaseNotClaimed
from memory_contract.cases.case import case
from memory_contract.cases.lifecycle import reads_aside
from memory_contract.faults.clocks import JumpingClock
from memory_contract.faults.process_faults import get_worker

HOUR_S: Final = 3600.0
# Ahead, behind, and right again.
JUMPS: Final[tuple[float, ...]] = (-HOUR_S, 3 * HOUR_S, -24 * HOUR_S, 0.0)


@case(
    "faults",
    catches="entries that go for good, or out of order, because a clock was set",
    reach="machine",
)
def clock_jumps(context: CaseContext) -> None:
    """Set a process's clock to and fro; when it is right again, everything is there in order."""
    store = context.open_in_process(plugin=JumpingClock())
    kept, mortal = context.new_session(), context.new_session()
    # A read that begins a life anew, by a wrong clock, may well end it.
    mortals = context.adapter.claims(["ttl"]) and context.adapter.ttl_refreshed_by != "read"
    store.append(kept, 2)
    mine = store.append(mortal, 2, ttl_s=HOUR_S) if mortals else ()
    for ahead_s in JUMPS:
        began = time.monotonic_ns()
        get_worker(store).call_plugin("jump", ahead_s)
        store.attempt(Call(op="append", session=kept, ids=store.draw()))
        store.attempt(Call(op="read", session=kept))
        if mortals:
            # It may be over by such a clock. That is no reason to throw it away.
            with contextlib.suppress(Exception):
                reads_aside(store, mortal)
        context.record_fault(
            f"the clock is {ahead_s / HOUR_S:+g} h off", began, time.monotonic_ns()
        )
    if not get_worker(store).call_plugin("times_asked"):
        raise CaseNotClaimed("the store never asks this process for the time")
    context.read_with_fresh_client([kept])
    if mortals:
        seen = reads_aside(context.open_elsewhere(), mortal)
        proof = f"{mortal} had an hour to live, its clock was set to and fro, and it shows {seen}"
        context.expect(seen == mine, "early expiry", proof, session=mortal)
