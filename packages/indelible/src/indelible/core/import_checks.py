"""Validation of imported sessions: every field by itself, and the fields against one another.

An import is untrusted input. Only what a store could have exported passes; everything else raises
an `InvalidLineError` that says what is wrong. Nothing here reads or writes.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pydantic_core

from indelible import view
from indelible.core.codec import decode, encode, encode_json
from indelible.core.limits import (
    BATCH_ENTRIES_MAX,
    COUNTER_MAX,
    ENTRY_BYTES_MAX,
    IMPORT_SNAPSHOTS_MAX,
    JOURNAL_LINES_MAX,
    KEY_BYTES_MAX,
    LABEL_BYTES_MAX,
    LOG_ENTRIES_MAX,
    METADATA_BYTES_MAX,
    MILLISECONDS_MAX,
    MISSING_NAMED_MAX,
)
from indelible.core.operations import JournalLine, LogRow, SnapshotRecord
from indelible.core.rules import is_inside
from indelible.core.settings import check_session_id, check_text
from indelible.errors import CorruptEntryError, FormatError, MemoryStoreError
from indelible.model import Kind
from indelible.view import EXTENTS_MAX, VIEW_BYTES_MAX, Extents, View

# The names of changes in a journal. Redis separates them by spaces.
_CHANGE = re.compile(r"[a-z_]{1,32}")


class InvalidLineError(Exception):
    """A line of an export is not what a store could have written; the message says why."""


@dataclass(frozen=True, slots=True)
class SessionHeader:
    """The first line of a session."""

    id: str
    born: int
    end: int
    view: View
    generation: int
    created_at_ms: int
    deadline_ms: int | None
    forked_from: str | None
    metadata: bytes


def parse_session(fields: dict[str, Any]) -> SessionHeader:
    """Parse and check the first line of a session."""
    born = _parse_int(fields, "born", 0, LOG_ENTRIES_MAX)
    end = _parse_int(fields, "end", born, LOG_ENTRIES_MAX)
    metadata = _get_field(fields, "metadata")
    if type(metadata) is not dict:
        raise InvalidLineError("its metadata is not an object")
    with _convert_errors():
        data = encode_json(metadata, what="metadata")
    if len(data) > METADATA_BYTES_MAX:
        raise InvalidLineError(
            f"its metadata takes {len(data)} bytes; the limit is {METADATA_BYTES_MAX}"
        )
    origin = _get_field(fields, "forked_from")
    return SessionHeader(
        id=_parse_session_id(_get_field(fields, "id")),
        born=born,
        end=end,
        view=_parse_view(fields, "view", born, end),
        generation=_parse_int(fields, "generation", 0, COUNTER_MAX),
        created_at_ms=_parse_time(fields, "created_at_ms"),
        deadline_ms=_parse_deadline(fields),
        forked_from=None if origin is None else _parse_session_id(origin),
        metadata=data,
    )


@dataclass(slots=True)
class SessionCheck:
    """The lines of a session so far, and what later lines must satisfy."""

    header: SessionHeader
    entries: int = 0
    snapshots: list[SnapshotRecord] = field(default_factory=list)
    journal: list[JournalLine] = field(default_factory=list)
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
        self._check_batch(row)
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

    def _check_batch(self, row: LogRow) -> None:
        """Check the batch: the first of n entries says n, the others 0. A vacuum leaves gaps."""
        if row.position > self._next and row.position >= self._batch_end:
            self._batch_unknown = True
        if row.position + row.batch > self.header.end:
            raise InvalidLineError(f"its batch of {row.batch} reaches past the end of the log")
        if row.kind is None:
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
        end = _parse_int(fields, "end", self.header.born, self.header.end)
        label = _get_field(fields, "label")
        record = SnapshotRecord(
            id=_parse_text(fields, "id", KEY_BYTES_MAX),
            label=None if label is None else _parse_text(fields, "label", LABEL_BYTES_MAX),
            taken_at_ms=_parse_time(fields, "taken_at_ms"),
            view=_parse_view(fields, "view", self.header.born, end),
            end=end,
        )
        frozen = view.freeze(record.view, end)
        if len(frozen) > EXTENTS_MAX or len(view.encode(frozen)) > VIEW_BYTES_MAX:
            raise InvalidLineError(
                f"it has {len(frozen)} extents; the limit is {EXTENTS_MAX}, and"
                f" {VIEW_BYTES_MAX} bytes"
            )
        self.snapshots.append(record)

    def parse_journal(self, fields: dict[str, Any]) -> None:
        """Parse and check the next change of the view."""
        if len(self.journal) == JOURNAL_LINES_MAX:
            raise InvalidLineError(f"it has more than {JOURNAL_LINES_MAX} changes")
        end = _parse_int(fields, "end", self.header.born, self.header.end)
        if self.journal and end < self.journal[-1].end:
            raise InvalidLineError("the log was longer at the change before it")
        change = _get_field(fields, "change")
        if not isinstance(change, str) or not _CHANGE.fullmatch(change):
            raise InvalidLineError(f"no change is called {change!r:.60}")
        undone_by = _get_field(fields, "undone_by")
        line = JournalLine(
            key=_parse_text(fields, "operation", KEY_BYTES_MAX),
            change=change,
            changed_at_ms=_parse_time(fields, "changed_at_ms"),
            # The backend sets the version, which depends on the new life.
            version="",
            end=end,
            before=_parse_view(fields, "before", self.header.born, end),
            after=_parse_view(fields, "after", self.header.born, end),
            undone_by=None
            if undone_by is None
            else _parse_text(fields, "undone_by", KEY_BYTES_MAX),
        )
        if line.before == line.after:
            raise InvalidLineError("it is a change that changed nothing")
        self.journal.append(line)

    def parse_end(self, fields: dict[str, Any]) -> None:
        """Parse the last line; check that the session is complete and consistent."""
        found = (self.entries, len(self.snapshots), len(self.journal))
        said = tuple(_get_field(fields, name) for name in ("entries", "snapshots", "journal"))
        if said != found or any(type(count) is not int for count in said):
            raise InvalidLineError(f"it counts {said}, but {found} were read")
        if _get_field(fields, "session") != self.header.id:
            raise InvalidLineError(f"it does not end session {self.header.id!r}")
        for problem in self._find_problems():
            raise InvalidLineError(problem)

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
        operations = {line.key for line in journal}
        if any(line.undone_by not in operations for line in journal if line.undone_by is not None):
            yield "a change was undone by one that is not there"
        if len(journal) > header.generation:
            yield f"the session says {header.generation} changes of its view, and has more"
        if journal and journal[-1].after != header.view:
            yield "the view of the session is not what its newest change left"
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
    position = _parse_int(fields, "position", header.born, header.end - 1)
    name = _get_field(fields, "kind")
    if name is not None and name not in tuple(Kind):
        raise InvalidLineError(f"no entry is of the kind {name!r:.60}")
    kind = None if name is None else Kind(name)
    key = _get_field(fields, "key")
    keep = _get_field(fields, "keep")
    if type(keep) is not bool:
        raise InvalidLineError("keep is neither true nor false")
    row = LogRow(
        position=position,
        kind=kind,
        written_at_ms=_parse_time(fields, "written_at_ms"),
        deadline_ms=_parse_deadline(fields),
        batch=_parse_int(fields, "batch", 0, BATCH_ENTRIES_MAX),
        generation=_parse_int(fields, "generation", 0, header.generation),
        keep=keep,
        key=None if key is None else _parse_text(fields, "key", KEY_BYTES_MAX),
        opens=_parse_texts(fields, "opens"),
        answers=_parse_texts(fields, "answers"),
        envelope=_parse_envelope(fields),
    )
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
    else:
        try:
            envelope = pydantic_core.to_json(_get_field(fields, "envelope"))
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
            value = decode(row.kind, row.envelope, session=session, position=row.position)
        except (CorruptEntryError, FormatError):
            if raw:
                return row
            raise
        draft = encode(value)
    is_whole = (draft.keep, draft.opens, draft.answers) == (row.keep, row.opens, row.answers)
    if raw:
        return row._replace(kind=None) if is_whole else row
    if not is_whole:
        raise InvalidLineError("keep, opens and answers are not those of its message")
    return row


def _get_field(fields: dict[str, Any], name: str) -> Any:
    try:
        return fields[name]
    except KeyError:
        raise InvalidLineError(f"it has no field {name!r}") from None


def _parse_int(fields: dict[str, Any], name: str, low: int, high: int) -> int:
    value = _get_field(fields, name)
    if type(value) is not int:
        raise InvalidLineError(f"{name} is not a whole number")
    if not low <= value <= high:
        raise InvalidLineError(f"{name} is {_format_number(value)}, outside of {low} to {high}")
    return value


def _format_number(number: int) -> str:
    return str(number) if number.bit_length() <= 128 else f"a number of {number.bit_length()} bits"


def _parse_time(fields: dict[str, Any], name: str) -> int:
    return _parse_int(fields, name, 0, MILLISECONDS_MAX)


def _parse_deadline(fields: dict[str, Any]) -> int | None:
    if _get_field(fields, "deadline_ms") is None:
        return None
    return _parse_time(fields, "deadline_ms")


def _parse_text(fields: dict[str, Any], name: str, bytes_max: int) -> str:
    with _convert_errors():
        return check_text(_get_field(fields, name), what=name, bytes_max=bytes_max)


def _parse_session_id(value: object) -> str:
    with _convert_errors():
        return check_session_id(value)


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Report an error of a check of the public verbs as an `InvalidLineError`."""
    try:
        yield
    except MemoryStoreError as error:
        raise InvalidLineError(error.message) from error


