"""Records and values of checkpointed threads: what the adapter of LangGraph reads and appends.

A thread is a session. A record is an item, of which there may be several versions: all checkpoints
of a namespace are versions of one item, so the newest one is found at once. Values are entries that
records refer to by their positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from indelible import view
from indelible.core.codec import encode
from indelible.core.limits import ITEM_PAGE, ITEMS_FIRST, LOG_ENTRIES_MAX
from indelible.core.operations import (
    FindItems,
    Head,
    ItemPlace,
    Read,
)
from indelible.core.plan import Plan, perform
from indelible.core.plans.append import append_drafts
from indelible.core.plans.read import EntryDecoder
from indelible.core.settings import Settings
from indelible.model import Receipt, StoredCheckpoint, StoredValue


class FoundRecords(NamedTuple):
    """The visible records of one state, newest first, as pairs of item and position."""

    head: Head
    places: list[ItemPlace]


def find_records(
    session: str, first: str, last: str, *, limit: int | None = None
) -> Plan[FoundRecords]:
    """Find the records of items from `first` to `last`; of one item, the newest come first.

    They are those of the state of `head`, unless others hide some while it reads page after page.
    """
    places: list[ItemPlace] = []
    after = ItemPlace(first, LOG_ENTRIES_MAX)
    size = ITEM_PAGE if limit is None else ITEMS_FIRST
    head: Head | None = None
    while True:
        page = yield from perform(FindItems(session, after, size))
        head = head or page.head
        shown = head.visible
        for place in page.places:
            if place.item > last or len(places) == limit:
                return FoundRecords(head, places)
            if view.contains(shown, place.position, place.position + 1):
                places.append(place)
        if len(page.places) < size:
            return FoundRecords(head, places)
        after, size = page.places[-1], ITEM_PAGE


def read_thread(
    session: str, head: Head, extents: view.Extents
) -> Plan[dict[int, StoredCheckpoint | StoredValue]]:
    """Read records and values; one that is missing or damaged is an error."""
    if not extents:
        return {}
    frozen = head.freeze(extents)
    found = yield from perform(Read(session, frozen))
    return {
        entry.position: entry.value
        for entry in EntryDecoder(session).to_entries(found.rows)
        if isinstance(entry.value, StoredCheckpoint | StoredValue)
    }


def append_entries(
    settings: Settings,
    session: str,
    entries: Sequence[StoredCheckpoint | StoredValue],
    expected: str,
) -> Plan[Receipt]:
    """Append values and records as one batch, if the thread is still at a version."""
    return append_drafts(
        settings, session, tuple(map(encode, entries)), key=None, expected=expected, ttl=None
    )
