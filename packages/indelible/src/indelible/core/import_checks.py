"""Validation of imported sessions: every field by itself, and the fields against one another.

An import is untrusted input. Only what a store could have exported passes; everything else raises
an `InvalidLineError` that says what is wrong. Nothing here reads or writes.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

import pydantic_core
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    Strict,
    ValidationError,
)

from indelible import view
from indelible.core.codec import decode_row, encode, encode_metadata
from indelible.core.limits import (
    BATCH_ENTRIES_MAX,
    COUNTER_MAX,
    ENTRY_BYTES_MAX,
    IMPORT_AUDIT_MAX,
    IMPORT_SNAPSHOTS_MAX,
    JOURNAL_LINES_MAX,
    KEY_BYTES_MAX,
    LABEL_BYTES_MAX,
    LOG_ENTRIES_MAX,
    MILLISECONDS_MAX,
    MISSING_NAMED_MAX,
)
from indelible.core.operations import JournalLine, LogRow, SnapshotRecord, StoredLine
from indelible.core.rules import find_journal_problems, is_inside, refuse_too_many_extents
from indelible.core.settings import check_session_id, check_text
from indelible.errors import CorruptEntryError, FormatError, MemoryStoreError
from indelible.model import Kind
from indelible.view import EXTENTS_MAX, Extents, View


class InvalidLineError(Exception):
    """A line of an export is not what a store could have written; the message says why."""


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Report an error of a field, or of a check of the public verbs, as an `InvalidLineError`."""
    try:
        yield
    except CorruptEntryError as error:
        raise InvalidLineError(error.reason) from error
    except MemoryStoreError as error:
        raise InvalidLineError(error.message) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidLineError(f"{where}: {first['msg']}") from error


def _parse_view(fields: object) -> View:
    """Parse a view in normal form."""
    given = _ViewFields.model_validate(fields)
    if len(given.extents) > EXTENTS_MAX:
        raise InvalidLineError(
            f"a view has {len(given.extents)} extents; the limit is {EXTENTS_MAX}. Trim or fork the"
            " session before it is exported"
        )
    shown = View(tuple((start, stop) for start, stop in given.extents), given.tail)
    if view.build_view(shown.extents, shown.tail) != shown:
        raise InvalidLineError("the extents of a view are not sorted and disjoint")
    return shown


def _encode_metadata(metadata: object) -> bytes:
    if type(metadata) is not dict:
        raise InvalidLineError("its metadata is not an object")
    return encode_metadata(metadata)


_Position = Annotated[int, Field(ge=0, le=LOG_ENTRIES_MAX)]
_Counter = Annotated[int, Field(ge=0, le=COUNTER_MAX)]
_Time = Annotated[int, Field(ge=0, le=MILLISECONDS_MAX)]
_SessionId = Annotated[str, AfterValidator(check_session_id)]
_Key = Annotated[str, AfterValidator(partial(check_text, what="a key", bytes_max=KEY_BYTES_MAX))]
_Label = Annotated[
    str, AfterValidator(partial(check_text, what="a label", bytes_max=LABEL_BYTES_MAX))
]
_Texts = Annotated[tuple[str, ...], Strict(False)]
_View = Annotated[View, PlainValidator(_parse_view)]
# The names of changes in a journal. Redis separates them by spaces.
_ChangeName = Annotated[str, Field(pattern="^[a-z_]{1,32}$")]


class _Fields(BaseModel):
    """The fields of a line, each by itself. JSON values are not converted to other types."""

    model_config = ConfigDict(strict=True, frozen=True)


class _ViewFields(_Fields):
    extents: list[Annotated[list[int], Field(min_length=2, max_length=2)]]
    tail: _Position


class SessionHeader(_Fields):
    """The first line of a session."""

    id: _SessionId
    born: _Position
    end: _Position
    view: _View
    generation: _Counter
    created_at_ms: _Time
    deadline_ms: _Time | None
    forked_from: _SessionId | None
    metadata: Annotated[bytes, PlainValidator(_encode_metadata)]


class _EntryFields(_Fields):
    position: _Position
    kind: Annotated[Kind, Strict(False)] | None
    written_at_ms: _Time
    deadline_ms: _Time | None
    batch: Annotated[int, Field(ge=0, le=BATCH_ENTRIES_MAX)]
    generation: _Counter
    keep: bool
    key: _Key | None
    opens: _Texts
    answers: _Texts


class _SnapshotFields(_Fields):
    id: _Key
    label: _Label | None
    taken_at_ms: _Time
    view: _View
    end: _Position


class _JournalFields(_Fields):
    key: _Key = Field(alias="operation")
    change: _ChangeName
    changed_at_ms: _Time
    end: _Position
    before: _View
    after: _View
    undone_by: _Key | None


