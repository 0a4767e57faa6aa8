"""Expiry: a session whose time ran out is gone as a whole, not before, and begins anew clean.

When a life must have ended is known to the record: the windows that these cases write down are
counted from the calls themselves. So a slow machine makes a case prove less, never accuse more.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from memory_contract.calls import is_not_found
from memory_contract.case_context import CaseContext, CaseVacuous, Client
from memory_contract.cases.case import case
from memory_contract.history import Ids, Operation

# Long enough for a few calls, short enough to wait for.
_TTL_S: Final = 0.3
_LONG_TTL_S: Final = 3600.0
# Stores count in milliseconds, by another clock than the one that times calls.
_GRACE_NS: Final = 20_000_000
# How often a longer time to live is tried on a slow machine.
_TRIES: Final = 3
# Sessions live no longer for a store that frees them late: the case would take minutes.
_LATE_S_MAX: Final = 10.0


@dataclass(frozen=True, slots=True)
class ExpiringSession:
    """A session, from an append with a time to live until that has passed."""

    context: CaseContext
    append: Operation
    ttl_ns: int
    ids: Ids

    @property
    def session(self) -> str:
        """The session that lives."""
        return self.append.session

    @property
    def ends_ns(self) -> int:
        """When it has ended at the latest."""
        late_ns = int(self.context.adapter.ttl_s_late * 1e9)
        return (self.append.complete_ns or 0) + self.ttl_ns + late_ns

    def record_end(self) -> None:
        """Record when the session expires, for the checker."""
        end = Operation(
            worker="clock",
            session=self.session,
            op="expire",
            invoke_ns=self.append.invoke_ns + self.ttl_ns - _GRACE_NS,
            complete_ns=self.ends_ns,
            outcome="ok",
        )
        self.context.history.append(end)

    def sleep_until(self, part: float) -> None:
        """Sleep until this part of its time has passed."""
        _sleep_until(self.append.invoke_ns + int(part * self.ttl_ns))

    def is_running(self) -> bool:
        """Whether the last call ended before the session could expire."""
        ended_ns = self.context.history[-1].complete_ns or 0
        return ended_ns < self.append.invoke_ns + self.ttl_ns - _GRACE_NS

    def expect_end(self, *readers: Client) -> None:
        """Wait until it is over: the session shows nothing, or does not exist."""
        _sleep_until(self.ends_ns)
        for reader in readers:
            try:
                seen = reader.read(self.session)
            except Exception as error:
                if not is_not_found(error):
                    raise
                continue
            proof = f"{self.session} should have ended by now, and {reader.name} still sees"
            proof += f" {' '.join(seen)}"
            self.context.expect(not seen, "zombie entry", proof, session=self.session)


def _sleep_until(moment_ns: int) -> None:
    while (left_ns := moment_ns - time.monotonic_ns()) >= 0:
        time.sleep(left_ns / 1e9 + 0.001)


def _begin_life(
    store: Client, ttl_s: float, *, session: str = "", count: int = 2
) -> ExpiringSession:
    session = session or store.context.new_session()
    ids = store.append(session, count, ttl_s=ttl_s)
    return ExpiringSession(store.context, store.context.history[-1], int(ttl_s * 1e9), ids)


def _choose_ttl_s(context: CaseContext) -> float:
    return max(context.adapter.ttl_s_min, _TTL_S)


def _grow_ttls(context: CaseContext, least_s: float = 0.0) -> Iterator[float]:
    """Growing times to live, for machines on which calls take too long for the first."""
    for attempt in range(_TRIES):
        yield max(_choose_ttl_s(context), least_s) * 3**attempt
    raise CaseVacuous("the calls took longer than the sessions were to live")


def _begin_short_life(store: Client) -> tuple[ExpiringSession, str]:
    """A life that ends soon, and a snapshot of it if snapshots are claimed."""
    context = store.context
    for ttl_s in _grow_ttls(context):
        life, taken = _begin_life(store, ttl_s, count=3), ""
        if context.claims("snapshot", "rollback"):
            try:
                taken = store.snapshot(life.session)
            except Exception:
                if life.is_running():
                    raise
            if not life.is_running():
                # It may have begun another life, which has no end.
                continue
        break
    life.record_end()
    return life, taken


def _expect_no_way_back(caller: Client, session: str, taken: str, fresh: Ids) -> None:
    """Expect that a snapshot of an expired session brings nothing back."""
    # Not recorded: a store may raise any error for a snapshot that is gone.
    seen: Ids = ()
    with contextlib.suppress(Exception):
        caller.ask("rollback", session, caller.context.names[taken])
    with contextlib.suppress(Exception):
        seen = caller.look(session)
    back = [id_ for id_ in seen if id_ not in fresh]
    proof = f"{session} ended, and its snapshot brought {' '.join(back)} back"
    caller.context.expect(not back, "zombie snapshot", proof, session=session)


@case(
    "lifecycle",
    catches="a session that never expires, or half of it: a name, a snapshot, a part of the data",
    needs=["ttl"],
)
def ttl_ends_everything(context: CaseContext) -> None:
    """Let a session's time run out; entries, name and snapshots are gone, others stay."""
    store, other, beside = context.open(), context.open_elsewhere(), context.new_session()
    kept = store.append(beside, 2, ttl_s=_LONG_TTL_S)
    life, taken = _begin_short_life(store)
    life.expect_end()
    if context.claims("list"):
        # Before anything is read, since many stores clean up only then.
        named = life.session in set(store.ask("sessions"))
        proof = f"{life.session} ended and is still listed"
        context.expect(not named, "zombie session", proof, session=life.session)
    life.expect_end(other, store)
    if taken:
        _expect_no_way_back(store, life.session, taken, ())
    context.expect_shown(beside, kept, after="the end of another session")


