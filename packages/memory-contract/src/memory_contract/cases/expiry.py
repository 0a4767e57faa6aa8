"""Expiry: a session whose time ran out is gone as a whole, not before, and begins anew clean.

When a life must have ended is known to the record: the windows that these cases write down are
counted from the calls themselves. So a slow machine makes a case prove less, never accuse more.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from memory_contract.calls import is_not_found
from memory_contract.case_context import CaseContext, CaseVacuous
from memory_contract.cases.case import case
from memory_contract.cases.lifecycle import expect_shown, reads_aside
from memory_contract.client import Client
from memory_contract.history import Ids, Operation

# Long enough for a few calls, short enough to wait for.
_TTL_S: Final = 0.3
_LONG_TTL_S: Final = 3600.0
# Stores count in whole milliseconds, by a clock that is not the one that calls are timed with.
_GRACE_NS: Final = 20_000_000
# How often a machine that was too slow for a short life is given a longer one.
_TRIES: Final = 3


def _ttl_s(context: CaseContext) -> float:
    return max(context.adapter.ttl_s_min, _TTL_S)


def _longer_and_longer(context: CaseContext) -> Iterator[float]:
    """Times to live: when the calls took too long for one of them, the next may do."""
    for attempt in range(_TRIES):
        yield _ttl_s(context) * 3**attempt
    raise CaseVacuous("the calls took longer than the sessions were to live")


def _ends(context: CaseContext, session: str, ttl_s: float, since: Operation) -> Operation:
    """Write down when a life ends that counts from this call."""
    return context.record_expiry(
        session, ttl_s, replace(since, invoke_ns=since.invoke_ns - _GRACE_NS)
    )


def _sleep_until(moment_ns: float) -> None:
    time.sleep(max(0.0, (moment_ns - time.monotonic_ns()) / 1e9))


def _in_time(context: CaseContext, since: Operation, ttl_s: float) -> bool:
    """Whether the last call was over before a life that counts from an earlier one could end."""
    ended = context.history[-1].complete_ns or 0
    return ended < since.invoke_ns + ttl_s * 1e9 - _GRACE_NS


def _short_life(context: CaseContext, store: Client) -> tuple[str, Operation, str]:
    """A session that ends soon, when it does, and a snapshot of it where there are snapshots."""
    for ttl_s in _longer_and_longer(context):
        session, taken = context.new_session(), ""
        store.append(session, 3, ttl_s=ttl_s)
        append = context.history[-1]
        if context.adapter.claims(["snapshot", "rollback"]):
            try:
                taken = store.snapshot(session)
            except Exception:
                if _in_time(context, append, ttl_s):
                    raise
                continue
        break
    return session, _ends(context, session, ttl_s, append), taken


def _expect_gone(context: CaseContext, reader: Client, session: str) -> None:
    """Nothing of the session shows; that there is no such session is a right answer as well."""
    try:
        seen = reader.read(session)
    except Exception as error:
        if not is_not_found(error):
            raise
        return
    proof = f"{session} should have ended by now, and {reader.name} still sees {' '.join(seen)}"
    context.expect(not seen, "zombie entry", proof, session=session)


def _expect_no_way_back(
    context: CaseContext, caller: Client, session: str, taken: str, fresh: Ids
) -> None:
    """A snapshot of a life that ended brings nothing of it back, whatever it answers."""
    # Kept out of the record: what a store that no longer knows the snapshot says is its affair.
    seen: Ids = ()
    with contextlib.suppress(Exception):
        caller.ask("rollback", session, context.names[taken])
    with contextlib.suppress(Exception):
        seen = reads_aside(caller, session)
    back = [id_ for id_ in seen if id_ not in fresh]
    proof = f"{session} ended, and its snapshot brought {' '.join(back)} back"
    context.expect(not back, "zombie snapshot", proof, session=session)


@case(
    "lifecycle",
    catches="a session that never expires, or half of it: a name, a snapshot, a part of the data",
    needs=["ttl"],
)
def ttl_ends_everything(context: CaseContext) -> None:
    """Let a session's time run out; entries, name and snapshots are gone, others stay."""
    store, other = context.open(), context.open_elsewhere()
    beside = context.new_session()
    kept = store.append(beside, 2, ttl_s=_LONG_TTL_S)
    session, window, taken = _short_life(context, store)
    context.wait_until_after(window)
    if context.adapter.claims(["list"]):
        # Before anything is read: many stores tidy up only then.
        named = session in set(store.ask("sessions"))
        proof = f"{session} ended and is still listed"
        context.expect(not named, "zombie session", proof, session=session)
    for reader in (other, store):
        _expect_gone(context, reader, session)
    if taken:
        _expect_no_way_back(context, store, session, taken, ())
    expect_shown(context, other, beside, kept, after="the end of another session")


