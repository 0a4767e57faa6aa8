"""Reads a trace of any length session by session, in bounded memory, with what its headers say.

Sessions are judged one by one. The lines of all files go into a temporary table of SQLite, which
keeps them on disk and sorts them by session.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Final

from memory_contract.checker.events import FOREVER
from memory_contract.traces.format import (
    DroppedLines,
    TraceCall,
    TraceEnd,
    TraceHeader,
    TraceLine,
    TraceOperation,
    TtlRefresh,
    WorkerKind,
    list_parts,
    parse_line,
    read_boot_id,
    read_line,
    read_raw_lines,
    strip_fields,
)

CLOCKS: Final = (
    "it was recorded on several machines, or boots of one: their clocks cannot be compared; explain"
    " the files of each by themselves"
)
KEYS: Final = (
    "its files were hashed with different keys, so their entries cannot be compared; explain the"
    " files of each key by themselves, and let all processes record to one file or folder"
)
# Lines between two reports of progress.
PROGRESS_LINES: Final = 20_000

Progress = Callable[[str, float], None]
# The beginning of a recorded line on a session with a plain name. The first pass needs only the
# session, so it parses all other lines alone.
_PLAIN: Final = re.compile(rb'\{"session":"([ !#-\[\]-~]*)",')
# `part` is a place in a list; `number` is that of the line in its part.
_TABLE: Final = """
    CREATE TABLE line (
        id INTEGER PRIMARY KEY, session BLOB, part INTEGER, number INTEGER, raw BLOB
    )
"""
_INSERT: Final = "INSERT INTO line (session, part, number, raw) VALUES (?, ?, ?, ?)"
_SORTED: Final = "SELECT session, part, number, raw FROM line ORDER BY session, id"
_NAMED: Final = "SELECT session, part, number, raw FROM line WHERE session = ? ORDER BY id"


@dataclass(slots=True)
class TraceMetadata:
    """Gathered from the headers and notes of all files."""

    # A history of the kit, whose ids are the kit's own: each stands for one entry.
    own_ids: bool = True
    fresh: bool = True
    dropped: int = 0
    # Of the dropped lines, those of calls that may have removed entries.
    dropped_changes: int = 0
    unclosed: int = 0
    continued: bool = False
    ttl_s: float | None = None
    ttl_late_s: float = 0.0
    ttl_refreshed_by: TtlRefresh = "append"
    workers: WorkerKind | None = None
    # The boots of machines on which it was recorded, and the keys of its hashes.
    boots: set[str] = field(default_factory=set)
    key_ids: set[str] = field(default_factory=set)
    # Sessions that may hold what a fork brought.
    forked: set[str] = field(default_factory=set)
    # Calls that ended after this moment may have seen changes that are not in the trace: one of
    # its files is cut off, or was still being written while another was read.
    known_until: int = FOREVER
    # Of each process, the first header that is left, and whether older files were removed.
    begun: dict[int, tuple[int, bool]] = field(default_factory=dict)
    _open: bool = False

    def limit_known(self, moment: int) -> None:
        """Note that changes which were made after this moment may be missing."""
        self.known_until = min(self.known_until, moment)

    def end_file(self) -> None:
        """Count a file that did not end in order."""
        self.unclosed += self._open
        self._open = False

    def add(self, line: TraceLine) -> None:
        """Take in what a line says about the trace."""
        if isinstance(line, TraceOperation) and line.op == "fork":
            self.forked.add(line.target or "")
        elif isinstance(line, TraceHeader):
            self._add_header(line)
        elif isinstance(line, DroppedLines):
            self.dropped += line.dropped
            self.dropped_changes += line.changes
        elif isinstance(line, TraceEnd):
            self._open = False

    def _add_header(self, header: TraceHeader) -> None:
        self.unclosed += self._open
        self._open, self.own_ids = True, False
        self.fresh = self.fresh and header.fresh
        self.continued = self.continued or header.continued
        self.ttl_s = header.ttl_s if self.ttl_s is None else self.ttl_s
        self.ttl_late_s = max(self.ttl_late_s, header.ttl_late_s)
        self.ttl_refreshed_by = header.ttl_refreshed_by
        self.workers = self.workers or header.workers
        self.boots.add(header.boot)
        self.key_ids |= {header.key_id} - {""}
        begun = (header.monotonic_ns, header.continued)
        self.begun[header.pid] = min(begun, self.begun.get(header.pid, begun))

    def find_obstacle(self) -> str | None:
        """Return why the files cannot be judged together; None if they can."""
        if len(self.boots) > 1:
            return CLOCKS
        return KEYS if len(self.key_ids) > 1 else None

    @property
    def complete(self) -> bool:
        """Return whether every append that was made stands in the trace."""
        return not (self.dropped or self.unclosed or self.continued)

    @property
    def changes_known_since(self) -> int:
        """The moment from which on every call that may remove entries stands in the trace.

        Such calls are written down before they are made. Only one that could not be written at all
        is missing, and what a process did before the first of its files that is left.
        """
        if self.dropped_changes:
            return FOREVER
        removed = [moment for moment, continued in self.begun.values() if continued]
        return max(removed, default=-1)

    @property
    def ends_unseen(self) -> bool:
        """Return whether a session's life may have begun before the trace and end at any time."""
        return not self.fresh and self.ttl_refreshed_by == "nothing"


