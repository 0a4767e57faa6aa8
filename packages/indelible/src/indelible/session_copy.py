"""Copy sessions from one store into another, whatever engines they are on.

It uses the public verbs of two open stores. Each session is exported into a temporary file and
imported from there; at the end it is read back and compared with the export. At most one batch of
entries is in memory, and nothing in the target is overwritten. Both stores are sync; async code
calls it in a thread.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TextIO

from indelible.core.plans.sessions import Progress
from indelible.core.rules import require_active
from indelible.errors import (
    ConflictError,
    CorruptEntryError,
    FormatError,
    LimitError,
    MemoryStoreError,
    SessionNotFoundError,
    UnsupportedError,
    UsageError,
)
from indelible.model import CopyReport, Finding, Severity, Status, TransferReport
from indelible.store import MemoryStore

# Errors that concern one session; the others are copied.
_SESSION_ERRORS = (ConflictError, CorruptEntryError, FormatError, LimitError, UnsupportedError)


def copy_sessions(
    source: MemoryStore,
    target: MemoryStore,
    session_ids: Iterable[str] | None = None,
    *,
    prefix: str = "",
    dry_run: bool = False,
    progress: Progress | None = None,
) -> CopyReport:
    """Copy the active sessions of a store into another: log, view, snapshots, journal, metadata.

    Each session is copied as a whole or not at all. One that exists in the target is compared and
    not changed, so an interrupted copy is completed by running it again. At the end every copied
    session is read back and compared with its export. Expired sessions are counted, not copied.

    An error that concerns one session is in the report. An error of an engine is raised, with the
    number of copied sessions as `copied`. `progress` is called when a session was copied or
    compared, and again when it was read back.
    """
    if isinstance(session_ids, str):
        raise UsageError(f"session_ids is a list of ids, not {session_ids!r}", value=session_ids)
    if session_ids is not None and prefix:
        raise UsageError("a copy takes ids of sessions or a prefix, not both", value=prefix)
    names: Iterable[str] = (
        iter_session_ids(source, prefix=prefix, expired=True)
        if session_ids is None
        else _check_active(source, session_ids)
    )
    with _open_temporary_file() as ledger:
        work = _Copier(source, target, ledger, dry_run=dry_run, progress=progress)
        try:
            place = source.identity()
            if source is target or (place is not None and place == target.identity()):
                raise UsageError("the source and the target of a copy are the same store")
            for name in names:
                work.copy_or_compare(name)
            work.read_back()
        except MemoryStoreError as error:
            raise error.copy(copied=0 if dry_run else work.sessions) from error.__cause__
        return work.report()


def iter_session_ids(
    store: MemoryStore, *, prefix: str = "", expired: bool = False
) -> Iterator[str]:
    """Iterate over the ids of a store, page by page; with `expired`, over all that are known."""
    seen: set[str] = set()
    cursor: str | None = None
    while True:
        page = store.list_sessions(prefix=prefix, expired=expired, cursor=cursor)
        # A later page may repeat a session.
        fresh = dict.fromkeys(name for name in page.ids if name not in seen)
        seen.update(fresh)
        yield from fresh
        cursor = page.cursor
        if cursor is None:
            return


def _check_active(store: MemoryStore, session_ids: Iterable[str]) -> list[str]:
    """Return the ids, or raise if one of them is not active."""
    names = list(dict.fromkeys(session_ids))
    for name in names:
        require_active(name, store.session(name).status)
    return names


@dataclass(slots=True)
class _Copier:
    """The state of a copy, and its counters."""

    source: MemoryStore
    target: MemoryStore
    # A line for each copied session; a file, since there may be millions.
    ledger: TextIO
    dry_run: bool = field(kw_only=True)
    progress: Progress | None = field(kw_only=True)
    seen: int = 0
    sessions: int = 0
    entries: int = 0
    snapshots: int = 0
    equal: int = 0
    expired: int = 0
    differ: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def copy_or_compare(self, name: str) -> None:
        """Copy a session, or compare it if the target has it."""
        try:
            status = self.source.session(name).status
            if status is not Status.ACTIVE:
                # A new one is an unfinished copy, or was forgotten just now.
                self.expired += status is Status.EXPIRED
                return
            if self.target.session(name).status is Status.ACTIVE:
                self._compare(name)
            else:
                self._copy(name)
        except SessionNotFoundError:
            self._add_gone(name)
        except _SESSION_ERRORS as error:
            self._add_finding(name, Severity.ERROR, f"it was not copied: {error.message}")
        self._report_progress(name)

    def _copy(self, name: str) -> None:
        state = _compute_state(self.source, name)
        with _export_session(self.source, name) as out:
            if not self.dry_run:
                try:
                    self.target.import_(out.lines)
                except ConflictError as error:
                    status = self.target.session(name).status
                    if error.reason != "exists" or status is not Status.ACTIVE:
                        raise
                    # Created meanwhile, perhaps by another copy of the same session.
                    self._compare(name)
                    return
                line = {"id": name, "digest": out.digest, "state": state}
                self.ledger.write(json.dumps(line) + "\n")
            self.sessions += 1
            self.entries += out.report.entries
            self.snapshots += out.report.snapshots
            self.seen += out.report.entries
        if damaged := out.report.damaged:
            what = f"{_format_entries(damaged)} cannot be read; a copy has the same bytes"
            self._add_finding(name, Severity.WARNING, what)
        if out.vacuumed:
            what = (
                f"keys of {_format_entries(out.vacuumed)} that a vacuum removed are not copied: an"
                " append that repeats one of them is written again"
            )
            self._add_finding(name, Severity.WARNING, what)
        aside = len(self.source.quarantined(name))
        if aside:
            what = f"what repair put into quarantine ({_format_entries(aside)}) stays behind"
            self._add_finding(name, Severity.WARNING, what)

    def _compare(self, name: str) -> None:
        with (
            _export_session(self.source, name) as ours,
            _export_session(self.target, name) as theirs,
        ):
            self.seen += ours.report.entries
            if ours.digest == theirs.digest:
                self.equal += 1
            else:
                self.differ.append(name)

    def read_back(self) -> None:
        """Compare the copied sessions with their exports, and with the source as it is now."""
        self.ledger.seek(0)
        for line in self.ledger:
            copied = json.loads(line)
            name = copied["id"]
            try:
                self._read_back(name, copied["digest"], copied["state"])
            except SessionNotFoundError:
                self._add_gone(name)
            except _SESSION_ERRORS as error:
                what = f"it was copied, and cannot be read back: {error.message}"
                self._add_finding(name, Severity.ERROR, what)
            self._report_progress(name)

    def _read_back(self, name: str, digest: str, state: str) -> None:
        with _export_session(self.target, name) as found:
            self.seen += found.report.entries
            if found.digest != digest:
                what = "it was copied, and what is read back is something else"
                self._add_finding(name, Severity.ERROR, what)
        if _compute_state(self.source, name) == state:
            return
        status = self.source.session(name).status
        if status is Status.ACTIVE:
            with _export_session(self.source, name) as now:
                if now.digest != digest:
                    self.changed.append(name)
        elif status is Status.NEW:
            # It was forgotten in the source, and the copy still exists: report it.
            self.changed.append(name)

    def report(self) -> CopyReport:
        """Build the report."""
        return CopyReport(
            sessions=self.sessions,
            entries=self.entries,
            snapshots=self.snapshots,
            equal=self.equal,
            expired=self.expired,
            differ=tuple(self.differ),
            changed=tuple(self.changed),
            findings=tuple(self.findings),
            dry_run=self.dry_run,
        )

    def _add_gone(self, name: str) -> None:
        """Report a session that disappeared during the copy."""
        if self.source.session(name).status is Status.ACTIVE:
            what = "it was in the target, and is not there any more"
            self._add_finding(name, Severity.ERROR, what)
        else:
            self._add_finding(name, Severity.WARNING, "it expired or was forgotten under way")

    def _add_finding(self, name: str, severity: Severity, what: str) -> None:
        self.findings.append(Finding(severity=severity, what=what, session_id=name))

    def _report_progress(self, name: str) -> None:
        if self.progress is not None:
            self.progress(name, self.seen)


@dataclass(frozen=True, slots=True)
class _ExportedSession:
    """An exported session, with its digest."""

    lines: TextIO
    report: TransferReport
    digest: str
    # How many entries a vacuum deleted.
    vacuumed: int


@contextmanager
def _open_temporary_file() -> Iterator[TextIO]:
    """Open a temporary file without a name."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n") as file:
        yield file