@case(
    "lifecycle",
    catches="a session that expires before its time",
    needs=["ttl"],
)
def ttl_is_never_early(context: CaseContext) -> None:
    """Read a session until shortly before its time runs out; it is there, whole."""
    store, other, beside = context.open(), context.open_elsewhere(), context.new_session()
    kept = store.append(beside, 2, ttl_s=_LONG_TTL_S)
    # Where reading begins a life anew, one read is all that can be counted from the append.
    moments = (0.85,) if context.adapter.ttl_refreshed_by == "read" else (0.3, 0.6, 0.85)
    for ttl_s in _grow_ttls(context):
        life = _begin_life(store, ttl_s, count=3)
        life.record_end()
        for part, reader in zip(moments, (other, store, other), strict=False):
            life.sleep_until(part)
            # The checker decides whether it had to be there: it knows when the read ended.
            reader.read(life.session)
        if life.is_running():
            break
    context.expect_shown(beside, kept, after="the end of another session")


@case(
    "lifecycle",
    catches="a time to live that is renewed by the wrong operations",
    needs=["ttl"],
)
def ttl_begins_anew_as_declared(context: CaseContext) -> None:
    """Append to sessions and read them at half their time; each ends when it was declared to."""
    store, other = context.open(), context.open_elsewhere()
    by_read = context.adapter.ttl_refreshed_by == "read"
    attempt = _check_renewal_by_read if by_read else _check_renewal_by_append
    # So long that a life which is renewed by mistake ends later than any may.
    for ttl_s in _grow_ttls(context, 2 * min(context.adapter.ttl_s_late, _LATE_S_MAX)):
        if attempt(store, other, ttl_s):
            break