def _parse_texts(fields: dict[str, Any], name: str) -> tuple[str, ...]:
    values = _get_field(fields, name)
    if type(values) is not list or not all(isinstance(value, str) for value in values):
        raise InvalidLineError(f"{name} is not a list of texts")
    return tuple(values)


def _parse_view(fields: dict[str, Any], name: str, born: int, end: int) -> View:
    """Parse a view in normal form, inside of the log at its time."""
    given = _get_field(fields, name)
    if type(given) is not dict:
        raise InvalidLineError(f"{name} is not an object")
    pieces = _get_field(given, "extents")
    tail = _parse_int(given, "tail", born, end)
    if type(pieces) is not list:
        raise InvalidLineError(f"the extents of {name} are not a list")
    if len(pieces) > EXTENTS_MAX:
        raise InvalidLineError(
            f"{name} has {len(pieces)} extents; the limit is {EXTENTS_MAX}. Trim or fork the"
            " session before it is exported"
        )
    for piece in pieces:
        if type(piece) is not list or len(piece) != 2 or any(type(at) is not int for at in piece):
            raise InvalidLineError(f"the extents of {name} are not pairs of whole numbers")
    shown = View(tuple((start, stop) for start, stop in pieces), tail)
    if view.build_view(shown.extents, tail) != shown:
        raise InvalidLineError(f"the extents of {name} are not sorted and disjoint")
    if not is_inside(shown, born, end):
        raise InvalidLineError(f"{name} reaches outside of the log ({born} to {end})")
    return shown
