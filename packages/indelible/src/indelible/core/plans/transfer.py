"""Export and import of whole sessions, streamed as lines of JSON.

The first line is a header. A session is a `session` line, its `entry`, `snapshot` and `journal`
lines, and an `end` line that counts them, so that a truncated file is recognised. An imported
session is staged, and becomes visible when all of it was read and checked (`import_checks`).
"""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import pydantic_core

from indelible.core.codec import build_trim_columns, decode_row
from indelible.core.import_checks import (
    InvalidLineError,
    SessionCheck,
    SessionHeader,
    parse_session,
)
from indelible.core.limits import (
    BATCH_BYTES_MAX,
    BATCH_ENTRIES_MAX,
    EXPORT_LINE_CHARS_MAX,
    IMPORT_AUDIT_MAX,
    IMPORT_SNAPSHOTS_MAX,
    JOURNAL_LINES_MAX,
    MILLISECONDS_MAX,
    PAGE_ENTRIES_DEFAULT,
    VIEW_ATTEMPTS_MAX,
)
from indelible.core.operations import (
    BeginStage,
    DropStage,
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
    StoredLine,
)
from indelible.core.plan import Plan, perform
from indelible.core.plans import audit
from indelible.core.plans.sessions import (
    Progress,
    build_session_info,
    check_prefix,
    list_all_sessions,
)
from indelible.core.rules import (
    build_exists_error,
    build_outside_error,
    find_views_outside,
    require_active,
)
from indelible.errors import ConflictError, FormatError, LimitError, MemoryStoreError, UsageError
from indelible.model import Finding, Severity, Status, TransferReport
from indelible.version import __version__
from indelible.view import EXTENTS_MAX

EXPORT_FORMAT = 1

# The kinds of lines, as errors name them.
_KINDS = {
    "session": "a session line",
    "entry": "an entry line",
    "snapshot": "a snapshot line",
    "journal": "a journal line",
    "audit": "an audit line",
    "end": "an end line",
}

# The name of an incomplete export, before random digits.
PARTIAL_PREFIX = ".indelible-export-"
# How the names of the files end that SQLite keeps beside a database.
_SIDE_FILE_ENDINGS = ("-wal", "-shm", "-journal")

Write = Callable[[str], object]


def export(
    write: Write,
    session_id: str | None,
    *,
    prefix: str,
    progress: Progress | None,
) -> Plan[TransferReport]:
    """Write sessions line by line."""
    check_prefix(prefix)
    if session_id is not None and prefix:
        raise UsageError("an export takes the id of a session or a prefix, not both", value=prefix)
    names = yield from list_all_sessions(session_id, prefix=prefix)
    if session_id is not None:
        require_active(session_id, (yield from perform(ReadHead(session_id))).status)
    _write_line(write, {"indelible": "export", "format": EXPORT_FORMAT, "made_by": __version__})
    sessions = entries = snapshots = damaged = 0
    skipped: list[Finding] = []
    for name in names:
        try:
            state = yield from _read_state(name)
        except (FormatError, LimitError) as error:
            # A session that could not be imported again does not stop the others.
            if session_id is not None:
                raise
            what = f"it was not exported: {error.message}"
            skipped.append(Finding(severity=Severity.ERROR, what=what, session_id=name))
            continue
        if state.head.status is not Status.ACTIVE:
            # It expired after it was listed.
            continue
        counts = yield from _export_session(write, name, state)
        sessions += 1
        entries += counts[0]
        snapshots += counts[1]
        damaged += counts[2]
        if progress is not None:
            progress(name, entries)
    return TransferReport(
        sessions=sessions,
        entries=entries,
        snapshots=snapshots,
        damaged=damaged,
        skipped=tuple(skipped),
    )


def _export_session(write: Write, session: str, state: _ExportState) -> Plan[tuple[int, int, int]]:
    """Write one session; return how many entries, snapshots and damaged entries it has."""
    head, records, lines, audit_lines, metadata = state
    _write_line(
        write,
        {
            "session": {
                "id": session,
                "born": head.born,
                "end": head.end,
                "view": head.view,
                "generation": head.generation,
                "created_at_ms": head.created_at_ms,
                "deadline_ms": head.deadline_ms,
                "forked_from": head.forked_from,
                "metadata": metadata,
            }
        },
    )
    entries = damaged = 0
    start: int | None = head.born
    while start is not None and start < head.end:
        page = yield from perform(ReadLog(session, start, PAGE_ENTRIES_DEFAULT))
        if page.head.life != head.life or page.head.vacuums != head.vacuums:
            raise ConflictError(
                f"session {session!r} expired, or was forgotten or vacuumed, while it was exported:"
                " the export is incomplete. Export it again.",
                session=session,
                reason="gone",
            )
        for row in page.rows:
            if row.position < head.end:
                fields = _format_row(session, head, row)
                _write_line(write, {"entry": fields})
                entries += 1
                damaged += "raw" in fields
        start = page.resume
    for record in records:
        _write_line(write, {"snapshot": record})
    for line in reversed(lines):
        _write_line(write, {"journal": _format_journal_line(line)})
    for each in audit_lines:
        _write_line(write, {"audit": each._asdict()})
    counts = {"entries": entries, "snapshots": len(records), "journal": len(lines)}
    _write_line(write, {"end": {"session": session, **counts}})
    return entries, len(records), damaged


