"""Decisions that every engine takes alike: compute, then act.

An engine that can run Python inside its atomic step (memory, the SQL engines) reads a `Standing`,
asks these functions, and writes what they say. Nothing here reads or writes by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from indelible.core.codec import parse_checksum
from indelible.core.limits import (
    EXPIRED_KNOWN_S,
    LOG_ENTRIES_MAX,
    MISSING_NAMED_MAX,
)
from indelible.core.operations import (
    Append,
    AppendResult,
    ChangeView,
    FrozenView,
    Head,
    JournalLine,
    Rollback,
    SnapshotRecord,
)
from indelible.errors import ConflictError, FormatError, LimitError
from indelible.model import Status
from indelible.view import (
    EXTENTS_MAX,
    VIEW_BYTES_MAX,
    Extents,
    View,
    build_empty_view,
    build_view,
    contains,
    encode,
    freeze,
    normalize,
)

NEW_VERSION = "new"
# The kind of change that a rollback is in the journal.
ROLLBACK = "rollback"


class SessionState(NamedTuple):
    """Where a session stands: what an append must know, and no more."""

    life: str
    born: int
    end: int
    generation: int
    deadline_ms: int | None
    staged: bool = False


def compute_status(standing: SessionState | None, now_ms: int) -> Status:
    """New, active or expired, as the session stands at this moment."""
    if standing is None or standing.staged:
        return Status.NEW
    if standing.deadline_ms is None or now_ms < standing.deadline_ms:
        return Status.ACTIVE
    known_until_ms = standing.deadline_ms + EXPIRED_KNOWN_S * 1000
    return Status.EXPIRED if now_ms < known_until_ms else Status.NEW


def compute_version(standing: SessionState | None, status: Status) -> str:
    """An opaque token that changes when anyone appends, moves the view, or time runs out."""
    if standing is None or status is Status.NEW:
        return NEW_VERSION
    token = build_version(standing.life, standing.end, standing.generation)
    return token + "!" if status is Status.EXPIRED else token


def build_version(life: str, end: int, generation: int) -> str:
    """The version of an active session in this state."""
    return f"{life}.{end}.{generation}"


def compute_deadline_ms(now_ms: int, ttl_s: float | None) -> int | None:
    """When a life ends that is written to now; fixed from then on, whatever later releases say."""
    return None if ttl_s is None else now_ms + math.ceil(ttl_s * 1000)


def refuse_if_moved(session: str, expected: str | None, actual: str) -> None:
    """Raise if the caller worked from a state that is no longer the session's."""
    if expected is not None and expected != actual:
        raise ConflictError(
            f"session {session!r} moved since it was read: expected version {expected}, it is now"
            f" {actual}; nothing was written. Read it again and decide anew.",
            session=session,
            reason="version",
            expected=expected,
            actual=actual,
        )


def refuse_if_full(session: str, first: int, count: int) -> None:
    """Raise if the log has no position left for these entries."""
    if first + count > LOG_ENTRIES_MAX:
        raise LimitError(
            f"session {session!r} has no room for {count} more entries; nothing was written."
            " Fork it to go on.",
            session=session,
            limit=LOG_ENTRIES_MAX,
            actual=first + count,
        )


def refuse_many_missing(session: str, missing: int, start: int, stop: int) -> None:
    """Raise if more entries are missing than are worth naming one by one."""
    if missing > MISSING_NAMED_MAX:
        raise FormatError(
            f"session {session!r} has {missing} entries missing between positions {start} and"
            f" {stop}: where its log ends was damaged; nothing was changed",
            session=session,
        )


def choose_stage_start(session: str, end: int, first: int | None) -> int:
    """Where a stage begins: at the end of the log, or further on if it must keep its positions."""
    if first is None:
        return end
    if first < end:
        raise build_exists_error(session)
    return first


def find_reachable(
    head: Head, snapshots: Iterable[SnapshotRecord], journal: Iterable[JournalLine]
) -> Extents:
    """What a session shows, or could be made to show: by its snapshots, and by undoing.

    A view that reaches outside of the log is a `FormatError`: it must not decide what is removed.
    """
    records, lines = list(snapshots), list(journal)
    for what in find_views_outside(head, records, lines):
        raise FormatError(f"{what}; nothing was removed. verify names everything that is wrong.")
    found = list(freeze(head.view, head.end))
    for record in records:
        found += freeze(record.view, record.end)
    for line in lines:
        # Undoing restores the view with its open tail, so all that came later shows too.
        found += freeze(line.before, head.end)
    return normalize(found)


