"""A dict behind the waist: the reference that the other engines are compared with.

It keeps encoded envelopes, so what goes in and what comes out are copies. It lives and dies with
its process, and says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from indelible import view
from indelible.core import rules
from indelible.core.codec import checksum_of
from indelible.core.limits import BATCH_ENTRIES_MAX, ENTRY_BYTES_MAX
from indelible.core.plan import Step
from indelible.core.rules import Standing
from indelible.core.sources import Clock, milliseconds
from indelible.core.waist import (
    Append,
    Appended,
    BeginStage,
    Changed,
    ChangeView,
    DeleteSnapshot,
    Draft,
    Frozen,
    Head,
    Journal,
    JournalLine,
    ListSessions,
    Outline,
    Outlined,
    Read,
    ReadHead,
    ReadJournal,
    ReadOutline,
    ReadSnapshots,
    SaveSnapshot,
    SessionPage,
    SetMetadata,
    ShowStage,
    Slice,
    SnapshotRecord,
    Snapshots,
    Stage,
    Stored,
)
from indelible.errors import ClosedError
from indelible.model import Claims, Durability, Status
from indelible.view import View

R = TypeVar("R")


@dataclass(slots=True)
class _Life:
    """One life of a session."""

    token: str
    born: int
    staged: bool
    created_at_ms: int
    deadline_ms: int | None
    view: View
    forked_from: str | None = None
    generation: int = 0
    metadata: bytes = b"{}"
    keys: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    snapshots: dict[str, SnapshotRecord] = field(default_factory=dict)
    journal: list[JournalLine] = field(default_factory=list)


@dataclass(slots=True)
class _Session:
    """A log that outlives the lives that are written into it."""

    log: list[tuple[Draft, int]]
    life: _Life

    def standing(self) -> Standing:
        life = self.life
        return Standing(
            life.token,
            life.born,
            len(self.log),
            life.generation,
            life.deadline_ms,
            life.staged,
        )


class MemoryBackend:
    """Performs the waist on plain Python values, under one lock."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: dict[str, _Session] = {}
        self._lives = 0
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
            ShowStage: self._show_stage,
        }

    def perform(self, step: Step[R]) -> R:
        """Do one step, atomically."""
        with self._lock:
            if self._closed:
                raise ClosedError("the store is closed")
            return cast(R, self._handlers[type(step)](step))

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
            vacuums=0,
        )

    def _begin_life(self, name: str, *, ttl_s: float | None, **fields: Any) -> _Session:
        now_ms = milliseconds(self._clock)
        session = self._sessions.get(name)
        log = session.log if session else []
        self._lives += 1
        life = _Life(
            token=f"m{self._lives}",
            born=len(log),
            created_at_ms=now_ms,
            deadline_ms=rules.deadline_ms(now_ms, ttl_s),
            view=view.cleared(len(log)),
            **{"staged": False, **fields},
        )
        self._sessions[name] = _Session(log, life)
        return self._sessions[name]

    def _living(self, name: str, *, ttl_s: float | None) -> _Session:
        """The session, begun anew unless it is active."""
        _, status = self._standing(name)
        if status is Status.ACTIVE:
            return self._sessions[name]
        return self._begin_life(name, ttl_s=ttl_s)

    # Writing

    def _append(self, step: Append) -> Appended:
        standing, status = self._standing(step.session)
        if step.stage is not None:
            rules.refuse_if_not_staged(step.session, step.stage, standing)
        if (status is Status.ACTIVE or step.stage is not None) and not step.fresh:
            earlier = self._sessions[step.session].life.keys.get(step.key)
            if earlier is not None:
                return self._replay(step, *earlier)
        rules.refuse_if_moved(step.session, step.expected, rules.version_of(standing, status))
        first = standing.end if standing else 0
        rules.refuse_if_full(step.session, first, len(step.drafts))
        if step.stage is not None:
            session = self._sessions[step.session]
        else:
            session = self._living(step.session, ttl_s=step.ttl_s)
        now_ms = milliseconds(self._clock)
        session.log.extend(
            (draft, now_ms if draft.written_at_ms is None else draft.written_at_ms)
            for draft in step.drafts
        )
        life = session.life
        life.deadline_ms = rules.deadline_ms(now_ms, step.ttl_s)
        life.keys[step.key] = (first, len(step.drafts), life.generation)
        end = len(session.log)
        version = rules.version_token(life.token, end, life.generation)
        return Appended(first, len(step.drafts), version)

    def _replay(self, step: Append, first: int, count: int, generation: int) -> Appended:
        session = self._sessions[step.session]
        stored = [checksum_of(draft.envelope) for draft, _ in session.log[first : first + count]]
        rules.refuse_other_content(step, first, stored)
        return Appended(
            first,
            count,
            rules.version_token(session.life.token, first + count, generation),
            replayed=True,
            visible=rules.still_shows(session.life.view, len(session.log), first, count),
        )

    def _change_view(self, step: ChangeView) -> Changed:
        head = self._head(step.session)
        if head.status is Status.ACTIVE:
            life = self._sessions[step.session].life
            for line in life.journal:
                if line.operation == step.operation:
                    return Changed(line, replayed=True)
        rules.refuse_if_changed(step, head)
        line = rules.line_of(step, head, milliseconds(self._clock))
        for number, earlier in enumerate(life.journal):
            if earlier.operation == step.undoes:
                life.journal[number] = replace(earlier, undone_by=step.operation)
        life.journal.append(line)
        life.view = line.after
        life.generation += 1
        return Changed(line)

    def _save_snapshot(self, step: SaveSnapshot) -> SnapshotRecord:
        session = self._living(step.session, ttl_s=step.ttl_s)
        life = session.life
        if step.id not in life.snapshots:
            end = len(session.log)
            rules.refuse_if_torn(step.session, view.freeze(life.view, end))
            life.snapshots[step.id] = SnapshotRecord(
                step.id, step.label, milliseconds(self._clock), life.view, end
            )
        return life.snapshots[step.id]

    def _delete_snapshot(self, step: DeleteSnapshot) -> bool:
        _, status = self._standing(step.session)
        if status is not Status.ACTIVE:
            return False
        return self._sessions[step.session].life.snapshots.pop(step.id, None) is not None

    def _set_metadata(self, step: SetMetadata) -> Head:
        standing, status = self._standing(step.session)
        rules.refuse_if_moved(step.session, step.expected, rules.version_of(standing, status))
        self._living(step.session, ttl_s=step.ttl_s).life.metadata = step.metadata
        return self._head(step.session)

    def _begin_stage(self, step: BeginStage) -> Stage:
        _, status = self._standing(step.session)
        if status is Status.ACTIVE:
            raise rules.exists(step.session)
        session = self._begin_life(
            step.session, ttl_s=step.ttl_s, staged=True, forked_from=step.forked_from
        )
        return Stage(session.life.token, session.life.born)

    def _show_stage(self, step: ShowStage) -> Head:
        standing, _ = self._standing(step.session)
        rules.refuse_if_not_staged(step.session, step.stage, standing)
        life = self._sessions[step.session].life
        life.staged = False
        life.metadata = step.metadata
        return self._head(step.session)

    # Reading

    def _read(self, step: Read) -> Slice:
        head = self._head(step.session)
        frozen = step.frozen or Frozen(head.life, view.freeze(head.view, head.end), head.version)
        rules.refuse_if_gone(step.session, frozen, head)
        session = self._sessions.get(step.session)
        log = session.log if session else []
        rows: list[Stored] = []
        for position in _walk(frozen.extents, step):
            draft, written_at_ms = log[position]
            if step.kinds is not None and draft.kind not in step.kinds:
                continue
            if len(rows) == step.limit:
                resume = rows[-1].position + (0 if step.newest else 1)
                return Slice(head, frozen, _ordered(rows, step), resume)
            rows.append(Stored(position, draft.kind, written_at_ms, draft.envelope))
        return Slice(head, frozen, _ordered(rows, step))

    def _outline(self, step: ReadOutline) -> Outlined:
        head = self._head(step.session)
        entries = []
        for position in view.positions(view.freeze(head.view, head.end)):
            draft, _ = self._sessions[step.session].log[position]
            entries.append(
                Outline(
                    position,
                    draft.kind,
                    len(draft.envelope),
                    draft.keep,
                    draft.opens,
                    draft.answers,
                )
            )
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
        return Journal(head, tuple(reversed(lines[-step.limit :])))

    def _list_sessions(self, step: ListSessions) -> SessionPage:
        after = step.resume
        names = sorted(
            name
            for name in self._sessions
            if name.startswith(step.prefix)
            and (after is None or name > after)
            and self._standing(name)[1] is Status.ACTIVE
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

    async def claims(self) -> Claims:
        """Memory promises order and exactly-once, and survives nothing."""
        return self._backend.claims()

    async def close(self) -> None:
        """Let go of everything."""
        self._backend.close()


def _walk(extents: view.Extents, step: Read) -> Iterator[int]:
    if step.newest:
        stop = step.start if step.start is not None else extents[-1][1] if extents else 0
        for start, end in reversed(view.between(extents, 0, stop)):
            yield from range(end - 1, start - 1, -1)
    else:
        start = step.start or 0
        stop = extents[-1][1] if extents else 0
        yield from view.positions(view.between(extents, start, stop))


def _ordered(rows: list[Stored], step: Read) -> tuple[Stored, ...]:
    return tuple(reversed(rows)) if step.newest else tuple(rows)
