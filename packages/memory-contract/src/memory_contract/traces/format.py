"""The file that a recorder writes: a header for each process, then one line for each operation.

A line has the fields of an `Operation`, and what only a recorder knows beside them. Its ids are
not made by the kit: they are keyed hashes of what was said, so two entries may share one. What
that means for a verdict is decided in `explaining`. A history that the kit wrote is a trace too,
without a header.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal, get_args

from memory_contract.history import (
    NUMBER_MAX,
    HistoryError,
    Operation,
    Outcome,
    find_problem,
    parse_object,
    require_types,
)

FORMAT: Final = 1
SUFFIX: Final = ".jsonl"
# The first field of a header, by which it is known.
# The longest time to live that a trace may speak of: a hundred years.
TTL_S_MAX: Final = 100 * 365 * 24 * 3600
MARK: Final = "indelible_trace"
# The op of a call that the contract has no word for.
CALL: Final = "call"
# Stands before the hash of an entry that has an id of its own.
BY_ID: Final = "i"
# Stands between the hash of an entry and those of its other fields.
FIELD: Final = "+"

Contents = Literal["hashed", "cut", "kept"]
# How the operations of a trace ran side by side, where that is known.
WorkerKind = Literal["threads", "tasks", "processes"]
# How closely a trace is replayed: one call at a time, with its overlaps, or with its faults too.
ReplayLevel = Literal["sequential", "concurrent", "faults"]
# What begins the time to live of a session anew.
TtlRefresh = Literal["append", "read", "nothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceHeader:
    """What a recorder says before its first line."""

    format: int = FORMAT
    version: str = ""
    # Times of one boot of one machine can be compared, and no others.
    boot: str = ""
    pid: int = 0
    wall_ns: int = 0
    monotonic_ns: int = 0
    contents: Contents = "hashed"
    # Whether the store was empty when the recording began.
    fresh: bool = False
    # How long a session lives after an append that names no time, as the store promises.
    ttl_s: float | None = None
    ttl_late_s: float = 1.0
    ttl_refreshed_by: TtlRefresh = "append"
    workers: WorkerKind | None = None
    # The store that the trace is to be held against, where somebody said so.
    store: str = ""
    level: ReplayLevel = "concurrent"
    # Whether lines that were written before this one were removed to make room.
    continued: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedLines:
    """The recorder could not keep up, or a line is torn: so many lines are missing here."""

    dropped: int
    # How many of them may be of calls that remove entries.
    changes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEnd:
    """The recorder ended in order: nothing that it saw is missing after this."""

    closed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOperation(Operation):
    """An operation, and what the recorder knew of it."""

    # The store's own name for the call, and the class of what it raised.
    verb: str = ""
    error: str = ""
    # Of each appended entry: how long its text was, who spoke, and, where it was kept, all of it.
    sizes: tuple[int, ...] = ()
    roles: tuple[str, ...] = ()
    contents: tuple[Any, ...] = ()
    # Whether a trim treats one of the entries in a way of its own: tool calls, pins, the system's.
    structured: bool = False
    # Where the store says that the first entry stands.
    position: int | None = None
    ttl_s: float | None = None
    # Whether it is about every session: then it names none.
    every: bool = False
    # Whether it may have taken away more or less than its arguments say.
    unsure: bool = False
    # Whether a read gave turns, which leave out who is neither the user nor the assistant.
    turns: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherCall:
    """A call that the contract has no word for: kept and counted, and not judged."""

    session: str
    worker: str
    verb: str
    invoke_ns: int
    complete_ns: int | None
    outcome: str
    error: str = ""
    snapshot: str | None = None
    every: bool = False
    # Whether it may have changed what a session holds, in a way that the recorder does not know.
    changes: bool = False


TraceCall = TraceOperation | OtherCall
TraceLine = TraceHeader | TraceCall | DroppedLines | TraceEnd
_OPERATION: Final = frozenset(field.name for field in fields(Operation))
_ALL: Final = tuple(field.name for field in fields(TraceOperation))
_TUPLES: Final = ("sizes", "roles", "contents")
# No honest line is longer: it would show some ten million entries, or hold a batch with its texts.
LINE_BYTES_MAX: Final = 256 << 20


def is_count(value: object) -> bool:
    """Return whether a value can say how many there are."""
    return type(value) is int and 0 <= value < NUMBER_MAX


def is_seconds(value: object) -> bool:
    """Return whether a value can be a time to live."""
    return type(value) in (int, float) and 0 <= value <= TTL_S_MAX  # type: ignore[operator]


def _is_moment(value: object) -> bool:
    return type(value) is int and abs(value) < NUMBER_MAX


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


_FITS: Final[dict[str, Callable[[Any], bool]]] = {
    "verb": _is_text,
    "error": _is_text,
    "sizes": lambda value: isinstance(value, tuple) and all(map(is_count, value)),
    "roles": lambda value: isinstance(value, tuple) and all(map(_is_text, value)),
    "contents": lambda value: isinstance(value, tuple),
    "structured": _is_bool,
    "position": is_count,
    "ttl_s": is_seconds,
    "turns": _is_bool,
    "every": _is_bool,
    "unsure": _is_bool,
}
_HEADER_FITS: Final[dict[str, Callable[[Any], bool]]] = {
    "version": _is_text,
    "boot": _is_text,
    "pid": is_count,
    "wall_ns": is_count,
    "monotonic_ns": is_count,
    "contents": lambda value: value in get_args(Contents),
    "fresh": _is_bool,
    "ttl_s": lambda value: value is None or is_seconds(value),
    "ttl_late_s": is_seconds,
    "ttl_refreshed_by": lambda value: value in get_args(TtlRefresh),
    "workers": lambda value: value is None or value in get_args(WorkerKind),
    "store": _is_text,
    "level": lambda value: value in get_args(ReplayLevel),
    "continued": _is_bool,
}
_OTHER_FITS: Final[dict[str, Callable[[Any], bool]]] = {
    "session": _is_text,
    "worker": _is_text,
    "verb": _is_text,
    "invoke_ns": _is_moment,
    "complete_ns": lambda value: value is None or _is_moment(value),
    "outcome": lambda value: value in get_args(Outcome),
    "error": _is_text,
    "snapshot": lambda value: value is None or _is_text(value),
    "every": _is_bool,
    "changes": _is_bool,
}


def parse_line(text: str | bytes) -> TraceLine:
    """What one line says, or a `HistoryError`."""
    found = parse_object(text)
    if MARK in found:
        return _header(found)
    if "dropped" in found or "closed" in found:
        return _note(found)
    if found.get("op") == CALL:
        return _other(found)
    for name in _TUPLES:
        if isinstance(found.get(name), list):
            found[name] = tuple(found[name])
    if unknown := sorted(found.keys() - set(_ALL)):
        raise HistoryError(f"unknown field {unknown[0]!r}")
    require_types(found)
    for name in found.keys() - _OPERATION:
        if not _FITS[name](found[name]):
            raise HistoryError(f"{name!r} has a value that it cannot have")
    recorded = TraceOperation(**found)
    if problem := find_problem(recorded):
        raise HistoryError(problem)
    return recorded


def _header(found: dict[str, Any]) -> TraceHeader:
    format_ = found.pop(MARK)
    if type(format_) is not int or format_ != FORMAT:
        raise HistoryError(f"a trace of format {format_!r}; this version reads {FORMAT}")
    # What a later version adds to a header changes nothing about the lines.
    known = {name: value for name, value in found.items() if name in _HEADER_FITS}
    _require(known, _HEADER_FITS)
    return TraceHeader(**known)


def _require(found: dict[str, Any], fits: dict[str, Callable[[Any], bool]]) -> None:
    for name, value in found.items():
        # A list or an object is no value of these, and cannot be looked for among the allowed ones.
        if isinstance(value, list | dict | tuple) or not fits[name](value):
            raise HistoryError(f"{name!r} has a value that it cannot have")


def _other(found: dict[str, Any]) -> OtherCall:
    del found["op"]
    if unknown := sorted(found.keys() - _OTHER_FITS.keys()):
        raise HistoryError(f"unknown field {unknown[0]!r}")
    _require(found, _OTHER_FITS)
    try:
        other = OtherCall(**found)
    except TypeError as error:
        raise HistoryError(f"a call that lacks a field: {error}") from error
    if other.complete_ns is not None and other.complete_ns < other.invoke_ns:
        raise HistoryError("an operation cannot complete before it was invoked")
    return other


def _note(found: dict[str, Any]) -> TraceLine:
    name = "dropped" if "dropped" in found else "closed"
    changes = found.get("changes", 0)
    if not is_count(found[name]) or not is_count(changes):
        raise HistoryError(f"{name!r} must be a whole number")
    if name == "dropped":
        return DroppedLines(dropped=found[name], changes=changes)
    return TraceEnd(closed=found[name])


def format_line(line: TraceLine) -> str:
    """One line as JSON, without what says nothing. The session comes first: readers sort by it."""
    if isinstance(line, TraceHeader):
        rest = {f.name: getattr(line, f.name) for f in fields(TraceHeader) if f.name != "format"}
        return json.dumps({MARK: line.format, **rest})
    if isinstance(line, DroppedLines):
        more = {"changes": line.changes} if line.changes else {}
        return json.dumps({"dropped": line.dropped, **more})
    if isinstance(line, TraceEnd):
        return json.dumps({"closed": line.closed})
    found: dict[str, Any] = {"session": line.session}
    if isinstance(line, OtherCall):
        return json.dumps(
            {**found, "op": CALL, **{f.name: getattr(line, f.name) for f in fields(OtherCall)}}
        )
    for name in _ALL:
        value = getattr(line, name)
        said = value not in (None, (), "", False) or value == 0
        if said or name in ("complete_ns", "worker"):
            found[name] = value
    if line.value == ():
        found["value"] = ()
    for name in ("structured", "turns", "unsure", "every"):
        if not getattr(line, name):
            found.pop(name, None)
    return json.dumps(found, separators=(",", ":"))


def strip_fields(token: str) -> str:
    """Who an entry is, without its other fields."""
    return token.partition(FIELD)[0]


def write_trace(path: str | Path, header: TraceHeader, lines: Iterable[TraceOperation]) -> None:
    """Write a whole trace, closed in order."""
    written = 0
    # For its owner alone, as a recorder writes it: it may hold what was said.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(format_line(header) + "\n")
        for line in lines:
            file.write(format_line(line) + "\n")
            written += 1
        file.write(format_line(TraceEnd(closed=written)) + "\n")


def list_parts(path: str | Path) -> list[Path]:
    """The files that a trace is made of: all of a folder, or a file and what was written beside it.

    Beside `trace.jsonl` stand `trace.<...>.jsonl`: of other processes, and what came later.
    """
    place = Path(path)
    if place.is_dir():
        found = sorted(place.glob(f"*{SUFFIX}"))
        if not found:
            raise HistoryError(f"{path} holds no trace: no file in it ends in {SUFFIX}")
        return found
    if not place.is_file():
        raise HistoryError(f"there is no trace {path}")
    beside = place.parent.glob(f"{place.name.removesuffix(SUFFIX)}.*{SUFFIX}")
    return [place, *sorted(beside)]


def read_raw_lines(part: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of one file with their numbers; the last one of a killed process may be torn."""
    with part.open("rb") as file:
        number = 0
        while line := file.readline(LINE_BYTES_MAX + 1):
            number += 1
            if len(line) > LINE_BYTES_MAX:
                raise HistoryError(f"{part}, line {number}: over {LINE_BYTES_MAX} bytes")
            if line.strip():
                yield number, line


def read_part(part: Path) -> Iterator[TraceLine]:
    """What one file says. A torn last line counts as dropped; any other one is an error."""
    for number, text in read_raw_lines(part):
        yield read_line(part, number, text)


def read_line(part: Path, number: int, text: bytes) -> TraceLine:
    """What one line of a file says."""
    try:
        return parse_line(text)
    except HistoryError as error:
        if not text.endswith(b"\n"):
            return DroppedLines(dropped=1)
        raise HistoryError(f"{part}, line {number}: {error}") from error


def read_trace(path: str | Path) -> Iterator[TraceLine]:
    """What all files of a trace say, one file after the other."""
    for part in list_parts(path):
        yield from read_part(part)