class _AuditFields(_Fields):
    number: _Counter
    # ASCII of JSON, which names an actor, a change and a version.
    text: Annotated[str, Field(max_length=8192, pattern="^[ -~]+$")]
    hash: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class _EndFields(_Fields):
    session: str
    entries: int
    snapshots: int
    journal: int


def parse_session(fields: dict[str, Any]) -> SessionHeader:
    """Parse and check the first line of a session."""
    with _convert_errors():
        header = SessionHeader.model_validate(fields)
    if header.end < header.born:
        raise InvalidLineError(f"its log ends at {header.end}, before {header.born}")
    _check_inside(header.view, header.born, header.end)
    return header


def _check_inside(shown: View, born: int, end: int) -> None:
    if not is_inside(shown, born, end):
        raise InvalidLineError(f"a view reaches outside of the log ({born} to {end})")


@dataclass(slots=True)
class SessionCheck:
    """The lines of a session so far, and what later lines must satisfy."""

    header: SessionHeader
    entries: int = 0
    snapshots: list[SnapshotRecord] = field(default_factory=list)
    journal: list[JournalLine] = field(default_factory=list)
    audit: list[StoredLine] = field(default_factory=list)
    # The first position that the next entry may have.
    _next: int = 0
    # The extents of the log that were read.
    _there: list[view.Extent] = field(default_factory=list)
    # Where the newest batch ends; unknown after a gap or a damaged entry.
    _batch_end: int = 0
    _batch_unknown: bool = False
    # Hashes of the keys, which saves memory: a session may have millions.
    _keys: set[int] = field(default_factory=set)
    _newest: LogRow | None = None

    def __post_init__(self) -> None:
        self._next = self._batch_end = self.header.born

    def parse_entry(self, fields: dict[str, Any]) -> LogRow:
        """Parse the next entry and check it against those before it."""
        row = _parse_row(self.header, fields)
        if row.position < self._next:
            raise InvalidLineError(f"position {row.position} does not follow the entry before it")
        self._check_batch(row, raw="raw" in fields)
        if row.key is not None:
            if hash(row.key) in self._keys:
                raise InvalidLineError(f"the key {row.key[:60]!r} was used before")
            self._keys.add(hash(row.key))
        if self._there and self._there[-1][1] == row.position:
            self._there[-1] = (self._there[-1][0], row.position + 1)
        else:
            self._there.append((row.position, row.position + 1))
        self._next = row.position + 1
        self._newest = row
        self.entries += 1
        return row

    def _check_batch(self, row: LogRow, *, raw: bool) -> None:
        """Check the batch: the first of n entries says n, the others 0. A vacuum leaves gaps."""
        if row.position > self._next and row.position >= self._batch_end:
            self._batch_unknown = True
        if row.position + row.batch > self.header.end:
            raise InvalidLineError(f"its batch of {row.batch} reaches past the end of the log")
        if raw:
            # It was damaged in the source, and its batch size may be, too.
            self._batch_unknown = True
            return
        if row.batch == 0:
            if row.key is not None:
                raise InvalidLineError("it has a key, but is not the first of its batch")
            if row.position >= self._batch_end and not self._batch_unknown:
                raise InvalidLineError("it belongs to a batch that has ended")
            return
        if row.position < self._batch_end and not self._batch_unknown:
            raise InvalidLineError("it begins a batch inside of another one")
        self._batch_end = row.position + row.batch
        self._batch_unknown = False

    def parse_snapshot(self, fields: dict[str, Any]) -> None:
        """Parse and check the next snapshot."""
        if len(self.snapshots) == IMPORT_SNAPSHOTS_MAX:
            raise InvalidLineError(f"it has more than {IMPORT_SNAPSHOTS_MAX} snapshots")
        with _convert_errors():
            record = SnapshotRecord(**dict(_SnapshotFields.model_validate(fields)))
        self._check_end(record.end)
        _check_inside(record.view, self.header.born, record.end)
        with _convert_errors():
            frozen = view.freeze(record.view, record.end)
            refuse_too_many_extents(self.header.id, frozen)
        self.snapshots.append(record)

    def parse_journal(self, fields: dict[str, Any]) -> None:
        """Parse and check the next change of the view."""
        if len(self.journal) == JOURNAL_LINES_MAX:
            raise InvalidLineError(f"it has more than {JOURNAL_LINES_MAX} changes")
        with _convert_errors():
            # The backend sets the version, which depends on the new life.
            line = JournalLine(version="", **dict(_JournalFields.model_validate(fields)))
        self._check_end(line.end)
        if self.journal and line.end < self.journal[-1].end:
            raise InvalidLineError("the log was longer at the change before it")
        for shown in (line.before, line.after):
            _check_inside(shown, self.header.born, line.end)
        if line.before == line.after:
            raise InvalidLineError("it is a change that changed nothing")
        self.journal.append(line)

    def parse_audit(self, fields: dict[str, Any]) -> None:
        """Parse the next line of the audit. Only `verify` has the key, and checks its hash."""
        if len(self.audit) == IMPORT_AUDIT_MAX:
            raise InvalidLineError(f"it has more than {IMPORT_AUDIT_MAX} lines of an audit")
        with _convert_errors():
            line = StoredLine(**dict(_AuditFields.model_validate(fields)))
        if line.number != len(self.audit):
            raise InvalidLineError("a line before it is missing")
        self.audit.append(line)

    def parse_end(self, fields: dict[str, Any]) -> None:
        """Parse the last line; check that the session is complete and consistent."""
        with _convert_errors():
            end = _EndFields.model_validate(fields)
        found = (self.entries, len(self.snapshots), len(self.journal))
        if (end.entries, end.snapshots, end.journal) != found:
            raise InvalidLineError(f"it does not count what was read: {found}")
        if end.session != self.header.id:
            raise InvalidLineError(f"it does not end session {self.header.id!r}")
        for problem in self._find_problems():
            raise InvalidLineError(problem)

    def _check_end(self, end: int) -> None:
        """Check where the log ended at a snapshot or a change."""
        if not self.header.born <= end <= self.header.end:
            raise InvalidLineError(f"the log did not end at {end} then")

    def _find_problems(self) -> Iterator[str]:
        """Describe inconsistencies between the parts of the session."""
        header, journal, newest = self.header, self.journal, self._newest
        if header.end > header.born and self._next != header.end:
            yield "the session lacks its newest entry"
        if (
            newest is not None
            and newest.kind is not None
            and newest.deadline_ms != header.deadline_ms
        ):
            yield "the deadline of the session is not that of its newest entry"
        for what, names in (
            ("snapshot ids", [record.id for record in self.snapshots]),
            ("operations", [line.key for line in journal]),
        ):
            if len(set(names)) != len(names):
                yield f"the session has two equal {what}"
        yield from find_journal_problems(header.view, journal[::-1])
        if len(journal) > header.generation:
            yield f"the session says {header.generation} changes of its view, and has more"
        missing = view.count(view.subtract(self._find_needed(), tuple(self._there)))
        if missing > MISSING_NAMED_MAX:
            yield f"its views show {missing} entries that are not in its log"

    def _find_needed(self) -> Extents:
        """Return all positions that a view of the session shows."""
        found = list(view.freeze(self.header.view, self.header.end))
        for record in self.snapshots:
            found += view.freeze(record.view, record.end)
        for line in self.journal:
            found += view.freeze(line.before, self.header.end)
            found += view.freeze(line.after, line.end)
        return view.normalize(found)


