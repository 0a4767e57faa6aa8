"""The decisions that all engines share, as pure functions.

A backend loads a `SessionRow`, calls these functions, and writes what they return. They answer
whether a session is active, which version it has, and why a write is refused. Functions named
`refuse_…` raise the error; functions named `build_…_error` return it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from indelible.core.codec import parse_checksum
from indelible.core.limits import (
    ACTIVITY_STEP_MS,
    EXPIRED_KNOWN_S,
    LOG_ENTRIES_MAX,
    MISSING_NAMED_MAX,
    STAGE_ABANDONED_S,
)
from indelible.core.operations import (
    Append,
    AppendResult,
    ChangeView,
    EntrySlice,
    EraseResult,
    FrozenView,
    Head,
    ItemGuard,
    JournalLine,
    Read,
    Rollback,
    SnapshotRecord,
    StoredEntry,
    ViewChangeResult,
)
from indelible.core.rows import SessionRow
from indelible.errors import (
    ConflictError,
    FormatError,
    LimitError,
    SessionNotFoundError,
)
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
    subtract,
)

NEW_VERSION = "new"
# The kind of change that a rollback is in the journal.
ROLLBACK = "rollback"


def is_later_step(last_activity_ms: int, now_ms: int) -> bool:
    """Return whether an append at this time moves its session in an index of last activity."""
    return now_ms // ACTIVITY_STEP_MS > last_activity_ms // ACTIVITY_STEP_MS


def compute_status(row: SessionRow | None, now_ms: int) -> Status:
    """Return whether a session is new, active or expired at this time."""
    if row is None or row.staged:
        return Status.NEW
    if row.deadline_ms is None or now_ms < row.deadline_ms:
        return Status.ACTIVE
    known_until_ms = row.deadline_ms + EXPIRED_KNOWN_S * 1000
    return Status.EXPIRED if now_ms < known_until_ms else Status.NEW


def compute_version(row: SessionRow | None, now_ms: int) -> str:
    """Return an opaque token that changes with every append, view change and expiry."""
    status = compute_status(row, now_ms)
    if row is None or status is Status.NEW:
        return NEW_VERSION
    version = build_version(row.token, row.end, row.generation)
    return version + "!" if status is Status.EXPIRED else version


def build_version(life: str, end: int, generation: int) -> str:
    """Build the version of an active session."""
    return f"{life}.{end}.{generation}"


def parse_version(version: str) -> tuple[str, int, int]:
    """Return life, end and generation of what `build_version` built."""
    life, end, generation = version.rsplit(".", 2)
    return life, int(end), int(generation)


def compute_deadline_ms(now_ms: int, ttl_s: float | None) -> int | None:
    """Return when a session expires that is written to now."""
    return None if ttl_s is None else now_ms + math.ceil(ttl_s * 1000)


def refuse_if_moved(session: str, expected: str | None, actual: str) -> None:
    """Raise if the session no longer has the version that the caller expects."""
    if expected is not None and expected != actual:
        raise ConflictError(
            f"session {session!r} changed since it was read: expected version {expected}, it is now"
            f" {actual}; nothing was written. Read it again, and retry with its new version.",
            session=session,
            reason="version",
            expected=expected,
            actual=actual,
        )


def refuse_if_replaced(session: str, expected: bytes | None, actual: bytes) -> None:
    """Raise if a session no longer has the metadata that the caller expects."""
    if expected is not None and expected != actual:
        raise ConflictError(
            f"the metadata of session {session!r} changed since it was read; nothing was written."
            " Read it again, and retry.",
            session=session,
            reason="version",
        )


def refuse_if_item_moved(session: str, guard: ItemGuard, actual: int | None) -> None:
    """Raise if the newest visible entry of an item is not where the caller expects it."""
    if guard.position != actual:
        raise ConflictError(
            f"memory {guard.item!r} of {session!r} changed since it was read: expected"
            f" {_name_position(guard.position)}, it is now {_name_position(actual)}; nothing was"
            " written. Read it again, and retry with its new position.",
            session=session,
            reason="item",
            expected=guard.position,
            actual=actual,
        )


def _name_position(position: int | None) -> str:
    return "nowhere" if position is None else f"at position {position}"


def refuse_if_full(session: str, first: int, count: int) -> None:
    """Raise if the log has no position left for these entries."""
    if first + count > LOG_ENTRIES_MAX:
        raise LimitError(
            f"session {session!r} has no room for {count} more entries; nothing was written."
            " Fork it to continue.",
            session=session,
            limit=LOG_ENTRIES_MAX,
            actual=first + count,
        )


def require_active(session: str, status: Status) -> None:
    """Raise if the session is new or expired."""
    if status is not Status.ACTIVE:
        expired = ": it expired" if status is Status.EXPIRED else ""
        raise SessionNotFoundError(
            f"there is no session {session!r}{expired}", session=session, status=status
        )


def refuse_many_missing(session: str, missing: int, start: int, stop: int) -> None:
    """Raise if too many entries are missing to report each of them."""
    if missing > MISSING_NAMED_MAX:
        raise FormatError(
            f"session {session!r} has {missing} entries missing between positions {start} and"
            f" {stop}: the end of its log is damaged; nothing was changed",
            session=session,
        )


def find_reachable(
    head: Head, snapshots: Iterable[SnapshotRecord], journal: Iterable[JournalLine]
) -> Extents:
    """Find the positions that are visible, or that a snapshot or an undo can make visible.

    A view that reaches outside of the log is damaged and raises a `FormatError`: it must not decide
    what is removed.
    """
    records, lines = list(snapshots), list(journal)
    for what in find_views_outside(head, records, lines):
        raise FormatError(f"{what}; nothing was removed. Run verify for details.")
    found = list(head.visible)
    for record in records:
        found += freeze(record.view, record.end)
    for line in lines:
        # Undo restores the view with its open tail, so later entries become visible too.
        found += freeze(line.before, head.end)
    return normalize(found)


def is_inside(shown: View, born: int, end: int) -> bool:
    """Return whether a view in normal form lies inside of `[born, end]`, the log of its life."""
    first = shown.extents[0][0] if shown.extents else shown.tail
    return born <= first and shown.tail <= end


def find_views_outside(
    head: Head, snapshots: Iterable[SnapshotRecord], journal: Iterable[JournalLine]
) -> Iterator[str]:
    """Describe each stored view of a session that reaches outside of its log."""
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


def find_journal_problems(shown: View, lines: Sequence[JournalLine]) -> Iterator[str]:
    """Describe how a journal contradicts itself or the view of its session; newest line first."""
    keys = {line.key for line in lines}
    for line in lines:
        if line.undone_by is not None and line.undone_by not in keys:
            yield f"the {line.change} {line.key} was undone by an unknown change"
    if lines and lines[0].after != shown:
        yield "its view is not the result of its newest change"


def plan_vacuum(
    head: Head,
    snapshots: Iterable[SnapshotRecord],
    lines: Sequence[JournalLine],
    undo_since_ms: int,
) -> tuple[Extents, Sequence[JournalLine]]:
    """Return the positions that a vacuum removes, and the journal lines that it keeps.

    Positions of earlier lives are among them: their entries may be gone already.
    """
    kept = keep_undoable(lines, undo_since_ms)
    reach = find_reachable(head, snapshots, kept)
    # The newest entry stays: it carries the end of the log, and positions are never reused.
    return subtract(((0, max(0, head.end - 1)),), reach), kept


def is_abandoned(created_at_ms: int, now_ms: int) -> bool:
    """Return whether a stage is so old that its copier must have died; a vacuum removes it."""
    return now_ms >= created_at_ms + STAGE_ABANDONED_S * 1000


def keep_undoable(lines: Sequence[JournalLine], undo_since_ms: int) -> Sequence[JournalLine]:
    """Return the journal lines that a vacuum keeps: all inside the undo window, newest first.

    Lines that changed nothing are kept like the others, for their keys.
    """
    # Clocks may differ, so a line outside the window is kept if an older one is inside.
    newest = list(lines)
    while newest and newest[-1].changed_at_ms <= undo_since_ms:
        newest.pop()
    return newest


def count_removed_changes(lines: Sequence[JournalLine], kept: Sequence[JournalLine]) -> int:
    """Count the changes that a vacuum removes; lines that changed nothing are not counted."""
    return sum(line.before != line.after for line in lines[len(kept) :])


def is_stage(row: SessionRow, stage: str) -> bool:
    """Return whether a session is still this stage: not shown yet, and without other writers."""
    return row.staged and row.token == stage


def build_exists_error(session: str) -> ConflictError:
    """Build the error for a copy whose target exists."""
    return ConflictError(
        f"session {session!r} exists already; nothing was copied. Choose another id.",
        session=session,
        reason="exists",
    )


def build_audit_conflict(session: str) -> ConflictError:
    """Build the error for an import whose audit does not fit the lines that are there."""
    return ConflictError(
        f"session {session!r} has an audit with other lines already, which nothing can remove; it"
        " was not imported. Import it into another namespace or store.",
        session=session,
        reason="audit",
        expected=None,
        actual=None,
    )


def refuse_different_content(op: Append, first: int, stored: list[bytes]) -> None:
    """Raise if an earlier append with this key had other content.

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
    """Return whether every entry of an append is visible."""
    return contains(freeze(view, end), first, first + count)


