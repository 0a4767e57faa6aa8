"""The file that a recorder writes: a header for each process, then one line for each operation.

A line has the fields of an `Operation`, and what only a recorder knows beside them. Its ids are
keyed hashes of what was said, so two entries may share one; `diagnosis` decides what that means
for a verdict. A history that the kit wrote is a trace too, without a header.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from memory_contract.history import (
    Count,
    HistoryError,
    Operation,
    Outcome,
    Seconds,
    build_record,
    encode,
    list_fields,
    parse_object,
)

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
FORMAT: Final = 1
SUFFIX: Final = ".jsonl"
# The first field of a header, by which it is known.
MARK: Final = "indelible_trace"
# Operations that may take entries away or bring them back.
REMOVERS: Final = frozenset({"clear", "pop", "trim", "rollback", "undo", "expire"})
# The op of a call that the contract has no word for.
CALL: Final = "call"
# Stands before the hash of an entry that has an id of its own.
BY_ID: Final = "i"
# Stands between the hash of an entry and those of its other fields.
FIELD: Final = "+"
# Stands before the hash of what an entry with an id says: that of an entry without one.
CONTENT: Final = "="

Contents = Literal["hashed", "kept"]
# The kind of workers that ran side by side.
WorkerKind = Literal["threads", "tasks", "processes"]
# How a trace is replayed: one call at a time, with its overlaps, or with its faults, too.
ReplayLevel = Literal["sequential", "concurrent", "faults"]
# The calls that restart the time to live of a session.
TtlRefresh = Literal["append", "read", "nothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceHeader:
    """The first line of each file that a recorder writes."""

    format: int = FORMAT
    version: str = ""
    # Times of one boot of one machine can be compared, and no others.
    boot: str = ""
    # Hashes of one key can be compared, and no others.
    key_id: str = ""
    pid: Count = 0
    wall_ns: Count = 0
    monotonic_ns: Count = 0
    contents: Contents = "hashed"
    # Whether the store was empty when the recording began.
    fresh: bool = False
    # The time to live that the store promises after an append that names none.
    ttl_s: Seconds | None = None
    ttl_late_s: Seconds = 1.0
    ttl_refreshed_by: TtlRefresh = "append"
    workers: WorkerKind | None = None
    # Whether lines that were written before this one were removed to make room.
    continued: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedLines:
    """The recorder could not keep up, or a line is torn: so many lines are missing here."""

    dropped: Count
    # Of these, lines of calls that may remove entries.
    changes: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEnd:
    """The recorder ended in order: nothing that it saw is missing after this."""

    closed: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOperation(Operation):
    """An operation, and what the recorder knew of it."""

    # The store's own name for the call, and the class of what it raised.
    verb: str = ""
    error: str = ""
    # Of each appended entry: how long its text was, who spoke, and, where it was kept, all of it.
    sizes: tuple[Count, ...] = ()
    roles: tuple[str, ...] = ()
    contents: tuple[Any, ...] = ()
    # Whether a trim treats one of the entries in a way of its own: tool calls, pins, the system's.
    structured: bool = False
    # The position of the first entry, if the store returned it.
    position: Count | None = None
    ttl_s: Seconds | None = None
    # Whether it is about every session, and names none.
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
    outcome: Outcome
    error: str = ""
    snapshot: str | None = None
    every: bool = False
    # Whether it may have changed what a session holds, in a way that the recorder does not know.
    changes: bool = False


TraceCall = TraceOperation | OtherCall
TraceLine = TraceHeader | TraceCall | DroppedLines | TraceEnd
_Call = TypeVar("_Call", bound=TraceCall)
# No honest line is longer: it would show some ten million entries, or hold a batch with its texts.
LINE_BYTES_MAX: Final = 256 << 20


_HEADER: Final = frozenset(each.name for each in fields(TraceHeader))


def parse_line(text: str | bytes) -> TraceLine:
    """Parse a line, or raise a `HistoryError`."""
    found = parse_object(text)
    if MARK in found:
        found["format"] = found.pop(MARK)
        if type(found["format"]) is not int or found["format"] != FORMAT:
            raise HistoryError(
                f"a trace of format {found['format']!r}; this version reads {FORMAT}"
            )
        # Fields that later versions add to a header do not change the meaning of lines.
        known = {name: value for name, value in found.items() if name in _HEADER}
        return build_record(TraceHeader, known)
    if "dropped" in found:
        return build_record(DroppedLines, found)
    if "closed" in found:
        return build_record(TraceEnd, found)
    if found.get("op") == CALL:
        del found["op"]
        call = build_record(OtherCall, found)
        if (call.complete_ns or call.invoke_ns) < call.invoke_ns:
            raise HistoryError("an operation cannot complete before it was invoked")
        return call
    return build_record(TraceOperation, found)


def format_line(line: TraceLine) -> str:
    """One line as JSON, without the fields that have their defaults; a header has them all.

    The session comes first: readers sort by it.
    """
    if isinstance(line, TraceHeader):
        header = asdict(line)
        return json.dumps({MARK: header.pop("format"), **header})
    said: dict[str, Any] = {}
    if isinstance(line, TraceCall):
        said["session"] = line.session
    if isinstance(line, OtherCall):
        said["op"] = CALL
    return encode({**said, **list_fields(line)})


def shift_times(line: _Call, by_ns: int) -> _Call:
    """Return the line with its times shifted."""
    end = line.complete_ns
    return replace(
        line, invoke_ns=line.invoke_ns + by_ns, complete_ns=None if end is None else end + by_ns
    )


def strip_fields(token: str) -> str:
    """Return what identifies an entry, without its other fields."""
    return token.partition(FIELD)[0]


def strip_id(token: str) -> str:
    """Return the token that the entry would have without an id of its own."""
    said, separator, rest = token.partition(FIELD + CONTENT)[2].partition(FIELD)
    return said + separator + rest or token


def read_boot_id() -> str:
    """Return the id of this boot of the machine; nothing where the system does not have one."""
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return ""


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
    """The lines of one file with their numbers, without empty ones."""
    with part.open("rb") as file:
        number = 0
        while line := file.readline(LINE_BYTES_MAX + 1):
            number += 1
            if len(line) > LINE_BYTES_MAX:
                raise HistoryError(f"{part}, line {number}: over {LINE_BYTES_MAX} bytes")
            if line.strip():
                yield number, line


def read_line(part: Path, number: int, text: bytes) -> TraceLine:
    """Parse a line of a file. The last one of a killed process may be torn: it is dropped."""
    try:
        return parse_line(text)
    except HistoryError as error:
        if not text.endswith(b"\n"):
            return DroppedLines(dropped=1)
        raise HistoryError(f"{part}, line {number}: {error}") from error


def read_trace(path: str | Path) -> Iterator[TraceLine]:
    """Yield the lines of all files of a trace, one file after the other."""
    for part in list_parts(path):
        for number, text in read_raw_lines(part):
            yield read_line(part, number, text)
