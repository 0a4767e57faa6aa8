"""Previews of view changes, computed from reads alone."""

from __future__ import annotations

from dataclasses import dataclass

from indelible import view
from indelible.core import trim_rules
from indelible.core.codec import encode
from indelible.core.operations import Outline
from indelible.core.plans.read import estimate_tokens
from indelible.errors import CorruptEntryError, SnapshotNotFoundError
from indelible.model import CorruptEntry, Entry
from indelible.store import MemoryStore


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """The positions that a change would hide and bring back."""

    session_id: str
    change: str
    dropped: tuple[int, ...] = ()
    restored: tuple[int, ...] = ()
    dry_run: bool = True


def preview_rollback(store: MemoryStore, session: str, snapshot: str) -> Preview:
    """Compute what a rollback to a snapshot would change."""
    timeline = store.timeline(session)
    held = next((each.extents for each in timeline.snapshots if each.id == snapshot), None)
    if held is None:
        raise SnapshotNotFoundError(
            f"session {session!r} has no snapshot {snapshot!r}", session=session, snapshot=snapshot
        )
    shown = view.from_positions(each.entry.position for each in timeline.entries if each.visible)
    return Preview(
        session_id=session,
        change="rollback",
        dropped=tuple(view.iter_positions(view.subtract(shown, held))),
        restored=tuple(view.iter_positions(view.subtract(held, shown))),
    )


def preview_clear(store: MemoryStore, session: str) -> Preview:
    """Compute what a clear would change."""
    positions = (each.entry.position for each in store.timeline(session).entries if each.visible)
    return Preview(session_id=session, change="clear", dropped=tuple(positions))


def preview_trim(
    store: MemoryStore,
    session: str,
    *,
    keep_last: int | None,
    max_tokens: int | None,
    before: int | None,
) -> Preview:
    """Compute what a trim would change."""
    shown = [each.entry for each in store.timeline(session).entries if each.visible]
    outline = [_build_outline(session, entry) for entry in shown]
    if keep_last is not None:
        cut = trim_rules.find_cut_for_last(outline, keep_last)
        positions = trim_rules.find_dropped_before(outline, cut)
    elif before is not None:
        cut = trim_rules.find_cut_for_position(outline, before)
        positions = trim_rules.find_dropped_before(outline, cut)
    else:
        positions = trim_rules.find_over_budget(
            outline, max_tokens or 0, lambda index: estimate_tokens(outline[index].size_bytes)
        )
    dropped = view.coarsen(
        view.from_positions(entry.position for entry in shown),
        view.from_positions(positions),
        extents_max=view.EXTENTS_MAX - 1,
    )
    return Preview(session_id=session, change="trim", dropped=tuple(view.iter_positions(dropped)))


def _build_outline(session: str, entry: Entry | CorruptEntry) -> Outline:
    """Build the outline of an entry from its value; the store reads it from the entry's columns."""
    if isinstance(entry, CorruptEntry):
        raise CorruptEntryError(
            f"entry {entry.position} of session {session!r} cannot be read",
            session=session,
            position=entry.position,
            reason=f"{entry.reason}. A dry run needs it to compute the trim; the"
            " trim itself does not",
        )
    draft = encode(entry.value)
    return Outline(
        entry.position, draft.kind, len(draft.envelope), draft.keep, draft.opens, draft.answers
    )