class _ExportState(NamedTuple):
    """Head, snapshots, journal and metadata of one state, and the audit up to it or a later one."""

    head: Head
    records: list[SnapshotRecord]
    lines: tuple[JournalLine, ...]
    audit_lines: list[StoredLine]
    metadata: dict[str, Any]


def _read_state(session: str) -> Plan[_ExportState]:
    """Read one state of a session; raise if it could not be imported again."""
    for _ in range(VIEW_ATTEMPTS_MAX):
        snapshots = yield from perform(ReadSnapshots(session))
        journal = yield from perform(ReadJournal(session, JOURNAL_LINES_MAX))
        head = journal.head
        same = (head.life, head.generation) == (snapshots.head.life, snapshots.head.generation)
        if same:
            records = [record for record in snapshots.records if record.end <= head.end]
            audit_lines = yield from audit.read_lines(session)
            metadata = dict(build_session_info(session, head).metadata)
            state = _ExportState(head, records, journal.lines, audit_lines, metadata)
            _check_state(session, state)
            return state
    raise ConflictError(
        f"others kept changing the view of session {session!r}; it was not exported. Try again.",
        session=session,
        reason="view",
        expected=None,
        actual=None,
    )


def _check_state(session: str, state: _ExportState) -> None:
    """Raise if an import would refuse this state: it is damaged, or there is too much of it."""
    head, records, lines, audit_lines, _ = state
    for what in find_views_outside(head, records, lines):
        raise build_outside_error(session, what)
    times = [record.taken_at_ms for record in records]
    times += [line.changed_at_ms for line in lines]
    times += [at_ms for at_ms in (head.created_at_ms, head.deadline_ms) if at_ms is not None]
    for at_ms in times:
        if not 0 <= at_ms <= MILLISECONDS_MAX:
            raise build_outside_error(session, f"a time is out of range, {at_ms} ms")
    views = [head.view, *(shown for line in lines for shown in (line.before, line.after))]
    for what, count, most in (
        ("extents of its view", max(len(shown.extents) for shown in views), EXTENTS_MAX),
        ("snapshots", len(records), IMPORT_SNAPSHOTS_MAX),
        ("lines of its audit", len(audit_lines), IMPORT_AUDIT_MAX),
    ):
        if count > most:
            raise LimitError(
                f"session {session!r} has {count} {what}; an import takes up to {most}, so it was"
                " not exported",
                session=session,
                limit=most,
                actual=count,
            )


@dataclass(slots=True)
class _Incoming:
    """A session that is being imported."""

    check: SessionCheck
    ttl_s: float | None
    # None until something must be written: short sessions are checked as a whole before that.
    stage: Stage | None = None
    rows: list[LogRow] = field(default_factory=list)
    size_bytes: int = 0

    @property
    def name(self) -> str:
        """The id of the session."""
        return self.check.header.id


def import_(lines: Iterable[str], *, progress: Progress | None) -> Plan[TransferReport]:
    """Import sessions. Each appears as a whole when it is complete and valid, or not at all."""
    numbered = _number_lines(lines)
    check_header(next(numbered, (1, ""))[1])
    sessions = entries = snapshots = damaged = 0
    number = 1
    incoming: _Incoming | None = None
    try:
        for number, text in numbered:
            if not text.strip():
                continue
            kind, fields = _parse_line(number, text)
            if kind == "session" and incoming is None:
                incoming = yield from _begin_session(parse_session(fields))
            elif incoming is None:
                raise _build_line_error(number, f"{_KINDS[kind]} outside of a session")
            elif kind == "end":
                yield from _finish_session(incoming, fields)
                check, incoming = incoming.check, None
                sessions, snapshots = sessions + 1, snapshots + len(check.snapshots)
                entries += check.entries
                if progress is not None:
                    progress(check.header.id, entries)
            else:
                yield from _take_line(number, incoming, kind, fields)
                damaged += kind == "entry" and "raw" in fields
        if incoming is not None:
            raise FormatError(
                f"the export is cut off inside session {incoming.name!r}, which was not imported;"
                f" {sessions} sessions before it were",
                session=incoming.name,
            )
    except InvalidLineError as error:
        yield from _discard_stage(incoming)
        refusal = _build_line_error(number, f"{_KINDS[kind]} that no store wrote: {error}")
        raise refusal.copy(imported=sessions) from error
    except MemoryStoreError as error:
        yield from _discard_stage(incoming)
        raise error.copy(**{"line": number, **error.details, "imported": sessions}) from (
            error.__cause__
        )
    return TransferReport(sessions=sessions, entries=entries, snapshots=snapshots, damaged=damaged)