@case(
    "lifecycle",
    catches="a known user who is greeted as a stranger: gone before its time",
    needs=["ttl"],
)
def ttl_is_never_early(context: CaseContext) -> None:
    """Read a session until shortly before its time runs out; it is there, whole."""
    store, other = context.open(), context.open_elsewhere()
    beside = context.new_session()
    kept = store.append(beside, 2, ttl_s=_LONG_TTL_S)
    # Where reading begins a life anew, one read is all that can be counted from the append.
    moments = (0.85,) if context.adapter.ttl_refreshed_by == "read" else (0.3, 0.6, 0.85)
    for ttl_s in _longer_and_longer(context):
        session = context.new_session()
        store.append(session, 3, ttl_s=ttl_s)
        append = context.history[-1]
        _ends(context, session, ttl_s, append)
        for part, reader in zip(moments, (other, store, other), strict=False):
            _sleep_until(append.invoke_ns + part * ttl_s * 1e9)
            # Whether it had to be there is the checker's to say: it knows when the read was over.
            reader.read(session)
        if _in_time(context, append, ttl_s):
            break
    expect_shown(context, other, beside, kept, after="the end of another session")


@case(
    "lifecycle",
    catches="a life that begins anew by what should not do it, or does not by what should",
    needs=["ttl"],
)
def ttl_begins_anew_as_declared(context: CaseContext) -> None:
    """Append to sessions and read them at half their time; each ends when it was declared to."""
    store, other = context.open(), context.open_elsewhere()
    tries = {"append": _anew_by_append, "read": _anew_by_read, "nothing": _never_anew}
    attempt = tries[context.adapter.ttl_refreshed_by]
    for ttl_s in _longer_and_longer(context):
        if attempt(context, store, other, ttl_s):
            break


def _anew_by_append(context: CaseContext, store: Client, other: Client, ttl_s: float) -> bool:
    renewed, watched = context.new_session(), context.new_session()
    store.append(watched, 2, ttl_s=ttl_s)
    ended = _ends(context, watched, ttl_s, context.history[-1])
    store.append(renewed, 2, ttl_s=ttl_s)
    first = context.history[-1]
    _sleep_until(first.invoke_ns + 0.6 * ttl_s * 1e9)
    other.read(watched)
    other.append(renewed, ttl_s=ttl_s)
    if not _in_time(context, first, ttl_s):
        return False
    second = context.history[-1]
    window = _ends(context, renewed, ttl_s, second)
    _sleep_until((first.complete_ns or 0) + ttl_s * 1e9 + _GRACE_NS)
    # The first life would be over by now.
    store.read(renewed)
    proved = _in_time(context, second, ttl_s)
    for session, end in ((watched, ended), (renewed, window)):
        context.wait_until_after(end)
        _expect_gone(context, other, session)
    return proved


def _never_anew(context: CaseContext, store: Client, other: Client, ttl_s: float) -> bool:
    session = context.new_session()
    store.append(session, 2, ttl_s=ttl_s)
    first = context.history[-1]
    _sleep_until(first.invoke_ns + 0.6 * ttl_s * 1e9)
    other.append(session, ttl_s=ttl_s)
    if not _in_time(context, first, ttl_s):
        return False
    context.wait_until_after(_ends(context, session, ttl_s, first))
    _expect_gone(context, other, session)
    return True