def is_inside(shown: View, born: int, end: int) -> bool:
    """Whether a view in normal form lies inside of `[born, end]`, the log of its life."""
    first = shown.extents[0][0] if shown.extents else shown.tail
    return born <= first and shown.tail <= end


def find_views_outside(
    head: Head, snapshots: Iterable[SnapshotRecord], journal: Iterable[JournalLine]
) -> Iterator[str]:
    """Say which stored views of a session reach outside of its log."""
    log = f"its log ({head.born} to {head.end})"
    if not is_inside(head.view, head.born, head.end):
        yield f"its view reaches outside of {log}"
    for record in snapshots:
        if record.end > head.end or not is_inside(record.view, head.born, record.end):
            yield f"snapshot {record.id} reaches outside of {log}"
    for line in journal:
        inside = is_inside(line.before, head.born, line.end) and is_inside(
            line.after, head.born, line.end
        )
        if line.end > head.end or not inside:
            yield f"the {line.change} {line.key} reaches outside of {log}"


def keep_undoable(lines: Sequence[JournalLine], undo_since_ms: int) -> Sequence[JournalLine]:
    """The journal lines that a vacuum leaves: all that are inside the undo window, newest first.

    However many they are. Lines that changed nothing are kept like the others, for their keys.
    """
    # All up to the oldest inside the window: clocks may differ, and the order of lines counts.
    newest = list(lines)
    while newest and newest[-1].changed_at_ms <= undo_since_ms:
        newest.pop()
    return newest


def count_removed_changes(lines: Sequence[JournalLine], kept: Sequence[JournalLine]) -> int:
    """How many changes a vacuum takes out of a journal; lines that changed nothing are none."""
    return sum(line.before != line.after for line in lines[len(kept) :])


def refuse_if_not_staged(step_session: str, stage: str, standing: SessionState | None) -> None:
    """Raise if somebody else wrote to the session while a copy of another was being staged."""
    if standing is None or not is_stage(standing, stage):
        raise build_exists_error(step_session)


def is_stage(standing: SessionState, stage: str) -> bool:
    """Whether a session is still this stage: nobody else wrote to it, and it is not shown yet."""
    return standing.staged and standing.life == stage


def build_exists_error(session: str) -> ConflictError:
    """The target of a copy is in use."""
    return ConflictError(
        f"session {session!r} exists already; nothing was copied. Choose another id.",
        session=session,
        reason="exists",
    )


def refuse_different_content(op: Append, first: int, stored: list[bytes]) -> None:
    """Raise if an earlier append with this key carried something else than this one does.

    `stored` are the checksums of the earlier append's entries.
    """
    offered = [parse_checksum(draft.envelope) for draft in op.drafts]
    if stored != offered:
        raise ConflictError(
            f"the key {op.key!r} was used in session {op.session!r} for other content, at"
            f" position {first}; nothing was written. Use a new key for a new append.",
            session=op.session,
            reason="key",
            key=op.key,
            position=first,
            expected=stored,
            actual=offered,
        )


def is_visible(view: View, end: int, first: int, count: int) -> bool:
    """Whether every entry of an append is in the view."""
    return contains(freeze(view, end), first, first + count)


def refuse_if_hidden(op: Append, appended: AppendResult) -> None:
    """Raise if a caller repeats a key whose entries are not all visible any more."""
    if appended.visible:
        return
    first, last = appended.first, appended.first + appended.entries - 1
    where = f"position {first}" if first == last else f"positions {first} to {last}"
    raise ConflictError(
        f"the key {op.key!r} was used in session {op.session!r} for the same content, at"
        f" {where}, which was hidden since; nothing was written. Use a new key to add it again, or"
        ' pass replay="hidden-ok" if it is enough that it was added once.',
        session=op.session,
        reason="hidden",
        key=op.key,
        position=first,
        positions=range(first, last + 1),
    )


def refuse_different_change(session: str, key: str, change: str, done: JournalLine) -> None:
    """Raise if an earlier change with this key was of another kind."""
    if done.change != change:
        raise ConflictError(
            f"the key {key!r} was used in session {session!r} for a {done.change}; nothing was"
            " changed. Use a new key for a new change.",
            session=session,
            reason="key",
            key=key,
            expected=done.change,
            actual=change,
        )


def refuse_if_changed(op: ChangeView, head: Head) -> None:
    """Raise if the view that this change was computed from is no longer the session's."""
    if head.status is not Status.ACTIVE or head.life != op.life:
        raise build_view_conflict(op.session)
    refuse_if_moved(op.session, op.expected, head.version)
    if (head.generation, head.vacuums) != (op.generation, op.vacuums):
        raise build_view_conflict(op.session)


