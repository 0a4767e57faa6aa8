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
from memory_contract.case_context import CaseContext, CaseVacuous, Client
from memory_contract.cases.case import case
from memory_contract.cases.lifecycle import read_unrecorded
from memory_contract.history import Ids, Operation

# Long enough for a few calls, short enough to wait for.
_TTL_S: Final = 0.3
_LONG_TTL_S: Final = 3600.0
# Stores count in milliseconds, by another clock than the one that times calls.
_GRACE_NS: Final = 20_000_000
# How often a longer time to live is tried on a slow machine.
_TRIES: Final = 3


def _choose_ttl_s(context: CaseContext) -> float:
    return max(context.adapter.ttl_s_min, _TTL_S)


def _grow_ttls(context: CaseContext) -> Iterator[float]:
    """Growing times to live, for machines on which calls take too long for the first."""
    for attempt in range(_TRIES):
        yield _choose_ttl_s(context) * 3**attempt
    raise CaseVacuous("the calls took longer than the sessions were to live")


def _record_end(context: CaseContext, session: str, ttl_s: float, since: Operation) -> Operation:
    """Record when a session expires, counted from this call."""
    return context.record_expiry(
        session, ttl_s, replace(since, invoke_ns=since.invoke_ns - _GRACE_NS)
    )


def _sleep_until(moment_ns: float) -> None:
    time.sleep(max(0.0, (moment_ns - time.monotonic_ns()) / 1e9))


def _was_in_time(context: CaseContext, since: Operation, ttl_s: float) -> bool:
    """Whether the last call ended before the session could expire."""
    ended = context.history[-1].complete_ns or 0
    return ended < since.invoke_ns + ttl_s * 1e9 - _GRACE_NS


def _start_short_life(context: CaseContext, store: Client) -> tuple[str, Operation, str]:
    """A session that expires soon, its window, and a snapshot of it if snapshots are claimed."""
    for ttl_s in _grow_ttls(context):
        session, taken = context.new_session(), ""
        store.append(session, 3, ttl_s=ttl_s)
        append = context.history[-1]
        if context.adapter.claims(["snapshot", "rollback"]):
            try:
                taken = store.snapshot(session)
            except Exception:
                if _was_in_time(context, append, ttl_s):
                    raise
                continue
            if not _was_in_time(context, append, ttl_s):
                # It may have begun another life, which has no end.
                continue
        break
    return session, _record_end(context, session, ttl_s, append), taken


def _expect_gone(context: CaseContext, reader: Client, session: str) -> None:
    """Expect that the session shows nothing, or does not exist."""
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
    """Expect that a snapshot of an expired session brings nothing back."""
    # Not recorded: a store may raise any error for a snapshot that is gone.
    seen: Ids = ()
    with contextlib.suppress(Exception):
        caller.ask("rollback", session, context.names[taken])
    with contextlib.suppress(Exception):
        seen = read_unrecorded(caller, session)
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
    session, window, taken = _start_short_life(context, store)
    context.wait_until_after(window)
    if context.adapter.claims(["list"]):
        # Before anything is read, since many stores clean up only then.
        named = session in set(store.ask("sessions"))
        proof = f"{session} ended and is still listed"
        context.expect(not named, "zombie session", proof, session=session)
    for reader in (other, store):
        _expect_gone(context, reader, session)
    if taken:
        _expect_no_way_back(context, store, session, taken, ())
    context.expect_shown(other, beside, kept, after="the end of another session")


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
    for ttl_s in _grow_ttls(context):
        session = context.new_session()
        store.append(session, 3, ttl_s=ttl_s)
        append = context.history[-1]
        _record_end(context, session, ttl_s, append)
        for part, reader in zip(moments, (other, store, other), strict=False):
            _sleep_until(append.invoke_ns + part * ttl_s * 1e9)
            # The checker decides whether it had to be there: it knows when the read ended.
            reader.read(session)
        if _was_in_time(context, append, ttl_s):
            break
    context.expect_shown(other, beside, kept, after="the end of another session")


@case(
    "lifecycle",
    catches="a life that begins anew by what should not do it, or does not by what should",
    needs=["ttl"],
)
def ttl_begins_anew_as_declared(context: CaseContext) -> None:
    """Append to sessions and read them at half their time; each ends when it was declared to."""
    store, other = context.open(), context.open_elsewhere()
    tries = {
        "append": _check_renewal_by_append,
        "read": _check_renewal_by_read,
        "nothing": _check_no_renewal,
    }
    attempt = tries[context.adapter.ttl_refreshed_by]
    for ttl_s in _grow_ttls(context):
        if attempt(context, store, other, ttl_s):
            break


