"""Large messages, long sessions and many sessions: nothing is cut off or mixed up."""

from __future__ import annotations

from random import Random
from typing import Final

from memory_contract.adapter import Message
from memory_contract.case_context import CaseContext
from memory_contract.cases.case import case
from memory_contract.cases.contents import (
    build_batch,
    complete_turn,
    expect_equal,
    expect_listed,
    expect_newest,
    to_role_content,
    try_put,
)
from memory_contract.cases.workload import append_many, pace
from memory_contract.entries import build_message
from memory_contract.history import Ids

MIB: Final = 1024 * 1024
# One past what a 16-bit length holds, then what engines cut: 1 MiB, 8 MiB.
SIZES: Final = (65_537, MIB, 8 * MIB)
SESSIONS: Final = 300
LONG_BATCHES: Final = 12
LONG_BATCH: Final = 250
# For stores without batches, where each message or turn is a call.
LONG_CALLS: Final = 25


@case("edges", catches="a large message that is silently truncated")
def huge_message_is_whole_or_refused(context: CaseContext) -> None:
    """Append messages of 64 KiB, 1 MiB and 8 MiB: each comes back whole, or is refused."""
    store, session = context.open(), context.new_session()
    expected: list[Message] = []
    largest = context.adapter.message_bytes_max or SIZES[-1]
    for size in sorted({min(size, largest) for size in SIZES}):
        # Without repetition at the size of pages or packets.
        noise = Random(size).randbytes(4099).hex()  # noqa: S311 -- made-up text
        text = (noise * (size // len(noise) + 1))[:size]
        batch = complete_turn(context, {"role": "user", "content": text})
        if try_put(store, session, batch, what := f"a message of {size} bytes"):
            expected += batch
            expect_equal(store, session, expected, what)
        else:
            context.note(f"{what} is refused")
    after = build_batch(context, "and now something short")
    store.put(session, *after)
    reader = context.open_elsewhere()
    expect_equal(reader, session, [*expected, *after], "what another caller reads")


@case("edges", catches="sessions that are mixed up or left out when there are many")
def many_sessions(context: CaseContext) -> None:
    """Write to hundreds of sessions by turns; each shows its own, and all are listed."""
    store = context.open()
    expected: dict[str, Ids] = {}
    sessions = [context.new_session() for _ in range(SESSIONS)]
    for session in pace(context, sessions, "sessions", least=10):
        expected[session] = store.append(session)
    for session in list(expected)[::5]:
        expected[session] += store.append(session)
    reader = context.open_elsewhere()
    for session, ids in expected.items():
        context.expect_shown(session, ids, after=f"appends to {len(expected)} sessions")
    if context.claims("list"):
        expect_listed(reader, expected)


@case("edges", catches="a long history that is cut to a page, or comes back out of order")
def long_session(context: CaseContext) -> None:
    """Append thousands of entries to one session; all come back, in order, and so do the last."""
    store, session = context.open(), context.new_session()
    ids: Ids = ()
    count = LONG_BATCH if context.adapter.batch_size(LONG_BATCH) > 1 else LONG_CALLS
    for _ in pace(context, range(LONG_BATCHES), f"batches of {count} in a long session"):
        ids += append_many(store, session, count)
    ids = tuple(context.keep_newest(ids + store.append(session)))
    reader = context.open_elsewhere()
    seen = reader.read(session)
    proof = f"of {len(ids)} entries {len(seen)} came back, or not in their order"
    context.expect(seen == ids, "wrong history", proof, session=session)
    for limit in (2, 100, max(1, len(ids) - 2)) if context.claims("limit") else ():
        expect_newest(reader, session, ids, limit)
    newest = to_role_content(store.get(session))[-1:]
    proof = "the newest entry of a long session is not the one that was appended last"
    right = newest == to_role_content([build_message(ids[-1])])
    context.expect(right, "wrong history", proof, session=session)
