"""The record of what workers did to a store and what they saw: one operation, one line.

Entries are known by ids that the recorder made, each for one append alone. Times are taken with
`time.monotonic_ns` just before and just after a call, in the thread that makes it. A record is
only as good as its outcomes: `ok` and `fail` are promises of the store, everything else is `info`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal, get_args

OpName = Literal[
    "append", "read", "pop", "trim", "clear", "snapshot", "rollback", "undo", "fork", "expire"
]
Outcome = Literal["ok", "fail", "info"]
Ids = tuple[str, ...]

# Stands before an id whose entry came back with another checksum or type than it was stored with.
CORRUPTED: Final = "!"
# The value of a failed rollback or read of a snapshot, if the store said that there is none. Any
# other failure may be a passing one, which proves nothing about the snapshot.
NOT_FOUND: Final = "not found"
# Times, counts and limits of a file: the checker has moments of its own beyond all of them.
NUMBER_MAX: Final = 1 << 62


class HistoryError(ValueError):
    """A line of a recorded history cannot be read; nothing of the file was judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One call: who, on what, when, and what came of it.

    `ids` is the batch of an append, `limit` belongs to a read, `keep` to a trim, `target` is the
    new session of a fork. An append with `keep` is one of a store that claims to keep only the
    newest `keep` entries of a session. `snapshot` names the snapshot to take, to return to, to fork
    from, or to read instead of the session. An `expire` is no call: it says that the session's life
    ends at some moment between its two times.
    """

    worker: str
    session: str
    op: OpName
    invoke_ns: int
    complete_ns: int | None
    outcome: Outcome
    ids: Ids = ()
    limit: int | None = None
    keep: int | None = None
    snapshot: str | None = None
    target: str | None = None
    value: Ids | str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A bad moment that was made: what struck, from when, and until when; None if to the end."""

    name: str
    began_ns: int
    ended_ns: int | None


_FIELDS = tuple(field.name for field in fields(Operation))
_NAMES: Final = frozenset(get_args(OpName))
_OUTCOMES: Final = frozenset(get_args(Outcome))
_NEEDS: Final = {
    "trim": "keep",
    "snapshot": "snapshot",
    "rollback": "snapshot",
    "fork": "target",
}


def write_history(path: str | Path, operations: Iterable[Operation]) -> None:
    """Write one JSON line for each operation; fields that say nothing are left out."""
    # Names come from anywhere: half a surrogate pair is written as `read_history` reads it.
    with Path(path).open("w", encoding="utf-8", errors="surrogatepass") as file:
        file.writelines(format_operation(operation) + "\n" for operation in operations)


def read_history(path: str | Path) -> Iterator[Operation]:
    """Yield the operations of a file; a `HistoryError` names the line that cannot be read."""
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                try:
                    yield parse_operation(line)
                except (HistoryError, UnicodeDecodeError) as error:
                    raise HistoryError(f"{path}, line {number}: {error}") from error


def format_operation(operation: Operation) -> str:
    """One operation as JSON."""
    found = {name: getattr(operation, name) for name in _FIELDS}
    # A call that never came back is said aloud; the other fields have their defaults.
    kept = {k: v for k, v in found.items() if k == "complete_ns" or v not in (None, ())}
    if operation.value == ():
        kept["value"] = ()
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":"))


def parse_operation(line: str | bytes) -> Operation:
    """The operation that `to_line` wrote, or a `HistoryError` that says what is wrong."""
    found = parse_object(line)
    if unknown := sorted(found.keys() - set(_FIELDS)):
        raise HistoryError(f"unknown field {unknown[0]!r}")
    _require_types(found)
    operation = Operation(**found)
    if problem := find_problem(operation):
        raise HistoryError(problem)
    return operation


def parse_object(line: str | bytes) -> dict[str, Any]:
    """The fields of a line, lists of ids as tuples."""
    try:
        found = json.loads(line, object_pairs_hook=_object)
    except HistoryError:
        raise
    except ValueError as error:
        raise HistoryError(f"no JSON: {error}") from error
    except RecursionError as error:
        raise HistoryError("no JSON that is nested so deeply can be read") from error
    if not isinstance(found, dict):
        raise HistoryError("an operation is a JSON object")
    for name in ("ids", "value"):
        if isinstance(found.get(name), list):
            found[name] = tuple(found[name])
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; a name that stands in it twice has no one meaning."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise HistoryError("a name stands twice in one object")
    return found


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < NUMBER_MAX


def _is_ids(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(id_, str) for id_ in value)


_TYPES: Final = {
    **dict.fromkeys(
        ("worker", "session", "op", "outcome", "snapshot", "target", "key"), (_is_text, "a string")
    ),
    **dict.fromkeys(
        ("invoke_ns", "complete_ns", "limit", "keep"),
        (_is_number, "a whole number, of less than 62 bits"),
    ),
    "ids": (_is_ids, "a list of strings"),
    "value": (lambda value: _is_text(value) or _is_ids(value), "a string or a list of strings"),
}
# They must be there, and not null.
_REQUIRED: Final = ("worker", "session", "op", "outcome", "invoke_ns")


def _require_types(found: dict[str, Any]) -> None:
    """Raise a `HistoryError` unless every field of an operation has its type."""
    for name in (*_REQUIRED, "complete_ns"):
        if name not in found:
            raise HistoryError(f"{name!r} is missing")
    for name, value in found.items():
        fits, what = _TYPES[name]
        may_be_null = name not in (*_REQUIRED, "ids")
        if not fits(value) and not (may_be_null and value is None):
            raise HistoryError(f"{name!r} must be {what}{', or null' if may_be_null else ''}")


def find_problem(operation: Operation) -> str | None:
    """What is wrong with one operation by itself, in words; None if nothing is."""
    complete, outcome = operation.complete_ns, operation.outcome
    if operation.op not in _NAMES:
        return f"unknown operation {operation.op!r}"
    if outcome not in _OUTCOMES:
        return f"unknown outcome {outcome!r}"
    if complete is None:
        if outcome != "info":
            return f"an operation that never came back cannot be {outcome!r}"
    elif complete < operation.invoke_ns:
        return "an operation cannot complete before it was invoked"
    return _problem_of_arguments(operation)


def _problem_of_arguments(operation: Operation) -> str | None:
    op, value = operation.op, operation.value
    if op == "append":
        return None if operation.ids else "'append' needs 'ids'"
    if op == "read":
        if operation.outcome == "ok" and not isinstance(value, tuple):
            return "a read that is ok must say what it saw"
        return "'limit' cannot be negative" if (operation.limit or 0) < 0 else None
    needed = _NEEDS.get(op)
    if needed and getattr(operation, needed) is None:
        return f"{op!r} needs {needed!r}"
    if op == "pop" and isinstance(value, tuple):
        return "a pop returns one id or null"
    return "'keep' cannot be negative" if (operation.keep or 0) < 0 else None
