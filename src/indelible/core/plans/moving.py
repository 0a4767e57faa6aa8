"""Export and import: sessions as lines of JSON, streamed, with everything they are made of.

The first line is a header. Each session is a `session` line, its `entry` lines, `snapshot` and
`journal` lines, and an `end` line that counts them: a file that was cut off is recognised, and a
session is shown only when all of it is there.
"""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import pydantic_core

from indelible import view
from indelible.core.codec import decode
from indelible.core.limits import (
    BATCH_BYTES_MAX,
    BATCH_ENTRIES_MAX,
    JOURNAL_LINES_MAX,
    LOG_ENTRIES_MAX,
    PAGE_ENTRIES_DEFAULT,
    VIEW_ATTEMPTS_MAX,
)
from indelible.core.plan import Plan, ask
from indelible.core.plans.changing import require_active
from indelible.core.plans.checking import Progress, each_session
from indelible.core.plans.sessions import info_of
from indelible.core.rules import gone
from indelible.core.settings import checked_session_id
from indelible.core.waist import (
    BeginStage,
    Head,
    JournalLine,
    LogRow,
    ReadHead,
    ReadJournal,
    ReadLog,
    ReadSnapshots,
    ShowStage,
    SnapshotRecord,
    Stage,
    StageRows,
)
from indelible.errors import ConflictError, FormatError, MemoryStoreError, UsageError
from indelible.model import Kind, Status, TransferReport
from indelible.version import __version__
from indelible.view import View

EXPORT_FORMAT = 1

# The last moment that a date can say.
MILLISECONDS_MAX = 253_402_300_799_999

# An export has this name until it is complete, with random digits at the end.
PARTIAL_PREFIX = ".indelible-export-"
_DESCRIPTORS = "/proc/self/fd"

Write = Callable[[str], object]


def export(
    write: Write,
    session_id: str | None,
    *,
    prefix: str,
    progress: Progress | None,
) -> Plan[TransferReport]:
    """Write sessions out, a line at a time."""
    names = yield from each_session(session_id, prefix=prefix)
    if session_id is not None:
        require_active(session_id, (yield from ask(ReadHead(session_id))))
    _emit(write, {"indelible": "export", "format": EXPORT_FORMAT, "made_by": __version__})
    entries = snapshots = sessions = 0
    for name in names:
        counts = yield from _export_session(write, name)
        if counts is None:
            continue
        sessions += 1
        entries += counts[0]
        snapshots += counts[1]
        if progress is not None:
            progress(name, entries)
    return TransferReport(sessions=sessions, entries=entries, snapshots=snapshots)


def _export_session(write: Write, session: str) -> Plan[tuple[int, int] | None]:
    """Write one session in one state; None if it expired since it was listed."""
    head, records, lines = yield from _state_of(session)
    if head.status is not Status.ACTIVE:
        return None
    _emit(
        write,
        {
            "session": {
                "id": session,
                "born": head.born,
                "end": head.end,
                "view": _view_out(head.view),
                "generation": head.generation,
                "created_at_ms": head.created_at_ms,
                "deadline_ms": head.deadline_ms,
                "forked_from": head.forked_from,
                "metadata": info_of(session, head).metadata,
            }
        },
    )
    entries = 0
    start: int | None = head.born
    while start is not None and start < head.end:
        page = yield from ask(ReadLog(session, start, PAGE_ENTRIES_DEFAULT))
        if page.head.life != head.life or page.head.vacuums != head.vacuums:
            raise gone(session)
        for row in page.rows:
            if row.position < head.end:
                _emit(write, {"entry": _row_out(session, row)})
                entries += 1
        start = page.resume
    for record in records:
        _emit(write, {"snapshot": _record_out(record)})
    for line in reversed(lines):
        _emit(write, {"journal": _line_out(line)})
    counts = {"entries": entries, "snapshots": len(records), "journal": len(lines)}
    _emit(write, {"end": {"session": session, **counts}})
    return entries, len(records)


