"""Reads threads of checkpoints: records and values, from the log or from packs, with a cache.

A thread is a session, and the checkpoints of each of its namespaces are versions of one item.
Entries never change, so their bytes are cached until the view of the thread changes. A position
that is not visible in the log is looked up in packs.
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

# The prefix of a thread's session id. Collections of memories never have it: they escape "~".
THREAD_PREFIX: Final = "~thread/"
# Records that are read together while a thread is listed.
_PAGE: Final = 32
_THREADS_CACHED: Final = 512
_BYTES_CACHED: Final = 64 * 1024 * 1024
# Estimated memory of a cached record beside its bytes, and of each of its references.
_RECORD_BYTES: Final = 1024
_REFERENCE_BYTES: Final = 8


class PackPlace(NamedTuple):
    """The position of a pack, and the first and last position that it holds."""

    last: int
    first: int
    position: int


@dataclass(slots=True)
class ThreadCache:
    """The entries of one view of a thread that were read or appended. None is ever removed.

    Threads of the process share it without a lock, so entries are added before whatever says that
    they are there.
    """

    # The version that the next append expects.
    version: str
    # Whether this view hides entries; if not, there are no packs.
    has_hidden: bool
    values: dict[int, SerializedValue] = field(default_factory=dict)
    # The inverse of `values`.
    positions: dict[SerializedValue, int] = field(default_factory=dict)
    checkpoints: dict[int, CheckpointRecord] = field(default_factory=dict)
    # The newest checkpoint of each namespace at this version, if it is known.
    newest: dict[str, CheckpointRecord] = field(default_factory=dict)
    # The packs of the thread, or None before they are first needed.
    packs: tuple[PackPlace, ...] | None = None
    # The positions of packs that were read, and the records in them.
    packs_read: set[int] = field(default_factory=set)
    packed: dict[int, StoredCheckpoint] = field(default_factory=dict)
    # Estimated bytes of memory.
    size: int = 0

    @property
    def view(self) -> tuple[str, int]:
        """Life and generation. The cache is valid until one of them changes."""
        return get_view(self.version)

    def is_later_than(self, head: Head) -> bool:
        """Return whether this is the cache of a later view of the same life."""
        life, generation = self.view
        return life == head.life and generation > head.generation

    def add_value(self, position: int, value: SerializedValue) -> None:
        """Add a value."""
        if position not in self.values:
            self.values[position] = value
            self.positions.setdefault(value, position)
            self.size += len(value[1])

    def add_checkpoint(self, found: CheckpointRecord) -> None:
        """Add a checkpoint."""
        self.checkpoints[found.position] = found
        references = sum(len(each.positions) for each in found.channels.values())
        self.size += _RECORD_BYTES + _REFERENCE_BYTES * references
        self.size += len(found.body[1]) + len(found.metadata[1])

    def add_pack(self, position: int, pack: Pack) -> None:
        """Add the entries of a pack."""
        self.packed.update(pack.records)
        self.size += _RECORD_BYTES * len(pack.records)
        for at, value in pack.values.items():
            self.add_value(at, value)
        self.packs_read.add(position)


class ThreadState(NamedTuple):
    """A thread at one moment, with the cache of its view."""

    session: str
    head: Head
    cache: ThreadCache

    def is_visible(self, position: int) -> bool:
        """Return whether a position is visible in the log."""
        return view.contains(self.head.visible, position, position + 1)


class FoundCheckpoint(NamedTuple):
    """A checkpoint, and the state of the thread in which it was found."""

    state: ThreadState
    checkpoint: CheckpointRecord


class ThreadReader:
    """Reads the threads of a store. A blocking store is wrapped by `to_blocking` or `to_async`."""

    def __init__(self, store: AsyncMemoryStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        # The most recently used thread is last.
        self._caches: OrderedDict[str, ThreadCache] = OrderedDict()

    async def _run(self, plan: Plan[T]) -> T:
        """Run a plan that no public verb runs."""
        return await self._store._run(plan)  # noqa: SLF001 (our own)

    # The cache

    def _get_state(self, session: str, head: Head) -> ThreadState:
        """Return the state of a thread, with the cache of its view."""
        with self._lock:
            cache = self._caches.get(session)
            if cache is None or cache.view != (head.life, head.generation):
                is_past = cache is not None and cache.is_later_than(head)
                hides = view.count(head.visible) < head.end - head.born
                cache = ThreadCache(head.version, hides)
                if is_past:
                    # A list goes on in a view that was changed since: its cache is its own.
                    return ThreadState(session, head, cache)
                self._caches[session] = cache
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
        """Drop the least recently used caches until the rest is within the limits."""
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
        # The newest checkpoint of a namespace is never packed.
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
        """Find a checkpoint by its id in many records, newest first; by bisection if ids grow."""
        (newest,) = await self._load(state, positions[:1])
        # With a rollback that was undone, ids may not grow in this view, nor in a copy of it.
        never_changed = state.head.generation == 0 and state.head.forked_from is None
        if newest.greatest is None and never_changed:
            low, high = 0, len(positions)
            while low < high:
                middle = (low + high) // 2
                (found,) = await self._load(state, [positions[middle]])
                if found.id == checkpoint_id:
                    return found
                low, high = (middle + 1, high) if found.id > checkpoint_id else (low, middle)
            return None
        # The newest of several records of one id counts.
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

        If the thread is pruned meanwhile, the iteration continues with those that are left.
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
                # A copy, because other threads may add packs while it is iterated.
                packed = (
                    at
                    for at, stored in state.cache.packed.copy().items()
                    if place.first <= at <= place.last and first <= stored.id <= last
                )
                positions = sorted({*positions, *packed})
            page = positions[: -_PAGE - 1 : -1]
            # A cache that has become too large was dropped: go on with another one.
            state = self._get_state(session, state.head)
            # The next pack may hold records between these and older ones.
            page = [at for at in page if not packs or at > packs[-1].last]
            del positions[len(positions) - len(page) :]
            for found in await self._load(state, page):
                yield FoundCheckpoint(state, found)

    async def find_ancestors(
        self, session: str, namespace: str, checkpoint_id: str | None, channels: set[str]
    ) -> list[FoundCheckpoint]:
        """Find a checkpoint and its ancestors, back to where all channels have a value."""
        ancestors: list[FoundCheckpoint] = []
        missing = set(channels)
        seen: set[str] = set()

        def add(found: FoundCheckpoint) -> str | None:
            ancestors.append(found)
            seen.add(found.checkpoint.id)
            missing.difference_update(found.checkpoint.channels)
            parent = found.checkpoint.parent
            # One that was put again with the config of itself is its own parent.
            return parent if missing and parent not in seen else None

        if checkpoint_id is None or not missing:
            return []
        wanted: str | None = checkpoint_id
        async for each in self.iter_checkpoints(session, namespace):
            if each.checkpoint.id == wanted:
                wanted = add(each)
            if wanted is None:
                break
        # An ancestor that was stored again is newer than its descendants.
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
        """Read the values at positions into the cache, which is returned."""
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

        Raises a conflict if the view has changed since one of the checkpoints was found.
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
                # Special writes, such as errors and interrupts, replace earlier ones.
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
        # A record comes after those that it is based on.
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
        """Return the records at positions, from packs if hidden; cache the values there."""
        session, head, cache = state
        hidden = view.subtract(view.from_positions(positions), head.visible)
        wanted = [
            at
            for at in view.iter_positions(hidden)
            if at not in cache.packed and at not in cache.values
        ]
        if wanted:
            # A pack may hold any of the positions between its first and its last.
            packs = [
                place
                for place in await self._find_packs(state)
                if bisect_left(wanted, place.first) < bisect_right(wanted, place.last)
            ]
            await self._read_packs(state, packs)
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
        """Find the packs of a thread, ordered by the last position that each holds."""
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


def get_view(version: str) -> tuple[str, int]:
    """Return life and generation of a version; a thread that is not active has none."""
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
        f"the thread {get_thread_id(session)!r} cannot be read: one of its checkpoints refers to"
        f" position {position}, which is missing",
        session=session,
        position=position,
        reason="it is missing",
        raw=b"",
    )
