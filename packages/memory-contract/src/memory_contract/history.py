"""The record of what workers did to a store and what they saw: one operation, one line.

Entries are known by ids that the recorder made, each for one append alone. Times are taken with
`time.monotonic_ns` just before and just after a call, in the thread that makes it. A record is
only as good as its outcomes: `ok` and `fail` are promises of the store, everything else is `info`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, dataclass, fields
from functools import cache
from pathlib import Path
from types import UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

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
# The longest time to live that a file may speak of: a hundred years.
SECONDS_MAX: Final = 100 * 365 * 24 * 3600
# Characters of a wrong value that an error shows.
SHOWN_MAX: Final = 40

Count = Annotated[int, "not negative"]
Seconds = Annotated[float, "not negative"]
_R = TypeVar("_R")


class HistoryError(ValueError):
    """A line of a recorded history cannot be read; nothing of the file was judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One call: its worker, session, times, outcome and value.

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
    """A fault that was injected: its name, its beginning, and its end; None if it lasted."""

    name: str
    began_ns: int
    ended_ns: int | None


_NEEDS: Final = {
    "trim": "keep",
    "snapshot": "snapshot",
    "rollback": "snapshot",
    "fork": "target",
}


def write_history(path: str | Path, operations: Iterable[Operation]) -> None:
    """Write one JSON line for each operation; fields that say nothing are left out."""
    with Path(path).open("w", encoding="ascii") as file:
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


# An encoder that is made once: `json.dumps` with separators makes one for each line.
encode: Final = json.JSONEncoder(separators=(",", ":")).encode


def format_operation(operation: Operation) -> str:
    """One operation as JSON."""
    return encode(list_fields(operation))


def list_fields(record: Any) -> dict[str, Any]:
    """The fields of a dataclass that do not have their defaults."""
    defaults: dict[str, Any] = _get_defaults(record.__class__)
    found = ((name, getattr(record, name)) for name in defaults)
    return {name: value for name, value in found if value != defaults[name]}


@cache
def _get_defaults(kind: Any) -> dict[str, Any]:
    return {each.name: each.default for each in fields(kind)}


def parse_operation(line: str | bytes) -> Operation:
    """The operation that a line holds, or a `HistoryError` that says what is wrong."""
    return build_record(Operation, parse_object(line))


def parse_object(line: str | bytes) -> dict[str, Any]:
    """The fields of a line, lists as tuples."""
    try:
        found = json.loads(line, object_pairs_hook=_build_object)
    except HistoryError:
        raise
    except ValueError as error:
        raise HistoryError(f"no JSON: {error}") from error
    except RecursionError as error:
        raise HistoryError("no JSON that is nested so deeply can be read") from error
    if not isinstance(found, dict):
        raise HistoryError("an operation is a JSON object")
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in found.items()
    }


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object of JSON; duplicate names are an error."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise HistoryError("a name stands twice in one object")
    return found


_VALUE_CHECKS: Final[dict[Any, Callable[[Any], bool]]] = {
    Any: lambda _: True,
    int: lambda value: type(value) is int and abs(value) < NUMBER_MAX,
    Count: lambda value: type(value) is int and 0 <= value < NUMBER_MAX,
    Seconds: lambda value: type(value) in (int, float) and 0 <= value <= SECONDS_MAX,
}


def _build_check(hint: Any) -> Callable[[Any], bool]:
    """Return a function that tells whether a value fits the annotation of a field."""
    if hint in _VALUE_CHECKS:
        return _VALUE_CHECKS[hint]
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return inner.__contains__
    if origin is tuple:
        fits = _build_check(inner[0])
        return lambda value: isinstance(value, tuple) and all(map(fits, value))
    if origin in (Union, UnionType):
        first, *others = map(_build_check, inner)
        return lambda value: first(value) or any(check(value) for check in others)
    return lambda value: isinstance(value, hint)


@cache
def _build_checks(kind: Any) -> tuple[dict[str, Callable[[Any], bool]], tuple[str, ...]]:
    """The checks of all fields of a dataclass, and the names of those that are required."""
    hints = get_type_hints(kind, include_extras=True)
    required = tuple(each.name for each in fields(kind) if each.default is MISSING)
    return {name: _build_check(hint) for name, hint in hints.items()}, required


def build_record(kind: type[_R], found: dict[str, Any]) -> _R:
    """Build a dataclass of values from outside, or raise a `HistoryError`."""
    checks, required = _build_checks(kind)  # type: ignore[arg-type]
    for name in required:
        if name not in found:
            raise HistoryError(f"{name!r} is missing")
    for name, value in found.items():
        if name not in checks:
            raise HistoryError(f"unknown field {name!r}")
        if not checks[name](value):
            raise HistoryError(f"{name!r} cannot be {ascii(value)[:SHOWN_MAX]}")
    record = kind(**found)
    if isinstance(record, Operation) and (problem := find_problem(record)):
        raise HistoryError(problem)
    return record


def find_problem(operation: Operation) -> str | None:
    """Return what is wrong with one operation by itself; None if nothing is."""
    complete, outcome = operation.complete_ns, operation.outcome
    if complete is None:
        if outcome != "info":
            return f"an operation that never came back cannot be {outcome!r}"
    elif complete < operation.invoke_ns:
        return "an operation cannot complete before it was invoked"
    return _find_argument_problem(operation)


def _find_argument_problem(operation: Operation) -> str | None:
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
