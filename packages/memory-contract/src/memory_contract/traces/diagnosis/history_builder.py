"""Builds a history that the checker can judge from the lines of a trace.

In a trace an entry is known by a hash, and two may share one ("yes" is said twice); entries may be
older than the trace; and what takes entries away may be known only to have been begun. Here all of
that is settled so that no right store can be accused: what cannot be told apart is left out of the
history, everywhere alike, and only counted. A call that may have changed a session in a way that
nobody knows makes it undecided from there on: what comes later is left out.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Final, TypeVar

from memory_contract.checker.events import FOREVER
from memory_contract.checker.verdict import Anomaly
from memory_contract.history import CORRUPTED, NOT_FOUND, Operation
from memory_contract.traces.diagnosis.absences import AppendBatch, find_absences, join_attempts
from memory_contract.traces.diagnosis.expiries import find_expiries
from memory_contract.traces.diagnosis.hash_counts import HashCounts
from memory_contract.traces.diagnosis.trace_metadata import TraceMetadata
from memory_contract.traces.format import (
    FIELD,
    REMOVERS,
    OtherCall,
    TraceCall,
    TraceOperation,
    strip_fields,
)

_L = TypeVar("_L", bound=TraceCall)
_PLAIN: Final = tuple(each.name for each in fields(Operation))


@dataclass(frozen=True, slots=True)
class UnknownChange:
    """A call that may have changed a session in a way that the recorder does not know."""

    session: str
    verb: str
    # How many operations of the session had begun before it.
    before: int


@dataclass(slots=True)
class ResolvedHistory:
    """A history, the anomalies that counting shows, and whether it may be searched."""

    history: list[Operation] = field(default_factory=list)
    anomalies: list[Anomaly] = field(default_factory=list)
    searchable: bool = True
    # Which operation of the history came from which line.
    origin: dict[int, TraceOperation] = field(default_factory=dict)
    # How many operations the lines tell of, and how many of them prove nothing.
    operations: int = 0
    unjudged: int = 0
    # The calls from which on a session is undecided.
    unknown: list[UnknownChange] = field(default_factory=list)


def build_history(lines: Iterable[TraceCall], metadata: TraceMetadata) -> ResolvedHistory:
    """Build the history of a group of sessions."""
    operations, others = merge_announced(lines)
    resolved = ResolvedHistory()
    if metadata.own_ids:
        for op in operations:
            _add_operation(resolved, _to_operation(op), op)
        resolved.operations = len(operations)
        return resolved
    sessions = _Sessions(operations, others, metadata)
    for op in operations:
        if sessions.is_decided(op):
            sessions.add(op, resolved)
    every = [op for op in operations if op.every]
    for name, ops in sessions.by_name.items():
        decided = [op for op in ops if sessions.is_decided(op)]
        if name not in sessions.targets:
            later = [op for op in decided if not sessions.may_show_older(op)]
            whole = sessions.is_whole(name)
            resolved.anomalies += sessions.counts.find_duplicates(name, later, whole=whole)
        ends = list(find_expiries(name, decided, metadata))
        resolved.history += ends
        resolved.anomalies += sessions.find_absences_of(name, decided, [*every, *ends])
        resolved.operations += len(ops) + len(every)
        resolved.unjudged += sum(not sessions.is_judged(op) for op in ops)
        resolved.unknown += sessions.list_unknown(name)
    return resolved


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


def _to_operation(op: TraceOperation, **changes: object) -> Operation:
    values = {name: getattr(op, name) for name in _PLAIN}
    return Operation(**{**values, **changes})


def _add_operation(resolved: ResolvedHistory, operation: Operation, line: TraceOperation) -> None:
    resolved.history.append(operation)
    resolved.origin[id(operation)] = line


class _Sessions:
    """Sessions that are judged together, and what is known of their entries."""

    def __init__(
        self, operations: list[TraceOperation], others: list[OtherCall], metadata: TraceMetadata
    ) -> None:
        self._metadata = metadata
        self.by_name: dict[str, list[TraceOperation]] = {}
        for op in operations:
            if not op.every:
                self.by_name.setdefault(op.session, []).append(op)
        self._forks = [op for op in operations if op.op == "fork"]
        self.targets = {op.target for op in self._forks}
        self.counts = HashCounts(operations)
        self._deleted = {(each.session, each.snapshot) for each in others if each.snapshot}
        # What came in by another way than an append is in no line: any session may hold it.
        self._filled = {"" if each.every else each.session for each in others if _is_import(each)}
        self._forgotten = {op.session for op in operations if op.verb == "forget"}
        self._unknown = self._find_unknown(others)
        # When each snapshot of the trace was first begun.
        self._taken: dict[tuple[str, str | None], int] = {}
        for op in operations:
            if op.op == "snapshot":
                self._taken.setdefault((op.session, op.snapshot), op.invoke_ns)
        # When a session of which it is not known what it had held was seen to hold nothing.
        self._empty_at: dict[str, int] = {}
        self._whole = {name for name, ops in self.by_name.items() if self._begins_empty(name, ops)}
        # Appends whose entries are surely stored anew, and not those of an older append of one key.
        self._anew = {
            id(op) for name, ops in self.by_name.items() for op in self._find_stored(name, ops)
        }
        # Of each hash that stands for one entry alone: its fields, and when it was appended.
        self._trusted: dict[str, tuple[str, int]] = self._find_trusted()
        # Sessions of which the history does not hold all appends: nothing there can be counted off.
        self._partly = {
            op.session
            for op in operations
            if op.op == "append" and op.outcome != "fail" and not op.every
            if any(strip_fields(token) not in self._trusted for token in op.ids)
        }
        self._partly_trusted = {
            op.session
            for op in operations
            if op.op == "append" and any(strip_fields(token) in self._trusted for token in op.ids)
        }
        self._batches: dict[str, list[AppendBatch]] = {
            name: join_attempts(self._appends_to_count(ops)) for name, ops in self.by_name.items()
        }

    def is_whole(self, name: str) -> bool:
        """Return whether all that the session ever held was appended in this trace."""
        return name in self._whole and self._metadata.complete

    def _begins_empty(self, name: str, ops: list[TraceOperation]) -> bool:
        if self._filled & {"", name}:
            return False
        if self._metadata.fresh:
            return True
        # What was there before the trace may come back by an undo or an old snapshot.
        if any(op.op == "undo" or (op.op == "rollback" and self._is_older(op)) for op in ops):
            return False
        first = min((op.invoke_ns for op in ops if op.op == "append"), default=None)
        # The position of an older append is given again to a retry with its key.
        if any(op.position == 0 and op.key is None for op in ops):
            return True
        if name in self.targets:
            return not any(self._is_older(op) for op in self._forks if op.snapshot is not None)
        empty = [
            op.complete_ns or 0
            for op in ops
            if op.op == "read" and op.outcome == "ok"
            if op.value == () and op.limit is None and not op.turns
            if first is None or (op.complete_ns or 0) < first
        ]
        if empty:
            self._empty_at[name] = min(empty)
        return bool(empty)

    def _is_older(self, op: TraceOperation) -> bool:
        """Return whether an operation may be about a snapshot older than the trace."""
        taken = self._taken.get((op.session, op.snapshot))
        late = taken is None or (op.complete_ns is not None and op.complete_ns < taken)
        return late or not self._metadata.complete

    def may_show_older(self, op: TraceOperation) -> bool:
        """Return whether an operation may have seen entries older than the empty session."""
        return op.invoke_ns <= self._empty_at.get(op.session, -1)

    def _find_stored(self, name: str, ops: list[TraceOperation]) -> Iterator[TraceOperation]:
        """Yield the appends that stored new entries, if they were acknowledged.

        A key may have been used before the trace began, in a line that is missing, or in the
        session that this one was forked from: then nothing was stored, and what was may be hidden.
        Only a position beyond one that was given out before shows that it was stored anew.
        """
        highest = -1
        given: list[tuple[int, int]] = []
        for op in ops:
            if op.op != "append":
                continue
            while given and given[0][0] < op.invoke_ns:
                highest = max(highest, heapq.heappop(given)[1])
            known = self._metadata.fresh and self._metadata.complete and name not in self.targets
            later = op.position is not None and -1 < highest < op.position
            if op.key is not None and not known and not later:
                continue
            yield op
            if op.outcome == "ok" and op.position is not None and op.complete_ns is not None:
                heapq.heappush(given, (op.complete_ns, op.position))

    def _find_trusted(self) -> dict[str, tuple[str, int]]:
        """Find the hashes that stand for exactly one entry."""
        found: dict[str, tuple[str, int]] = {}
        # Where lines are missing, another entry may have the same hash; so may one that a fork
        # brought, or left behind, where older entries are.
        whole = all(name in self._whole for name in self.by_name)
        if not self._metadata.complete or (self.targets and not whole):
            return found
        for name, ops in self.by_name.items():
            whole = self.is_whole(name)
            if self._filled & {"", name}:
                continue
            looked = [
                (op.complete_ns or 0, frozenset(map(strip_fields, op.value)))
                for op in ops
                if op.op == "read" and op.outcome == "ok" and op.limit is None
                if isinstance(op.value, tuple) and not op.turns
            ]
            moved = any(op.op in ("undo", "rollback") for op in ops)
            begun: dict[str | None, int] = {}
            for op in ops:
                if op.op != "append" or op.outcome == "fail" or id(op) not in self._anew:
                    continue
                # All attempts with one key are one append.
                since = begun.setdefault(op.key, op.invoke_ns) if op.key else op.invoke_ns
                for token in op.ids:
                    one = strip_fields(token)
                    if self.counts.count_appends(one) != 1:
                        continue
                    # Where older entries may be, one that was looked for before it was appended,
                    # and was not there, is none of them.
                    new = not moved and any(end < since and one not in seen for end, seen in looked)
                    if whole or new:
                        found[one] = (token, -1 if whole else since)
        return found

    # From where on nothing is known

    def _find_unknown(self, others: list[OtherCall]) -> dict[str, OtherCall]:
        """Find the first call on each session whose effect is unknown."""
        found: dict[str, OtherCall] = {}
        for call in sorted(others, key=lambda each: each.invoke_ns):
            if call.changes:
                for name in self.by_name if call.every else (call.session,):
                    found.setdefault(name, call)
        grown = bool(found)
        while grown:
            grown = False
            for fork in self._forks:
                source = found.get(fork.session)
                end = FOREVER if fork.complete_ns is None else fork.complete_ns
                if source is not None and end >= source.invoke_ns and fork.target not in found:
                    found[str(fork.target)] = replace(source, invoke_ns=fork.invoke_ns)
                    grown = True
        return found

    def is_decided(self, op: TraceOperation) -> bool:
        """Return whether an operation (a read: its end) came before any unknown change."""
        if op.every:
            return True
        call = self._unknown.get(op.session)
        if call is None:
            return True
        if op.op == "read":
            return op.complete_ns is not None and op.complete_ns < call.invoke_ns
        return op.invoke_ns < call.invoke_ns

    def list_unknown(self, name: str) -> list[UnknownChange]:
        """Return the call after which a session is undecided, if there is one."""
        call = self._unknown.get(name)
        if call is None:
            return []
        before = sum(op.invoke_ns < call.invoke_ns for op in self.by_name[name])
        return [UnknownChange(name, call.verb, before)]

    # How much is judged

    def is_judged(self, op: TraceOperation) -> bool:
        """Return whether an operation proves something, or could have."""
        if not self.is_decided(op):
            return False
        if op.op == "append" and op.outcome == "ok":
            counted = id(op) in self._anew and op.invoke_ns > self._metadata.changes_known_since
            return counted or all(strip_fields(token) in self._trusted for token in op.ids)
        if op.op == "read" and op.outcome == "ok":
            if self.is_whole(op.session):
                return not op.turns or self.counts.has_only_turns(op.session)
            trusted = op.session in self._partly_trusted
            complete = op.limit is None and not op.turns
            return trusted or (complete and bool(self._batches[op.session]))
        return True

    def _appends_to_count(self, ops: list[TraceOperation]) -> list[TraceOperation]:
        since = self._metadata.changes_known_since
        return [
            op
            for op in ops
            if op.op == "append" and id(op) in self._anew and op.invoke_ns > since
            if self.is_decided(op)
        ]

    def find_absences_of(
        self, name: str, ops: list[TraceOperation], changes: list[Operation]
    ) -> Iterator[Anomaly]:
        """Find missing acknowledged entries among those that the checker does not judge."""
        batches = self._batches[name]
        counted = {one for batch in batches for one in batch.ids if one not in self._trusted}
        whole = self.is_whole(name)
        metadata = self._metadata
        if not counted or (not whole and metadata.ttl_s is not None and metadata.ends_unseen):
            return
        removers = [op for op in ops if op.op in REMOVERS]
        turns = whole and not removers and not changes and self.counts.has_only_turns(name)
        reads = [
            op
            for op in ops
            if op.op == "read" and op.outcome == "ok" and isinstance(op.value, tuple)
            if op.limit is None and op.snapshot is None and (turns or not op.turns)
        ]
        yield from find_absences(batches, reads, [*removers, *changes], counted)

    # One operation

    def add(self, op: TraceOperation, resolved: ResolvedHistory) -> None:
        """Add an operation to the history, as far as its entries are known."""
        if op.every:
            for name in self.by_name:
                _add_operation(
                    resolved, _to_operation(op, session=name, worker=f"{op.worker}*{name}"), op
                )
            return
        match op.op:
            case "append":
                self._add_append(op, resolved)
            case "read":
                self._add_read(op, resolved)
            case "pop":
                self._add_pop(op, resolved)
            case "trim":
                self._add_trim(op, resolved)
            case _:
                _add_operation(resolved, _to_operation(op, **self._adjust_change(op)), op)

    def _add_append(self, op: TraceOperation, resolved: ResolvedHistory) -> None:
        ids = tuple(one for one in map(strip_fields, op.ids) if one in self._trusted)
        # A failed attempt whose entries came in by a later one says nothing.
        if ids and self.counts.is_counted(op):
            key = op.key if self.counts.is_key(op) else None
            _add_operation(resolved, _to_operation(op, ids=ids, key=key), op)

    def _add_read(self, op: TraceOperation, resolved: ResolvedHistory) -> None:
        if not isinstance(op.value, tuple):
            _add_operation(resolved, _to_operation(op), op)
            return
        if op.turns and not self.counts.has_only_turns(op.session):
            return
        seen = tuple(self._resolve_token(token, op) for token in op.value)
        value = tuple(id_ for id_ in seen if id_ is not None)
        limit = op.limit
        if limit is not None and len(op.value) >= limit:
            # What was left out counted for the limit.
            limit = len(value)
        _add_operation(resolved, _to_operation(op, value=value, limit=limit), op)

    def _resolve_token(self, token: str, op: TraceOperation) -> str | None:
        """Return the entry that a hash stands for; None if it is ambiguous."""
        one = strip_fields(token)
        if self.may_show_older(op):
            return None
        if one in self._trusted:
            known, since = self._trusted[one]
            if (op.complete_ns or 0) < since:
                # It was not appended yet: this is an older entry of the same hash.
                return None
            return one if op.turns or _has_fields(known, token) else CORRUPTED + one
        if (
            self.counts.count_appends(one)
            or not self.is_whole(op.session)
            or op.session in self.targets
        ):
            return None
        return one

    def _add_pop(self, op: TraceOperation, resolved: ResolvedHistory) -> None:
        if isinstance(op.value, str):
            seen = self._resolve_token(op.value, op)
            if seen is not None:
                _add_operation(resolved, _to_operation(op, value=seen), op)
            return
        _add_operation(resolved, _to_operation(op), op)

    def _add_trim(self, op: TraceOperation, resolved: ResolvedHistory) -> None:
        # A fork brings what its source holds.
        held = self.by_name if op.session in self.targets else (op.session,)
        known = all(self.is_whole(name) and name not in self._partly for name in held)
        exact = known and not op.unsure and self.counts.is_plain(op.session)
        if exact:
            _add_operation(resolved, _to_operation(op), op)
            return
        # It may have taken anything and need not have taken anything.
        resolved.searchable = False
        _add_operation(resolved, _to_operation(op, keep=0, outcome="info", key=None), op)

    def _adjust_change(self, op: TraceOperation) -> dict[str, object]:
        changes: dict[str, object] = {}
        if op.key is not None and (op.outcome == "fail" or op.op in REMOVERS):
            changes["key"] = op.key if op.outcome != "fail" else None
        if op.op in ("rollback", "fork") and op.snapshot is not None and self._is_older(op):
            # The name may have been taken before the trace, or been freed in a missing line.
            changes["snapshot"] = f"?{op.snapshot}"
            changes["value"] = None
        if op.value == NOT_FOUND:
            gone = (op.session, op.snapshot) in self._deleted or op.session in self._forgotten
            if gone or self._metadata.ttl_s is not None:
                changes["value"] = None
        return changes


def _is_import(call: OtherCall) -> bool:
    return call.verb in ("add_entries", "import_")


def _has_fields(stored: str, seen: str) -> bool:
    """Return whether every other field of an entry came back as it was."""
    if FIELD not in stored:
        return True
    return set(stored.split(FIELD)[1:]) <= set(seen.split(FIELD)[1:])


def shift_times(line: _L, by_ns: int) -> _L:
    """Return the line with its times shifted."""
    end = line.complete_ns
    return replace(
        line, invoke_ns=line.invoke_ns + by_ns, complete_ns=None if end is None else end + by_ns
    )