def refuse_if_hidden(op: Append, appended: AppendResult) -> None:
    """Raise if a caller repeats a key whose entries were hidden since."""
    if appended.visible:
        return
    first, last = appended.first, appended.first + appended.entries - 1
    where = f"position {first}" if first == last else f"positions {first} to {last}"
    raise ConflictError(
        f"the key {op.key!r} was used in session {op.session!r} for the same content, at"
        f" {where}, which was hidden since; nothing was written. Use a new key to write it again,"
        ' or pass replay="hidden-ok" if it is enough that it was written once.',
        session=op.session,
        reason="hidden",
        key=op.key,
        position=first,
        positions=range(first, last + 1),
    )


def refuse_different_change(session: str, key: str, change: str, done: JournalLine) -> None:
    """Raise if the key was used for another kind of change."""
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
    """Raise if the view changed since this change was computed."""
    if head.status is not Status.ACTIVE or head.life != op.life:
        raise build_view_conflict(op.session)
    refuse_if_moved(op.session, op.expected, head.version)
    if (head.generation, head.vacuums) != (op.generation, op.vacuums):
        raise build_view_conflict(op.session)


def plan_rollback(op: Rollback, head: Head, record: SnapshotRecord | None) -> ChangeView:
    """Build the view change that performs a rollback."""
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
    """Build the error for a change whose view is out of date."""
    return ConflictError(
        f"the view of session {session!r} was changed by another writer; nothing was changed.",
        session=session,
        reason="view",
    )


