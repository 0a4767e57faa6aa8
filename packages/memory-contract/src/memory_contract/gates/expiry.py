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

from memory_contract.calling import is_not_found
from memory_contract.cases import case
from memory_contract.client import Client
from memory_contract.gates.lifecycle import expect_shown, reads_aside
from memory_contract.history import Ids, Operation
from memory_contract.room import Meaningless, Room

# Long enough for a few calls, short enough to wait for.
_TTL_S: Final = 0.3
_LONG_TTL_S: Final = 3600.0
# Stores count in whole milliseconds, by a clock that is not the one that calls are timed with.
_GRACE_NS: Final = 20_000_000
# How often a machine that was too slow for a short life is given a longer one.
_TRIES: Final = 3


def _ttl_s(room: Room) -> float:
    return max(room.adapter.ttl_s_min, _TTL_S)


def _longer_and_longer(room: Room) -> Iterator[float]:
    """Times to live: when the calls took too long for one of them, the next may do."""
    for attempt in range(_TRIES):
        yield _ttl_s(room) * 3**attempt
    raise Meaningless("the calls took longer than the sessions were to live")


def _ends(room: Room, session: str, ttl_s: float, since: Operation) -> Operation:
    """Write down when a life ends that counts from this call."""
    return room.expires(session, ttl_s, replace(since, invoke_ns=since.invoke_ns - _GRACE_NS))


def _sleep_until(moment_ns: float) -> None:
    time.sleep(max(0.0, (moment_ns - time.monotonic_ns()) / 1e9))


def _in_time(room: Room, since: Operation, ttl_s: float) -> bool:
    """Whether the last call was over before a life that counts from an earlier one could end."""
    ended = room.history[-1].complete_ns or 0
    return ended < since.invoke_ns + ttl_s * 1e9 - _GRACE_NS


def _short_life(room: Room, store: Client) -> tuple[str, Operation, str]:
    """A session that ends soon, when it does, and a snapshot of it where there are snapshots."""
    for ttl_s in _longer_and_longer(room):
        session, taken = room.session(), ""
        store.append(session, 3, ttl_s=ttl_s)
        append = room.history[-1]
        if room.adapter.claims(["snapshot", "rollback"]):
            try:
                taken = store.snapshot(session)
            except Exception:
                if _in_time(room, append, ttl_s):
                    raise
                continue
        break
    return session, _ends(room, session, ttl_s, append), taken


def _expect_gone(room: Room, reader: Client, session: str) -> None:
    """Nothing of the session shows; that there is no such session is a right answer as well."""
    try:
        seen = reader.read(session)
    except Exception as error:
        if not is_not_found(error):
            raise
        return
    proof = f"{session} should have ended by now, and {reader.name} still sees {' '.join(seen)}"
    room.expect(not seen, "zombie entry", proof, session=session)


def _expect_no_way_back(room: Room, caller: Client, session: str, taken: str, fresh: Ids) -> None:
    """A snapshot of a life that ended brings nothing of it back, whatever it answers."""
    # Kept out of the record: what a store that no longer knows the snapshot says is its affair.
    seen: Ids = ()
    with contextlib.suppress(Exception):
        caller.ask("rollback", session, room.names[taken])
    with contextlib.suppress(Exception):
        seen = reads_aside(caller, session)
    back = [id_ for id_ in seen if id_ not in fresh]
    proof = f"{session} ended, and its snapshot brought {' '.join(back)} back"
    room.expect(not back, "zombie snapshot", proof, session=session)


@case(
    "lifecycle",
    catches="a session that never expires, or half of it: a name, a snapshot, a part of the data",
    needs=["ttl"],
)
def ttl_ends_everything(room: Room) -> None:
    """Let a session's time run out; entries, name and snapshots are gone, others stay."""
    store, other = room.open(), room.another()
    beside = room.session()
    kept = store.append(beside, 2, ttl_s=_LONG_TTL_S)
    session, window, taken = _short_life(room, store)
    room.wait_past(window)
    if room.adapter.claims(["list"]):
        # Before anything is read: many stores tidy up only then.
        named = session in set(store.ask("sessions"))
        proof = f"{session} ended and is still listed"
        room.expect(not named, "zombie session", proof, session=session)
    for reader in (other, store):
        _expect_gone(room, reader, session)
    if taken:
        _expect_no_way_back(room, store, session, taken, ())
    expect_shown(room, other, beside, kept, after="the end of another session")


@case(
    "lifecycle",
    catches="a known user who is greeted as a stranger: gone before its time",
    needs=["ttl"],
)
def ttl_is_never_early(room: Room) -> None:
    """Read a session until shortly before its time runs out; it is there, whole."""
    store, other = room.open(), room.another()
    beside = room.session()
    kept = store.append(beside, 2, ttl_s=_LONG_TTL_S)
    # Where reading begins a life anew, one read is all that can be counted from the append.
    moments = (0.85,) if room.adapter.ttl_refreshed_by == "read" else (0.3, 0.6, 0.85)
    for ttl_s in _longer_and_longer(room):
        session = room.session()
        store.append(session, 3, ttl_s=ttl_s)
        append = room.history[-1]
        _ends(room, session, ttl_s, append)
        for part, reader in zip(moments, (other, store, other), strict=False):
            _sleep_until(append.invoke_ns + part * ttl_s * 1e9)
            # Whether it had to be there is the checker's to say: it knows when the read was over.
            reader.read(session)
        if _in_time(room, append, ttl_s):
            break
    expect_shown(room, other, beside, kept, after="the end of another session")


