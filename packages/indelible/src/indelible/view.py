"""Which entries of a session are visible: pure arithmetic on positions.

A log only grows; its entries have the positions 0, 1, 2, … A **view** says which of them are
visible: a few closed extents `[start, stop)` and an open tail `[tail, end of the log)`. An append
does not change the view, since the tail is open. Rollback, clear, trim and undo replace the view by
one that these functions compute; they delete nothing.

All engines and the model of the checker use this module. It is tested against plain lists.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter

from indelible.errors import FormatError

Extent = tuple[int, int]
Extents = tuple[Extent, ...]

# A snapshot's row holds its extents, at two or three bytes each, and stays under 4 KiB. Each
# rollback that is followed by appends adds one extent, and a trim removes some.
EXTENTS_MAX = 1000
# Positions of a very long log take more bytes; the row still stays under 4 KiB.
VIEW_BYTES_MAX = 3400


@dataclass(frozen=True, slots=True)
class View:
    """Closed extents and the open tail; extents are sorted, apart, and end before the tail."""

    extents: Extents = ()
    tail: int = 0


def normalize(extents: Iterable[Extent]) -> Extents:
    """Sort extents, drop empty ones, and join those that touch or overlap."""
    joined: list[Extent] = []
    for start, stop in sorted(extents):
        if start >= stop:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return tuple(joined)


def build_view(extents: Iterable[Extent], tail: int) -> View:
    """Build a view in normal form: a last extent that reaches the tail becomes part of it."""
    if extents == ():
        return View((), tail)
    closed = normalize(extents)
    if closed and closed[-1][1] >= tail:
        return View(closed[:-1], min(closed[-1][0], tail))
    return View(closed, tail)


def freeze(view: View, end: int) -> Extents:
    """Return the visible extents for a log that ends at `end`: what a snapshot saves."""
    if not view.extents:
        # Most sessions: everything from some position on.
        return ((view.tail, end),) if view.tail < end else ()
    return normalize((*view.extents, (view.tail, end)))


def build_empty_view(end: int) -> View:
    """Build a view in which only entries from `end` on are visible."""
    return View((), end)


def remove(view: View, end: int, dropped: Extents) -> View:
    """Hide `dropped`, keep the rest, and leave the tail open for appends from `end` on."""
    return build_view(subtract(freeze(view, end), dropped), end)


def subtract(extents: Extents, dropped: Extents) -> Extents:
    """Return the positions in `extents` that are not in `dropped`."""
    left: list[Extent] = []
    holes = normalize(dropped)
    first_hole = 0
    for start, stop in extents:
        at = start
        while first_hole < len(holes) and holes[first_hole][1] <= at:
            first_hole += 1
        hole = first_hole
        while hole < len(holes) and holes[hole][0] < stop:
            hole_start, hole_stop = holes[hole]
            if hole_start > at:
                left.append((at, hole_start))
            at = max(at, hole_stop)
            hole += 1
        if at < stop:
            left.append((at, stop))
    return normalize(left)


def coarsen(extents: Extents, dropped: Extents, *, extents_max: int) -> Extents:
    """Return the part of `dropped` that can be hidden with at most `extents_max` extents left.

    A trim that keeps many single entries could leave too many extents. Then it does not hide the
    smallest gaps: a trim may keep more than asked for, never less.
    """
    left = subtract(extents, dropped)
    if len(left) <= extents_max:
        return dropped
    # Only a gap that was visible as a whole can be kept; other gaps were there before.
    gaps = sorted(
        (after[0] - before[1], (before[1], after[0]))
        for before, after in pairwise(left)
        if contains(extents, before[1], after[0])
    )
    spared = normalize(gap for _, gap in gaps[: len(left) - extents_max])
    return subtract(normalize(dropped), spared)


def from_positions(positions: Iterable[int]) -> Extents:
    """Return the extents of these positions."""
    return normalize((position, position + 1) for position in positions)


def iter_positions(extents: Extents) -> Iterator[int]:
    """Iterate over the positions in the extents, in order."""
    for start, stop in extents:
        yield from range(start, stop)


def count(extents: Extents) -> int:
    """Count the positions in the extents."""
    return sum(stop - start for start, stop in extents)


def take_first(extents: Extents, n: int) -> Extents:
    """Return the extents of the first `n` positions."""
    taken: list[Extent] = []
    for start, stop in extents:
        if n <= 0:
            break
        taken.append((start, min(stop, start + n)))
        n -= stop - start
    return tuple(taken)


def take_last(extents: Extents, n: int) -> Extents:
    """Return the extents of the last `n` positions."""
    taken: list[Extent] = []
    for start, stop in reversed(extents):
        if n <= 0:
            break
        taken.append((max(start, stop - n), stop))
        n -= stop - start
    return tuple(reversed(taken))


def clip(extents: Extents, start: int, stop: int) -> Extents:
    """Return the part of the extents inside `[start, stop)`."""
    if extents and start <= extents[0][0] and extents[-1][1] <= stop:
        return extents
    return tuple((max(a, start), min(b, stop)) for a, b in extents if a < stop and b > start)


def contains(extents: Extents, start: int, stop: int) -> bool:
    """Return whether every position of `[start, stop)` is in the extents."""
    if start >= stop:
        return True
    at = bisect_right(extents, start, key=itemgetter(0)) - 1
    return at >= 0 and stop <= extents[at][1]


def encode(extents: Extents) -> bytes:
    """Encode gaps and lengths as variable-length integers: two bytes for most extents."""
    out = bytearray()
    at = 0
    for start, stop in extents:
        for number in (start - at, stop - start):
            left = number
            while left > 0x7F:
                out.append(left & 0x7F | 0x80)
                left >>= 7
            out.append(left)
        at = stop
    return bytes(out)


def decode(data: bytes) -> Extents:
    """Decode what `encode` wrote; anything else is a `FormatError`."""
    if not data:
        return ()
    extents: list[Extent] = []
    numbers: list[int] = []
    number = shift = at = 0
    # Every value has one encoding; any other form is damaged.
    damaged = False
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            damaged = damaged or (not byte and shift > 7)
            numbers.append(number)
            number = shift = 0
    for gap, length in zip(numbers[::2], numbers[1::2], strict=False):
        damaged = damaged or not length or (not gap and at > 0)
        extents.append((at + gap, at + gap + length))
        at += gap + length
    if damaged or shift or len(numbers) % 2:
        raise FormatError(f"a stored view is damaged: {data[:40]!r}", data=data)
    return tuple(extents)
