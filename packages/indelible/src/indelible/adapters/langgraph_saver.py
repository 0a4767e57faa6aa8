"""indelible as a checkpointer of LangGraph: each value of a thread is stored once.

    graph = builder.compile(checkpointer=IndelibleSaver(indelible.open("agent.db")))

A step appends its new values and the record of its checkpoint, in one batch. Values that the thread
already has are referred to, not stored again: they are compared by their serialized bytes, never by
identity. How a checkpoint is stored, and how it is read:

    IndelibleSaver._put            builds the header: the checkpoint without its channels
      Threads.append_checkpoint    finds the newest checkpoint and the parent, usually in the cache
        records.split              serializes a channel that changed: a list or a dict in parts
        _NewValues.add_all         finds the positions of parts that are stored already
        records.build_record       channels as ranges of positions, as a difference to the parent
        Threads._append            new parts and the record, if the thread is still at its version

    IndelibleSaver._get_tuple
      ThreadReader.find            the newest record of the namespace, or that of an id
      ThreadReader.read_writes     the writes for it
      ThreadReader.read_values     what both refer to: from the cache, the log, or packs
      records.join                 deserializes the parts of each channel: new objects in every call

`checkpoint_records` shows the result by an example.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from itertools import chain
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from indelible import ConflictError, FormatError, UsageError
from indelible.adapters import checkpoint_records as records
from indelible.adapters.checkpoint_reader import (
    FoundCheckpoint,
    build_session,
    get_thread_id,
)
from indelible.adapters.checkpoint_records import (
    CheckpointHeader,
    ListedCheckpoint,
    Parts,
    SerializedValue,
    Write,
)
from indelible.adapters.checkpoint_threads import CheckpointDraft, Threads
from indelible.adapters.conversations import retry
from indelible.adapters.store_variants import (
    Store,
    check_store,
    make_pair,
    run_blocking,
    to_async,
    to_blocking,
)
from indelible.core.extras import need_extra

with need_extra("langgraph"):
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        BaseCheckpointSaver,
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        DeltaChannelHistory,
        get_checkpoint_id,
        get_checkpoint_metadata,
        writes_sort_key,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol

OnConflict = Literal["fork", "refuse"]
Strategy: TypeAlias = "Keep | str"

# In a config: True if its checkpoint was found as the newest, False if it was asked for by its id.
# LangGraph passes it along and leaves it out of metadata. A run that found no checkpoint has none.
_NEWEST: Final = "__indelible_newest"
# In metadata: the delta channels that were written to since their value was last stored.
_DELTA_COUNTERS: Final = "counters_since_delta_snapshot"
# None as another serializer may have written it.
_NONES: Final = (("json", b"null"), ("msgpack", b"\xc0"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Keep:
    """Which checkpoints a `prune` keeps: of each namespace the newest, and those of the last days.

    A checkpoint that is kept for either reason stays. The newest one always stays.
    """

    last: int = 1
    days: float | None = None

    def __post_init__(self) -> None:
        if self.last < 1 or (self.days is not None and self.days < 0):
            raise UsageError(f"keep at least the newest checkpoint: {self}", value=self)


@dataclass(frozen=True, kw_only=True, slots=True)
class PruneReceipt:
    """How many threads were examined, and how many of their checkpoints were kept and erased."""

    threads: int = 0
    kept: int = 0
    erased: int = 0


class IndelibleSaver(BaseCheckpointSaver[str]):
    """A checkpointer on a store, for any number of threads, tasks and processes.

    With a store of `indelible.open` it works in sync and async code; with one of
    `indelible.open_async`, in async code only. `on_conflict` decides about a run that continues
    from a checkpoint that is no longer the newest of its thread, and did not ask for it by its id:
    "fork" makes a branch, as LangGraph's own savers do; "refuse" raises a `ConflictError` before
    anything is stored. `retention` is the default of `prune`; nothing is erased before `prune` is
    called.
    """

    def __init__(
        self,
        store: Store,
        *,
        serde: SerializerProtocol | None = None,
        on_conflict: OnConflict = "fork",
        retention: Keep | None = None,
    ) -> None:
        super().__init__(serde=serde)
        if on_conflict not in ("fork", "refuse"):
            raise UsageError(f'on_conflict is "fork" or "refuse", not {on_conflict!r}')
        self._store = check_store(store)
        self._refuses = on_conflict == "refuse"
        self._retention = retention

    @cached_property
    def _blocking(self) -> Threads:
        return Threads(to_blocking(self._store), blocks=True)

    @cached_property
    def _awaited(self) -> Threads:
        return Threads(to_async(self._store), blocks=False)

    # The interface of LangGraph

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 (LangGraph's name)
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Iterate over checkpoints, of each thread and namespace the newest first."""
        found = self._list(self._blocking, config, filter, before, limit)
        while (each := run_blocking(_get_next(found))) is not None:
            yield each

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 (LangGraph's name)
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Iterate over checkpoints, of each thread and namespace the newest first."""
        async for each in self._list(self._awaited, config, filter, before, limit):
            yield each

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return the version after another: a number that sorts, and a random part."""
        del channel
        number = 0 if current is None else int(str(current).partition(".")[0])
        # The random part distinguishes concurrent writers.
        return f"{number + 1:032}.{random.random():016}"  # noqa: S311 (not for security)

    async def _get_tuple(self, threads: Threads, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint, or the newest one of its thread and namespace."""
        place = _parse_place(config)
        built = await retry(place.session, partial(self._find_tuple, threads, place))
        if built is not None and place.checkpoint_id is None:
            built.config["configurable"][_NEWEST] = True
        return built

    get_tuple, aget_tuple = make_pair(_get_tuple)

    async def _find_tuple(self, threads: Threads, place: _Place) -> CheckpointTuple | None:
        found = await threads.find(*place)
        return None if found is None else await self._build_tuple(threads, place.session, found)

    async def _list(
        self,
        threads: Threads,
        config: RunnableConfig | None,
        wanted: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> AsyncIterator[CheckpointTuple]:
        bound = None if before is None else get_checkpoint_id(before)
        checkpoint_id = None if config is None else get_checkpoint_id(config)
        namespace = None if config is None else config["configurable"].get("checkpoint_ns")
        left = limit
        thread_ids = None if config is None else [config["configurable"]["thread_id"]]
        async for session in _iter_threads(threads, thread_ids):
            async for found in threads.iter_checkpoints(session, namespace):
                checkpoint = found.checkpoint
                if left is not None and left <= 0:
                    return
                if checkpoint_id and checkpoint.id != checkpoint_id:
                    continue
                if bound and checkpoint.id >= bound:
                    continue
                if wanted:
                    metadata = self._load_metadata(session, checkpoint)
                    if any(metadata.get(key) != value for key, value in wanted.items()):
                        continue
                try:
                    built: CheckpointTuple | None = await self._build_tuple(threads, session, found)
                except ConflictError:
                    # The thread was pruned since the checkpoint was found.
                    place = _Place(session, checkpoint.namespace, checkpoint.id)
                    built = await retry(session, partial(self._find_tuple, threads, place))
                if built is not None:
                    left = None if left is None else left - 1
                    yield built

    async def _build_tuple(
        self, threads: Threads, session: str, found: FoundCheckpoint
    ) -> CheckpointTuple:
        """Read what a checkpoint refers to; raises a conflict if that may have been erased."""
        checkpoint = found.checkpoint
        namespace, channels = checkpoint.namespace, checkpoint.channels
        # This state is newer than the record, so it has the values that both refer to.
        state, (writes,) = await threads.read_writes(session, [found])
        writes.sort(key=_get_write_order)
        needed = chain.from_iterable(channel.positions for channel in channels.values())
        needed = chain(needed, [write.position for write in writes])
        values = await threads.read_values(state, needed)
        body: Checkpoint = self._load_body(session, checkpoint)
        metadata: CheckpointMetadata = self._load_metadata(session, checkpoint)
        loaded = body["channel_values"] = {}
        for name, channel in channels.items():
            with _name_decoding_errors(session, checkpoint.id, f"channel {name!r}"):
                loaded[name] = records.join(channel, self._load, values)
        pending: list[tuple[str, str, Any]] = []
        for write in writes:
            what = f"a write to channel {write.channel!r}"
            with _name_decoding_errors(session, checkpoint.id, what):
                pending.append((write.task, write.channel, self._load(values[write.position])))
        parent = checkpoint.parent
        return CheckpointTuple(
            config=_build_config(session, namespace, checkpoint.id),
            checkpoint=body,
            metadata=metadata,
            parent_config=None if parent is None else _build_config(session, namespace, parent),
            pending_writes=pending,
        )

    async def _get_delta_channel_history(
        self, threads: Threads, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what delta channels are rebuilt from: a value, and the writes since."""
        place = _parse_place(config)
        read = partial(self._read_delta_history, threads, place, channels)
        return await retry(place.session, read)

    get_delta_channel_history, aget_delta_channel_history = make_pair(_get_delta_channel_history)

    async def _read_delta_history(
        self, threads: Threads, place: _Place, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Read the ancestors of a checkpoint, back to those that hold the channels."""
        session, namespace, _ = place
        history: dict[str, DeltaChannelHistory] = {name: {"writes": []} for name in channels}
        target = await threads.find(*place)
        parent = None if target is None else target.checkpoint.parent
        found = await threads.find_ancestors(session, namespace, parent, set(channels))
        if not found:
            return history
        state, writes = await threads.read_writes(session, found)
        ancestors = [each.checkpoint for each in found]
        # The newest ancestor that holds each channel.
        seeds: dict[str, int] = {}
        for number, each in enumerate(ancestors):
            for name in each.channels.keys() & history.keys():
                seeds.setdefault(name, number)
        needed = {write.position for of_each in writes for write in of_each}
        needed |= {at for name, n in seeds.items() for at in ancestors[n].channels[name].positions}
        values = await threads.read_values(state, needed)
        for number in reversed(range(len(ancestors))):
            checkpoint_id = ancestors[number].id
            for write in sorted(writes[number], key=_get_write_order):
                if number <= seeds.get(write.channel, number) and write.channel in history:
                    what = f"a write to channel {write.channel!r}"
                    with _name_decoding_errors(session, checkpoint_id, what):
                        loaded = write.task, write.channel, self._load(values[write.position])
                    history[write.channel]["writes"].append(loaded)
        for name, number in seeds.items():
            with _name_decoding_errors(session, ancestors[number].id, f"channel {name!r}"):
                channel = ancestors[number].channels[name]
                history[name]["seed"] = records.join(channel, self._load, values)
        return history

    async def _put(
        self,
        threads: Threads,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint."""
        session, namespace, parent = _parse_place(config)
        dump = self.serde.dumps_typed
        values = checkpoint["channel_values"]

        parts: dict[str, Parts] = {}

        def get_parts(name: str, before: Sequence[SerializedValue | None]) -> Parts | None:
            if name in values and name not in parts:
                parts[name] = records.split(values[name], dump, before)
            return parts.get(name)

        header = CheckpointHeader(
            namespace=namespace,
            id=checkpoint["id"],
            parent=parent,
            body=dump({key: each for key, each in checkpoint.items() if key != "channel_values"}),
            metadata=dump(get_checkpoint_metadata(config, metadata)),
        )
        draft = CheckpointDraft(header, checkpoint["channel_versions"], new_versions, get_parts)
        newest = config["configurable"].get(_NEWEST, True)
        await threads.append_checkpoint(session, draft, continues=self._refuses and newest)
        return _build_config(session, namespace, checkpoint["id"], newest=newest)

    put, aput = make_pair(_put)

    async def _put_writes(
        self,
        threads: Threads,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store writes of a task, once for each task and index."""
        session, namespace, _ = _parse_place(config)
        checkpoint_id = config["configurable"]["checkpoint_id"]
        dumped = [
            (WRITES_IDX_MAP.get(channel, number), channel, self.serde.dumps_typed(value))
            for number, (channel, value) in enumerate(writes)
        ]
        await threads.append_writes(session, namespace, checkpoint_id, task_id, task_path, dumped)

    put_writes, aput_writes = make_pair(_put_writes)

    async def _delete_thread(self, threads: Threads, thread_id: str) -> None:
        """Erase a thread."""
        await threads.forget(build_session(thread_id))

    delete_thread, adelete_thread = make_pair(_delete_thread)

    async def _copy_thread(
        self, threads: Threads, source_thread_id: str, target_thread_id: str
    ) -> None:
        """Copy a thread with all its checkpoints and writes."""
        await threads.copy(build_session(source_thread_id), build_session(target_thread_id))

    copy_thread, acopy_thread = make_pair(_copy_thread)

    async def _prune(
        self,
        threads: Threads,
        thread_ids: Sequence[str] | None = None,
        *,
        strategy: Strategy | None = None,
    ) -> PruneReceipt:
        """Erase checkpoints of these threads, or of all.

        `strategy` says what to `Keep`: "keep_latest" keeps the newest of each namespace, "delete"
        nothing. The default is the saver's `retention`, or "keep_latest".
        """
        strategy = strategy or self._retention or "keep_latest"
        if strategy == "keep_latest":
            strategy = Keep()
        if strategy != "delete" and not isinstance(strategy, Keep):
            raise UsageError(
                f'strategy is "keep_latest", "delete" or Keep(…), not {strategy!r}', value=strategy
            )
        if isinstance(strategy, Keep):
            return await self._rewrite(threads, thread_ids, partial(self._choose_kept, strategy))
        number = erased = 0
        async for session in _iter_threads(threads, thread_ids):
            number += 1
            async for _ in threads.iter_checkpoints(session):
                erased += 1
            await threads.forget(session)
        return PruneReceipt(threads=number, erased=erased)

    prune, aprune = make_pair(_prune)  # type: ignore[assignment]  # LangGraph returns nothing

    async def _compact(
        self, threads: Threads, thread_ids: Sequence[str] | None = None
    ) -> PruneReceipt:
        """Pack and compress these threads, or all, except for their newest checkpoints.

        All checkpoints stay readable. Snapshots that were taken before keep the unpacked entries.
        """
        receipt = await self._rewrite(threads, thread_ids, lambda _, found: found, always=True)
        await threads.clear_free_space()
        return receipt

    compact, acompact = make_pair(_compact)

    async def _delete_for_runs(self, threads: Threads, run_ids: Sequence[str]) -> None:
        """Erase the checkpoints of runs, in all threads."""
        unwanted = set(_check_ids(run_ids))

        def choose(session: str, found: Sequence[ListedCheckpoint]) -> Sequence[ListedCheckpoint]:
            runs = (self._load_metadata(session, each).get("run_id") for each in found)
            kept = (each for each, run in zip(found, runs, strict=True) if run not in unwanted)
            return self._add_sources(session, found, kept)

        await self._rewrite(threads, None, choose)

    delete_for_runs, adelete_for_runs = make_pair(_delete_for_runs)

    async def _rewrite(
        self,
        threads: Threads,
        thread_ids: Sequence[str] | None,
        choose: Callable[[str, Sequence[ListedCheckpoint]], Sequence[ListedCheckpoint]],
        *,
        always: bool = False,
    ) -> PruneReceipt:
        """Keep the chosen checkpoints of threads; see `Threads.rewrite`."""
        counts = [
            await threads.rewrite(session, partial(choose, session), always=always)
            async for session in _iter_threads(threads, thread_ids)
        ]
        return PruneReceipt(
            threads=len(counts),
            kept=sum(kept for kept, _ in counts),
            erased=sum(erased for _, erased in counts),
        )

    def _choose_kept(
        self, keep: Keep, session: str, found: Sequence[ListedCheckpoint]
    ) -> Sequence[ListedCheckpoint]:
        """Choose the checkpoints to keep. `found` come newest first."""
        counts: Counter[str] = Counter()
        since = None if keep.days is None else datetime.now(UTC) - timedelta(days=keep.days)
        kept = []
        for checkpoint in found:
            counts[checkpoint.namespace] += 1
            if counts[checkpoint.namespace] <= keep.last or (
                since is not None and self._load_time(session, checkpoint) >= since
            ):
                kept.append(checkpoint)
        return self._add_sources(session, found, kept)

    def _add_sources(
        self, session: str, found: Sequence[ListedCheckpoint], kept: Iterable[ListedCheckpoint]
    ) -> Sequence[ListedCheckpoint]:
        """Add the checkpoints that delta channels of the kept ones are rebuilt from.

        Their value is rebuilt from the writes of the ancestors, back to one that holds a value.
        """
        by_id = {(each.namespace, each.id): each for each in found}
        chosen: set[tuple[str, str]] = set()
        for checkpoint in kept:
            missing = set(self._load_metadata(session, checkpoint).get(_DELTA_COUNTERS) or ())
            each: ListedCheckpoint | None = checkpoint
            seen: set[str] = set()
            # One that was put again with the config of itself is its own parent.
            while each is not None and each.id not in seen:
                seen.add(each.id)
                chosen.add((each.namespace, each.id))
                missing.difference_update(each.channels)
                parent = each.parent if missing else None
                each = None if parent is None else by_id.get((each.namespace, parent))
        return [each for each in found if (each.namespace, each.id) in chosen]

    # Decoding

    def _load(self, stored: SerializedValue) -> Any:
        """Deserialize a value. LangGraph's serializer returns None for some that it cannot read."""
        value = self.serde.loads_typed(stored)
        if value is None and stored not in _NONES:
            types = ("null", _get_base_type(self.serde.dumps_typed(None)))
            if _get_base_type(stored) not in types:
                raise ValueError(f"the serializer turns a value of type {stored[0]!r} into None")
        return value

    def _load_metadata(self, session: str, checkpoint: CheckpointHeader) -> Any:
        with _name_decoding_errors(session, checkpoint.id, "metadata"):
            return self._load(checkpoint.metadata)

    def _load_time(self, session: str, checkpoint: CheckpointHeader) -> datetime:
        with _name_decoding_errors(session, checkpoint.id, "the time"):
            time = datetime.fromisoformat(self._load_body(session, checkpoint)["ts"])
        return time if time.tzinfo is not None else time.replace(tzinfo=UTC)

    def _load_body(self, session: str, checkpoint: CheckpointHeader) -> Any:
        with _name_decoding_errors(session, checkpoint.id, "the body"):
            return self._load(checkpoint.body)


def _get_base_type(stored: SerializedValue) -> str:
    """Return the type of a value without the cipher that LangGraph's serializer adds to it."""
    return stored[0].partition("+")[0]


@contextmanager
def _name_decoding_errors(session: str, checkpoint_id: str, what: str) -> Iterator[None]:
    """Name the thread, checkpoint and channel, which the serializer does not know."""
    try:
        yield
    except Exception as error:
        raise FormatError(
            f"{what} of checkpoint {checkpoint_id} in thread {get_thread_id(session)!r} cannot be"
            f" decoded: {error!r}. It is stored as it was; read it with the serializer that wrote"
            " it.",
            session=session,
        ) from error


def _get_write_order(write: Write) -> Any:
    return writes_sort_key(write.path, write.task, write.number)


async def _get_next(found: AsyncIterator[CheckpointTuple]) -> CheckpointTuple | None:
    return await anext(found, None)


async def _iter_threads(threads: Threads, thread_ids: Sequence[str] | None) -> AsyncIterator[str]:
    """Iterate over the sessions of threads; of all, without ids."""
    if thread_ids is None:
        async for session in threads.iter_sessions():
            yield session
    for thread_id in _check_ids(thread_ids or ()):
        yield build_session(thread_id)


def _check_ids(ids: Sequence[str]) -> Sequence[str]:
    """Check that this is not one id: its letters would be taken for ids."""
    if isinstance(ids, str):
        raise UsageError(f"this takes a list of ids, not {ids!r}", value=ids)
    return ids


class _Place(NamedTuple):
    """A namespace of a thread, and a checkpoint in it; without an id, the newest."""

    session: str
    namespace: str
    checkpoint_id: str | None


def _parse_place(config: RunnableConfig) -> _Place:
    """Return what a config names. As in LangGraph, an empty id is none."""
    configurable = config["configurable"]
    return _Place(
        build_session(configurable["thread_id"]),
        configurable.get("checkpoint_ns") or "",
        get_checkpoint_id(config) or None,
    )


def _build_config(
    session: str, namespace: str, checkpoint_id: str, *, newest: bool = False
) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": get_thread_id(session),
            "checkpoint_ns": namespace,
            "checkpoint_id": checkpoint_id,
            _NEWEST: newest,
        }
    }
