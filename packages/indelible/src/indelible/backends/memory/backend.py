"""A store in plain dicts: the reference that the other engines are compared with.

It keeps encoded envelopes, so what goes in and what comes out are copies. It lives and dies with
its process, and says so.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from indelible import view
from indelible.backends.memory.session import (
    Life,
    Session,
    find_keys,
    iterate_positions,
    to_extent,
    to_log_order,
)
from indelible.core import rules
from indelible.core.backend import DirectHandlers
from indelible.core.clock import Clock, read_clock_ms
from indelible.core.codec import parse_checksum
from indelible.core.cursors import create_secret
from indelible.core.limits import BATCH_ENTRIES_MAX, ENTRY_BYTES_MAX, STAGE_ABANDONED_S
from indelible.core.operations import (
    Append,
    AppendResult,
    BeginStage,
    ChangeView,
    CheckEngine,
    CheckSession,
    DeleteSnapshot,
    DropStage,
    EntrySlice,
    Erase,
    EraseResult,
    FindChange,
    FindNearest,
    FindRisks,
    Head,
    Identify,
    JournalLine,
    JournalPage,
    ListSessions,
    LogPage,
    LogRow,
    Outline,
    Quarantine,
    Read,
    ReadCursorKey,
    ReadHead,
    ReadJournal,
    ReadLog,
    ReadOutline,
    ReadQuarantine,
    ReadSnapshots,
    Reclaim,
    ReclaimResult,
    Rollback,
    SaveSnapshot,
    Scrub,
    SessionOutline,
    SessionPage,
    SetMetadata,
    ShowStage,
    SnapshotList,
    SnapshotRecord,
    Stage,
    StageRows,
    StoredEntry,
    ViewChangeResult,
)
from indelible.core.plan import Operation
from indelible.core.rules import SessionState
from indelible.errors import ClosedError, FormatError
from indelible.model import Claims, Durability, Gravity, Risk, Status
from indelible.view import View

R = TypeVar("R")

RISKS = (
    Risk(
        severity=Gravity.NOTE,
        subject="plain memory",
        risk="every session ends with this process",
        remedy="open a file, or a server, to keep them",
    ),
)


HANDLERS: Final[DirectHandlers[MemoryBackend]] = DirectHandlers()


class MemoryBackend:
    """Performs operations on plain Python values, under one lock.

    A write computes first and changes then, by assignments with no call in between: Ctrl-C cannot
    come between two of them, and leave half a write behind.
    """

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._lives = 0
        self._cursor_key = create_secret()
        self._closed = False

    def perform(self, op: Operation[R]) -> R:
        """Perform one operation, atomically."""
        with self._lock:
            if self._closed:
                raise ClosedError("the store is closed")
            return HANDLERS.find(op)(self, op)

    def prepare(self) -> None:
        """Do nothing: there is no server."""

    def claims(self) -> Claims:
        """Return what memory promises: order and exactly-once. It survives nothing."""
        return Claims(
            engine="memory",
            engine_version="",
            durability=Durability.NONE,
            multi_process=False,
            ttl_clock="caller",
            entry_bytes_max=ENTRY_BYTES_MAX,
            batch_entries_max=BATCH_ENTRIES_MAX,
        )

    def owns(self, path: Path) -> bool:  # noqa: ARG002 (no file is)
        """Return whether a file is part of the store itself."""
        return False

    def close(self) -> None:
        """Drop everything."""
        with self._lock:
            self._closed = True
            self._sessions.clear()

    # What a session is

    def _find_state(self, name: str) -> tuple[SessionState | None, Status]:
        session = self._sessions.get(name)
        state = session.build_state() if session else None
        return state, rules.compute_status(state, read_clock_ms(self._clock))

    def _load_head(self, name: str) -> Head:
        session = self._sessions.get(name)
        life = session.life if session else None
        return rules.build_head(
            session.build_state() if session else None,
            view=life.view if life else View(),
            now_ms=read_clock_ms(self._clock),
            created_at_ms=life.created_at_ms if life else None,
            metadata=life.metadata if life else b"{}",
            snapshots=len(life.snapshots) if life else 0,
            forked_from=life.forked_from if life else None,
            vacuums=session.vacuums if session else 0,
        )

    def _begin_life(
        self, name: str, *, ttl_s: float | None, first: int | None = None, **fields: Any
    ) -> Session:
        now_ms = read_clock_ms(self._clock)
        session = self._sessions.get(name)
        born = rules.choose_stage_start(name, session.end if session else 0, first)
        self._lives += 1
        life = Life(
            token=f"m{self._lives}",
            born=born,
            created_at_ms=now_ms,
            deadline_ms=rules.compute_deadline_ms(now_ms, ttl_s),
            view=view.build_empty_view(born),
            **{"staged": False, **fields},
        )
        return Session(session.log if session else {}, born, life)

    def _ensure_active(self, name: str, *, ttl_s: float | None) -> Session:
        """Return the session, begun anew unless it is active. The caller stores what it changes."""
        _, status = self._find_state(name)
        if status is Status.ACTIVE:
            return self._sessions[name]
        return self._begin_life(name, ttl_s=ttl_s)

    # Writing

    @HANDLERS.handles(Append)
    def _append(self, op: Append) -> AppendResult:
        state, status = self._find_state(op.session)
        if status is Status.ACTIVE and not op.fresh:
            earlier = self._sessions[op.session].life.keys.get(op.key)
            if earlier is not None:
                return self._build_replay(op, *earlier)
        rules.refuse_if_moved(op.session, op.expected, rules.compute_version(state, status))
        first = state.end if state else 0
        rules.refuse_if_full(op.session, first, len(op.drafts))
        session = self._ensure_active(op.session, ttl_s=op.ttl_s)
        life = session.life
        now_ms = read_clock_ms(self._clock)
        deadline_ms = rules.compute_deadline_ms(now_ms, op.ttl_s)
        rows = {
            first + offset: LogRow(
                first + offset,
                kind,
                now_ms,
                deadline_ms,
                0 if offset else len(op.drafts),
                life.generation,
                keep,
                None if offset else op.key,
                opens,
                answers,
                envelope,
            )
            for offset, (kind, envelope, keep, opens, answers) in enumerate(op.drafts)
        }
        end = first + len(op.drafts)
        checksums = [parse_checksum(draft.envelope) for draft in op.drafts]
        appended = AppendResult(
            first, len(op.drafts), rules.build_version(life.token, end, life.generation)
        )
        # Behind the end, where nobody looks yet.
        session.log.update(rows)
        life.deadline_ms = deadline_ms
        life.keys[op.key] = (first, checksums, life.generation)
        session.end = end
        self._sessions[op.session] = session
        return appended

    def _build_replay(
        self, op: Append, first: int, checksums: list[bytes], generation: int
    ) -> AppendResult:
        session = self._sessions[op.session]
        rules.refuse_different_content(op, first, checksums)
        count = len(checksums)
        return AppendResult(
            first,
            count,
            rules.build_version(session.life.token, first + count, generation),
            replayed=True,
            visible=rules.is_visible(session.life.view, session.end, first, count),
        )

    @HANDLERS.handles(ChangeView)
    def _change_view(self, op: ChangeView) -> ViewChangeResult:
        head = self._load_head(op.session)
        if head.status is Status.ACTIVE:
            done = self._find_change(FindChange(op.session, op.change, op.key))
            if done is not None:
                return ViewChangeResult(done, replayed=True)
        rules.refuse_if_changed(op, head)
        life = self._sessions[op.session].life
        line = rules.build_journal_line(op, head, read_clock_ms(self._clock))
        journal = [
            replace(earlier, undone_by=op.key) if earlier.key == op.undoes else earlier
            for earlier in life.journal
        ]
        changed = ViewChangeResult(line)
        life.journal = [*journal, line]
        life.view = line.after
        life.generation += 1
        return changed

    @HANDLERS.handles(Rollback)
    def _rollback(self, op: Rollback) -> ViewChangeResult:
        head = self._load_head(op.session)
        done = self._find_change(FindChange(op.session, rules.ROLLBACK, op.key))
        if done is not None:
            return ViewChangeResult(done, replayed=True)
        active = head.status is Status.ACTIVE
        snapshots = self._sessions[op.session].life.snapshots if active else {}
        return self._change_view(rules.plan_rollback(op, head, snapshots.get(op.snapshot)))

    @HANDLERS.handles(FindChange)
    def _find_change(self, op: FindChange) -> JournalLine | None:
        if self._load_head(op.session).status is Status.ACTIVE:
            for line in self._sessions[op.session].life.journal:
                if line.key == op.key:
                    rules.refuse_different_change(op.session, op.key, op.change, line)
                    return line
        return None

    @HANDLERS.handles(SaveSnapshot)
    def _save_snapshot(self, op: SaveSnapshot) -> SnapshotRecord:
        session = self._ensure_active(op.session, ttl_s=op.ttl_s)
        life = session.life
        if op.id not in life.snapshots:
            rules.refuse_too_many_extents(op.session, view.freeze(life.view, session.end))
            record = SnapshotRecord(
                op.id, op.label, read_clock_ms(self._clock), life.view, session.end
            )
            life.snapshots[op.id] = record
            self._sessions[op.session] = session
        return life.snapshots[op.id]

    @HANDLERS.handles(DeleteSnapshot)
    def _delete_snapshot(self, op: DeleteSnapshot) -> bool:
        _, status = self._find_state(op.session)
        if status is not Status.ACTIVE:
            return False
        return self._sessions[op.session].life.snapshots.pop(op.id, None) is not None

    @HANDLERS.handles(SetMetadata)
    def _set_metadata(self, op: SetMetadata) -> Head:
        state, status = self._find_state(op.session)
        rules.refuse_if_moved(op.session, op.expected, rules.compute_version(state, status))
        session = self._ensure_active(op.session, ttl_s=op.ttl_s)
        session.life.metadata = op.metadata
        self._sessions[op.session] = session
        return self._load_head(op.session)

    @HANDLERS.handles(BeginStage)
    def _begin_stage(self, op: BeginStage) -> Stage:
        _, status = self._find_state(op.session)
        if status is Status.ACTIVE:
            raise rules.build_exists_error(op.session)
        if op.first is not None:
            # A copy that keeps its positions needs a log of its own; what is dead there goes.
            self._sessions.pop(op.session, None)
        session = self._begin_life(
            op.session,
            ttl_s=op.ttl_s,
            first=op.first,
            staged=True,
            forked_from=op.forked_from,
        )
        self._sessions[op.session] = session
        return Stage(session.life.token, session.life.born)

    def _find_stage(self, name: str, stage: str) -> Session:
        state, _ = self._find_state(name)
        rules.refuse_if_not_staged(name, stage, state)
        return self._sessions[name]

    @HANDLERS.handles(StageRows)
    def _stage_rows(self, op: StageRows) -> None:
        session = self._find_stage(op.session, op.stage)
        for row in op.rows:
            session.log[row.position] = row
            session.end = max(session.end, row.position + 1)
            session.life.deadline_ms = row.deadline_ms

    @HANDLERS.handles(ShowStage)
    def _show_stage(self, op: ShowStage) -> Head:
        self._stage_rows(StageRows(op.session, op.stage, op.rows))
        session = self._find_stage(op.session, op.stage)
        life = session.life
        life.staged = False
        life.metadata = op.metadata
        life.generation = op.generation
        life.view = View((), life.born) if op.view is None else op.view
        life.created_at_ms = op.created_at_ms or life.created_at_ms
        life.snapshots = {record.id: record for record in op.snapshots}
        first = op.generation - len(op.journal) + 1
        life.journal = [
            replace(line, version=rules.build_version(life.token, line.end, generation))
            for generation, line in enumerate(op.journal, first)
        ]
        life.keys = dict(find_keys(session))
        return self._load_head(op.session)

    @HANDLERS.handles(DropStage)
    def _drop_stage(self, op: DropStage) -> None:
        session = self._sessions.get(op.session)
        if session and rules.is_stage(session.build_state(), op.stage):
            del self._sessions[op.session]

    @HANDLERS.handles(Reclaim)
    def _reclaim(self, op: Reclaim) -> ReclaimResult:
        session = self._sessions.get(op.session)
        if session is None:
            return ReclaimResult()
        _, status = self._find_state(op.session)
        life, head = session.life, self._load_head(op.session)
        if status is Status.ACTIVE:
            journal = life.journal[::-1]
            kept = rules.keep_undoable(journal, op.undo_since_ms)
            reach = rules.find_reachable(head, life.snapshots.values(), kept)
            dead = view.subtract(((0, max(0, session.end - 1)),), reach)
            lines = rules.count_removed_changes(journal, kept)
        else:
            abandoned_ms = life.created_at_ms + STAGE_ABANDONED_S * 1000
            if life.staged and read_clock_ms(self._clock) < abandoned_ms:
                return ReclaimResult()
            kept, lines, dead = (), 0, ((0, session.end),)
        rows = [row for row in session.log.values() if view.clip(dead, *to_extent(row))]
        reclaimed = ReclaimResult(len(rows), sum(len(row.envelope) for row in rows), lines)
        if op.dry_run:
            return reclaimed
        # First what tells a reader of an older page that its entries may be gone.
        session.vacuums += 1 if rows else 0
        life.journal = list(reversed(kept))
        for row in rows:
            del session.log[row.position]
        if status is not Status.ACTIVE:
            life.snapshots.clear()
            life.keys.clear()
            life.generation += 1
            life.view = view.build_empty_view(session.end)
        if status is Status.NEW:
            del self._sessions[op.session]
        return reclaimed

    @HANDLERS.handles(Erase)
    def _erase(self, op: Erase) -> EraseResult:
        forks = tuple(
            sorted(
                name
                for name, session in self._sessions.items()
                if session.life.forked_from == op.session
            )
        )
        session = self._sessions.pop(op.session, None)
        if session is None:
            return EraseResult(forks=forks)
        size = sum(len(row.envelope) for row in session.log.values())
        return EraseResult(len(session.log), len(session.life.snapshots), size, forks)

    @HANDLERS.handles(Quarantine)
    def _quarantine(self, op: Quarantine) -> None:
        kept = self._sessions[op.session].quarantine
        for entry in op.entries:
            kept.setdefault(entry[0], entry)

    # The engine itself

    @HANDLERS.handles(Scrub)
    def _scrub(self, _op: Scrub) -> tuple[str, ...]:
        return ()

    @HANDLERS.handles(CheckEngine)
    def _check_engine(self, _op: CheckEngine) -> tuple[str, ...]:
        return ()

    @HANDLERS.handles(CheckSession)
    def _check_session(self, _op: CheckSession) -> tuple[str, ...]:
        return ()

    @HANDLERS.handles(FindRisks)
    def _find_risks(self, _op: FindRisks) -> tuple[Risk, ...]:
        return RISKS

    @HANDLERS.handles(FindNearest)
    def _find_nearest(self, _op: FindNearest) -> None:
        return None

    @HANDLERS.handles(ReadCursorKey)
    def _read_cursor_key(self, _op: ReadCursorKey) -> bytes:
        return self._cursor_key

    @HANDLERS.handles(Identify)
    def _identify(self, _op: Identify) -> str:
        return f"memory {id(self)}"

    # Reading

    @HANDLERS.handles(ReadHead)
    def _read_head(self, op: ReadHead) -> Head:
        return self._load_head(op.session)

    @HANDLERS.handles(Read)
    def _read(self, op: Read) -> EntrySlice:
        head = self._load_head(op.session)
        frozen = rules.choose_frozen_view(op.session, op.frozen, head)
        session = self._sessions.get(op.session)
        rows: list[StoredEntry] = []
        missing = 0
        for position in iterate_positions(frozen.extents, op):
            row = session.log.get(position) if session else None
            if row is None and frozen.vacuums != head.vacuums:
                raise rules.build_gone_error(op.session)
            missing += row is None
            rules.refuse_many_missing(op.session, missing, head.born, head.end)
            kind = row.kind if row else None
            if op.kinds is not None and kind is not None and kind not in op.kinds:
                continue
            if len(rows) == op.limit:
                resume = rows[-1].position + (0 if op.newest else 1)
                return EntrySlice(head, frozen, to_log_order(rows, op), resume)
            written_at_ms, envelope = (row.written_at_ms, row.envelope) if row else (0, b"")
            rows.append(StoredEntry(position, kind, written_at_ms, envelope))
        return EntrySlice(head, frozen, to_log_order(rows, op))

    @HANDLERS.handles(ReadLog)
    def _read_log(self, op: ReadLog) -> LogPage:
        head = self._load_head(op.session)
        if head.status is not Status.ACTIVE:
            return LogPage(head, (), None)
        log = self._sessions[op.session].log
        start = max(op.start, head.born)
        # Positions were added in order; a log may have a gap of any size.
        inside = (row for position, row in log.items() if start <= position < head.end)
        there = list(islice(inside, op.limit + 1))
        rows = tuple(there[: op.limit])
        return LogPage(head, rows, rows[-1].position + 1 if len(there) > op.limit else None)

    @HANDLERS.handles(ReadQuarantine)
    def _read_quarantine(self, op: ReadQuarantine) -> tuple[tuple[int, str, bytes], ...]:
        session = self._sessions.get(op.session)
        return tuple(entry for _, entry in sorted(session.quarantine.items())) if session else ()

    @HANDLERS.handles(ReadOutline)
    def _read_outline(self, op: ReadOutline) -> SessionOutline:
        head = self._load_head(op.session)
        entries = []
        for position in view.iter_positions(view.freeze(head.view, head.end)):
            row = self._sessions[op.session].log.get(position)
            if row is None or row.kind is None:
                raise FormatError(
                    f"entry {position} of session {op.session!r} is missing or damaged; nothing"
                    " was changed. verify says which are.",
                    session=op.session,
                )
            size = len(row.envelope)
            entries.append(Outline(position, row.kind, size, row.keep, row.opens, row.answers))
        return SessionOutline(head, tuple(entries))

    @HANDLERS.handles(ReadSnapshots)
    def _read_snapshots(self, op: ReadSnapshots) -> SnapshotList:
        head = self._load_head(op.session)
        if head.status is not Status.ACTIVE:
            return SnapshotList(head, ())
        there = self._sessions[op.session].life.snapshots
        ids = there if op.ids is None else op.ids
        return SnapshotList(head, tuple(there[id_] for id_ in ids if id_ in there))

    @HANDLERS.handles(ReadJournal)
    def _read_journal(self, op: ReadJournal) -> JournalPage:
        head = self._load_head(op.session)
        if head.status is not Status.ACTIVE:
            return JournalPage(head, ())
        lines = self._sessions[op.session].life.journal
        changes = [line for line in reversed(lines) if line.before != line.after]
        return JournalPage(head, tuple(changes[: op.limit]))

    @HANDLERS.handles(ListSessions)
    def _list_sessions(self, op: ListSessions) -> SessionPage:
        after = op.resume
        names = sorted(
            name
            for name in self._sessions
            if name.startswith(op.prefix)
            and (after is None or name > after)
            and (op.dead or self._find_state(name)[1] is Status.ACTIVE)
        )
        page = tuple(names[: op.limit])
        return SessionPage(page, page[-1] if len(names) > op.limit else None)


class AsyncMemoryBackend:
    """The same, awaited; nothing in it suspends."""

    def __init__(self, *, clock: Clock) -> None:
        self._backend = MemoryBackend(clock=clock)

    async def perform(self, op: Operation[R]) -> R:
        """Perform one operation, atomically."""
        return self._backend.perform(op)

    async def prepare(self) -> None:
        """Do nothing: there is no server."""

    async def claims(self) -> Claims:
        """Return what memory promises: order and exactly-once. It survives nothing."""
        return self._backend.claims()

    def owns(self, path: Path) -> bool:
        """Return whether a file is part of the store itself."""
        return self._backend.owns(path)

    async def close(self) -> None:
        """Drop everything."""
        self._backend.close()