def _parse_row(header: SessionHeader, fields: dict[str, Any]) -> LogRow:
    with _convert_errors():
        row = LogRow(**dict(_EntryFields.model_validate(fields)), envelope=_parse_envelope(fields))
    if not header.born <= row.position < header.end:
        raise InvalidLineError(f"position {row.position} is outside of the log")
    if row.generation > header.generation:
        raise InvalidLineError(f"its generation {row.generation} is later than its session's")
    return _check_value(header.id, row, raw="raw" in fields)


def _parse_envelope(fields: dict[str, Any]) -> bytes:
    if "raw" in fields:
        raw = fields["raw"]
        if not isinstance(raw, str):
            raise InvalidLineError("raw is not text")
        try:
            envelope = base64.b64decode(raw, validate=True)
        except ValueError:
            raise InvalidLineError("raw is not base64") from None
    elif "envelope" not in fields:
        raise InvalidLineError("it has no envelope")
    else:
        try:
            envelope = pydantic_core.to_json(fields["envelope"])
        except ValueError as error:
            raise InvalidLineError(f"its envelope is not JSON: {error}") from None
    if len(envelope) > ENTRY_BYTES_MAX:
        raise InvalidLineError(f"it takes {len(envelope)} bytes; the limit is {ENTRY_BYTES_MAX}")
    return envelope


def _check_value(session: str, row: LogRow, *, raw: bool) -> LogRow:
    """Check that a readable entry is stored as the public verbs would store it.

    An entry with raw bytes was damaged in the source, in its body or its columns. If neither is
    damaged, it was at a wrong position: it must not become readable by the import, so it is stored
    without a kind.
    """
    with _convert_errors():
        try:
            value = decode_row(row, session=session)
        except (CorruptEntryError, FormatError):
            if raw:
                return row
            raise
        draft = encode(value)
    is_whole = (draft.keep, draft.opens, draft.answers) == row.trim_columns
    if raw:
        return row._replace(kind=None) if is_whole else row
    if not is_whole:
        raise InvalidLineError("keep, opens and answers are not those of its message")
    return row