def _state_of(
    session: str,
) -> Plan[tuple[Head, list[SnapshotRecord], tuple[JournalLine, ...]]]:
    """Head, snapshots and journal that belong together."""
    for _ in range(VIEW_ATTEMPTS_MAX):
        snapshots = yield from ask(ReadSnapshots(session))
        journal = yield from ask(ReadJournal(session, JOURNAL_LINES_MAX))
        head = journal.head
        same = (head.life, head.generation) == (snapshots.head.life, snapshots.head.generation)
        if same:
            records = [record for record in snapshots.records if record.end <= head.end]
            return head, records, journal.lines
    raise ConflictError(
        f"others kept changing what session {session!r} shows; it was not exported. Try again.",
        session=session,
        reason="view",
        expected=None,
        actual=None,
    )


@dataclass(slots=True)
class _Incoming:
    """A session that is being read in."""

    name: str
    stage: Stage
    header: dict[str, Any]
    # The first position that the next entry may have.
    next: int
    rows: list[LogRow] = field(default_factory=list)
    size_bytes: int = 0
    entries: int = 0
    snapshots: list[SnapshotRecord] = field(default_factory=list)
    journal: list[JournalLine] = field(default_factory=list)


def import_(lines: Iterable[str], *, progress: Progress | None) -> Plan[TransferReport]:
    """Read sessions in. Each appears when it is complete, or not at all."""
    numbered = enumerate(lines, 1)
    _check_header(next(numbered, (1, ""))[1])
    sessions = entries = snapshots = 0
    incoming: _Incoming | None = None
    for number, text in numbered:
        if not text.strip():
            continue
        kind, fields = _parsed(number, text)
        try:
            if kind == "session" and incoming is None:
                incoming = yield from _begin(fields)
            elif incoming is None:
                raise _bad_line(number, f"a {kind} line outside of a session")
            elif kind == "end":
                yield from _finish(number, incoming, fields)
                sessions, snapshots = sessions + 1, snapshots + len(incoming.snapshots)
                entries += incoming.entries
                if progress is not None:
                    progress(incoming.name, entries)
                incoming = None
            else:
                yield from _take(number, incoming, kind, fields)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise _bad_line(number, f"a {kind} line that cannot be read ({error!r})") from error
        except MemoryStoreError as error:
            raise error.copy(imported=sessions, line=number) from error.__cause__
    if incoming is not None:
        raise FormatError(
            f"the export is cut off inside session {incoming.name!r}, which was not imported;"
            f" {sessions} sessions before it were",
            session=incoming.name,
            imported=sessions,
        )
    return TransferReport(sessions=sessions, entries=entries, snapshots=snapshots)


def _begin(fields: dict[str, Any]) -> Plan[_Incoming]:
    name = checked_session_id(fields["id"])
    born, end = int(fields["born"]), int(fields["end"])
    if not 0 <= born <= end <= LOG_ENTRIES_MAX or not isinstance(fields["metadata"], dict):
        raise ValueError(fields)
    head = yield from ask(ReadHead(name))
    deadline = _deadline_in(fields)
    fields["generation"] = int(fields["generation"])
    fields["created_at_ms"] = _milliseconds(fields["created_at_ms"])
    ttl_s = None if deadline is None else max(0.001, (deadline - head.now_ms) / 1000)
    stage = yield from ask(BeginStage(name, _text_or_none(fields["forked_from"]), ttl_s, born))
    return _Incoming(name, stage, fields, born)


def _take(number: int, incoming: _Incoming, kind: str, fields: dict[str, Any]) -> Plan[None]:
    if kind == "entry":
        row = _row_in(number, incoming.name, fields)
        if not incoming.next <= row.position < incoming.header["end"]:
            raise _bad_line(number, f"an entry at position {row.position}, where none can stand")
        incoming.next = row.position + 1
        size = incoming.size_bytes + len(row.envelope)
        if len(incoming.rows) == BATCH_ENTRIES_MAX or size > BATCH_BYTES_MAX:
            yield from _flush(incoming)
        incoming.rows.append(row)
        incoming.size_bytes += len(row.envelope)
        incoming.entries += 1
    elif kind == "snapshot":
        incoming.snapshots.append(_record_in(fields))
    elif kind == "journal":
        incoming.journal.append(_line_in(fields))
    else:
        raise _bad_line(number, f"a line of an unknown kind, {kind!r}")


def _flush(incoming: _Incoming) -> Plan[None]:
    if incoming.rows:
        rows = tuple(incoming.rows)
        yield from ask(StageRows(incoming.name, incoming.stage.life, rows))
        incoming.rows.clear()
        incoming.size_bytes = 0


