"""Reads threads of checkpoints: records and values, from the log or from packs, with a cache.

A thread is a session, and the checkpoints of each of its namespaces are versions of one item. What
was read or appended once is cached as bytes, for as long as the view of the thread stays the same:
entries never change. A position that is not visible in the log is looked for in packs.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from indelible import AsyncMemoryStore, ConflictError, CorruptEntryError, view
from indelible.adapters import checkpoint_records as records
from indelible.adapters.checkpoint_records import (
    CheckpointRecord,
    ListedCheckpoint,
    Pack,
    SerializedValue,
    Write,
)
from indelible.adapters.conversations import build_race_error, iter_session_ids, retry
from indelible.core.operations import Head, ItemPlace
from indelible.core.plan import Plan
from indelible.core.plans import checkpoints
from indelible.core.rules import parse_version
from indelible.core.settings import check_session_id
from indelible.model import StoredCheckpoint

T = TypeVar("T")

# Sessions of threads. No collection of memories has such an id: in labels, ~ is escaped.
THREAD_PREFIX: Final = "~thread/"
# Records that are read at once while a thread is listed.
_PAGE: Final = 32
_THREADS_CACHED: Final = 512
_BYTES_CACHED: Final = 64 * 1024 * 1024
# What a cached record takes beside its bytes, and each of its references.
_RECORD_BYTES: Final = 1024
_REFERENCE_BYTES: Final = 8


class PackPlace(NamedTuple):
    """Where a pack is, and the first and last position that it holds."""

    last: int
    first: int
    position: int


@dataclass(slots=True)
class ThreadCache:
    """What was read or appended in one view of a thread. Nothing is removed from it."""

    # The version to append to.
    version: str
    # Whether this view hides entries: those that were moved into packs are hidden.
    has_hidden: bool
    values: dict[int, SerializedValue] = field(default_factory=dict)
    # The inverse of `values`.
    positions: dict[SerializedValue, int] = field(default_factory=dict)
    checkpoints: dict[int, CheckpointRecord] = field(default_factory=dict)
    # The newest checkpoints of namespaces at this version, as far as they are known.
    newest: dict[str, CheckpointRecord] = field(default_factory=dict)
    # The packs of the thread, if they were looked for; the records of those that were read.
    packs: tuple[PackPlace, ...] | None = None
    packs_read: set[int] = field(default_factory=set)
    packed: dict[int, StoredCheckpoint] = field(default_factory=dict)
    # About how many bytes all this takes.
    size: int = 0

    @property
    def view(self) -> tuple[str, int]:
        """Life and generation: as long as they stay, everything here is valid."""
        return get_view(self.version)

    def add_value(self, position: int, value: SerializedValue) -> None:
        """Note where a value is."""
        if position not in self.values:
            self.values[position] = value
            self.positions.setdefault(value, position)
            self.size += len(value[1])

    def add_checkpoint(self, found: CheckpointRecord) -> None:
        """Note a checkpoint."""
        self.checkpoints[found.position] = found
        references = sum(len(each.positions) for each in found.channels.values())
        self.size += _RECORD_BYTES + _REFERENCE_BYTES * references
        self.size += len(found.body[1]) + len(found.metadata[1])

    def add_pack(self, position: int, pack: Pack) -> None:
        """Note the entries of a pack."""
        self.packs_read.add(position)
        self.packed.update(pack.records)
        self.size += _RECORD_BYTES * len(pack.records)
        for at, value in pack.values.items():
            self.add_value(at, value)


class ThreadState(NamedTuple):
    """A thread at one moment, and what is cached of it."""

    session: str
    head: Head
    cache: ThreadCache

    def is_visible(self, position: int) -> bool:
        """Return whether a position is visible in the log."""
        return view.contains(self.head.visible, position, position + 1)


class FoundCheckpoint(NamedTuple):
    """A checkpoint, and the state in which it was found."""

    state: ThreadState
    checkpoint: CheckpointRecord


class ThreadReader:
    """Reads the threads of a store, which is awaited, or blocks and is wrapped to be awaited."""

    def __init__(self, store: AsyncMemoryStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        # The thread that was used last comes last.
        self._caches: OrderedDict[str, ThreadCache] = OrderedDict()

    async def _run(self, plan: Plan[T]) -> T:
        """Run a plan that no public verb has."""
        return await self._store._run(plan)  # noqa: SLF001 (our own)

    # The cache

    def _get_state(self, session: str, head: Head) -> ThreadState:
        """Return the state of a thread, with the cache of its view."""
        with self._lock:
            cache = self._caches.get(session)
            if cache is None or cache.view != (head.life, head.generation):
                hides = view.count(head.visible) < head.end - head.born
                cache = self._caches[session] = ThreadCache(head.version, hides)
            self._caches.move_to_end(session)
            return ThreadState(session, head, cache)

    async def _find_records(
        self, session: str, first: str, last: str, limit: int | None = None
    ) -> tuple[ThreadState, list[ItemPlace]]:
        """Find the records of items from `first` to `last`, of each the newest first."""
        plan = checkpoints.find_records(session, first, last, limit=limit)
        head, places = await self._run(plan)
        return self._get_state(session, head), places

    def _drop_cache(self, session: str) -> None:
        with self._lock:
            self._caches.pop(session, None)

    def _limit_caches(self) -> None:
        """Drop the caches that were not used for longest, if all together are too large."""
        with self._lock:
            size = sum(cache.size for cache in self._caches.values())
            while len(self._caches) > _THREADS_CACHED or size > _BYTES_CACHED:
                _, dropped = self._caches.popitem(last=False)
                size -= dropped.size

    # Finding checkpoints

    async def find(
        self, session: str, namespace: str, checkpoint_id: str | None = None
    ) -> FoundCheckpoint | None:
        """Find a checkpoint by its id; without one, the newest of its namespace."""
        item = records.build_checkpoint_item(namespace)
        limit = 1 if checkpoint_id is None else _PAGE
        state, places = await self._find_records(session, item, item, limit)
        positions = [place.position for place in places]
        for checkpoint in await self._load(state, positions):
            if checkpoint_id in (None, checkpoint.id):
                return FoundCheckpoint(state, checkpoint)
        # The newest checkpoint of a namespace is never in a pack.
        if checkpoint_id is None:
            return None
        found: CheckpointRecord | None = None
        if len(positions) == limit:
            state, places = await self._find_records(session, item, item)
            older = [place.position for place in places]
            found = await self._find_older(state, older, checkpoint_id)
        found = found or await self._find_packed(state, item, checkpoint_id)
        return None if found is None else FoundCheckpoint(state, found)

    async def _find_older(
        self, state: ThreadState, positions: Sequence[int], checkpoint_id: str
    ) -> CheckpointRecord | None:
        """Find a checkpoint among many, newest first: by its id, if ids grow with time."""
        (newest,) = await self._load(state, positions[:1])
        low, high = 0, len(positions) if newest.greatest is None else 0
        while low < high:
            middle = (low + high) // 2
            (found,) = await self._load(state, [positions[middle]])
            if found.id == checkpoint_id:
                return found
            low, high = (middle + 1, high) if found.id > checkpoint_id else (low, middle)
        # Of the records of one id, the newest counts.
        for start in range(0, len(positions), _PAGE):
            for found in await self._load(state, positions[start : start + _PAGE]):
                if found.id == checkpoint_id:
                    return found
        return None

    async def _find_packed(
        self, state: ThreadState, item: str, checkpoint_id: str
    ) -> CheckpointRecord | None:
        """Find a checkpoint in the packs, newest first."""
        packed = state.cache.packed
        for place in reversed(await self._find_packs(state)):
            await self._read_packs(state, [place])
            for position in sorted(packed, reverse=True):
                stored = packed[position]
                if stored.id == item and stored.record.get("id") == checkpoint_id:
                    (found,) = await self._load(state, [position])
                    return found
        return None

    async def iter_checkpoints(
        self, session: str, namespace: str | None = None
    ) -> AsyncIterator[FoundCheckpoint]:
        """Iterate over checkpoints of a thread, newest first; of each id, the newest record.

        If the thread is pruned meanwhile, it goes on with those that are left.
        """
        seen: set[tuple[str, str]] = set()
        state = self._iter_state(session, namespace)

        async def find_next() -> FoundCheckpoint | None:
            nonlocal state
            try:
                return await anext(state, None)
            except ConflictError:
                state = self._iter_state(session, namespace)
                raise

        while (found := await retry(session, find_next)) is not None:
            name = found.checkpoint.namespace, found.checkpoint.id
            if name not in seen:
                seen.add(name)
                yield found

    async def _iter_state(
        self, session: str, namespace: str | None
    ) -> AsyncIterator[FoundCheckpoint]:
        """Iterate over all records of checkpoints in one state, newest first."""
        first, last = records.ALL_CHECKPOINTS
        if namespace is not None:
            first = last = records.build_checkpoint_item(namespace)
        state, places = await self._find_records(session, first, last)
        packs = list(await self._find_packs(state))
        positions = sorted(place.position for place in places)
        while positions or packs:
            while packs and (not positions or packs[-1].last >= positions[-1]):
                place = packs.pop()
                await self._read_packs(state, [place])
                packed = (
                    at
                    for at, stored in state.cache.packed.items()
                    if place.first <= at <= place.last and first <= stored.id <= last
                )
                positions = sorted({*positions, *packed})
            page = positions[: -_PAGE - 1 : -1]
            # Older ones may come from the next pack.
            page = [at for at in page if not packs or at > packs[-1].last]
            del positions[len(positions) - len(page) :]
            for found in await self._load(state, page):
                yield FoundCheckpoint(state, found)

    async def find_ancestors(
        self, session: str, namespace: str, checkpoint_id: str | None, channels: set[str]
    ) -> list[FoundCheckpoint]:
        """Find a checkpoint and those before it, back to where all channels have a value."""
        ancestors: list[FoundCheckpoint] = []
        missing = set(channels)

        def add(found: FoundCheckpoint) -> str | None:
            ancestors.append(found)
            missing.difference_update(found.checkpoint.channels)
            return found.checkpoint.parent if missing else None

        if checkpoint_id is None or not missing:
            return []
        wanted: str | None = checkpoint_id
        async for each in self.iter_checkpoints(session, namespace):
            if each.checkpoint.id == wanted:
                wanted = add(each)
            if wanted is None:
                break
        # One that was stored again is newer than those that continue it.
        while wanted is not None and (late := await self.find(session, namespace, wanted)):
            wanted = add(late)
        return ancestors

    def iter_sessions(self) -> AsyncIterator[str]:
        """Iterate over the sessions of all threads."""
        return iter_session_ids(self._store, THREAD_PREFIX)

    # Reading

    async def read_values(
        self, state: ThreadState, positions: Iterable[int]
    ) -> Mapping[int, SerializedValue]:
        """Read values at positions. The next checkpoint of the thread then refers to them."""
        known = state.cache.values
        missing = set(positions).difference(known)
        if missing:
            await self._read_entries(state, missing)
            for position in missing:
                if position not in known:
                    raise _build_missing_error(state.session, position)
        return known

    async def read_writes(
        self, session: str, wanted: Sequence[tuple[ThreadState, ListedCheckpoint]]
    ) -> tuple[ThreadState, list[list[Write]]]:
        """Read the writes for each of these checkpoints: the first of each task and index.

        It is a conflict if what was visible when they were found may be hidden since.
        """
        items = [records.build_writes_item(each.namespace, each.id) for _, each in wanted]
        state, places = await self._find_records(session, min(items), max(items))
        now = state.head.life, state.head.generation
        if any((before.head.life, before.head.generation) != now for before, _ in wanted):
            raise build_race_error(session)
        writes = {
            item: {(write.task, write.number): write for write in each.pending}
            for item, (_, each) in zip(items, wanted, strict=True)
        }
        positions = [place.position for place in places if place.item in writes]
        stored = await self._read_records(state, positions)
        for position in sorted(stored):
            of_item = writes[stored[position].id]
            for write in records.parse_writes(stored[position], position):
                # Special writes, such as an interrupt, replace earlier ones.
                if write.number < 0 or (write.task, write.number) not in of_item:
                    of_item[write.task, write.number] = write
        return state, [list(writes[item].values()) for item in items]

    async def _load(self, state: ThreadState, positions: Sequence[int]) -> list[CheckpointRecord]:
        """Load the checkpoints whose records are at these positions, in this order."""
        known = state.cache.checkpoints
        unknown = [at for at in positions if at not in known]
        stored = await self._read_records(state, unknown)
        needed = {at for record in stored.values() for at in records.get_chain(record)}
        unknown = [at for at in needed - stored.keys() if at not in known]
        stored |= await self._read_records(state, unknown)
        # A record comes after those that it builds on.
        for position in sorted(stored):
            base = known[link[-1]] if (link := records.get_chain(stored[position])) else None
            state.cache.add_checkpoint(records.resolve(stored[position], position, base))
        self._limit_caches()
        return [known[position] for position in positions]

    async def _read_records(
        self, state: ThreadState, positions: Collection[int]
    ) -> dict[int, StoredCheckpoint]:
        found = await self._read_entries(state, positions)
        for position in positions:
            if position not in found:
                raise _build_missing_error(state.session, position)
        return found

    async def _read_entries(
        self, state: ThreadState, positions: Collection[int]
    ) -> dict[int, StoredCheckpoint]:
        """Read entries, from packs if they are not visible. Values go to the cache."""
        session, head, cache = state
        hidden = view.subtract(view.from_positions(positions), head.visible)
        wanted = set(view.iter_positions(hidden)) - cache.packed.keys() - cache.values.keys()
        if wanted:
            packs = await self._find_packs(state)
            await self._read_packs(state, _choose_packs(packs, wanted))
        found = {at: cache.packed[at] for at in positions if at in cache.packed}
        visible = view.subtract(view.from_positions(positions), hidden)
        read = checkpoints.read_thread(session, head, visible)
        for position, stored in (await self._run(read)).items():
            if isinstance(stored, StoredCheckpoint):
                found[position] = stored
            else:
                cache.add_value(position, records.from_stored(stored.type, stored.data))
        self._limit_caches()
        return found

    async def _find_packs(self, state: ThreadState) -> tuple[PackPlace, ...]:
        """Find the packs of a thread, by the last position that each holds."""
        cache = state.cache
        if not cache.has_hidden:
            return ()
        if cache.packs is None:
            first, last = records.build_pack_item(0), records.LAST_PACK
            _, places = await self._find_records(state.session, first, last)
            cache.packs = tuple(
                sorted(PackPlace(*records.parse_pack_item(item), at) for item, at in places)
            )
        return cache.packs

    async def _read_packs(self, state: ThreadState, packs: Iterable[PackPlace]) -> None:
        """Read the entries of packs into the cache."""
        session, head, cache = state
        unread = {place.position for place in packs} - cache.packs_read
        read = checkpoints.read_thread(session, head, view.from_positions(unread))
        for position, stored in (await self._run(read)).items():
            assert isinstance(stored, StoredCheckpoint)
            cache.add_pack(position, records.parse_pack(stored, position))
        self._limit_caches()


def _choose_packs(packs: Iterable[PackPlace], wanted: Iterable[int]) -> list[PackPlace]:
    """Choose the packs that may hold a wanted position."""
    ordered = sorted(wanted)
    return [
        place
        for place in packs
        if bisect_left(ordered, place.first) < bisect_right(ordered, place.last)
    ]


def get_view(version: str) -> tuple[str, int]:
    """Return life and generation of a version; those of a thread that is not active are none."""
    try:
        life, _, generation = parse_version(version)
    except ValueError:
        return "", 0
    return life, generation


def build_session(thread_id: object) -> str:
    """Return the session of a thread."""
    return check_session_id(f"{THREAD_PREFIX}{thread_id}")


def get_thread_id(session: str) -> str:
    """Return the thread of a session."""
    return session.removeprefix(THREAD_PREFIX)


def _build_missing_error(session: str, position: int) -> CorruptEntryError:
    return CorruptEntryError(
        f"the thread {get_thread_id(session)!r} cannot be read: what one of its checkpoints refers"
        f" to, at position {position}, is missing",
        session=session,
        position=position,
        reason="it is missing",
        raw=b"",
    )
