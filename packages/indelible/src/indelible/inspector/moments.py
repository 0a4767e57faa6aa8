"""Moments of a session that a page can show and compare: snapshots, and changes of its view."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from indelible.errors import UsageError
from indelible.model import Change, Snapshot, Timeline
from indelible.view import Extents, clip, count, normalize, subtract, take_last

NOW: Final = "now"
# Positions that are further apart are read by two calls.
GAP_MAX: Final = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """A state that a session had.

    `end` is the position after the last entry to show. `changes` are the changes made until then,
    newest first. `at` is None for the present.
    """

    id: str
    label: str
    at: datetime | None
    extents: Extents
    end: int
    changes: Sequence[Change] = ()
    # The change that led to this state, or the snapshot of it.
    change: Change | None = None
    snapshot: Snapshot | None = None

    @property
    def visible(self) -> int:
        """How many entries were visible."""
        return count(self.extents)


def list_moments(timeline: Timeline) -> list[Moment]:
    """List the moments of a session, oldest first; the last one is the present."""
    changes = timeline.changes
    moments: list[Moment] = []
    waiting = deque(timeline.snapshots)
    # Changes come newest first, snapshots oldest first.
    for newer in reversed(range(len(changes))):
        while waiting and not _comes_before(changes[newer], waiting[0]):
            moments.append(_build_of_snapshot(waiting.popleft(), changes[newer + 1 :]))
        moments += _list_of_change(timeline, changes[newer], newer)
    moments += (_build_of_snapshot(each, changes) for each in waiting)
    return [*moments, _build_now(timeline)]


def _comes_before(change: Change, snapshot: Snapshot) -> bool:
    """Whether a change was made before a snapshot was taken.

    Within one millisecond, a snapshot of what the change found, or of less, was taken before it.
    """
    if change.at != snapshot.taken_at:
        return change.at < snapshot.taken_at
    last, found = (extents[-1:] for extents in (snapshot.extents, change.before))
    return snapshot.extents != change.before and not (last and found and last[0][1] < found[0][1])


def _list_of_change(timeline: Timeline, change: Change, newer: int) -> Iterator[Moment]:
    """List the state before a change, then the one after it."""
    for side, extents in (("before", change.before), ("after", change.after)):
        stops = [stop for _, stop in (*change.before[-1:], *change.after[-1:])]
        yield Moment(
            id=f"{side}:{change.key}",
            label=f"{side} the {change.change}",
            at=change.at,
            extents=extents,
            end=max(stops, default=0),
            changes=timeline.changes[newer + (side == "before") :],
            change=change if side == "after" else None,
        )


def _build_of_snapshot(snapshot: Snapshot, changes: Sequence[Change]) -> Moment:
    return Moment(
        id=f"snapshot:{snapshot.id}",
        label=f"snapshot “{snapshot.label or snapshot.id[:8]}”",
        at=snapshot.taken_at,
        extents=snapshot.extents,
        end=snapshot.extents[-1][1] if snapshot.extents else 0,
        changes=changes,
        snapshot=snapshot,
    )


def _build_now(timeline: Timeline) -> Moment:
    end = find_end(timeline)
    return Moment(
        id=NOW,
        label=NOW,
        at=None,
        extents=subtract(((end - timeline.info.logged, end),), timeline.hidden),
        end=end,
        changes=timeline.changes,
    )


def find_end(timeline: Timeline) -> int:
    """Return the position after the newest entry, of a timeline that was read up to its end."""
    stops = [stop for _, stop in timeline.hidden[-1:]]
    stops += [each.entry.position + 1 for each in timeline.entries[-1:]]
    return max(stops, default=0)


def find_moment(moments: Sequence[Moment], name: str) -> Moment:
    """Find a moment by its id, or by its number on the slider; without either, the present."""
    if name.isdecimal():
        return moments[min(int(name[:6]), len(moments) - 1)]
    for each in moments:
        if each.id == (name or NOW):
            return each
    raise UsageError("this moment is not known any more: its snapshot or change was removed")


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """The entries that only one of two moments shows."""

    added: Extents
    removed: Extents

    @property
    def added_count(self) -> int:
        """How many entries were added."""
        return count(self.added)

    @property
    def removed_count(self) -> int:
        """How many entries were removed."""
        return count(self.removed)

    @property
    def all(self) -> Extents:
        """The positions that differ."""
        return normalize((*self.added, *self.removed))


def compare(first: Moment, second: Moment) -> Difference:
    """Compare two moments."""
    return Difference(
        added=subtract(second.extents, first.extents),
        removed=subtract(first.extents, second.extents),
    )


def choose_page(extents: Extents, before: int | None, size: int) -> Extents:
    """Return the last positions before a position, up to the size of a page."""
    stop = extents[-1][1] if extents else 0
    return take_last(clip(extents, 0, stop if before is None else before), size)


def plan_reads(page: Extents) -> Extents:
    """Join extents that lie close together, so that one call reads them."""
    joined: list[tuple[int, int]] = []
    for start, stop in page:
        if joined and start - joined[-1][1] <= GAP_MAX:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return tuple(joined)
