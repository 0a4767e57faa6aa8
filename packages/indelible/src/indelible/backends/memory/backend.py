"""A dict behind the waist: the reference that the other engines are compared with.

It keeps encoded envelopes, so what goes in and what comes out are copies. It lives and dies with
its process, and says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, cast

from indelible import view
from indelible.backends.memory.session import Life, Session, at, keys_in, ordered, walk
from indelible.core import rules
from indelible.core.codec import checksum_of
from indelible.core.cursors import create_secret
from indelible.core.limits import BATCH_ENTRIES_MAX, ENTRY_BYTES_MAX, STAGE_ABANDONED_S
from indelible.core.plan import Step
from indelible.core.rules import Standing
from indelible.core.sources import Clock, milliseconds
from indelible.core.waist import (
    Append,
    Appended,
    BeginStage,
    Changed,
    ChangeView,
    CheckEngine,
    CheckSession,
    DeleteSnapshot,
    Diagnose,
    DropStage,
    Erase,
    Erased,
    Head,
    Identify,
    Journal,
    ListSessions,
    LogPage,
    LogRow,
    Nearest,
    Outline,
    Outlined,
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
    Reclaimed,
    SaveSnapshot,
    Scrub,
    SessionPage,
    SetMetadata,
    ShowStage,
    Slice,
    SnapshotRecord,
    Snapshots,
    Stage,
    StageRows,
    Stored,
)
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


class MemoryBackend:
    """Performs the waist on plain Python values, under one lock.

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
        self._handlers: dict[type, Callable[[Any], Any]] = {
            Append: self._append,
            ReadHead: lambda step: self._head(step.session),
            Read: self._read,
            ReadOutline: self._outline,
            ChangeView: self._change_view,
            SaveSnapshot: self._save_snapshot,
            ReadSnapshots: self._read_snapshots,
            DeleteSnapshot: self._delete_snapshot,
            ReadJournal: self._read_journal,
            SetMetadata: self._set_metadata,
            ListSessions: self._list_sessions,
            BeginStage: self._begin_stage,
            StageRows: self._stage_rows,
            ShowStage: self._show_stage,
            DropStage: self._drop_stage,
            ReadLog: self._read_log,
            Reclaim: self._reclaim,
            Erase: self._erase,
            Scrub: lambda _: (),
            CheckEngine: lambda _: (),
            CheckSession: lambda _: (),
            Diagnose: lambda _: RISKS,
            Nearest: lambda _: None,
            ReadCursorKey: lambda _: self._cursor_key,
            Identify: lambda _: f"memory {id(self)}",
            Quarantine: self._quarantine,
            ReadQuarantine: self._read_quarantine,
        }

    def perform(self, step: Step[R]) -> R:
        """Do one step, atomically."""
        with self._lock:
            if self._closed:
                raise ClosedError("the store is closed")
            return cast(R, self._handlers[type(step)](step))

    def prepare(self) -> None:
        """Nothing has to be reached."""

    def claims(self) -> Claims:
        """Memory promises order and exactly-once, and survives nothing."""
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
        """Whether a file is part of the store itself."""
        return False

    def close(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._closed = True
            self._sessions.clear()

    # What a session is

    def _standing(self, name: str) -> tuple[Standing | None, Status]:
        session = self._sessions.get(name)
        standing = session.standing() if session else None
        return standing, rules.status_of(standing, milliseconds(self._clock))

    def _head(self, name: str) -> Head:
        session = self._sessions.get(name)
        life = session.life if session else None
        return rules.head_of(
            session.standing() if session else None,
            view=life.view if life else View(),
            now_ms=milliseconds(self._clock),
            created_at_ms=life.created_at_ms if life else None,
            metadata=life.metadata if life else b"{}",
            snapshots=len(life.snapshots) if life else 0,
            forked_from=life.forked_from if life else None,
            vacuums=session.vacuums if session else 0,
        )

    def _begin_life(
        self, name: str, *, ttl_s: float | None, first: int | None = None, **fields: Any
    ) -> Session:
        now_ms = milliseconds(self._clock)
        session = self._sessions.get(name)
        born = rules.first_of_stage(name, session.end if session else 0, first)
        self._lives += 1
        life = Life(
            token=f"m{self._lives}",
            born=born,
            created_at_ms=now_ms,
            deadline_ms=rules.deadline_ms(now_ms, ttl_s),
            view=view.cleared(born),
            **{"staged": False, **fields},
        )
        return Session(session.log if session else {}, born, life)

    def _living(self, name: str, *, ttl_s: float | None) -> Session:
        """The session, begun anew unless it is active; whoever changes it puts it in its place."""
        _, status = self._standing(name)
        if status is Status.ACTIVE:
            return self._sessions[name]
        return self._begin_life(name, ttl_s=ttl_s)

    # Writing

    def _append(self, step: Append) -> Appended:
        standing, status = self._standing(step.session)
        if status is Status.ACTIVE and not step.fresh:
            earlier = self._sessions[step.session].life.keys.get(step.key)
            if earlier is not None:
                return self._replay(step, *earlier)
        rules.refuse_if_moved(step.session, step.expected, rules.version_of(standing, status))
        first = standing.end if standing else 0
        rules.refuse_if_full(step.session, first, len(step.drafts))
        session = self._living(step.session, ttl_s=step.ttl_s)
        life = session.life
        now_ms = milliseconds(self._clock)
        deadline_ms = rules.deadline_ms(now_ms, step.ttl_s)
        rows = {
            first + offset: LogRow(
                first + offset,
                kind,
                now_ms,
                deadline_ms,
                0 if offset else len(step.drafts),
                life.generation,
                keep,
                None if offset else step.key,
                opens,
                answers,
                envelope,
            )
            for offset, (kind, envelope, keep, opens, answers) in enumerate(step.drafts)
        }
        end = first + len(step.drafts)
        checksums = [checksum_of(draft.envelope) for draft in step.drafts]
        appended = Appended(
            first, len(step.drafts), rules.version_token(life.token, end, life.generation)
        )
        # Behind the end, where nobody looks yet.
        session.log.update(rows)
        life.deadline_ms = deadline_ms
        life.keys[step.key] = (first, checksums, life.generation)
        session.end = end
        self._sessions[step.session] = session
        return appended

    def _replay(
        self, step: Append, first: int, checksums: list[bytes], generation: int
    ) -> Appended:
        session = self._sessions[step.session]
        rules.refuse_other_content(step, first, checksums)
        count = len(checksums)
        return Appended(
            first,
            count,
            rules.version_token(session.life.token, first + count, generation),
            replayed=True,
            visible=rules.still_shows(session.life.view, session.end, first, count),
        )

    def _change_view(self, step: ChangeView) -> Changed:
        head = self._head(step.session)
        if head.status is Status.ACTIVE:
            life = self._sessions[step.session].life
            for line in life.journal:
                if line.operation == step.operation:
                    rules.refuse_other_change(step.session, step.operation, step.change, line)
                    return Changed(line, replayed=True)
        if step.snapshot is not None:
            there = head.status is Status.ACTIVE
            record = life.snapshots.get(step.snapshot) if there else None
            step = rules.rollback_of(step, head, record)
        rules.refuse_if_changed(step, head)
        line = rules.line_of(step, head, milliseconds(self._clock))
        journal = [
            replace(earlier, undone_by=step.operation)
            if earlier.operation == step.undoes
            else earlier
            for earlier in life.journal
        ]
        changed = Changed(line)
        life.journal = [*journal, line]
        life.view = line.after
        life.generation += 1
        return changed

    def _save_snapshot(self, step: SaveSnapshot) -> SnapshotRecord:
        session = self._living(step.session, ttl_s=step.ttl_s)
        life = session.life
        if step.id not in life.snapshots:
            rules.refuse_if_torn(step.session, view.freeze(life.view, session.end))
            record = SnapshotRecord(
                step.id, step.label, milliseconds(self._clock), life.view, session.end
            )
            life.snapshots[step.id] = record
            self._sessions[step.session] = session
        return life.snapshots[step.id]

    def _delete_snapshot(self, step: DeleteSnapshot) -> bool:
        _, status = self._standing(step.session)
        if status is not Status.ACTIVE:
            return False
        return self._sessions[step.session].life.snapshots.pop(step.id, None) is not None

    def _set_metadata(self, step: SetMetadata) -> Head:
        standing, status = self._standing(step.session)
        rules.refuse_if_moved(step.session, step.expected, rules.version_of(standing, status))
        session = self._living(step.session, ttl_s=step.ttl_s)
        session.life.metadata = step.metadata
        self._sessions[step.session] = session
        return self._head(step.session)

    def _begin_stage(self, step: BeginStage) -> Stage:
        _, status = self._standing(step.session)
        if status is Status.ACTIVE:
            raise rules.exists(step.session)
        if step.first is not None:
            # A copy that keeps its positions needs a log of its own; what is dead there goes.
            self._sessions.pop(step.session, None)
        session = self._begin_life(
            step.session,
            ttl_s=step.ttl_s,
            first=step.first,
            staged=True,
            forked_from=step.forked_from,
        )
        self._sessions[step.session] = session
        return Stage(session.life.token, session.life.born)

    def _staged(self, name: str, stage: str) -> Session:
        standing, _ = self._standing(name)
        rules.refuse_if_not_staged(name, stage, standing)
        return self._sessions[name]

    def _stage_rows(self, step: StageRows) -> None:
        session = self._staged(step.session, step.stage)
        for row in step.rows:
            session.log[row.position] = row
            session.end = max(session.end, row.position + 1)
            session.life.deadline_ms = row.deadline_ms

    def _show_stage(self, step: ShowStage) -> Head:
        self._stage_rows(StageRows(step.session, step.stage, step.rows))
        session = self._staged(step.session, step.stage)
        life = session.life
        life.staged = False
        life.metadata = step.metadata
        life.generation = step.generation
        life.view = View((), life.born) if step.view is None else step.view
        life.created_at_ms = step.created_at_ms or life.created_at_ms
        life.snapshots = {record.id: record for record in step.snapshots}
        first = step.generation - len(step.journal) + 1
        life.journal = [
            replace(line, version=rules.version_token(life.token, line.end, generation))
            for generation, line in enumerate(step.journal, first)
        ]
        life.keys = dict(keys_in(session))
        return self._head(step.session)

    def _drop_stage(self, step: DropStage) -> None:
        session = self._sessions.get(step.session)
        if session and rules.is_stage(session.standing(), step.stage):
            del self._sessions[step.session]

    def _reclaim(self, step: Reclaim) -> Reclaimed:
        session = self._sessions.get(step.session)
        if session is None:
            return Reclaimed()
        _, status = self._standing(step.session)
        life, head = session.life, self._head(step.session)
        if status is Status.ACTIVE:
            journal = life.journal[::-1]
            kept = rules.kept_lines(journal, step.undo_since_ms)
            reach = rules.reachable(head, life.snapshots.values(), kept)
            dead = view.subtract(((0, max(0, session.end - 1)),), reach)
            lines = rules.removed_changes(journal, kept)
        else:
            abandoned_ms = life.created_at_ms + STAGE_ABANDONED_S * 1000
            if life.staged and milliseconds(self._clock) < abandoned_ms:
                return Reclaimed()
            kept, lines, dead = (), 0, ((0, session.end),)
        rows = [row for row in session.log.values() if view.between(dead, *at(row))]
        reclaimed = Reclaimed(len(rows), sum(len(row.envelope) for row in rows), lines)
        if step.dry_run:
            return reclaimed
        # First what tells a reader of an older page that its entries may be gone.
        session.vacuums += 1 if rows else 0
        life.journal = list(reversed(kept))
        for row in rows:
            del session.log[row.position]
        if status is not Status.ACTIVE:
            life.snapshots.clear()
            life.keys.clear()
            life.view = view.cleared(session.end)
        if status is Status.NEW:
            del self._sessions[step.session]
        return reclaimed

    def _erase(self, step: Erase) -> Erased:
        forks = tuple(
            sorted(
                name
                for name, session in self._sessions.items()
                if session.life.forked_from == step.session
            )
        )
        session = self._sessions.pop(step.session, None)
        if session is None:
            return Erased(forks=forks)
        size = sum(len(row.envelope) for row in session.log.values())
        return Erased(len(session.log), len(session.life.snapshots), size, forks)

    def _quarantine(self, step: Quarantine) -> None:
        kept = self._sessions[step.session].quarantine
        for entry in step.entries:
            kept.setdefault(entry[0], entry)

    # Reading

    def _read(self, step: Read) -> Slice:
        head = self._head(step.session)
        frozen = rules.frozen_of(step.session, step.frozen, head)
        session = self._sessions.get(step.session)
        rows: list[Stored] = []
        missing = 0
        for position in walk(frozen.extents, step):
            row = session.log.get(position) if session else None
            if row is None and frozen.vacuums != head.vacuums:
                raise rules.gone(step.session)
            missing += row is None
            rules.refuse_if_torn_apart(step.session, missing, head.born, head.end)
            kind = row.kind if row else None
            if step.kinds is not None and kind is not None and kind not in step.kinds:
                continue
            if len(rows) == step.limit:
                resume = rows[-1].position + (0 if step.newest else 1)
                return Slice(head, frozen, ordered(rows, step), resume)
            written_at_ms, envelope = (row.written_at_ms, row.envelope) if row else (0, b"")
            rows.append(Stored(position, kind, written_at_ms, envelope))
        return Slice(head, frozen, ordered(rows, step))

    def _read_log(self, step: ReadLog) -> LogPage:
        head = self._head(step.session)
        if head.status is not Status.ACTIVE:
            return LogPage(head, (), None)
        log = self._sessions[step.session].log
        start = max(step.start, head.born)
        # Positions were added in order; a log may have a gap of any size.
        inside = (row for position, row in log.items() if start <= position < head.end)
        there = list(islice(inside, step.limit + 1))
        rows = tuple(there[: step.limit])
        return LogPage(head, rows, rows[-1].position + 1 if len(there) > step.limit else None)

    def _read_quarantine(self, step: ReadQuarantine) -> tuple[tuple[int, str, bytes], ...]:
        session = self._sessions.get(step.session)
        return tuple(entry for _, entry in sorted(session.quarantine.items())) if session else ()

    def _outline(self, step: ReadOutline) -> Outlined:
        head = self._head(step.session)
        entries = []
        for position in view.positions(view.freeze(head.view, head.end)):
            row = self._sessions[step.session].log.get(position)
            if row is None or row.kind is None:
                raise FormatError(
                    f"entry {position} of session {step.session!r} is missing or damaged; nothing"
                    " was changed. verify says which are.",
                    session=step.session,
                )
            size = len(row.envelope)
            entries.append(Outline(position, row.kind, size, row.keep, row.opens, row.answers))
        return Outlined(head, tuple(entries))

    def _read_snapshots(self, step: ReadSnapshots) -> Snapshots:
        head = self._head(step.session)
        if head.status is not Status.ACTIVE:
            return Snapshots(head, ())
        there = self._sessions[step.session].life.snapshots
        ids = there if step.ids is None else step.ids
        return Snapshots(head, tuple(there[id_] for id_ in ids if id_ in there))

    def _read_journal(self, step: ReadJournal) -> Journal:
        head = self._head(step.session)
        if head.status is not Status.ACTIVE:
            return Journal(head, ())
        lines = self._sessions[step.session].life.journal
        changes = [line for line in reversed(lines) if line.before != line.after]
        return Journal(head, tuple(changes[: step.limit]))

    def _list_sessions(self, step: ListSessions) -> SessionPage:
        after = step.resume
        names = sorted(
            name
            for name in self._sessions
            if name.startswith(step.prefix)
            and (after is None or name > after)
            and (step.dead or self._standing(name)[1] is Status.ACTIVE)
        )
        page = tuple(names[: step.limit])
        return SessionPage(page, page[-1] if len(names) > step.limit else None)


class AsyncMemoryBackend:
    """The same, awaited. Nothing in it ever suspends."""

    def __init__(self, *, clock: Clock) -> None:
        self._backend = MemoryBackend(clock=clock)

    async def perform(self, step: Step[R]) -> R:
        """Do one step, atomically."""
        return self._backend.perform(step)

    async def prepare(self) -> None:
        """Nothing has to be reached."""

    async def claims(self) -> Claims:
        """Memory promises order and exactly-once, and survives nothing."""
        return self._backend.claims()

    def owns(self, path: Path) -> bool:
        """Whether a file is part of the store itself."""
        return self._backend.owns(path)

    async def close(self) -> None:
        """Let go of everything."""
        self._backend.close()
