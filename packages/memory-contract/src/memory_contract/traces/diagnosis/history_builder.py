"""Builds a history that the checker can judge from the lines of a trace.

In a trace an entry is known by a hash, and two may share one ("yes" is said twice); entries may be
older than the trace; and what takes entries away may be known only to have been begun. Two rules
keep a right store from being accused:

- The checker judges entries whose hash surely stands for them alone: the trace has all appends to
  their session, and they cannot be older than it. All others are left out of the history,
  everywhere alike, and only counted (`absences`).
- A call that may have changed a session in a way that nobody knows makes it undecided from there
  on: what comes later is left out.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any, Final, TypeVar

from memory_contract.checker.events import FOREVER, Event
from memory_contract.checker.verdict import Anomaly
from memory_contract.history import CORRUPTED, NOT_FOUND, Operation
from memory_contract.traces.diagnosis.absences import find_absences, find_duplicates
from memory_contract.traces.diagnosis.trace_reader import TraceMetadata
from memory_contract.traces.format import (
    BY_ID,
    FIELD,
    REMOVERS,
    OtherCall,
    TraceCall,
    TraceOperation,
    strip_fields,
    strip_id,
)

_L = TypeVar("_L", bound=TraceCall)
_PLAIN: Final = tuple(each.name for each in fields(Operation))


@dataclass(frozen=True, slots=True)
class UnknownChange:
    """A call that may have changed a session in a way that the recorder does not know."""

    session: str
    verb: str
    # The number of operations of the session that began before it.
    before: int


@dataclass(slots=True)
class ResolvedHistory:
    """A history, the anomalies that counting shows, and whether it may be searched."""

    history: list[Operation] = field(default_factory=list)
    anomalies: list[Anomaly] = field(default_factory=list)
    searchable: bool = True
    # The number of operations, and of those that prove nothing.
    operations: int = 0
    unjudged: int = 0
    # The call from which on the session is undecided.
    unknown: UnknownChange | None = None
    # Whether anything showed an entry that was appended, and one that was neither appended nor
    # there before.
    recognised: bool = False
    unrecognised: bool = False

    def find_strange(self) -> set[str]:
        """Return the entries that were seen and not appended."""
        seen: set[str] = set()
        for op in self.history:
            if op.value != NOT_FOUND:
                seen.update((op.value,) if isinstance(op.value, str) else op.value or ())
        seen -= {id_ for op in self.history for id_ in op.ids}
        return {id_ for id_ in seen if not id_.startswith(CORRUPTED)}


def build_history(lines: Iterable[TraceCall], metadata: TraceMetadata) -> ResolvedHistory:
    """Build the history of a session; of a history of the kit, that of all sessions."""
    operations, others = merge_announced(lines)
    ops = [op for op in operations if not op.every]
    if metadata.own_ids or not ops:
        history = [to_operation(op) for op in operations] if ops else []
        return ResolvedHistory(history, operations=len(history))
    ops = [_forget_late_result(op, metadata.known_until) for op in _strip_given_ids(ops)]
    session = _Session(ops, others, metadata)
    recognised, unrecognised = session.compare_shown()
    changes = [
        to_operation(op, session=session.name, worker=f"{op.worker}*{session.name}")
        for op in operations
        if op.every
    ]
    changes += _find_expiries(session.name, session.decided, metadata)
    return ResolvedHistory(
        history=[*session.resolve(), *changes] if session.has_history else [],
        anomalies=list(session.count(changes)),
        searchable=all(map(session.is_exact, ops)),
        operations=len(operations),
        unjudged=sum(not session.is_judged(op) for op in ops),
        unknown=session.find_unknown_change(),
        recognised=recognised,
        unrecognised=unrecognised,
    )


def merge_announced(
    lines: Iterable[TraceCall],
) -> tuple[list[TraceOperation], list[OtherCall]]:
    """Merge announcements with their results, and sort by invocation."""
    operations: dict[tuple[str, int, str], list[TraceOperation]] = {}
    others: dict[tuple[str, int, str], list[OtherCall]] = {}
    for line in lines:
        if isinstance(line, OtherCall):
            _merge_line(line, others.setdefault((line.worker, line.invoke_ns, line.verb), []))
        else:
            same = operations.setdefault((line.worker, line.invoke_ns, line.op), [])
            if line.op in REMOVERS:
                _merge_line(line, same)
            else:
                same.append(line)
    flat = [op for same in operations.values() for op in same]
    return sorted(flat, key=lambda op: op.invoke_ns), [
        op for same in others.values() for op in same
    ]


def _merge_line(line: _L, same: list[_L]) -> None:
    """Add a line to those of its worker and moment, unless one of the two announced the other."""
    if same and line.complete_ns is None:
        return
    if same and same[-1].complete_ns is None:
        same.pop()
    same.append(line)


def to_operation(op: TraceOperation, **changes: object) -> Operation:
    """Return an operation without what only the recorder knew of it."""
    values: dict[str, Any] = {name: getattr(op, name) for name in _PLAIN}
    return Operation(**{**values, **changes})


def _strip_given_ids(ops: list[TraceOperation]) -> Iterator[TraceOperation]:
    """Know entries by what they say if they had no ids before the store gave them some."""
    appended = {strip_fields(token) for op in ops for token in op.ids}

    def strip(token: str) -> str:
        if not token.startswith(BY_ID) or strip_fields(token) in appended:
            return token
        without = strip_id(token)
        return without if strip_fields(without) in appended else token

    for op in ops:
        value = op.value
        if op.op == "read" and isinstance(value, tuple):
            value = tuple(map(strip, value))
        elif op.op == "pop" and isinstance(value, str):
            value = strip(value)
        yield op if value == op.value else replace(op, value=value)


def _forget_late_result(op: TraceOperation, until: int) -> TraceOperation:
    """Leave open what came of a call that may have seen a change which is not in the trace."""
    if _get_end(op) < until or op.op not in ("read", *REMOVERS):
        return op
    return replace(op, complete_ns=None, outcome="info", value=None)


class _Session:
    """The operations of one session, and what is known of its entries."""

    def __init__(
        self, ops: list[TraceOperation], others: list[OtherCall], metadata: TraceMetadata
    ) -> None:
        self._metadata = metadata
        self._ops = ops
        self.name = ops[0].session
        changes = [each for each in others if each.changes]
        # The first call whose effect is unknown, and what came before it.
        self._unknown = min(changes, key=lambda each: each.invoke_ns, default=None)
        self.decided = [op for op in ops if self._is_decided(op)]
        self._deleted = {each.snapshot for each in others if each.snapshot}
        self._forgotten = any(op.verb == "forget" for op in ops)
        # Imported entries have no line.
        imported = any(each.verb in ("add_entries", "import_") for each in others)
        self._forked = self.name in metadata.forked
        # Whether all appends to the session are in the trace, and nothing else was ever in it.
        listed = metadata.complete and not imported and not self._forked
        self.whole = listed and self._begins_empty()
        appends = [op for op in ops if op.op == "append"]
        # Not every store returns what a pop took: then nothing does not mean that it was empty.
        self._pops_return = any(op.op == "pop" and op.value is not None for op in ops)
        # Whether a trim looks at more than numbers, and whether there is nothing but turns.
        structured = any(op.structured for op in appends)
        turns = all(op.roles == ("user", "assistant") for op in appends)
        self._only_turns = self.whole and turns and not structured
        # Appends that may have had an effect, attempts with one key taken together.
        self._appends, self._mixed_keys = _join_attempts(appends)
        self._by_hash: dict[str, list[Event]] = {}
        for event in self._appends:
            for token in event.op.ids:
                self._by_hash.setdefault(strip_fields(token), []).append(event)
        # Appends whose entries are surely stored anew, and not those of an older append of one key.
        stored = list(self._find_stored(appends))
        anew = set(map(id, stored))
        # Those that must be seen later, if they were acknowledged.
        since = metadata.changes_known_since
        self._countable = {id(op) for op in stored if op.invoke_ns > since and self._is_decided(op)}
        # The hashes that stand for one entry alone: its other fields, and when its append began.
        self._trusted: dict[str, tuple[str, int]] = {}
        if listed:
            sure = [event for event in self._appends if id(event.op) in anew]
            self._trusted.update(self._find_trusted(sure))
        # Without entries, a session that may be older than the trace shows nothing.
        self.has_history = self.whole or bool(self._trusted)
        known = self._by_hash.keys() <= self._trusted.keys()
        self._exact_trims = self.whole and not structured and known

    def compare_shown(self) -> tuple[bool, bool]:
        """Return whether what was appended was shown, and whether other new entries were."""
        first = min((op.invoke_ns for op in self._ops if op.op == "append"), default=FOREVER)
        appended = {strip_fields(token) for op in self._ops for token in op.ids}
        older: set[str] = set()
        newer: set[str] = set()
        for op in self._ops:
            if op.value is None or op.value == NOT_FOUND or op.turns:
                continue
            value = (op.value,) if isinstance(op.value, str) else op.value
            # The first thing that is seen of a session may be older than the trace.
            is_older = op.invoke_ns < first or not (self.whole or older or newer)
            (older if is_older else newer).update(map(strip_fields, value))
        return bool(appended & (older | newer)), bool(newer - older - appended)

    def _begins_empty(self) -> bool:
        """Return whether it held nothing when the trace began, nor can that come back."""
        if self._metadata.fresh:
            return True
        taken: set[str | None] = set()
        for op in self._ops:
            if op.op == "snapshot":
                taken.add(op.snapshot)
            # A snapshot that is not known yet may be older than the trace.
            if op.op == "undo" or (op.op == "rollback" and op.snapshot not in taken):
                return False
        # The position of an older append is given again to a retry with its key.
        if any(op.position == 0 and op.key is None for op in self._ops):
            return True
        first, began = self._ops[0], self._ops[1].invoke_ns if self._ops[1:] else FOREVER
        empty = first.op == "read" and first.value == () and not first.turns and first.limit != 0
        return empty and _get_end(first) < began

    def _find_stored(self, appends: list[TraceOperation]) -> Iterator[TraceOperation]:
        """Yield the appends that stored new entries, if they were acknowledged.

        A key may have been used before the trace began, in a line that is missing, or in the
        session that this one was forked from: then nothing was stored, and what was may be hidden.
        Only a position beyond one that was given out before shows that it was stored anew.
        """
        known = self._metadata.fresh and self._metadata.complete and not self._forked
        highest = -1
        given: list[tuple[int, int]] = []
        for op in appends:
            while given and given[0][0] < op.invoke_ns:
                highest = max(highest, heapq.heappop(given)[1])
            later = op.position is not None and -1 < highest < op.position
            if op.key is not None and not known and not later:
                continue
            yield op
            if op.outcome == "ok" and op.position is not None and op.complete_ns is not None:
                heapq.heappush(given, (op.complete_ns, op.position))

    def _find_trusted(self, appends: list[Event]) -> Iterator[tuple[str, tuple[str, int]]]:
        """Yield the hashes that stand for exactly one entry."""
        # Entries that are older than the trace may come back by an undo or a rollback.
        moved = any(op.op in ("undo", "rollback") for op in self._ops)
        looks = [
            (_get_end(op), frozenset(map(strip_fields, op.value)))
            for op in self._ops
            if not moved and op.op == "read" and op.limit is None and not op.turns
            if isinstance(op.value, tuple)
        ]
        for event in appends:
            for token in event.op.ids:
                one = strip_fields(token)
                if len(self._by_hash[one]) > 1:
                    continue
                # One that was looked for before it was appended, and was not there, is not older.
                if self.whole or any(end < event.lo and one not in seen for end, seen in looks):
                    yield one, (token, event.lo)

    # From where on nothing is known

    def _is_decided(self, op: TraceOperation) -> bool:
        """Return whether an operation (a read: its end) came before any unknown change."""
        if self._unknown is None:
            return True
        return (_get_end(op) if op.op == "read" else op.invoke_ns) < self._unknown.invoke_ns

    def find_unknown_change(self) -> UnknownChange | None:
        """Return the call after which the session is undecided, if there is one."""
        call = self._unknown
        if call is None:
            return None
        before = sum(op.invoke_ns < call.invoke_ns for op in self._ops)
        return UnknownChange(self.name, call.verb, before)

    # Entries that are only counted

    def is_judged(self, op: TraceOperation) -> bool:
        """Return whether an operation proves something, or could have."""
        if not self._is_decided(op) or (op.op == "read" and op.outcome == "info"):
            return False
        if op.op == "append" and op.outcome == "ok":
            return id(op) in self._countable
        if op.op == "read" and op.outcome == "ok":
            if self.has_history:
                return not op.turns or self._only_turns
            return op.limit is None and not op.turns and bool(self._countable)
        return True

    def count(self, changes: list[Operation]) -> Iterator[Anomaly]:
        """Find entries that are missing, or there too often, among those that share a hash.

        `changes` are what may have removed entries, beside the operations of the session.
        """
        removers = [op for op in self.decided if op.op in REMOVERS]
        undisturbed = not removers and not changes
        reads = [
            op
            for op in self.decided
            if op.op == "read" and op.outcome == "ok" and isinstance(op.value, tuple)
            if op.limit is None and op.snapshot is None
            if not op.turns or (self._only_turns and undisturbed)
        ]
        if self.whole:
            shared = {one: events for one, events in self._by_hash.items() if len(events) > 1}
            yield from find_duplicates(shared, reads)
        elif self._metadata.ttl_s is not None and self._metadata.ends_unseen:
            return
        acknowledged = [
            event
            for event in self._appends
            if event.sure and id(event.op) in self._countable
            if event.op.key not in self._mixed_keys
        ]
        yield from find_absences(acknowledged, reads, [*removers, *changes], self._trusted.keys())

    # Entries that the checker judges

    def resolve(self) -> Iterator[Operation]:
        """Yield the operations, as far as their entries are known."""
        for op in self.decided:
            key = None if op.key in self._mixed_keys else op.key
            if op.op == "append":
                ids = tuple(one for one in map(strip_fields, op.ids) if one in self._trusted)
                # A failed attempt says nothing: its entries may have come in by a later one.
                if ids and op.outcome != "fail":
                    yield to_operation(op, ids=ids, key=key)
            elif op.op == "read" and isinstance(op.value, tuple):
                if not op.turns or self._only_turns:
                    yield self._resolve_read(op, op.value)
            elif op.op == "pop" and isinstance(op.value, str):
                if (popped := self._resolve_token(op.value, op)) is not None:
                    yield to_operation(op, value=popped)
            elif op.op == "pop" and op.outcome == "ok" and not self._pops_return:
                yield to_operation(op, outcome="info")
            elif not self.is_exact(op):
                # It may have taken anything and need not have taken anything.
                yield to_operation(op, keep=0, outcome="info", key=None)
            else:
                key = None if op.outcome == "fail" else op.key
                value = None if self._is_gone(op) else op.value
                yield to_operation(op, key=key, value=value)

    def _resolve_read(self, op: TraceOperation, seen: tuple[str, ...]) -> Operation:
        entries = [self._resolve_token(token, op) for token in seen]
        value = tuple(id_ for id_ in entries if id_ is not None)
        # Entries that are left out counted towards the limit.
        full = op.limit is not None and len(seen) >= op.limit
        return to_operation(op, value=value, limit=len(value) if full else op.limit)

    def _is_gone(self, op: TraceOperation) -> bool:
        """Return whether a snapshot that was not found may have been deleted, or have expired."""
        deleted = op.snapshot in self._deleted or self._forgotten
        return op.value == NOT_FOUND and (deleted or self._metadata.ttl_s is not None)

    def is_exact(self, op: TraceOperation) -> bool:
        """Return whether the checker knows what an operation removes."""
        return op.op != "trim" or (self._exact_trims and not op.unsure)

    def _resolve_token(self, token: str, op: TraceOperation) -> str | None:
        """Return the entry that a hash stands for; None if it is ambiguous, or older."""
        one = strip_fields(token)
        if one not in self._trusted:
            return one if self.whole and one not in self._by_hash else None
        stored, since = self._trusted[one]
        if not self.whole and _get_end(op) < since:
            return None
        return one if op.turns or _has_fields(stored, token) else CORRUPTED + one


def _get_end(op: TraceOperation) -> int:
    return FOREVER if op.complete_ns is None else op.complete_ns


def _join_attempts(appends: Iterable[TraceOperation]) -> tuple[list[Event], set[str | None]]:
    """Return each append once, and the keys that were used for two batches."""
    events: list[Event] = []
    keyed: dict[str | None, Event] = {}
    mixed: set[str | None] = set()
    for op in appends:
        if op.outcome == "fail":
            continue
        known = keyed.get(op.key)
        if known is not None and known.op.ids == op.ids:
            known.join(op)
            continue
        if known is not None:
            mixed.add(op.key)
        events.append(Event(op))
        if op.key is not None:
            keyed.setdefault(op.key, events[-1])
    return events, mixed


def _has_fields(stored: str, seen: str) -> bool:
    """Return whether every other field of an entry came back as it was."""
    return set(stored.split(FIELD)[1:]) <= set(seen.split(FIELD)[1:])


def _find_expiries(
    session: str, ops: list[TraceOperation], metadata: TraceMetadata
) -> Iterator[Operation]:
    """The windows in which a session's life ends: after each call that no other follows in time.

    An append begins the time anew, or a read too, or nothing does, as the store promises. Where it
    is not clear whether a call came in time, the life may have ended or not.
    """
    begins = ("append", "read") if metadata.ttl_refreshed_by == "read" else ("append",)
    calls = [op for op in ops if op.op in begins and op.outcome != "fail"]
    last = max((op.complete_ns or op.invoke_ns for op in ops), default=0)
    ttl_s: float | None = None
    for op, then in pairwise([*calls, None]):
        assert op is not None
        if op.op == "append":
            ttl_s = metadata.ttl_s if op.ttl_s is None else op.ttl_s
        if ttl_s is None:
            continue
        begin = op.invoke_ns + int(ttl_s * 1e9)
        end = (op.complete_ns or last) + int((ttl_s + metadata.ttl_late_s) * 1e9)
        sure = op.outcome == "ok"
        if then is not None and metadata.ttl_refreshed_by != "nothing":
            if then.complete_ns is not None and then.complete_ns < begin:
                continue
            sure = sure and then.invoke_ns > end
        expiry = Operation(
            worker="clock",
            session=session,
            op="expire",
            invoke_ns=begin,
            complete_ns=end if sure else None,
            outcome="ok" if sure else "info",
        )
        yield expiry
        if metadata.ttl_refreshed_by == "nothing":
            # Which later append began a new life is not known: any may have ended since.
            yield replace(expiry, complete_ns=None, outcome="info")
            return
