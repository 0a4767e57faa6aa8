"""When an operation can have taken effect, and what one session's history is made of.

Every rule of the checker asks about moments, not about calls. An acknowledged operation took effect
between its two times; one with an unknown outcome may take effect at any time after it was invoked,
or never; attempts that share a key took effect once. `a` came before `b` for certain only if
`a.hi < b.lo`: equal times overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from memory_contract.history import Ids, Operation, OpName

# Later than every clock: the end of an operation that may still take effect.
FOREVER: Final = 1 << 63


class Event:
    """One effect on a session: the attempts behind it and the moments at which it can lie."""

    __slots__ = ("attempts", "hi", "lo", "op", "sure")

    def __init__(self, op: Operation) -> None:
        self.op = op
        self.attempts: tuple[Operation, ...] = (op,)
        self.lo = op.invoke_ns
        self.sure = op.outcome == "ok"
        self.hi = op.complete_ns if self.sure and op.complete_ns is not None else FOREVER

    def join(self, op: Operation) -> None:
        """One more attempt with the same key: it is the same effect."""
        self.attempts = (*self.attempts, op)
        self.lo = min(self.lo, op.invoke_ns)
        if op.outcome == "ok" and op.complete_ns is not None and op.complete_ns < self.hi:
            self.op, self.hi, self.sure = op, op.complete_ns, True

    def within(self, since: int, until: int) -> bool:
        """Whether it may have taken effect between the two moments."""
        return self.lo <= until and self.hi >= since


class EntryTimes:
    """One id in one session: when it can have come in, and where it can stand in the order.

    For the session's own entries the two are one. A fork brings entries in at one moment, in the
    order in which they were appended elsewhere.
    """

    __slots__ = ("brought", "event", "hi", "id", "lo", "order_hi", "order_lo", "own", "sure")

    def __init__(self, id_: str, event: Event, brought: Event | None = None) -> None:
        arrival = brought or event
        self.id = id_
        self.event = event
        self.brought = brought
        self.own = brought is None
        self.lo, self.hi, self.sure = arrival.lo, arrival.hi, arrival.sure
        self.order_lo, self.order_hi = event.lo, event.hi

    def origin(self) -> tuple[Operation, ...]:
        """The operations that put it here: its append, and the fork that brought it."""
        return (self.event.op,) if self.brought is None else (self.event.op, self.brought.op)

    def before(self, other: EntryTimes) -> bool:
        """Whether it stands before the other one in every legal order."""
        if self.event is other.event:
            ids = self.event.op.ids
            return ids.index(self.id) < ids.index(other.id)
        return self.order_hi < other.order_lo


class SessionHistory:
    """One session's part of a history, sorted by what the rules ask for."""

    __slots__ = (
        "contents",
        "entries",
        "events",
        "failed",
        "forked",
        "keeps_last",
        "name",
        "reads",
        "refused",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.reads: list[Operation] = []
        # Sightings of snapshots: the name, the ids, and the operation.
        self.contents: list[tuple[str, Ids, Operation]] = []
        self.events: dict[OpName, list[Event]] = {}
        self.entries: dict[str, EntryTimes] = {}
        self.failed: dict[str, Operation] = {}
        # Rollbacks and reads that failed because the store knows no such snapshot.
        self.refused: list[Operation] = []
        # The forks that may have made this session.
        self.forked: list[Event] = []
        # The number of entries that the store claims to keep; None if all.
        self.keeps_last: int | None = None

    def of(self, *names: OpName) -> list[Event]:
        """The effects of these kinds."""
        return [event for name in names for event in self.events.get(name, ())]

    def get_limit(self, op: Operation) -> int | None:
        """Return the most entries that a read can show: as many as it asked for, or are kept."""
        limits = [limit for limit in (op.limit, self.keeps_last) if limit is not None]
        return min(limits, default=None)

    def changes(self) -> list[Event]:
        """Return everything that may remove entries or bring them back."""
        return self.of("clear", "pop", "trim", "rollback", "undo", "expire")

    def cutters(self) -> list[Event]:
        """Return everything that may remove a part of a batch and leave the rest."""
        return [e for e in self.of("pop", "trim") if not is_empty_pop(e)]

    def operations(self) -> Iterator[Operation]:
        """Every operation that may matter, without an order."""
        yield from self.reads
        yield from (op for events in self.events.values() for e in events for op in e.attempts)
        yield from (op for _, _, op in self.contents if op.op == "read")


def is_empty_pop(event: Event) -> bool:
    """A pop that was told that there is nothing."""
    return event.op.op == "pop" and event.sure and event.op.value is None


def group_sessions(operations: Iterable[Operation]) -> dict[str, SessionHistory]:
    """The history, session by session, with attempts joined by their keys."""
    sessions: dict[str, SessionHistory] = {}
    keyed: dict[tuple[str, str, str], Event] = {}
    for op in operations:
        session = sessions.get(op.session)
        if session is None:
            session = sessions[op.session] = SessionHistory(op.session)
        if op.op == "read":
            _add_read(session, op)
        elif op.outcome == "fail":
            _add_failed(session, op)
        elif op.key is None:
            session.events.setdefault(op.op, []).append(Event(op))
        elif (known := keyed.get((op.session, op.op, op.key))) is not None:
            known.join(op)
        else:
            keyed[op.session, op.op, op.key] = event = Event(op)
            session.events.setdefault(op.op, []).append(event)
    for session in sessions.values():
        session.reads.sort(key=lambda op: op.invoke_ns)
        _add_contents(session)
        for event in session.events.get("append", ()):
            session.keeps_last = event.op.keep or session.keeps_last
            for id_ in event.op.ids:
                session.entries[id_] = EntryTimes(id_, event)
                session.failed.pop(id_, None)
    _connect_forks(sessions)
    return sessions


def _add_read(session: SessionHistory, op: Operation) -> None:
    if op.outcome == "ok" and isinstance(op.value, tuple):
        if op.snapshot is None:
            session.reads.append(op)
        else:
            session.contents.append((op.snapshot, op.value, op))
    elif op.outcome == "fail" and op.snapshot is not None:
        session.refused.append(op)


def _add_failed(session: SessionHistory, op: Operation) -> None:
    if op.op == "append":
        session.failed.update(dict.fromkeys(op.ids, op))
    elif op.op == "rollback":
        session.refused.append(op)


def _add_contents(session: SessionHistory) -> None:
    for event in session.of("snapshot", "rollback"):
        if event.sure and isinstance(event.op.value, tuple):
            session.contents.append((event.op.snapshot or "", event.op.value, event.op))


def _connect_forks(sessions: dict[str, SessionHistory]) -> None:
    """Let every fork's target know what it may have been given, from forks of forks too."""
    for session in list(sessions.values()):
        for fork in session.of("fork"):
            target = fork.op.target or ""
            if target in sessions:
                sessions[target].forked.append(fork)
    # A chain of forks is no longer than the number of forks.
    for _ in range(sum(len(session.forked) for session in sessions.values())):
        inherited = [_inherit(session, sessions) for session in sessions.values()]
        if not any(inherited):
            break


def _inherit(session: SessionHistory, sessions: dict[str, SessionHistory]) -> bool:
    """Take over what the forks may have brought; True if something was new."""
    new = False
    for fork in session.forked:
        for entry in list(sessions[fork.op.session].entries.values()):
            known = session.entries.get(entry.id)
            arrival = max(fork.lo, entry.lo)
            if entry.lo <= fork.hi and (known is None or (not known.own and arrival < known.lo)):
                session.entries[entry.id] = brought = EntryTimes(entry.id, entry.event, fork)
                # `settle_fork` finds out which entries it brought for certain.
                brought.lo, brought.hi, brought.sure = arrival, FOREVER, False
                new = True
    return new


def find_origins(
    session: SessionHistory, sessions: dict[str, SessionHistory]
) -> list[SessionHistory]:
    """The sessions that this one was forked from, and those that they were."""
    found = [session]
    for known in found:
        for fork in known.forked:
            if sessions[fork.op.session] not in found:
                found.append(sessions[fork.op.session])
    return found[1:]


def tighten(session: SessionHistory) -> None:
    """An entry that was seen was in place by then, whatever its append came to."""
    sightings = [(op, op.value) for op in session.reads if isinstance(op.value, tuple)]
    sightings += [(op, ids) for _, ids, op in session.contents]
    sightings += [(e.op, (e.op.value,)) for e in session.of("pop") if isinstance(e.op.value, str)]
    sightings.sort(key=lambda sighting: sighting[0].complete_ns or 0)
    seen: set[str] = set()
    for op, ids in sightings:
        for id_ in set(ids) - seen:
            seen.add(id_)
            entry = session.entries.get(id_)
            if entry is not None:
                moment = op.complete_ns or 0
                entry.hi = min(entry.hi, moment)
                entry.order_hi = min(entry.order_hi, moment)