@case(
    "lifecycle",
    catches="a life that begins anew by what should not do it, or does not by what should",
    needs=["ttl"],
)
def ttl_begins_anew_as_declared(room: Room) -> None:
    """Append to sessions and read them at half their time; each ends when it was declared to."""
    store, other = room.open(), room.another()
    tries = {"append": _anew_by_append, "read": _anew_by_read, "nothing": _never_anew}
    attempt = tries[room.adapter.ttl_refreshed_by]
    for ttl_s in _longer_and_longer(room):
        if attempt(room, store, other, ttl_s):
            break


def _anew_by_append(room: Room, store: Client, other: Client, ttl_s: float) -> bool:
    renewed, watched = room.session(), room.session()
    store.append(watched, 2, ttl_s=ttl_s)
    ended = _ends(room, watched, ttl_s, room.history[-1])
    store.append(renewed, 2, ttl_s=ttl_s)
    first = room.history[-1]
    _sleep_until(first.invoke_ns + 0.6 * ttl_s * 1e9)
    other.read(watched)
    other.append(renewed, ttl_s=ttl_s)
    if not _in_time(room, first, ttl_s):
        return False
    second = room.history[-1]
    window = _ends(room, renewed, ttl_s, second)
    _sleep_until((first.complete_ns or 0) + ttl_s * 1e9 + _GRACE_NS)
    # The first life would be over by now.
    store.read(renewed)
    proved = _in_time(room, second, ttl_s)
    for session, end in ((watched, ended), (renewed, window)):
        room.wait_past(end)
        _expect_gone(room, other, session)
    return proved


def _never_anew(room: Room, store: Client, other: Client, ttl_s: float) -> bool:
    session = room.session()
    store.append(session, 2, ttl_s=ttl_s)
    first = room.history[-1]
    _sleep_until(first.invoke_ns + 0.6 * ttl_s * 1e9)
    other.append(session, ttl_s=ttl_s)
    if not _in_time(room, first, ttl_s):
        return False
    room.wait_past(_ends(room, session, ttl_s, first))
    _expect_gone(room, other, session)
    return True


def _anew_by_read(room: Room, store: Client, other: Client, ttl_s: float) -> bool:
    # Reads that move the end they are judged by are no record for the checker.
    session = room.session()
    ids = store.append(session, 2, ttl_s=ttl_s)
    first = room.history[-1]
    since_ns = first.invoke_ns
    for part in (0.6, 1.2):
        _sleep_until(first.invoke_ns + part * ttl_s * 1e9)
        began_ns = time.monotonic_ns()
        seen = reads_aside(other, session)
        if time.monotonic_ns() >= since_ns + ttl_s * 1e9 - _GRACE_NS:
            return False
        proof = f"{session} was read in time to live on, and shows {list(seen)}"
        room.expect(seen == ids, "early expiry", proof, session=session)
        since_ns = began_ns
    _sleep_until(time.monotonic_ns() + (ttl_s + room.adapter.ttl_s_late) * 1e9 + _GRACE_NS)
    seen = reads_aside(store, session)
    proof = f"{session} was not read for its whole time to live, and shows {list(seen)}"
    room.expect(not seen, "zombie entry", proof, session=session)
    return True


@case(
    "lifecycle",
    catches="expiry that is kept in the process and forgotten with it",
    needs=["ttl"],
    reach="machine",
)
def ttl_survives_reopening(room: Room) -> None:
    """Close the store that set a time to live; for other processes the session ends as well."""
    store = room.open()
    session, beside = room.session(), room.session()
    kept = store.append(beside, 2, ttl_s=_LONG_TTL_S)
    store.append(session, 2, ttl_s=_ttl_s(room))
    window = _ends(room, session, _ttl_s(room), room.history[-1])
    store.close()
    other = room.elsewhere()
    if room.adapter.ttl_refreshed_by != "read":
        other.read(session)
    room.wait_past(window)
    for reader in (other, room.elsewhere(), room.open()):
        _expect_gone(room, reader, session)
        expect_shown(room, reader, beside, kept, after="the end of another session")


@case(
    "lifecycle",
    catches="a new conversation that shows what ran out long ago",
    needs=["ttl"],
)
def new_life_is_clean(room: Room) -> None:
    """Append to sessions when their time runs out and after; old or new life, never a mix."""
    store, other = room.open(), room.another()
    session, window, taken = _short_life(room, store)
    if room.adapter.ttl_refreshed_by == "append":
        _appends_at_the_end(room, store, other)
    room.wait_past(window)
    fresh = other.append(session, 2, ttl_s=_LONG_TTL_S)
    for reader in (store, other):
        expect_shown(room, reader, session, fresh, after="its end and an append")
    if taken:
        _expect_no_way_back(room, store, session, taken, fresh)


def _appends_at_the_end(room: Room, store: Client, other: Client) -> None:
    """Append in the moments around the end of a life; it goes on, or a new one begins."""
    sessions = [room.session() for _ in range(8)]
    for session in sessions:
        store.append(session, 2, ttl_s=_ttl_s(room))
    firsts = room.history[-len(sessions) :]
    for place, (session, first) in enumerate(zip(sessions, firsts, strict=True)):
        end_ns = (first.invoke_ns + (first.complete_ns or 0)) // 2 + int(_ttl_s(room) * 1e9)
        # Which of the two it was is not known, so the end is one that may have been.
        room.history.append(replace(first, worker="clock", op="expire", ids=(), outcome="info"))
        _sleep_until(end_ns + (place - 4) * 500_000)
        new = (store, other)[place % 2].append(session, ttl_s=_LONG_TTL_S)
        seen = other.read(session)
        proof = f"{session} shows {list(seen)}: neither one life nor the other"
        room.expect(seen in (new, first.ids + new), "mixed lives", proof, session=session)