def _number_lines(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Number the lines; one that is too long or not text is refused."""
    number = 0
    try:
        for number, text in enumerate(lines, 1):
            if not isinstance(text, str):
                raise FormatError(f"line {number} is not text: open the file as UTF-8 text")
            if len(text) > EXPORT_LINE_CHARS_MAX:
                raise _build_line_error(number, f"longer than {EXPORT_LINE_CHARS_MAX} characters")
            yield number, text
    except UnicodeDecodeError as error:
        raise _build_line_error(number + 1, f"not UTF-8 text ({error.reason})") from error


def _begin_session(header: SessionHeader) -> Plan[_Incoming]:
    head = yield from perform(ReadHead(header.id))
    if head.status is Status.ACTIVE:
        raise build_exists_error(header.id)
    deadline = header.deadline_ms
    ttl_s = None if deadline is None else max(0.001, (deadline - head.now_ms) / 1000)
    return _Incoming(SessionCheck(header), ttl_s)


def _take_line(number: int, incoming: _Incoming, kind: str, fields: dict[str, Any]) -> Plan[None]:
    if kind == "entry":
        row = incoming.check.parse_entry(fields)
        size = incoming.size_bytes + len(row.envelope)
        if len(incoming.rows) == BATCH_ENTRIES_MAX or size > BATCH_BYTES_MAX:
            yield from _flush_rows(incoming)
        incoming.rows.append(row)
        incoming.size_bytes += len(row.envelope)
    elif kind == "snapshot":
        incoming.check.parse_snapshot(fields)
    elif kind == "journal":
        incoming.check.parse_journal(fields)
    elif kind == "audit":
        incoming.check.parse_audit(fields)
    else:
        raise _build_line_error(number, f"a session line inside of session {incoming.name!r}")


def _ensure_stage(incoming: _Incoming) -> Plan[Stage]:
    """Return the stage of a session; begin it if nothing was written yet."""
    if incoming.stage is None:
        header = incoming.check.header
        incoming.stage = yield from perform(
            BeginStage(header.id, header.forked_from, incoming.ttl_s, header.born)
        )
    return incoming.stage


def _flush_rows(incoming: _Incoming) -> Plan[None]:
    if incoming.rows:
        stage = yield from _ensure_stage(incoming)
        yield from perform(StageRows(incoming.name, stage.life, tuple(incoming.rows)))
        incoming.rows.clear()
        incoming.size_bytes = 0


def _discard_stage(incoming: _Incoming | None) -> Plan[None]:
    """Remove the stage of a session that is refused."""
    if incoming is not None and incoming.stage is not None:
        # If the engine fails now, a later vacuum removes it.
        with suppress(MemoryStoreError):
            yield from perform(DropStage(incoming.name, incoming.stage.life))


def _finish_session(incoming: _Incoming, fields: dict[str, Any]) -> Plan[None]:
    """Make a complete session visible."""
    check = incoming.check
    check.parse_end(fields)
    stage = yield from _ensure_stage(incoming)
    # The last entries are written with it, so a short session takes two operations.
    yield from perform(
        ShowStage(
            incoming.name,
            stage.life,
            check.header.metadata,
            view=check.header.view,
            generation=check.header.generation,
            created_at_ms=check.header.created_at_ms,
            snapshots=tuple(check.snapshots),
            journal=tuple(check.journal),
            rows=tuple(incoming.rows),
            audit=tuple(check.audit),
        )
    )


def check_header(text: str) -> None:
    """Raise if a text is not the first line of an export."""
    kind, fields = "", {}
    with suppress(ValueError, AttributeError):
        fields = pydantic_core.from_json(text, allow_inf_nan=False)
        kind = fields.get("indelible", "")
    if kind != "export":
        begins = f"it begins with {text.rstrip()[:60]!r}" if text else "it is empty"
        raise FormatError(f"this is not an export of indelible: {begins}. Nothing was imported.")
    if type(fields.get("format")) is not int or not 0 < fields["format"] <= EXPORT_FORMAT:
        raise FormatError(
            f"this export has format {fields.get('format')!r:.60}; this indelible reads up to"
            f" {EXPORT_FORMAT}. Nothing was imported."
        )


def _parse_line(number: int, text: str) -> tuple[str, dict[str, Any]]:
    try:
        ((kind, fields),) = pydantic_core.from_json(text, allow_inf_nan=False).items()
    except (ValueError, AttributeError):
        raise _build_line_error(
            number, f"something else than a line of an export: {text[:60]!r}"
        ) from None
    if kind not in _KINDS:
        raise _build_line_error(number, f"a line of an unknown kind, {kind[:60]!r}")
    if not isinstance(fields, dict):
        raise _build_line_error(number, f"{_KINDS[kind]} without fields")
    return kind, fields


def _build_line_error(number: int, what: str) -> FormatError:
    return FormatError(
        f"line {number} is {what}; the session it belongs to was not imported", line=number
    )


def _write_line(write: Write, fields: dict[str, Any]) -> None:
    write(pydantic_core.to_json(fields).decode() + "\n")


def _format_row(session: str, head: Head, row: LogRow) -> dict[str, Any]:
    """Format an entry; the bytes of a damaged one are exported in base64."""
    fields = row._asdict()
    del fields["envelope"], fields["content"]
    if _is_readable(session, row):
        return {**fields, "envelope": pydantic_core.from_json(row.envelope)}
    fields["raw"] = base64.b64encode(row.envelope).decode("ascii")
    if _is_readable(session, row._replace(content=None)):
        # Its columns are damaged, or it was moved: it must not become readable by an import.
        fields["kind"] = None
    # Values that an import would refuse.
    if not 0 <= row.written_at_ms <= MILLISECONDS_MAX:
        fields["written_at_ms"] = 0
    if not 0 <= (row.deadline_ms or 0) <= MILLISECONDS_MAX:
        fields["deadline_ms"] = None
    if not 0 <= row.generation <= head.generation:
        fields["generation"] = 0
    if not 0 <= row.batch <= min(BATCH_ENTRIES_MAX, head.end - row.position):
        fields["batch"] = 1
    return fields


def _is_readable(session: str, row: LogRow) -> bool:
    with suppress(MemoryStoreError, ValueError):
        return build_trim_columns(decode_row(row, session=session)) == row.trim_columns
    return False


def _format_journal_line(line: JournalLine) -> dict[str, Any]:
    return {
        "operation": line.key,
        "change": line.change,
        "changed_at_ms": line.changed_at_ms,
        "end": line.end,
        "before": line.before,
        "after": line.after,
        "undone_by": line.undone_by,
    }


@contextmanager
def open_output(target: str | os.PathLike[str] | TextIO) -> Iterator[Write]:
    """Open the target of an export. A file appears under its name when it is complete.

    A symbolic link is replaced by the export; the file that it points to is not changed. If the
    process is killed, the incomplete file stays under another name.
    """
    if not isinstance(target, (str, os.PathLike)):
        if not callable(getattr(target, "write", None)):
            raise UsageError(
                f"an export goes to a path or a text file, not a {type(target).__name__}"
            )
        _refuse_database(_find_file(target))
        yield target.write
        return
    path = Path(target)
    _refuse_database(path)
    if not path.is_symlink() and path.exists() and not path.is_file():
        raise UsageError(f"{path} is not a regular file; nothing was written. Use another name.")
    partial = path.with_name(f"{PARTIAL_PREFIX}{secrets.token_hex(8)}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            yield file.write
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _find_file(stream: TextIO) -> str:
    """Return the name of the file that a stream writes to; any other name if it is none."""
    try:
        # A link, where the system has such links.
        return f"/dev/fd/{stream.fileno()}"
    except (AttributeError, OSError, ValueError):
        return ""


def _refuse_database(target: str | os.PathLike[str]) -> None:
    """Raise if a file is a SQLite database that is in use, such as the store, or belongs to one.

    Only names are looked at: who opens a database and closes it again drops all locks that this
    process holds on it.
    """
    path = Path(os.path.realpath(target))
    ending = next((each for each in _SIDE_FILE_ENDINGS if path.name.endswith(each)), "")
    base = path.with_name(path.name.removesuffix(ending) or path.name)
    # The log stays beside a database for as long as that is open.
    in_use = any(base.with_name(base.name + each).exists() for each in _SIDE_FILE_ENDINGS)
    if in_use or (ending and base.is_file()):
        raise UsageError(
            f"{target} is a SQLite database that is in use, or belongs to one; nothing was written."
            " Use another file."
        )


@contextmanager
def open_input(source: str | os.PathLike[str] | TextIO) -> Iterator[Iterable[str]]:
    """Open the source of an import."""
    if not isinstance(source, (str, os.PathLike)):
        if not callable(getattr(source, "readline", None)):
            raise UsageError(
                f"an import comes from a path or a text file, not a {type(source).__name__}"
            )
        yield read_lines(source)
        return
    with Path(source).open(encoding="utf-8", newline="\n") as file:
        yield read_lines(file)


def read_lines(file: TextIO) -> Iterator[str]:
    """Read the lines of a file. A line that is too long is cut one character after the limit."""
    while line := file.readline(EXPORT_LINE_CHARS_MAX + 1):
        yield line
