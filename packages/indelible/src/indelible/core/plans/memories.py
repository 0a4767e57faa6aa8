"""Long-term memories: entries with an id, of which the newest visible version counts.

A collection of memories is a session. Another version of a memory replaces it; a version that says
so retracts it. Versions that were rolled back or have expired are not found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import JsonValue

from indelible import view
from indelible.core import filters
from indelible.core.clock import to_datetime
from indelible.core.codec import encode, format_value
from indelible.core.embedding import NO_EMBEDDER, Vector, is_several, to_floats
from indelible.core.filters import Filter
from indelible.core.ids import MADE_PREFIX
from indelible.core.limits import (
    ITEM_PAGE,
    ITEMS_FIRST,
    JOURNAL_LINES_MAX,
    KEY_BYTES_MAX,
    LOG_ENTRIES_MAX,
    SESSION_ID_BYTES_MAX,
)
from indelible.core.operations import (
    Append,
    Draft,
    EraseItem,
    FindItems,
    Head,
    ItemGuard,
    ItemPlace,
    JournalLine,
    Read,
    ReadHead,
    ReadJournal,
    ReadQuarantine,
    Scrub,
)
from indelible.core.plan import Plan, perform
from indelible.core.plans.append import check_key, send_append, to_dict, validate
from indelible.core.plans.read import EntryDecoder, OnCorrupt, check_limit, check_number
from indelible.core.plans.view_changes import hide_found
from indelible.core.settings import Settings, check_session_id, check_text, check_ttl_s
from indelible.errors import BusyError, ConflictError, UsageError
from indelible.model import (
    NEVER,
    Absent,
    Entry,
    ForgetReceipt,
    Kind,
    Memory,
    MemoryList,
    MemoryVersion,
    Never,
    Receipt,
    Source,
    StoredMemory,
    ViewChange,
    parse_covers,
)
from indelible.view import Extents

Collection = str | tuple[str, ...]
T = TypeVar("T")

# Attempts, if other writers change the collection meanwhile.
_ATTEMPTS_MAX: Final = 5
_FIELDS: Final = ("id", "text", "written_at", "expires_at")
_MEMORIES: Final = frozenset({Kind.MEMORY})
# The entry that replaces an erased version.
_ERASED: Final = encode(StoredMemory()).envelope


def build_collection_id(collection: object) -> str:
    """Return the session of a collection, which is given by its id or by labels.

    Labels are joined by slashes; slashes inside of labels are escaped, so no two lists of labels
    have the same id.
    """
    if isinstance(collection, str):
        return check_session_id(collection)
    if not isinstance(collection, tuple) or not collection:
        raise UsageError(
            f"a collection is a session id or a tuple of labels, not {format_value(collection)}",
            value=collection,
        )
    labels = [
        check_text(label, what="a label of a collection", bytes_max=SESSION_ID_BYTES_MAX)
        for label in collection
    ]
    escaped = (label.replace("~", "~0").replace("/", "~1") for label in labels)
    return check_session_id("/".join(escaped))


def parse_collection_id(session: str) -> tuple[str, ...]:
    """Return the labels in the id of a collection."""
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in session.split("/"))


# Writing


class NewMemory(NamedTuple):
    """A checked version of a memory, before it is appended."""

    session: str
    stored: StoredMemory
    key: str
    # Whether the key was generated for this call.
    fresh: bool
    expected: int | Absent | None
    # Whether the store's embedder computed its vector, and may compute another one next time.
    embedded: bool = False

    def add_vector(self, vector: Vector | None, embedder: str) -> NewMemory:
        """Return it with the vector of an embedder, or with none if that failed."""
        fields = {} if vector is None else {"vector": vector, "embedder": embedder}
        return self._replace(stored=self.stored.model_copy(update=fields), embedded=True)


def parse_memory(
    settings: Settings,
    collection: Collection,
    text: str | None,
    *,
    memory_id: str | None,
    value: JsonValue,
    metadata: Mapping[str, JsonValue] | None,
    vector: Sequence[float] | None,
    source: object,
    key: str | None,
    expected: int | Absent | None,
    ttl: float | Never | None,
) -> NewMemory:
    """Check the arguments of `remember`; without an id, the key is the id."""
    session = build_collection_id(collection)
    if text is None and value is None:
        raise UsageError("a memory needs a text or a value; nothing was written")
    if expected is not None and not isinstance(expected, Absent) and type(expected) is not int:
        raise UsageError(f"expected is a position or ABSENT, not {expected!r}", value=expected)
    sent_key = MADE_PREFIX + settings.ids() if key is None else check_key(key)
    embedder = None if settings.embedder is None else settings.embedder.name
    stored = validate(
        StoredMemory,
        {
            "id": sent_key if memory_id is None else _check_id(memory_id),
            "text": text,
            "value": value,
            "vector": None if vector is None else to_floats(vector),
            "embedder": None if vector is None else embedder or NO_EMBEDDER,
            "source": _parse_source(source),
            "ttl_s": check_ttl_s(NEVER if ttl is None else ttl),
            "metadata": to_dict(metadata),
        },
    )
    return NewMemory(session, stored, sent_key, key is None, expected)


def remember(settings: Settings, memory: NewMemory) -> Plan[Receipt]:
    """Append a version of a memory."""
    try:
        return (yield from _append_memory(settings, memory))
    except ConflictError as error:
        if error.details.get("reason") != "key" or not memory.embedded:
            raise
        head = yield from perform(ReadHead(memory.session))
        at = [error.details["position"]]
        found = yield from _read_entries(memory.session, head, at, on_corrupt="quarantine")
        if not found or _drop_vector(_get_stored(found[0])) != _drop_vector(memory.stored):
            raise
    # The key was used for the same memory, but the embedder computed another vector this time.
    return (yield from _append_memory(settings, memory._replace(stored=_get_stored(found[0]))))


def _append_memory(settings: Settings, memory: NewMemory) -> Plan[Receipt]:
    session, stored, key, fresh, expected, _ = memory
    op = _build_append(settings, session, encode(stored), key, fresh=fresh)
    if isinstance(expected, Absent):
        return (yield from _append_if_absent(op, stored.id))
    guard = None if expected is None else ItemGuard(stored.id, expected)
    return (yield from send_append(replace(op, expected_item=guard), hidden_ok=False))


def _drop_vector(stored: StoredMemory) -> StoredMemory:
    return stored.model_copy(update={"vector": None, "embedder": None})


def _append_if_absent(op: Append, memory_id: str) -> Plan[Receipt]:
    """Append if the memory is not there: it never was, or was retracted, or has expired."""
    for attempt in range(_ATTEMPTS_MAX):
        entry, head = yield from _read_newest(op.session, memory_id)
        is_there = entry is not None and is_memory(entry, head)
        # If the newest version was retracted or has expired, it must still be the newest one. If it
        # counts, this is a conflict, unless the key shows that this very append has written it.
        guard = ItemGuard(memory_id, None if entry is None or is_there else entry.position)
        try:
            return (yield from send_append(replace(op, expected_item=guard), hidden_ok=False))
        except ConflictError as error:
            again = not is_there and error.details.get("reason") == "item"
            if not again or attempt == _ATTEMPTS_MAX - 1:
                raise
    raise AssertionError


def retract(
    settings: Settings,
    collection: Collection,
    memory_id: str,
    *,
    key: str | None,
    expected: int | None,
) -> Plan[Receipt]:
    """Append a version that retracts a memory; append nothing if it is not there."""
    session, name = build_collection_id(collection), _check_id(memory_id)
    sent_key = MADE_PREFIX + settings.ids() if key is None else check_key(key)
    draft = encode(StoredMemory(id=name, retracted=True))
    op = _build_append(settings, session, draft, sent_key, fresh=key is None)
    if expected is not None:
        if type(expected) is not int:
            raise UsageError(f"expected is a position, not {expected!r}", value=expected)
        op = replace(op, expected_item=ItemGuard(name, expected))
    elif key is None:
        entry, head = yield from _read_newest(session, name)
        if entry is None or not is_memory(entry, head):
            return Receipt(session, range(head.end, head.end), "", head.version)
    return (yield from send_append(op, hidden_ok=False))


def refresh_ttl(
    settings: Settings, collection: Collection, memory_ids: Iterable[str]
) -> Plan[list[Memory]]:
    """Append memories again, so that their time to live begins anew; return them."""
    session = build_collection_id(collection)
    if not is_several(memory_ids):
        raise UsageError(f"ids is a list of ids, not {format_value(memory_ids)}", value=memory_ids)
    names = [_check_id(memory_id) for memory_id in memory_ids]
    refreshed: list[Memory] = []
    for name in dict.fromkeys(names):
        memory = yield from _retry("item", partial(_refresh, settings, session, name))
        refreshed += [] if memory is None else [memory]
    return refreshed


def _refresh(settings: Settings, session: str, name: str) -> Plan[Memory | None]:
    entry, head = yield from _read_newest(session, name)
    if entry is None or not is_memory(entry, head):
        return None
    memory = _build_memory(session, entry)
    if memory.expires_at is None:
        return memory
    key = MADE_PREFIX + settings.ids()
    op = _build_append(settings, session, encode(_get_stored(entry)), key, fresh=True)
    guard = ItemGuard(name, entry.position)
    yield from send_append(replace(op, expected_item=guard), hidden_ok=False)
    return (yield from get_memory(session, name))


def compact_memories(settings: Settings, collection: Collection, *, keep: int) -> Plan[ViewChange]:
    """Hide all but the newest versions of each memory, so that a vacuum can free them."""
    session = build_collection_id(collection)
    check_number(keep, "keep", least=1)

    def find_old() -> Plan[tuple[Head, Extents]]:
        head, places = yield from _find_all(session, ItemPlace("", 0))
        shown = head.visible
        counts: Counter[str] = Counter()
        old: list[int] = []
        for item, position in places:
            if view.contains(shown, position, position + 1):
                counts[item] += 1
                if counts[item] > keep:
                    old.append(position)
        # If these are too many runs, only the longest are hidden.
        most = view.EXTENTS_MAX - 1
        return head, view.coarsen(shown, view.from_positions(old), extents_max=most)

    return (yield from hide_found(settings, session, find_old))


def _find_all(
    session: str, after: ItemPlace, item: str | None = None
) -> Plan[tuple[Head, list[ItemPlace]]]:
    """Find the places of an item, or of all that come after a place, in one state of the view."""
    for _ in range(_ATTEMPTS_MAX):
        places: list[ItemPlace] = []
        first: Head | None = None
        last = after
        while True:
            page = yield from perform(FindItems(session, last, ITEM_PAGE))
            first = first or page.head
            if _get_state(page.head) != _get_state(first):
                break
            places += [place for place in page.places if item in (None, place.item)]
            if len(page.places) < ITEM_PAGE or item not in (None, page.places[-1].item):
                return first, places
            last = page.places[-1]
    raise BusyError(f"collection {session!r} was changed again and again while it was read")


def _get_state(head: Head) -> tuple[str, int, int]:
    """Return the parts of a head that appends do not change."""
    return head.life, head.generation, head.vacuums


def erase_memory(collection: Collection, memory_id: str) -> Plan[ForgetReceipt]:
    """Overwrite every version of a memory, also those that are not visible."""
    session = build_collection_id(collection)
    _check_id(memory_id)
    # First: an error of a read says that nothing was written.
    damaged = yield from perform(ReadQuarantine(session))
    erased = yield from perform(EraseItem(session, memory_id, _ERASED))
    left = yield from perform(Scrub())
    aside = ("the quarantine of the collection: entries that could not be read",) if damaged else ()
    return ForgetReceipt(
        session_id=session,
        entries=erased.entries,
        snapshots=0,
        bytes=erased.size_bytes,
        forks=erased.forks,
        pending=bool(left),
        left=(*left, *aside, *erased.kept),
    )


def _build_append(
    settings: Settings, session: str, draft: Draft, key: str, *, fresh: bool
) -> Append:
    return Append(session, (draft,), key, fresh, None, settings.ttl_s(None))


def _check_id(memory_id: object) -> str:
    name = check_text(memory_id, what="the id of a memory", bytes_max=KEY_BYTES_MAX)
    if "\0" in name:
        raise UsageError(f"the id of a memory holds a zero: {name!r}", value=memory_id)
    return name


def _parse_source(source: object) -> Source | None:
    """Parse the source of a memory: a session, or a session and some of its positions."""
    if source is None or isinstance(source, Source):
        return source
    session: object = source
    positions: Any = None
    if isinstance(source, Receipt):
        session, positions = source.session_id, source.positions
    elif isinstance(source, tuple) and len(source) == 2:
        session, positions = source
    if not isinstance(session, str):
        raise UsageError(
            "source is a session id, a pair of a session id and positions, or a receipt, not"
            f" {source!r}",
            value=source,
        )
    positions = [positions] if isinstance(positions, int) else positions
    return Source(session_id=check_session_id(session), positions=parse_covers(positions))


# Reading


def get_memory(collection: Collection, memory_id: str) -> Plan[Memory | None]:
    """Read a memory; None if it is not there."""
    session = build_collection_id(collection)
    entry, head = yield from _read_newest(session, _check_id(memory_id))
    if entry is None or not is_memory(entry, head):
        return None
    return _build_memory(session, entry)


def _read_newest(session: str, memory_id: str) -> Plan[tuple[Entry | None, Head]]:
    """Read the newest visible version of a memory, whether it counts or not."""

    def read() -> Plan[tuple[Entry | None, Head]]:
        head, position = yield from _find_visible(session, memory_id)
        if position is None:
            return None, head
        (entry,) = yield from _read_entries(session, head, [position])
        return entry, head

    return (yield from _retry("gone", read))


def _retry(reason: str, attempt: Callable[[], Plan[T]]) -> Plan[T]:
    """Run a plan again after a conflict with this reason: another writer was faster."""
    for _ in range(_ATTEMPTS_MAX - 1):
        try:
            return (yield from attempt())
        except ConflictError as error:
            if error.details.get("reason") != reason:
                raise
    return (yield from attempt())


def _find_visible(session: str, memory_id: str) -> Plan[tuple[Head, int | None]]:
    """Find the newest version of a memory that is visible."""
    after, limit = ItemPlace(memory_id, LOG_ENTRIES_MAX), ITEMS_FIRST
    while True:
        page = yield from perform(FindItems(session, after, limit))
        shown = page.head.visible
        for item, position in page.places:
            if item != memory_id:
                return page.head, None
            if view.contains(shown, position, position + 1):
                return page.head, position
        if len(page.places) < limit:
            return page.head, None
        after, limit = page.places[-1], ITEM_PAGE


def list_memories(
    collection: Collection,
    *,
    where: Mapping[str, Any] | None,
    limit: int | None,
    cursor: str | None,
) -> Plan[MemoryList]:
    """List a page of the memories that match, by id; the cursor is the last id."""
    session = build_collection_id(collection)
    wanted = filters.parse_filter(where, fields=_FIELDS, documents=("metadata", "value"))
    size = check_limit(limit)
    begin = ItemPlace("", 0) if cursor is None else ItemPlace(_check_id(cursor), 0)
    found: list[Memory] = []
    while True:
        read = partial(_read_page, session, begin, size, wanted)
        memories, resume = yield from _retry("gone", read)
        found += memories
        if len(found) > size:
            return MemoryList(found[:size], found[size - 1].id)
        if resume is None:
            return MemoryList(found, None)
        begin = resume


def _read_page(
    session: str, begin: ItemPlace, size: int, wanted: Filter
) -> Plan[tuple[list[Memory], ItemPlace | None]]:
    """Read some memories after a place, and where the next ones begin."""
    page = yield from perform(FindItems(session, begin, size + 1))
    newest = _choose_newest(page.head, page.places)
    entries = yield from _read_entries(session, page.head, newest.values())
    memories = [_build_memory(session, entry) for entry in entries if is_memory(entry, page.head)]
    matching = [each for each in memories if filters.matches(wanted, _build_document(each))]
    matching.sort(key=lambda memory: memory.id)
    if len(page.places) < size + 1:
        return matching, None
    last = page.places[-1].item
    if last in newest:
        # The remaining versions of this memory are older.
        return matching, ItemPlace(last, 0)
    return matching, page.places[-1]


def _choose_newest(head: Head, places: Iterable[ItemPlace]) -> dict[str, int]:
    shown = head.visible
    newest: dict[str, int] = {}
    for item, position in places:
        if item not in newest and view.contains(shown, position, position + 1):
            newest[item] = position
    return newest


def _build_document(memory: Memory) -> dict[str, object]:
    """Build the fields that a filter compares."""
    document: dict[str, object] = {
        "id": memory.id,
        "written_at": memory.written_at,
        "metadata": memory.metadata,
        "value": memory.value,
    }
    if memory.text is not None:
        document["text"] = memory.text
    if memory.expires_at is not None:
        document["expires_at"] = memory.expires_at
    return document


def read_memory_history(collection: Collection, memory_id: str) -> Plan[list[MemoryVersion]]:
    """Read every version of a memory that is still there, oldest first."""
    session, name = build_collection_id(collection), _check_id(memory_id)
    head, entries = yield from _retry("gone", partial(_read_history, session, name))
    journal = yield from perform(ReadJournal(session, JOURNAL_LINES_MAX))
    shown = head.visible
    versions: list[MemoryVersion] = []
    # The next visible version replaces each visible one.
    following: Entry | None = None
    for entry in reversed(entries):
        if not _get_stored(entry).retracted:
            versions.append(_build_version(session, entry, following, shown, head, journal.lines))
        if view.contains(shown, entry.position, entry.position + 1):
            following = entry
    return versions[::-1]


def _read_history(session: str, name: str) -> Plan[tuple[Head, list[Entry]]]:
    """Read all versions; hidden ones that were vacuumed or are damaged are left out."""
    head, places = yield from _find_all(session, ItemPlace(name, LOG_ENTRIES_MAX), name)
    positions = [each.position for each in places]
    shown = head.visible
    visible = [at for at in positions if view.contains(shown, at, at + 1)]
    hidden = [at for at in positions if not view.contains(shown, at, at + 1)]
    entries = yield from _read_entries(session, head, visible)
    entries += yield from _read_entries(session, head, hidden, on_corrupt="quarantine")
    return head, sorted(entries, key=lambda entry: entry.position)


def _build_version(
    session: str,
    entry: Entry,
    following: Entry | None,
    shown: Extents,
    head: Head,
    lines: Sequence[JournalLine],
) -> MemoryVersion:
    memory = _build_memory(session, entry)
    by: str | None = None
    at: datetime | None = None
    if not view.contains(shown, entry.position, entry.position + 1):
        line = _find_hiding(entry.position, lines)
        if line is not None:
            by, at = line.change, to_datetime(line.changed_at_ms)
    elif following is not None and _is_earlier(following.written_at, memory.expires_at):
        by = "retracted" if _get_stored(following).retracted else "replaced"
        at = following.written_at
    elif not is_memory(entry, head):
        by, at = "expired", memory.expires_at
    else:
        return MemoryVersion(memory=memory, current=True)
    return MemoryVersion(memory=memory, current=False, removed_by=by, removed_at=at)


def _is_earlier(moment: datetime, other: datetime | None) -> bool:
    return other is None or moment < other


def _find_hiding(position: int, lines: Sequence[JournalLine]) -> JournalLine | None:
    """Find the newest change that hid a position."""
    for line in lines:
        before, after = view.freeze(line.before, line.end), view.freeze(line.after, line.end)
        if view.contains(view.subtract(before, after), position, position + 1):
            return line
    return None


def _read_entries(
    session: str, head: Head, positions: Iterable[int], on_corrupt: OnCorrupt = "raise"
) -> Plan[list[Entry]]:
    """Read entries as they are in a state, in the order of the log."""
    extents = view.from_positions(positions)
    if not extents:
        return []
    frozen = head.freeze(extents)
    found = yield from perform(Read(session, frozen, _MEMORIES))
    return EntryDecoder(session, on_corrupt).to_entries(found.rows)


def _get_stored(entry: Entry) -> StoredMemory:
    assert isinstance(entry.value, StoredMemory)
    return entry.value


def is_memory(entry: Entry, head: Head) -> bool:
    """Return whether a version is a memory: not retracted, not erased, not expired."""
    stored = _get_stored(entry)
    if stored.retracted or not stored.id:
        return False
    expires_at = _compute_expiry(entry)
    return expires_at is None or to_datetime(head.now_ms) < expires_at


def _compute_expiry(entry: Entry) -> datetime | None:
    ttl_s = _get_stored(entry).ttl_s
    try:
        return None if ttl_s is None else entry.written_at + timedelta(seconds=ttl_s)
    except OverflowError:
        # An imported entry may have a time near the end of the calendar.
        return None


def _build_memory(session: str, entry: Entry) -> Memory:
    stored = _get_stored(entry)
    return Memory(
        collection=session,
        id=stored.id,
        position=entry.position,
        text=stored.text,
        value=stored.value,
        metadata=stored.metadata,
        vector=stored.vector,
        embedder=stored.embedder,
        source=stored.source,
        written_at=entry.written_at,
        expires_at=_compute_expiry(entry),
    )