def _finish(number: int, incoming: _Incoming, fields: dict[str, Any]) -> Plan[None]:
    """Show a session that came in whole."""
    found = (incoming.entries, len(incoming.snapshots), len(incoming.journal))
    said = (fields["entries"], fields["snapshots"], fields["journal"])
    if found != said or fields["session"] != incoming.name:
        raise _bad_line(number, f"an end that counts {said} where {found} came")
    header = incoming.header
    for what, shown, end in _views_in(incoming):
        inside = view.freeze(shown, end)
        beyond = shown.tail > end or end > header["end"]
        if beyond or (inside and inside[0][0] < header["born"]):
            raise _bad_line(number, f"the end of a session whose {what} reaches outside of its log")
    if header["end"] > header["born"] and incoming.next != header["end"]:
        raise _bad_line(number, "the end of a session that lacks its newest entry")
    # What is left of the entries comes with the rest: a short session is stored in two steps.
    yield from ask(
        ShowStage(
            incoming.name,
            incoming.stage.life,
            pydantic_core.to_json(header["metadata"]),
            view=_view_in(header["view"]),
            generation=header["generation"],
            created_at_ms=header["created_at_ms"],
            snapshots=tuple(incoming.snapshots),
            journal=tuple(incoming.journal),
            rows=tuple(incoming.rows),
        )
    )


def _views_in(incoming: _Incoming) -> Iterator[tuple[str, View, int]]:
    """Every view that came with a session, and where the log ended for it."""
    end = incoming.header["end"]
    yield "view", _view_in(incoming.header["view"]), end
    for record in incoming.snapshots:
        yield f"snapshot {record.id}", record.view, record.end
    for line in incoming.journal:
        yield f"{line.change} {line.operation}", line.before, line.end
        yield f"{line.change} {line.operation}", line.after, line.end


def _check_header(text: str) -> None:
    kind, fields = "", {}
    with suppress(ValueError, AttributeError):
        fields = pydantic_core.from_json(text)
        kind = fields.get("indelible", "")
    if kind != "export":
        raise FormatError(f"this is not an export of indelible: it begins with {text[:60]!r}")
    if not isinstance(fields.get("format"), int) or fields["format"] > EXPORT_FORMAT:
        raise FormatError(
            f"this export has format {fields.get('format')}; this indelible reads up to"
            f" {EXPORT_FORMAT}. Nothing was imported."
        )


def _parsed(number: int, text: str) -> tuple[str, dict[str, Any]]:
    try:
        ((kind, fields),) = pydantic_core.from_json(text).items()
    except (ValueError, AttributeError):
        raise _bad_line(number, f"something else than a line of an export: {text[:60]!r}") from None
    if not isinstance(fields, dict):
        raise _bad_line(number, f"a {kind} line without fields")
    return kind, fields


def _bad_line(number: int, what: str) -> FormatError:
    return FormatError(
        f"line {number} is {what}; the session it belongs to was not imported", line=number
    )


def _emit(write: Write, fields: dict[str, Any]) -> None:
    write(pydantic_core.to_json(fields).decode() + "\n")


def _row_out(session: str, row: LogRow) -> dict[str, Any]:
    """An entry's line. What cannot be read travels as it is, in base64."""
    fields = row._asdict()
    del fields["envelope"]
    try:
        decode(row.kind, row.envelope, session=session, position=row.position)
        fields["envelope"] = pydantic_core.from_json(row.envelope)
    except (MemoryStoreError, ValueError):
        fields["raw"] = base64.b64encode(row.envelope).decode("ascii")
    return fields


def _row_in(number: int, session: str, fields: dict[str, Any]) -> LogRow:
    kind = None if fields["kind"] is None else Kind(fields["kind"])
    if "raw" in fields:
        envelope = base64.b64decode(fields["raw"])
    else:
        envelope = pydantic_core.to_json(fields["envelope"])
        try:
            decode(kind, envelope, session=session, position=fields["position"])
        except MemoryStoreError as error:
            raise _bad_line(number, f"an entry that was changed: {error}") from error
    return LogRow(
        position=int(fields["position"]),
        kind=kind,
        written_at_ms=_milliseconds(fields["written_at_ms"]),
        deadline_ms=_deadline_in(fields),
        batch=int(fields["batch"]),
        generation=int(fields["generation"]),
        keep=bool(fields["keep"]),
        key=_text_or_none(fields["key"]),
        opens=tuple(fields["opens"]),
        answers=tuple(fields["answers"]),
        envelope=envelope,
    )