def _check_renewal_by_append(store: Client, other: Client, ttl_s: float) -> bool:
    watched, first = _begin_life(store, ttl_s), _begin_life(store, ttl_s)
    watched.record_end()
    first.sleep_until(0.6)
    other.read(watched.session)
    second = _begin_life(other, ttl_s, session=first.session, count=1)
    if not first.is_running():
        return False
    renewed = store.context.adapter.ttl_refreshed_by == "append"
    life, proved = second if renewed else first, True
    life.record_end()
    if renewed:
        _sleep_until((first.append.complete_ns or 0) + first.ttl_ns + _GRACE_NS)
        # The first life would be over by now.
        store.read(life.session)
        proved = life.is_running()
    watched.expect_end(other)
    life.expect_end(other)
    return proved


def _check_renewal_by_read(store: Client, other: Client, ttl_s: float) -> bool:
    # Not recorded: these reads move the end that they would be judged by.
    context, life = store.context, _begin_life(store, ttl_s)
    session, since_ns = life.session, life.append.invoke_ns
    for part in (0.6, 1.2):
        life.sleep_until(part)
        began_ns = time.monotonic_ns()
        seen = other.look(session)
        if time.monotonic_ns() >= since_ns + life.ttl_ns - _GRACE_NS:
            return False
        proof = f"{session} was read in time to live on, and shows {list(seen)}"
        right = seen == context.keep_newest(life.ids)
        context.expect(right, "early expiry", proof, session=session)
        since_ns = began_ns
    late_ns = int(context.adapter.ttl_s_late * 1e9)
    _sleep_until(time.monotonic_ns() + life.ttl_ns + late_ns + _GRACE_NS)
    seen = store.look(session)
    proof = f"{session} was not read for its whole time to live, and shows {list(seen)}"
    context.expect(not seen, "zombie entry", proof, session=session)
    return True


@case(
    "lifecycle",
    catches="expiry that is kept in the memory of one process",
    needs=["ttl"],
    reach="machine",
)
def ttl_survives_reopening(context: CaseContext) -> None:
    """Close the store that set a time to live; for other processes the session ends as well."""
    store, beside = context.open(), context.new_session()
    kept = store.append(beside, 2, ttl_s=_LONG_TTL_S)
    life = _begin_life(store, _choose_ttl_s(context))
    life.record_end()
    store.close()
    other = context.open_in_process()
    if context.adapter.ttl_refreshed_by != "read":
        other.read(life.session)
    life.expect_end(other, context.open_in_process(), context.open())
    context.expect_shown(beside, kept, after="the end of another session")


@case(
    "lifecycle",
    catches="a new conversation that shows entries of the expired one",
    needs=["ttl"],
)
def new_life_is_clean(context: CaseContext) -> None:
    """Append to sessions as they expire and after: they show all old entries or none."""
    store, other = context.open(), context.open_elsewhere()
    life, taken = _begin_short_life(store)
    if context.adapter.ttl_refreshed_by == "append":
        _append_at_the_end(store, other)
    life.expect_end()
    fresh = other.append(life.session, 2, ttl_s=_LONG_TTL_S)
    context.expect_shown(life.session, fresh, after="its end and an append")
    if taken:
        _expect_no_way_back(store, life.session, taken, fresh)


def _append_at_the_end(store: Client, other: Client) -> None:
    """Append in the moments around the end of a life; it goes on, or a new one begins."""
    context = store.context
    lives = [_begin_life(store, _choose_ttl_s(context)) for _ in range(8)]
    for place, life in enumerate(lives):
        session, first = life.session, life.append
        middle_ns = (first.invoke_ns + (first.complete_ns or 0)) // 2
        # It is unknown which of the two happened, so the session may or may not have expired.
        context.history.append(replace(first, worker="clock", op="expire", ids=(), outcome="info"))
        _sleep_until(middle_ns + life.ttl_ns + (place - 4) * 500_000)
        new = (store, other)[place % 2].append(session, ttl_s=_LONG_TTL_S)
        seen = other.read(session)
        proof = f"{session} shows {list(seen)}: neither one life nor the other"
        both = (new, context.keep_newest(life.ids + new))
        context.expect(seen in both, "mixed lives", proof, session=session)
