"""Large messages, long sessions and many sessions: nothing is cut off or mixed up."""

from __future__ import annotations

from random import Random
from typing import Final

from memory_contract.adapter import Message
from memory_contract.case_context import CaseContext
from memory_contract.cases.case import case
from memory_contract.cases.contents import build_batch, expect_there, shown, to_spoken, try_put
from memory_contract.cases.workload import append_many, pace
from memory_contract.entries import message_of
from memory_contract.history import Ids

MIB: Final = 1024 * 1024
# One past what a 16-bit length holds, then what engines cut: 1 MiB, 8 MiB.
SIZES: Final = (65_537, MIB, 8 * MIB)
SESSIONS: Final = 300
LONG_BATCHES: Final = 12
LONG_BATCH: Final = 250
# For stores that take turns or single messages, each of which is a call.
LONG_CALLS: Final = 25


@case("edges", catches="a large message that is cut off in silence")
def huge_message_is_whole_or_refused(context: CaseContext) -> None:
    """Say messages of 64 KiB, 1 MiB and 8 MiB: each comes back whole, or is refused."""
    store, session = context.open(), context.new_session()
    expected: list[Message] = []
    largest = context.adapter.message_bytes_max or SIZES[-1]
    for size in sorted({min(size, largest) for size in SIZES}):
        what = f"a message of {size} bytes"
        batch = _build_large(context, size)
        if not try_put(context, store, session, batch, what):
            context.note(f"{what} is refused")
            continue
        expected += batch
        expect_there(context, store, session, expected, what)
        _expect_whole(context, to_spoken(store.get(session)), expected, what, session)
    after = build_batch(context, "and now something short")
    store.put(session, *after)
    expected += after
    seen = to_spoken(context.open_elsewhere().get(session))
    _expect_whole(context, seen, expected, "what another caller reads", session)


def _build_large(context: CaseContext, size: int) -> list[Message]:
    """A large message without repetition at the size of pages or packets."""
    noise = Random(size).randbytes(4099).hex()  # noqa: S311 -- made-up text
    message = {"role": "user", "content": (noise * (size // len(noise) + 1))[:size]}
    answer = {"role": "assistant", "content": "That was long."}
    return [message, answer] if context.adapter.pairs else [message]


def _expect_whole(
    context: CaseContext,
    seen: list[tuple[object, object]],
    expected: list[Message],
    what: str,
    session: str,
) -> None:
    told = to_spoken(context.keep_newest(expected))
    if seen == told:
        return
    if len(seen) != len(told):
        proof = f"{what}: of {len(told)} acknowledged messages {len(seen)} came back"
        context.fail("lost message", proof, session=session)
    said, back = next((one, two) for one, two in zip(told, seen, strict=True) if one != two)
    long, short = str(said[1]), str(back[1])
    cut = len(short) < len(long)
    context.fail(
        "truncated content" if cut else "changed content",
        f"{what}: {len(long)} characters were acknowledged and {len(short)} came back",
        session=session,
    )


@case("edges", catches="sessions that are mixed up or left out when there are many")
def many_sessions(context: CaseContext) -> None:
    """Write to hundreds of sessions by turns; each shows its own, and all are listed."""
    store = context.open()
    expected: dict[str, Ids] = {}
    for session in pace(
        context, [context.new_session() for _ in range(SESSIONS)], "sessions", least=10
    ):
        expected[session] = store.append(session)
    sessions = list(expected)
    for session in sessions[::5]:
        expected[session] += store.append(session)
    reader = context.open_elsewhere()
    for session in sessions:
        seen = reader.read(session)
        own = context.keep_newest(expected[session])
        context.expect(
            seen == own,
            "wrong history",
            f"one of {len(sessions)} sessions shows [{' '.join(seen)}] instead of "
            f"[{' '.join(own)}]",
            session=session,
        )
    if context.adapter.claims(["list"]):
        listed = list(reader.ask("sessions"))
        missing = sorted(set(sessions) - set(listed))
        context.expect(
            not missing and len(listed) == len(sessions),
            "unlisted session",
            f"of {len(sessions)} sessions {len(listed)} are listed; missing: {shown(missing)}",
        )


@case("edges", catches="a long history that is cut to a page, or comes back out of order")
def long_session(context: CaseContext) -> None:
    """Append thousands of entries to one session; all come back, in order, and so do the last."""
    store, session = context.open(), context.new_session()
    ids: Ids = ()
    count = LONG_BATCH if context.adapter.at_once(LONG_BATCH) > 1 else LONG_CALLS
    for _ in pace(context, range(LONG_BATCHES), f"batches of {count} in a long session"):
        ids += append_many(context, store, session, count)
    ids += store.append(session)
    ids = tuple(context.keep_newest(ids))
    reader = context.open_elsewhere()
    seen = reader.read(session)
    context.expect(
        seen == ids,
        "wrong history",
        f"of {len(ids)} entries {len(seen)} came back, or not in their order",
        session=session,
    )
    if context.adapter.claims(["limit"]):
        for limit in (2, 100, max(1, len(ids) - 2)):
            last = reader.read(session, limit=limit)
            context.expect(
                last == ids[-limit:],
                "wrong limit",
                f"the newest {limit} of {len(ids)} entries are {len(last)} others",
                session=session,
            )
    newest = to_spoken(store.get(session))[-1]
    context.expect(
        newest == to_spoken([message_of(ids[-1])])[0],
        "wrong history",
        "the newest entry of a long session is not the one that was appended last",
        session=session,
    )