def _view_out(shown: View) -> dict[str, Any]:
    return {"extents": shown.extents, "tail": shown.tail}


def _view_in(fields: dict[str, Any]) -> View:
    extents = ((int(start), int(stop)) for start, stop in fields["extents"])
    return view.view_of(extents, int(fields["tail"]))


def _record_out(record: SnapshotRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "label": record.label,
        "taken_at_ms": record.taken_at_ms,
        "view": _view_out(record.view),
        "end": record.end,
    }


def _record_in(fields: dict[str, Any]) -> SnapshotRecord:
    return SnapshotRecord(
        id=str(fields["id"]),
        label=_text_or_none(fields["label"]),
        taken_at_ms=_milliseconds(fields["taken_at_ms"]),
        view=_view_in(fields["view"]),
        end=int(fields["end"]),
    )


def _line_out(line: JournalLine) -> dict[str, Any]:
    return {
        "operation": line.operation,
        "change": line.change,
        "changed_at_ms": line.changed_at_ms,
        "end": line.end,
        "before": _view_out(line.before),
        "after": _view_out(line.after),
        "undone_by": line.undone_by,
    }


def _line_in(fields: dict[str, Any]) -> JournalLine:
    return JournalLine(
        operation=str(fields["operation"]),
        change=str(fields["change"]),
        changed_at_ms=_milliseconds(fields["changed_at_ms"]),
        # The version is of the session that it came from; the backend gives the new one.
        version="",
        end=int(fields["end"]),
        before=_view_in(fields["before"]),
        after=_view_in(fields["after"]),
        undone_by=_text_or_none(fields["undone_by"]),
    )


def _text_or_none(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(value)
    return value


def _deadline_in(fields: dict[str, Any]) -> int | None:
    return None if fields["deadline_ms"] is None else _milliseconds(fields["deadline_ms"])


def _milliseconds(value: Any) -> int:
    number = int(value)
    if abs(number) > MILLISECONDS_MAX:
        raise ValueError(value)
    return number


@contextmanager
def output(
    target: str | os.PathLike[str] | TextIO, owns: Callable[[Path], bool]
) -> Iterator[Write]:
    """Where an export goes. A file gets its name when it is complete, not before.

    A symbolic link is replaced by the export; the file that it leads to stays as it is.
    """
    if not isinstance(target, (str, os.PathLike)):
        yield target.write
        return
    path = Path(target)
    if owns(path):
        raise UsageError(f"{path} is the store itself; nothing was written. Name another file.")
    partial = path.with_name(f"{PARTIAL_PREFIX}{secrets.token_hex(8)}")
    descriptor = _open_unnamed(path.parent)
    unnamed = descriptor is not None
    if descriptor is None:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            yield file.write
            file.flush()
            os.fsync(file.fileno())
            if unnamed:
                _give_name(file.fileno(), partial)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _open_unnamed(folder: Path) -> int | None:
    """Open a file without a name: a killed process leaves nothing of it behind.

    None where that is not possible. There a killed export leaves its partial file.
    """
    unnamed: int | None = getattr(os, "O_TMPFILE", None)
    if unnamed is None or not Path(_DESCRIPTORS).exists():
        return None
    try:
        return os.open(folder, unnamed | os.O_WRONLY, 0o600)
    except OSError:
        # The file system has no such files, or the folder cannot be written to: naming a file
        # in it says which.
        return None


def _give_name(descriptor: int, path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # With a folder named, Python asks for linkat, which can follow the link in /proc.
        os.link(f"{_DESCRIPTORS}/{descriptor}", path.name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)


@contextmanager
def input_lines(source: str | os.PathLike[str] | TextIO) -> Iterator[Iterable[str]]:
    """Where an import comes from."""
    if not isinstance(source, (str, os.PathLike)):
        yield source
        return
    with Path(source).open(encoding="utf-8", newline="\n") as file:
        yield file