def _anew_by_read(context: CaseContext, store: Client, other: Client, ttl_s: float) -> bool:
    # Reads that move the end they are judged by are no record for the checker.
    session = context.new_session()
    ids = store.append(session, 2, ttl_s=ttl_s)
    first = context.history[-1]
    since_ns = first.invoke_ns
    for part in (0.6, 1.2):
        _sleep_until(first.invoke_ns + part * ttl_s * 1e9)
        began_ns = time.monotonic_ns()
        seen = reads_aside(other, session)
        if time.monotonic_ns() >= since_ns + ttl_s * 1e9 - _GRACE_NS:
            return False
        proof = f"{session} was read in time to live on, and shows {list(seen)}"
        context.expect(seen == ids, "early expiry", proof, session=session)
        since_ns = began_ns
    _sleep_until(time.monotonic_ns() + (ttl_s + context.adapter.ttl_s_late) * 1e9 + _GRACE_NS)
    seen = reads_aside(store, session)
    proof = f"{session} was not read for its whole time to live, and shows {list(seen)}"
    context.expect(not seen, "zombie entry", proof, session=session)
    return True


@case(
    "lifecycle",
    catches="expiry that is kept in the process and forgotten with it",
    needs=["ttl"],
    reach="machine",
)
def ttl_survives_reopening(context: CaseContext) -> None:
    """Close the store that set a time to live; for other processes the session ends as well."""
    store = context.open()
    session, beside = context.new_session(), context.new_session()
    kept = store.append(beside, 2, ttl_s=_LONG_TTL_S)
    store.append(session, 2, ttl_s=_ttl_s(context))
    window = _ends(context, session, _ttl_s(context), context.history[-1])
    store.close()
    other = context.open_in_process()
    if context.adapter.ttl_refreshed_by != "read":
        other.read(session)
    context.wait_until_after(window)
    for reader in (other, context.open_in_process(), context.open()):
        _expect_gone(context, reader, session)
        expect_shown(context, reader, beside, kept, after="the end of another session")


@case(
    "lifecycle",
    catches="a new conversation that shows what ran out long ago",
    needs=["ttl"],
)
def new_life_is_clean(context: CaseContext) -> None:
    """Append to sessions when their time runs out and after; old or new life, never a mix."""
    store, other = context.open(), context.open_elsewhere()
    session, window, taken = _short_life(context, store)
    if context.adapter.ttl_refreshed_by == "append":
        _appends_at_the_end(context, store, other)
    context.wait_until_after(window)
    fresh = other.append(session, 2, ttl_s=_LONG_TTL_S)
    for reader in (store, other):
        expect_shown(context, reader, session, fresh, after="its end and an append")
    if taken:
        _expect_no_way_back(context, store, session, taken, fresh)


def _appends_at_the_end(context: CaseContext, store: Client, other: Client) -> None:
    """Append in the moments around the end of a life; it goes on, or a new one begins."""
    sessions = [context.new_session() for _ in range(8)]
    for session in sessions:
        store.append(session, 2, ttl_s=_ttl_s(context))
    firsts = context.history[-len(sessions) :]
    for place, (session, first) in enumerate(zip(sessions, firsts, strict=True)):
        end_ns = (first.invoke_ns + (first.complete_ns or 0)) // 2 + int(_ttl_s(context) * 1e9)
        # Which of the two it was is not known, so the end is one that may have been.
        context.history.append(replace(first, worker="clock", op="expire", ids=(), outcome="info"))
        _sleep_until(end_ns + (place - 4) * 500_000)
        new = (store, other)[place % 2].append(session, ttl_s=_LONG_TTL_S)
        seen = other.read(session)
        proof = f"{session} shows {list(seen)}: neither one life nor the other"
        context.expect(seen in (new, first.ids + new), "mixed lives", proof, session=session)
