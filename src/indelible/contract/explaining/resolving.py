"""From the lines of a trace to a history that the checker can judge.

In a trace an entry is known by a hash, and two may share one ("yes" is said twice); entries may be
older than the trace; and what takes entries away may be known only to have been begun. Here all of
that is settled so that no right store can be accused: what cannot be told apart is left out of the
history, everywhere alike, and only counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Final

from indelible.contract.checker.verdict import Anomaly
from indelible.contract.explaining.knowing import Known
from indelible.contract.explaining.lives import expiries
from indelible.contract.explaining.tallies import Tally
from indelible.contract.history import CORRUPTED, NOT_FOUND, Operation
from indelible.contract.traces import BY_ID, FIELD, Other, Recorded, base

_PLAIN: Final = tuple(each.name for each in fields(Operation))
# Two changes of one name with another argument are two changes.
_REMOVES: Final = frozenset({"clear", "pop", "trim", "rollback", "undo", "expire"})


@dataclass(slots=True)
class Resolved:
    """A history, what counting alone could show, and whether it must not be searched."""

    history: list[Operation] = field(default_factory=list)
    anomalies: list[Anomaly] = field(default_factory=list)
    searchable: bool = True
    # Which operation of the history came from which line.
    origin: dict[int, Recorded] = field(default_factory=dict)


def resolve(lines: Iterable[Recorded | Other], known: Known) -> Resolved:
    """The history of some sessions: all that are connected by forks, and whatever touches all."""
    operations, others = settled(lines)
    resolved = Resolved()
    if known.own_ids:
        for op in operations:
            _keep(resolved, _plain(op), op)
        return resolved
    sessions = _Sessions(operations, others, known)
    for op in operations:
        sessions.take(op, resolved)
    for name, ops in sessions.by_name.items():
        if name not in sessions.targets:
            resolved.anomalies += sessions.tally.judged(name, ops, whole=sessions.is_whole(name))
        resolved.history += expiries(name, ops, known)
    return resolved


def settled(lines: Iterable[Recorded | Other]) -> tuple[list[Recorded], list[Other]]:
    """What was announced and then done is one operation; in the order of invocation."""
    done: dict[tuple[str, int], Recorded] = {}
    others: list[Other] = []
    for line in lines:
        if isinstance(line, Other):
            others.append(line)
            continue
        known = done.get((line.worker, line.invoke_ns))
        if known is None or known.complete_ns is None:
            done[line.worker, line.invoke_ns] = line
    return sorted(done.values(), key=lambda op: op.invoke_ns), others


def _plain(op: Recorded, **changes: object) -> Operation:
    values = {name: getattr(op, name) for name in _PLAIN}
    return Operation(**{**values, **changes})


def _keep(resolved: Resolved, operation: Operation, line: Recorded) -> None:
    resolved.history.append(operation)
    resolved.origin[id(operation)] = line


class _Sessions:
    """Sessions that are judged together, and what is known of their entries."""

    def __init__(self, operations: list[Recorded], others: list[Other], known: Known) -> None:
        self._known = known
        self.by_name: dict[str, list[Recorded]] = {}
        for op in operations:
            if not op.every:
                self.by_name.setdefault(op.session, []).append(op)
        self.targets = {op.target for op in operations if op.op == "fork"}
        self.tally = Tally(operations, complete=known.complete)
        self._deleted = {(each.session, each.snapshot) for each in others if each.snapshot}
        # What came in by another way than an append is in no line: any session may hold it.
        self._filled = {"" if each.every else each.session for each in others if _fills(each)}
        self._forgotten = {op.session for op in operations if op.verb == "forget"}
        self._whole = {name for name, ops in self.by_name.items() if self._begins_empty(name, ops)}
        self._trusted = self._unmistakable()
        self._searchable = True

    def is_whole(self, name: str) -> bool:
        """Whether everything that the session ever held came in by an append of this trace."""
        return name in self._whole and self._known.complete

    def _begins_empty(self, name: str, ops: list[Recorded]) -> bool:
        if self._filled & {"", name}:
            return False
        if self._known.fresh:
            return True
        taken = {op.snapshot for op in ops if op.op == "snapshot"}
        # What was there before the trace may come back by an undo or an old snapshot.
        if any(op.op == "undo" or (op.op == "rollback" and op.snapshot not in taken) for op in ops):
            return False
        first = min((op.invoke_ns for op in ops if op.op == "append"), default=None)
        if any(op.position == 0 for op in ops):
            return True
        return name in self.targets or any(
            op.value == () and op.limit is None and not op.turns
            for op in ops
            if op.op == "read" and op.outcome == "ok"
            if first is None or (op.complete_ns or 0) < first
        )

    def _unmistakable(self) -> dict[str, str]:
        """The hashes that stand for one entry alone, each with its other fields."""
        found: dict[str, str] = {}
        for name, ops in self.by_name.items():
            whole = self.is_whole(name)
            if self._filled & {"", name}:
                continue
            looked = [
                (op.complete_ns or 0, frozenset(map(base, op.value)))
                for op in ops
                if op.op == "read" and op.outcome == "ok" and op.limit is None
                if isinstance(op.value, tuple) and not op.turns
            ]
            moved = any(op.op in ("undo", "rollback") for op in ops)
            for op in ops:
                if op.op != "append":
                    continue
                for token in op.ids:
                    one = base(token)
                    if self.tally.appends(one) != 1:
                        continue
                    # Where older entries may be, one that was looked for before it was appended,
                    # and was not there, is none of them.
                    new = not moved and any(
                        end < op.invoke_ns and one not in seen for end, seen in looked
                    )
                    if whole or new or one.startswith(BY_ID):
                        found[one] = token
        return found

    # One operation

    def take(self, op: Recorded, resolved: Resolved) -> None:
        """Put an operation into the history, as far as it can be told what it was about."""
        if op.every:
            for name in self.by_name:
                _keep(resolved, _plain(op, session=name, worker=f"{op.worker}*{name}"), op)
            return
        match op.op:
            case "append":
                self._append(op, resolved)
            case "read":
                self._read(op, resolved)
            case "pop":
                self._pop(op, resolved)
            case "trim":
                self._trim(op, resolved)
            case _:
                _keep(resolved, _plain(op, **self._changed(op)), op)

    def _append(self, op: Recorded, resolved: Resolved) -> None:
        ids = tuple(one for one in map(base, op.ids) if one in self._trusted)
        # A failed attempt whose entries came in by a later one says nothing.
        if ids and self.tally.counts(op):
            key = op.key if self.tally.is_key(op) else None
            _keep(resolved, _plain(op, ids=ids, key=key), op)

    def _read(self, op: Recorded, resolved: Resolved) -> None:
        if not isinstance(op.value, tuple):
            _keep(resolved, _plain(op), op)
            return
        if op.turns and not self.tally.only_turns(op.session):
            return
        seen = tuple(self._seen(token, op) for token in op.value)
        value = tuple(id_ for id_ in seen if id_ is not None)
        limit = op.limit
        if limit is not None and len(op.value) >= limit:
            # What was left out counted for the limit.
            limit = len(value)
        _keep(resolved, _plain(op, value=value, limit=limit), op)

    def _seen(self, token: str, op: Recorded) -> str | None:
        """The entry that a hash stands for; None if that cannot be told."""
        one = base(token)
        known = self._trusted.get(one)
        if known is not None:
            return one if op.turns or _kept_fields(known, token) else CORRUPTED + one
        if self.tally.appends(one) or not self.is_whole(op.session) or op.session in self.targets:
            return None
        return one

    def _pop(self, op: Recorded, resolved: Resolved) -> None:
        if isinstance(op.value, str):
            seen = self._seen(op.value, op)
            if seen is not None:
                _keep(resolved, _plain(op, value=seen), op)
            return
        _keep(resolved, _plain(op), op)

    def _trim(self, op: Recorded, resolved: Resolved) -> None:
        exact = self.is_whole(op.session) and not op.unsure and self.tally.is_plain(op.session)
        if exact:
            _keep(resolved, _plain(op), op)
            return
        # It may have taken anything and need not have taken anything.
        resolved.searchable = False
        _keep(resolved, _plain(op, keep=0, outcome="info", key=None), op)

    def _changed(self, op: Recorded) -> dict[str, object]:
        changes: dict[str, object] = {}
        if op.key is not None and (op.outcome == "fail" or op.op in _REMOVES):
            changes["key"] = op.key if op.outcome != "fail" else None
        if op.op == "snapshot" and op.snapshot is None:
            changes["snapshot"] = f"?{op.worker}-{op.invoke_ns}"
        if op.value == NOT_FOUND:
            gone = (op.session, op.snapshot) in self._deleted or op.session in self._forgotten
            if gone or self._known.ttl_s is not None:
                changes["value"] = None
        return changes


def _fills(call: Other) -> bool:
    return call.verb in ("add_entries", "import_")


def _kept_fields(stored: str, seen: str) -> bool:
    """Whether every other field of an entry came back as it was."""
    if FIELD not in stored:
        return True
    return set(stored.split(FIELD)[1:]) <= set(seen.split(FIELD)[1:])


def shifted(line: Recorded | Other, by_ns: int) -> Recorded | Other:
    """The same, at other times."""
    if not by_ns:
        return line
    end = line.complete_ns
    return replace(
        line, invoke_ns=line.invoke_ns + by_ns, complete_ns=None if end is None else end + by_ns
    )
