"""Writes threads of checkpoints: appends records and values, and rewrites threads into packs.

Every append expects the cached version of the thread. If the thread has moved on, its head is read
again and the append is retried.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import zip_longest
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from indelible import AsyncMemoryStore, ConflictError
from indelible.adapters import checkpoint_records as records
from indelible.adapters.checkpoint_reader import (
    ThreadCache,
    ThreadReader,
    ThreadState,
    get_thread_id,
    get_view,
)
from indelible.adapters.checkpoint_records import (
    ChannelValue,
    CheckpointHeader,
    CheckpointRecord,
    ListedCheckpoint,
    Pack,
    Parts,
    SerializedValue,
    Write,
)
from indelible.adapters.conversations import build_race_error, retry
from indelible.core.limits import BATCH_BYTES_MAX, BATCH_ENTRIES_MAX
from indelible.core.operations import ReadHead, Scrub
from indelible.core.plan import perform
from indelible.core.plans import checkpoints
from indelible.model import StoredCheckpoint, StoredValue

# Base64 makes values a third longer.
_VALUES_BYTES_MAX: Final = BATCH_BYTES_MAX // 2
# A pack is always read as a whole.
_PACK_BYTES: Final = 256 * 1024
# Larger values are not packed: they gain least, and the size of an entry is limited.
_PACKED_BYTES_MAX: Final = 4 * 1024 * 1024
# Packs that are appended together.
_PACKS_APPENDED: Final = 8

ChooseCheckpoints = Callable[[Sequence[ListedCheckpoint]], Sequence[ListedCheckpoint]]


class CheckpointDraft(NamedTuple):
    """A checkpoint that is about to be stored."""

    header: CheckpointHeader
    # The versions of all channels, and the names of those that changed.
    versions: Mapping[str, records.Version]
    changed: Collection[str]
    # Serializes the value of a channel, once, given its values before; None if it has none.
    get_parts: Callable[[str, Sequence[SerializedValue | None]], Parts | None]


class Threads(ThreadReader):
    """Reads and writes the threads of a store. `blocks` says how it was wrapped."""

    def __init__(self, store: AsyncMemoryStore, *, blocks: bool) -> None:
        super().__init__(store)
        self._blocks = blocks
        self._turns: WeakValueDictionary[Any, Any] = WeakValueDictionary()

    # Appending

    async def append_checkpoint(
        self, session: str, draft: CheckpointDraft, *, continues: bool = False
    ) -> None:
        """Append a checkpoint and its new values.

        With `continues`, its parent must be the newest checkpoint of the namespace (or there must
        be none, if it has no parent); otherwise a `ConflictError` is raised.
        """
        header, namespace = draft.header, draft.header.namespace

        async def attempt(cache: ThreadCache) -> None:
            newest = cache.newest.get(namespace)
            if newest is None or (continues and newest.id != header.parent):
                # Another process may have appended since.
                newest = await self._find_newest(session, namespace, cache)
            if continues:
                _refuse_if_moved(session, header.parent, None if newest is None else newest.id)
            base = newest
            if base is None or base.id != header.parent:
                base = await self._find_parent(session, header)
            new = _NewValues(cache)
            channels = _build_channels(draft, base, new)
            values = await self._append_surplus(session, cache, new)
            placed = {
                name: channel._replace(positions=new.place(channel.positions))
                for name, channel in channels.items()
            }
            # Ids usually grow, so a greater one than all before it is new.
            greatest = "" if newest is None else newest.greatest or newest.id
            may_repeat = header.id <= greatest
            marked = header
            if may_repeat or (newest is not None and newest.greatest is not None):
                marked = replace(header, greatest=max(header.id, greatest))
            record = records.build_record(marked, placed, base)
            if may_repeat:
                record = records.add_pending(record, await self._find_writes(session, header))
            position = await self._append(session, cache, values, [record])
            newest = records.resolve(record, position, base)
            cache.newest[namespace] = newest
            cache.add_checkpoint(newest)

        await self._try(session, attempt)

    async def append_writes(
        self,
        session: str,
        namespace: str,
        checkpoint_id: str,
        task: str,
        path: str,
        writes: Sequence[tuple[int, str, SerializedValue]],
    ) -> None:
        """Append writes of a task, as tuples of number, channel and value."""

        async def attempt(cache: ThreadCache) -> None:
            new = _NewValues(cache)
            added = new.add_all([value for _, _, value in writes])
            values = await self._append_surplus(session, cache, new)
            placed = zip(writes, new.place(added), strict=True)
            numbered = [(number, channel, at) for (number, channel, _), at in placed]
            record = records.build_writes(namespace, checkpoint_id, task, path, numbered)
            await self._append(session, cache, values, [record])

        await self._try(session, attempt)

    async def _try(
        self,
        session: str,
        attempt: Callable[[ThreadCache], Awaitable[None]],
    ) -> None:
        """Attempt something with the cache of a thread; refresh and retry if it is out of date."""
        async with self._take_turn(session):
            cached = self._caches.get(session)

            async def attempt_once() -> None:
                nonlocal cached
                cache, cached = cached or await self._refresh(session), None
                try:
                    await attempt(cache)
                except ConflictError:
                    raise
                except BaseException:
                    # An append may have landed or not.
                    self._drop_cache(session)
                    raise

            await retry(session, attempt_once)

    @asynccontextmanager
    async def _take_turn(self, session: str) -> AsyncIterator[None]:
        """Let one writer of this process change a thread at a time; others would only retry."""
        if self._blocks:
            with self._lock:
                turn = self._turns.setdefault(session, threading.Lock())
            with turn:
                yield
        else:
            key = session, asyncio.get_running_loop()
            with self._lock:
                awaited = self._turns.setdefault(key, asyncio.Lock())
            async with awaited:
                yield

    async def _refresh(self, session: str) -> ThreadCache:
        """Read the version of a thread again. Entries that are cached for its view stay valid."""
        head = await self._run(perform(ReadHead(session)))
        cache = self._get_state(session, head).cache
        cache.version = head.version
        cache.newest = {}
        return cache

    async def _find_newest(
        self, session: str, namespace: str, cache: ThreadCache
    ) -> CheckpointRecord | None:
        """Find the newest checkpoint of a namespace at the version of the cache."""
        found = await self.find(session, namespace)
        if found is None:
            return None
        _refuse_other_version(cache, found.state)
        cache.newest[namespace] = found.checkpoint
        return found.checkpoint

    async def _find_parent(self, session: str, header: CheckpointHeader) -> CheckpointRecord | None:
        if header.parent is None:
            return None
        found = await self.find(session, header.namespace, header.parent)
        return None if found is None else found.checkpoint

    async def _find_writes(self, session: str, header: CheckpointHeader) -> Sequence[Write]:
        """Find the writes for a checkpoint of this id that was stored before."""
        found = await self.find(session, header.namespace, header.id)
        if found is None:
            return ()
        _, (writes,) = await self.read_writes(session, [found])
        return writes

    async def _append_surplus(
        self, session: str, cache: ThreadCache, new: _NewValues
    ) -> list[SerializedValue]:
        """Append new values alone if they do not fit into one batch with their record.

        Return the values that are left to append with the record: all or none.
        """
        batches = list(_divide(new.values))
        if len(batches) <= 1:
            return list(new.values)
        for batch in batches:
            await self._append(session, cache, batch, [])
        return []

    async def _append(
        self,
        session: str,
        cache: ThreadCache,
        values: Sequence[SerializedValue],
        stored: Sequence[StoredCheckpoint],
    ) -> int:
        """Append values and records as one batch; return the last position."""
        entries: list[StoredValue | StoredCheckpoint] = [*map(records.to_stored, values), *stored]
        # A blocking store is wrapped.
        settings = getattr(self._store, "wrapped", self._store)._settings  # noqa: SLF001 (our own)
        append = checkpoints.append_entries(settings, session, entries, cache.version)
        receipt = await self._run(append)
        with self._lock:
            if cache.view != get_view(receipt.version):
                # This append began the thread: one that expects an earlier life is refused.
                self._caches[session] = cache
            cache.version = receipt.version
        for position, value in zip(receipt.positions, values, strict=False):
            cache.add_value(position, value)
        self._limit_caches()
        last: int = receipt.positions[-1]
        return last

    # Maintenance

    async def forget(self, session: str) -> None:
        """Erase a thread."""
        await self._store.forget(session)
        self._drop_cache(session)

    async def copy(self, source: str, target: str) -> None:
        """Copy a thread. A fork keeps positions, so references stay valid."""
        await self._store.fork(source, target)

    async def clear_free_space(self) -> None:
        """Let the engine release the space of erased entries."""
        await self._run(perform(Scrub()))

    async def rewrite(
        self, session: str, choose: ChooseCheckpoints, *, always: bool
    ) -> tuple[int, int]:
        """Pack the chosen checkpoints and erase all others; return how many were kept and erased.

        `choose` gets all checkpoints, newest first. The newest one of each namespace is appended
        again instead of packed, so that it is found at once. Everything old is then hidden in one
        step; until then, readers see no change. If others append meanwhile, it starts over. Unless
        `always`, a thread that would lose no checkpoint is left as it is.
        """
        counts = 0, 0
        is_rewritten = False

        async def attempt(cache: ThreadCache) -> None:
            nonlocal counts, is_rewritten
            state, stored = await self._read_all(session, cache)
            listed = records.list_checkpoints(stored)
            chosen = choose(listed)
            counts = len(chosen), len(listed) - len(chosen)
            if not listed or (counts[1] == 0 and not always):
                return
            # If checkpoints are erased, so are writes for checkpoints that were erased before.
            early = await self._read_early_writes(session, cache, listed, newer_only=counts[1] > 0)
            stay = await self._append_again(cache, state, stored, chosen, early)
            head = state.head
            hidden = [at for at in range(head.born, head.end) if at not in stay]
            await self._store.hide(session, hidden, expected=cache.version)
            self._drop_cache(session)
            is_rewritten = True

        await self._try(session, attempt)
        if is_rewritten:
            await self._store.vacuum(session_id=session, undo_window=0.0)
        return counts

    async def _read_all(
        self, session: str, cache: ThreadCache
    ) -> tuple[ThreadState, Mapping[int, StoredCheckpoint]]:
        """Read the records of all checkpoints in one state."""
        state, places = await self._find_records(session, *records.ALL_CHECKPOINTS)
        _refuse_other_version(cache, state)
        await self._read_packs(state, await self._find_packs(state))
        positions = {place.position for place in places} | state.cache.packed.keys()
        return state, await self._read_records(state, positions)

    async def _read_early_writes(
        self,
        session: str,
        cache: ThreadCache,
        listed: Sequence[ListedCheckpoint],
        *,
        newer_only: bool,
    ) -> Mapping[int, StoredCheckpoint]:
        """Read the records of writes for checkpoints that are not stored yet."""
        state, places = await self._find_records(session, *records.ALL_WRITES)
        _refuse_other_version(cache, state)
        found = {place.item for place in places}
        early = records.choose_early_writes(found, listed, newer_only=newer_only)
        return await self._read_records(
            state, [place.position for place in places if place.item in early]
        )

    async def _append_again(
        self,
        cache: ThreadCache,
        state: ThreadState,
        stored_at: Mapping[int, StoredCheckpoint],
        chosen: Sequence[ListedCheckpoint],
        early: Mapping[int, StoredCheckpoint],
    ) -> set[int]:
        """Append what is kept, in packs; return the positions of the entries that are not moved."""
        if not chosen:
            return set()
        session = state.session
        newest: dict[str, ListedCheckpoint] = {}
        for listed in chosen:
            newest.setdefault(listed.namespace, listed)
        moved = {listed.position for listed in newest.values()}
        kept = {listed.position for listed in chosen} - moved
        now, writes = await self.read_writes(session, [(state, listed) for listed in chosen])
        _refuse_other_version(cache, now)
        again: dict[int, StoredCheckpoint] = {}
        for listed, pending in zip(chosen, writes, strict=True):
            position = listed.position
            stored = stored_at[position]
            if position in moved or not kept.issuperset(records.get_chain(stored)):
                # It is based on records that will be erased: store it complete.
                (checkpoint,) = await self._load(state, [position])
                stored = records.build_record(checkpoint, checkpoint.channels)
            again[position] = records.add_pending(stored, pending)
        wanted = {
            at for where, each in again.items() for at in records.find_new_positions(each, where)
        }
        wanted |= {
            write.position
            for where, each in early.items()
            for write in records.parse_writes(each, where)
        }
        values = await self.read_values(state, wanted)
        stay = {
            at for at in wanted if len(values[at][1]) > _PACKED_BYTES_MAX and state.is_visible(at)
        }
        packed = {position: again[position] for position in kept}
        packs = _iter_packs(packed, {at: values[at] for at in wanted - stay})
        for batch in (
            *_batch(list(map(records.build_pack, packs)), _PACKS_APPENDED),
            *_batch([again[position] for position in sorted(moved)], BATCH_ENTRIES_MAX),
        ):
            await self._append(session, cache, [], batch)
        return stay | early.keys()


def _batch(entries: Sequence[StoredCheckpoint], size: int) -> Iterator[Sequence[StoredCheckpoint]]:
    for start in range(0, len(entries), size):
        yield entries[start : start + size]


def _divide(values: Iterable[SerializedValue]) -> Iterator[list[SerializedValue]]:
    """Divide values into batches, each small enough to be appended with a record."""
    batch: list[SerializedValue] = []
    size = 0
    for value in values:
        size += len(value[1])
        if batch and (len(batch) == BATCH_ENTRIES_MAX - 1 or size > _VALUES_BYTES_MAX):
            yield batch
            batch, size = [], len(value[1])
        batch.append(value)
    if batch:
        yield batch


def _iter_packs(
    stored: Mapping[int, StoredCheckpoint], values: Mapping[int, SerializedValue]
) -> Iterator[Pack]:
    """Divide entries into packs of about the same size, in the order of their positions."""
    pack = Pack({}, {})
    size = 0
    for position in sorted(stored.keys() | values.keys()):
        if position in values:
            pack.values[position] = values[position]
            size += len(values[position][1])
        else:
            pack.records[position] = stored[position]
            size += len(str(stored[position].record))
        if size >= _PACK_BYTES:
            yield pack
            pack, size = Pack({}, {}), 0
    # Values may have no bytes.
    if pack.records or pack.values:
        yield pack


def _refuse_if_moved(session: str, parent: str | None, newest: str | None) -> None:
    """Raise if a run does not continue the newest checkpoint of its thread."""
    if newest != parent:
        raise ConflictError(
            f"the thread {get_thread_id(session)!r} went on without this run: it continues"
            f" {parent}, and the newest checkpoint is {newest}. Nothing was written; run it again"
            " from the newest one.",
            session=session,
            reason="thread",
            expected=parent,
            actual=newest,
        )


def _refuse_other_version(cache: ThreadCache, state: ThreadState) -> None:
    """Raise if a thread was read at a different version than the cached one."""
    if state.head.version != cache.version:
        raise build_race_error(state.session)


def _build_channels(
    draft: CheckpointDraft, base: CheckpointRecord | None, new: _NewValues
) -> dict[str, ChannelValue]:
    """Build the channels of a checkpoint: changed ones anew, the rest as in its parent."""
    before = {} if base is None else base.channels
    channels: dict[str, ChannelValue] = {}
    for name, version in draft.versions.items():
        old = before.get(name)
        # A copied checkpoint may have unchanged channels that its parent lacks.
        if name not in draft.changed and old is not None and old.version == version:
            channels[name] = old
            continue
        positions = () if old is None else old.positions
        known = tuple(map(new.cache.values.get, positions))
        if (parts := draft.get_parts(name, known)) is not None:
            places = new.add_all(parts.values, positions, known)
            channels[name] = ChannelValue(version, parts.form, places)
    return channels


class _NewValues:
    """The values of a record that are not stored in the thread yet, each once."""

    def __init__(self, cache: ThreadCache) -> None:
        self.cache = cache
        # New values, numbered in the order in which they will be appended.
        self.values: dict[SerializedValue, int] = {}

    def add_all(
        self,
        values: Sequence[SerializedValue],
        before: Sequence[int] = (),
        known: Sequence[SerializedValue | None] = (),
    ) -> tuple[int, ...]:
        """Return the positions of values; for the n-th new one, -1 - n.

        `before` are the positions of the channel's previous values, and `known` those values. Most
        are at the same place again.
        """
        end = len(values)
        compared = zip_longest(values, before[:end], known[:end])
        return tuple([at if value is old else self._add(value) for value, at, old in compared])

    def _add(self, value: SerializedValue) -> int:
        # LangGraph's serializer returns a bytearray as it is, and that may change.
        value = value[0], bytes(value[1])
        if (position := self.cache.positions.get(value)) is not None:
            return position
        return -1 - self.values.setdefault(value, len(self.values))

    def place(self, positions: Sequence[int]) -> tuple[int, ...]:
        """Replace the numbers of new values by positions.

        Values that are appended with their record have a negative one: how far before it they are.
        """
        stored, count = self.cache.positions, len(self.values)
        places = [stored.get(value, number - count) for value, number in self.values.items()]
        return tuple([at if at >= 0 else places[-1 - at] for at in positions])