def _check_renewal_by_append(
    context: CaseContext, store: Client, other: Client, ttl_s: float
) -> bool:
    renewed, watched = context.new_session(), context.new_session()
    store.append(watched, 2, ttl_s=ttl_s)
    ended = _record_end(context, watched, ttl_s, context.history[-1])
    store.append(renewed, 2, ttl_s=ttl_s)
    first = context.history[-1]
    _sleep_until(first.invoke_ns + 0.6 * ttl_s * 1e9)
    other.read(watched)
    other.append(renewed, ttl_s=ttl_s)
    if not _was_in_time(context, first, ttl_s):
        return False
    second = context.history[-1]
    window = _record_end(context, renewed, ttl_s, second)
    _sleep_until((first.complete_ns or 0) + ttl_s * 1e9 + _GRACE_NS)
    # The first life would be over by now.
    store.read(renewed)
    proved = _was_in_time(context, second, ttl_s)
    for session, end in ((watched, ended), (renewed, window)):
        context.wait_until_after(end)
        _expect_gone(context, other, session)
    return proved


def _check_no_renewal(context: CaseContext, store: Client, other: Client, ttl_s: float) -> bool:
    session = context.new_session()
    store.append(session, 2, ttl_s=ttl_s)
    first = context.history[-1]
    _sleep_until(first.invoke_ns + 0.6 * ttl_s * 1e9)
    other.append(session, ttl_s=ttl_s)
    if not _was_in_time(context, first, ttl_s):
        return False
    context.wait_until_after(_record_end(context, session, ttl_s, first))
    _expect_gone(context, other, session)
    return True


def _check_renewal_by_read(
    context: CaseContext, store: Client, other: Client, ttl_s: float
) -> bool:
    # Not recorded: these reads move the end that they would be judged by.
    session = context.new_session()
    ids = store.append(session, 2, ttl_s=ttl_s)
    first = context.history[-1]
    since_ns = first.invoke_ns
    for part in (0.6, 1.2):
        _sleep_until(first.invoke_ns + part * ttl_s * 1e9)
        began_ns = time.monotonic_ns()
        seen = read_unrecorded(other, session)
        if time.monotonic_ns() >= since_ns + ttl_s * 1e9 - _GRACE_NS:
            return False
        proof = f"{session} was read in time to live on, and shows {list(seen)}"
        context.expect(seen == context.keep_newest(ids), "early expiry", proof, session=session)
        since_ns = began_ns
    _sleep_until(time.monotonic_ns() + (ttl_s + context.adapter.ttl_s_late) * 1e9 + _GRACE_NS)
    seen = read_unrecorded(store, session)
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
    store.append(session, 2, ttl_s=_choose_ttl_s(context))
    window = _record_end(context, session, _choose_ttl_s(context), context.history[-1])
    store.close()
    other = context.open_in_process()
    if context.adapter.ttl_refreshed_by != "read":
        other.read(session)
    context.wait_until_after(window)
    for reader in (other, context.open_in_process(), context.open()):
        _expect_gone(context, reader, session)
        context.expect_shown(reader, beside, kept, after="the end of another session")


@case(
    "lifecycle",
    catches="a new conversation that shows what ran out long ago",
    needs=["ttl"],
)
def new_life_is_clean(context: CaseContext) -> None:
    """Append to sessions when their time runs out and after; old or new life, never a mix."""
    store, other = context.open(), context.open_elsewhere()
    session, window, taken = _start_short_life(context, store)
    if context.adapter.ttl_refreshed_by == "append":
        _append_at_the_end(context, store, other)
    context.wait_until_after(window)
    fresh = other.append(session, 2, ttl_s=_LONG_TTL_S)
    for reader in (store, other):
        context.expect_shown(reader, session, fresh, after="its end and an append")
    if taken:
        _expect_no_way_back(context, store, session, taken, fresh)


def _append_at_the_end(context: CaseContext, store: Client, other: Client) -> None:
    """Append in the moments around the end of a life; it goes on, or a new one begins."""
    sessions = [context.new_session() for _ in range(8)]
    for session in sessions:
        store.append(session, 2, ttl_s=_choose_ttl_s(context))
    firsts = context.history[-len(sessions) :]
    for place, (session, first) in enumerate(zip(sessions, firsts, strict=True)):
        end_ns = (first.invoke_ns + (first.complete_ns or 0)) // 2 + int(
            _choose_ttl_s(context) * 1e9
        )
        # It is unknown which of the two happened, so the session may or may not have expired.
        context.history.append(replace(first, worker="clock", op="expire", ids=(), outcome="info"))
        _sleep_until(end_ns + (place - 4) * 500_000)
        new = (store, other)[place % 2].append(session, ttl_s=_LONG_TTL_S)
        seen = other.read(session)
        proof = f"{session} shows {list(seen)}: neither one life nor the other"
        lives = (new, context.keep_newest(first.ids + new))
        context.expect(seen in lives, "mixed lives", proof, session=session)