@contextmanager
def _export_session(store: MemoryStore, name: str) -> Iterator[_ExportedSession]:
    """Export a session into a temporary file."""
    with _open_temporary_file() as lines:
        report = store.export(lines, name)
        lines.seek(0)
        digest, logged = _compute_digest(lines)
        lines.seek(0)
        yield _ExportedSession(lines, report, digest, logged - report.entries)


def _compute_digest(lines: Iterable[str]) -> tuple[str, int]:
    """Return the digest of an export, and how many entries were ever appended."""
    total, logged = hashlib.sha256(), 0
    # The first line names the version that wrote the export; it is not compared.
    for number, line in enumerate(lines):
        if line.startswith('{"session":'):
            fields = json.loads(line)["session"]
            logged = fields["end"] - fields["born"]
            total.update(_format_comparable(fields).encode())
        # A copy that is audited has a line of its own.
        elif number and not line.startswith('{"audit":'):
            total.update(line.encode())
    return total.hexdigest(), logged


def _format_comparable(fields: dict[str, Any]) -> str:
    """Format the line of a session without fields that differ in a copy.

    An import sets the deadline of a session from the time left, so it differs a little.
    """
    fields["deadline_ms"] = fields["deadline_ms"] is not None
    return json.dumps(fields, sort_keys=True)


def _compute_state(store: MemoryStore, name: str) -> str:
    """Compute a digest that changes with the session, without reading its entries."""
    info = store.session(name)
    snapshots = [snapshot.id for snapshot in store.list_snapshots(name)]
    state = [info.status, info.version, info.metadata, snapshots]
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _format_entries(count: int) -> str:
    return f"{count} {'entry' if count == 1 else 'entries'}"