class TraceReader:
    """The lines of a trace, sorted by session."""

    def __init__(self, path: str | Path, progress: Progress | None = None) -> None:
        self.metadata = TraceMetadata()
        self.operations = 0
        self._progress: Progress = progress or (lambda _, __: None)
        # Calls that are about every session.
        self._every: list[TraceCall] = []
        # A database without a name is a temporary file, which goes with the connection.
        self._database = sqlite3.connect("")
        self._database.execute(_TABLE)
        began_ns = time.monotonic_ns()
        self._parts = list_parts(path)
        self._database.executemany(_INSERT, self._read_parts())
        if (boot := read_boot_id()) and boot in self.metadata.boots:
            self.metadata.limit_known(began_ns)

    def _read_parts(self) -> Iterator[tuple[bytes, int, int, bytes]]:
        size = sum(part.stat().st_size for part in self._parts)
        done = 0
        for place, part in enumerate(self._parts):
            before = b""
            for number, raw in read_raw_lines(part):
                done += len(raw)
                if number % PROGRESS_LINES == 0:
                    self._progress("reading", done / size)
                session = _find_plain_session(raw) or self._read_other(part, number, raw, before)
                if session is not None:
                    self.operations += 1
                    yield session, place, number, raw
                before = raw
            self.metadata.end_file()

    def _read_other(self, part: Path, number: int, raw: bytes, before: bytes) -> bytes | None:
        """Parse a line; return its session if it is a call on one."""
        found = read_line(part, number, raw)
        self.metadata.add(found)
        if not raw.endswith(b"\n") and not isinstance(found, TraceEnd):
            # Changes are written down before they are made, so those that took effect before the
            # call of the last whole line began are all here.
            self.metadata.limit_known(_get_moment(before))
        if not isinstance(found, TraceCall):
            return None
        if found.every:
            self._every.append(found)
            return None
        return _to_blob(found.session)

    def read_sessions(self, session: str | None = None) -> Iterator[list[TraceCall]]:
        """Yield the lines of each session, or of one, with the calls that are about every session.

        In a history of the kit a fork may connect sessions: its lines are yielded together.
        """
        own_ids, forked = self.metadata.own_ids, self.metadata.forked
        named = session is not None and not (own_ids and session in forked)
        rows = self._database.execute(_NAMED if named else _SORTED, [_to_blob(session)] * named)
        done = 0
        for _, group in groupby(rows, key=lambda row: not own_ids and row[0]):
            lines = [self._parse(part, number, raw) for _, part, number, raw in group]
            done += len(lines)
            self._progress("judging", done / self.operations)
            yield lines + self._every

    def find_appends(self, tokens: set[str]) -> dict[str, TraceOperation]:
        """Find the first append of each of some hashes, in any session."""
        rows = self._database.execute("SELECT part, number, raw FROM line ORDER BY id")
        return find_first_appends((self._parse(*row) for row in rows), tokens)

    def _parse(self, part: int, number: int, raw: bytes) -> TraceCall:
        found = read_line(self._parts[part], number, raw)
        assert isinstance(found, TraceCall)
        return found


def _find_plain_session(raw: bytes) -> bytes | None:
    """Return the session of a line as most are; None if the line must be parsed to know it."""
    found = _PLAIN.match(raw)
    if found is None or b"\\" in raw or b'"every"' in raw or b'"fork"' in raw:
        return None
    return found[1] if raw.endswith(b"\n") else None


def _get_moment(raw: bytes) -> int:
    """Return when the call of a line began; for a header, when the file did."""
    line = parse_line(raw) if raw else None
    if isinstance(line, TraceCall):
        return line.invoke_ns
    return line.monotonic_ns if isinstance(line, TraceHeader) else -1


def _to_blob(session: str | None) -> bytes:
    return (session or "").encode("utf-8", "surrogatepass")


def find_first_appends(lines: Iterable[TraceLine], tokens: set[str]) -> dict[str, TraceOperation]:
    """Find the first append of each of some hashes."""
    found: dict[str, TraceOperation] = {}
    for op in lines:
        if isinstance(op, TraceOperation) and op.op == "append":
            for one in tokens.intersection(map(strip_fields, op.ids)):
                found.setdefault(one, op)
    return found


def group_by_session(lines: Sequence[TraceCall], metadata: TraceMetadata) -> list[list[TraceCall]]:
    """Group lines in memory as those of a file are grouped."""
    groups: dict[str, list[TraceCall]] = {}
    every = [line for line in lines if line.every]
    for line in lines:
        metadata.add(line)
        if not line.every:
            groups.setdefault("" if metadata.own_ids else line.session, []).append(line)
    return [[*group, *every] for group in groups.values()]