def plan_rollback(op: Rollback, head: Head, record: SnapshotRecord | None) -> ChangeView:
    """Build the change of the view that a rollback is, from the session and its snapshot."""
    if head.status is not Status.ACTIVE or record is None:
        raise build_view_conflict(op.session)
    for what in find_views_outside(head, [record], ()):
        raise build_outside_error(op.session, what)
    return ChangeView(
        op.session,
        head.life,
        head.generation,
        head.vacuums,
        ROLLBACK,
        op.key,
        extents=freeze(record.view, record.end),
        tail=None,
        expected=op.expected,
        fresh=op.fresh,
    )


def build_view_conflict(session: str) -> ConflictError:
    """The view is no longer the one that a change was computed from."""
    return ConflictError(
        f"somebody else changed what session {session!r} shows; nothing was changed.",
        session=session,
        reason="view",
    )


def build_journal_line(op: ChangeView, head: Head, now_ms: int) -> JournalLine:
    """The journal line of a change: what showed, and what shows from now on."""
    after = build_view(op.extents, head.end if op.tail is None else op.tail)
    if not is_inside(after, head.born, head.end):
        raise build_outside_error(op.session, "what it would show reaches outside of its log")
    return JournalLine(
        key=op.key,
        change=op.change,
        changed_at_ms=now_ms,
        version=build_version(head.life, head.end, head.generation + 1),
        end=head.end,
        before=head.view,
        after=after,
    )


def choose_frozen_view(session: str, asked: FrozenView | None, head: Head) -> FrozenView:
    """The state to read: the one that a page asks for, unless it is out of reach, or the latest."""
    if asked is None:
        return FrozenView(head.life, freeze(head.view, head.end), head.version, head.vacuums)
    if head.status is not Status.ACTIVE or asked.life != head.life:
        raise build_gone_error(session)
    extents = asked.extents
    if extents and not head.born <= extents[0][0] <= extents[-1][1] <= head.end:
        raise build_outside_error(session, "what is to be read reaches outside of its log")
    return asked


def build_outside_error(session: str, what: str) -> FormatError:
    """A view that came from outside, or was damaged, and is not followed."""
    return FormatError(
        f"session {session!r} is damaged: {what}; nothing was changed. verify says more.",
        session=session,
    )


def build_gone_error(session: str) -> ConflictError:
    """A page was asked for that is no longer there."""
    return ConflictError(
        f"what the first page of session {session!r} saw has expired, or was forgotten or vacuumed"
        " away since. Start again without a cursor.",
        session=session,
        reason="gone",
    )


def refuse_too_many_extents(session: str, extents: Extents) -> None:
    """Raise before a snapshot is saved that would not fit its row."""
    if len(extents) > EXTENTS_MAX or len(encode(extents)) > VIEW_BYTES_MAX:
        raise LimitError(
            f"what session {session!r} shows lies in {len(extents)} pieces; the limit is"
            f" {EXTENTS_MAX}, and {VIEW_BYTES_MAX} bytes. Nothing was written and nothing is lost:"
            " trim it, or fork it, which copies what it shows into one piece.",
            session=session,
            limit=EXTENTS_MAX,
            actual=len(extents),
        )


def build_head(
    standing: SessionState | None,
    *,
    view: View,
    now_ms: int,
    created_at_ms: int | None,
    metadata: bytes,
    snapshots: int,
    forked_from: str | None,
    vacuums: int,
) -> Head:
    """A session as readers see it; one that is new or expired shows nothing."""
    status = compute_status(standing, now_ms)
    version = compute_version(standing, status)
    if standing is None or status is not Status.ACTIVE:
        end = standing.end if standing else 0
        deadline = standing.deadline_ms if standing and status is Status.EXPIRED else None
        life = standing.life if standing and status is Status.EXPIRED else ""
        return Head(
            status=status,
            life=life,
            born=end,
            end=end,
            view=build_empty_view(end),
            generation=0,
            version=version,
            deadline_ms=deadline,
            now_ms=now_ms,
        )
    if not is_inside(view, standing.born, standing.end) or standing.end > LOG_ENTRIES_MAX:
        raise FormatError(
            f"what the session shows reaches outside of its log ({standing.born} to"
            f" {standing.end}): {view.extents[:3]}, and from {view.tail} on"
        )
    return Head(
        status=status,
        life=standing.life,
        born=standing.born,
        end=standing.end,
        view=view,
        generation=standing.generation,
        version=version,
        created_at_ms=created_at_ms,
        deadline_ms=standing.deadline_ms,
        now_ms=now_ms,
        metadata=metadata,
        snapshots=snapshots,
        forked_from=forked_from,
        vacuums=vacuums,
    )