def build_journal_line(op: ChangeView, head: Head, now_ms: int) -> JournalLine:
    """Build the journal line of a change: the view before and after it."""
    after = build_view(op.extents, head.end if op.tail is None else op.tail)
    if not is_inside(after, head.born, head.end):
        raise build_outside_error(op.session, "the new view would reach outside of its log")
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
    """Return the state to read: the one that a cursor names, if it still exists, or the latest."""
    if asked is None:
        return head.freeze()
    if head.status is not Status.ACTIVE or asked.life != head.life:
        raise build_gone_error(session)
    extents = asked.extents
    if extents and not head.born <= extents[0][0] <= extents[-1][1] <= head.end:
        raise build_outside_error(session, "the view to read reaches outside of its log")
    return asked


def build_slice(op: Read, head: Head, frozen: FrozenView, entries: list[StoredEntry]) -> EntrySlice:
    """Build the result of a read from what was found, in its direction.

    One entry more than its limit says that there are more.
    """
    resume = None
    if op.limit is not None and len(entries) > op.limit:
        entries = entries[: op.limit]
        resume = entries[-1].position + (0 if op.newest else 1)
    return EntrySlice(head, frozen, tuple(reversed(entries) if op.newest else entries), resume)


def build_outside_error(session: str, what: str) -> FormatError:
    """Build the error for a view that is damaged, or came from outside."""
    return FormatError(
        f"session {session!r} is damaged: {what}; nothing was changed. Run verify for details.",
        session=session,
    )


def build_gone_error(session: str) -> ConflictError:
    """Build the error for a read in an earlier state whose entries do not exist any more."""
    return ConflictError(
        f"the state of session {session!r} that was read before is gone: it expired, or was"
        " forgotten or vacuumed since; nothing was changed. Read it again, without a cursor.",
        session=session,
        reason="gone",
    )


def refuse_too_many_extents(session: str, extents: Extents) -> None:
    """Raise if a view has too many extents for the row of a snapshot."""
    if len(extents) > EXTENTS_MAX or len(encode(extents)) > VIEW_BYTES_MAX:
        raise LimitError(
            f"the view of session {session!r} has {len(extents)} extents; the limit is"
            f" {EXTENTS_MAX}, and {VIEW_BYTES_MAX} bytes. Nothing was written and nothing is lost:"
            " trim it, or fork it, which copies the visible entries into one extent.",
            session=session,
            limit=EXTENTS_MAX,
            actual=len(extents),
        )


def build_head(row: SessionRow | None, now_ms: int, *, snapshots: int = 0) -> Head:
    """Build the head of a session; a new or expired one has an empty view."""
    status = compute_status(row, now_ms)
    version = compute_version(row, now_ms)
    if row is None or status is not Status.ACTIVE:
        end = row.end if row else 0
        known = row if status is Status.EXPIRED else None
        return Head(
            status=status,
            life=known.token if known else "",
            born=end,
            end=end,
            view=build_empty_view(end),
            generation=0,
            version=version,
            created_at_ms=known.created_at_ms if known else None,
            last_activity_ms=known.last_activity_ms if known else None,
            deadline_ms=known.deadline_ms if known else None,
            now_ms=now_ms,
        )
    if not is_inside(row.view, row.born, row.end) or row.end > LOG_ENTRIES_MAX:
        raise FormatError(
            f"the view of the session reaches outside of its log ({row.born} to"
            f" {row.end}): {row.view.extents[:3]}, and from {row.view.tail} on"
        )
    return Head(
        status=status,
        life=row.token,
        born=row.born,
        end=row.end,
        view=row.view,
        generation=row.generation,
        version=version,
        created_at_ms=row.created_at_ms,
        last_activity_ms=row.last_activity_ms,
        deadline_ms=row.deadline_ms,
        now_ms=now_ms,
        metadata=row.metadata,
        snapshots=snapshots,
        forked_from=row.forked_from,
        vacuums=row.vacuums,
    )


def has_effect(result: object) -> bool:
    """Return whether an operation that returned this has changed its session."""
    match result:
        case AppendResult() | ViewChangeResult():
            return not result.replayed
        case EraseResult():
            return result.entries > 0
        case bool():
            return result
    return True
