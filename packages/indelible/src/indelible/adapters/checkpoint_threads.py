"""Threads of checkpoints in a store: finding, reading and appending records and values.

A thread is a session, and the checkpoints of each of its namespaces are versions of one item. What
was read or appended once is kept in memory, as bytes: entries never change. What may change is
which of them are visible. So everything is appended on the condition that the thread is exactly at
the version that is known here. If it is not, the thread is looked at again.
"""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar, cast
from weakref import WeakValueDictionary

from indelible import AsyncMemoryStore, ConflictError, CorruptEntryError, LimitError
from indelible.adapters import checkpoint_records as records
from indelible.adapters.checkpoint_records import ChannelValue, Checkpointed, Parts, Typed, Write
from indelible.core.limits import BATCH_BYTES_MAX, BATCH_ENTRIES_MAX
from indelible.core.operations import Head, ReadHead
from indelible.core.plan import Plan, perform
from indelible.core.plans import checkpoints
from indelible.core.rules import parse_version
from indelible.core.settings import check_session_id
from indelible.model import Receipt, StoredCheckpoint, StoredValue

T = TypeVar("T")

# Sessions of threads. No collection of memories has such an id: in labels, ~ is escaped.
THREAD_PREFIX: Final = "~thread/"
# How often something is tried again because others changed the thread meanwhile. Whenever one
# writer must try again, another one was successful.
ATTEMPTS_MAX: Final = 100
# Records that are read at once while a thread is listed.
_PAGE: Final = 32
_RECORDS_CACHED: Final = 512
_BYTES_CACHED: Final = 64 * 1024 * 1024
# Values are longer in base 64.
_VALUES_BYTES_MAX: Final = BATCH_BYTES_MAX // 2


class CheckpointDraft(NamedTuple):
    """A checkpoint that is to be stored."""

    namespace: str
    id: str
    parent: str | None
    body: Typed
    metadata: Typed
    # The versions of all channels.
    versions: Mapping[str, records.Version]
    # The values of the channels that changed; None for one without a value.
    changed: Mapping[str, Parts | None]
    # Computes the value of any other channel, if the parent does not have it.
    get_parts: Callable[[str], Parts | None]


class FoundCheckpoint(NamedTuple):
    """A checkpoint, and the state in which it was found."""

    head: Head
    checkpoint: Checkpointed


@dataclass(slots=True)
class _ThreadState:
    """What is known of a thread at a version."""

    version: str
    # Positions of values by their digests.
    known: dict[bytes, int] = field(default_factory=dict)
    # The newest checkpoints of namespaces, as far as they are known.
    newest: dict[str, Checkpointed] = field(default_factory=dict)


class Threads:
    """The threads of a store, which is awaited, or blocks and is wrapped to be awaited."""

    def __init__(self, store: AsyncMemoryStore, *, blocks: bool) -> None:
        self._store = store
        self._blocks = blocks
        self._lock = threading.Lock()
        self._turns: WeakValueDictionary[Any, Any] = WeakValueDictionary()
        self._states: OrderedDict[str, _ThreadState] = OrderedDict()
        # By life and position.
        self._records: OrderedDict[tuple[str, int], Checkpointed] = OrderedDict()
        self._values: OrderedDict[tuple[str, int], Typed] = OrderedDict()
        self._values_bytes = 0

    # Finding

    async def find(
        self, session: str, namespace: str, checkpoint_id: str | None = None
    ) -> FoundCheckpoint | None:
        """Find a checkpoint by its id; without one, the newest of its namespace."""
        item = records.build_checkpoint_item(namespace)
        limit = 1 if checkpoint_id is None else _PAGE
        head, places = await self._run(checkpoints.find_records(session, item, item, limit=limit))
        positions = [place.position for place in places]
        for checkpoint in await self._load(session, head, positions):
            if checkpoint_id in (None, checkpoint.id):
                return FoundCheckpoint(head, checkpoint)
        if len(positions) < limit:
            return None
        head, places = await self._run(checkpoints.find_records(session, item, item))
        older = [place.position for place in places]
        found = await self._find_older(session, head, older, checkpoint_id or "")
        return None if found is None else FoundCheckpoint(head, found)

    async def _find_older(
        self, session: str, head: Head, positions: Sequence[int], checkpoint_id: str
    ) -> Checkpointed | None:
        """Find a checkpoint among many, newest first: by its id, which grows with time."""
        low, high = 0, len(positions)
        while low < high:
            middle = (low + high) // 2
            (found,) = await self._load(session, head, [positions[middle]])
            if found.id == checkpoint_id:
                # Of the records of one id, the newest counts.
                while middle > 0:
                    (newer,) = await self._load(session, head, [positions[middle - 1]])
                    if newer.id != checkpoint_id:
                        break
                    found, middle = newer, middle - 1
                return found
            low, high = (middle + 1, high) if found.id > checkpoint_id else (low, middle)
        # Ids that a caller chose need not grow: look at all.
        for start in range(0, len(positions), _PAGE):
            for found in await self._load(session, head, positions[start : start + _PAGE]):
                if found.id == checkpoint_id:
                    return found
        return None

    async def iter_checkpoints(
        self, session: str, namespace: str | None = None
    ) -> AsyncIterator[FoundCheckpoint]:
        """Iterate over checkpoints of a thread, newest first; of each id, the newest record."""
        first, last = records.ALL_CHECKPOINTS
        if namespace is not None:
            first = last = records.build_checkpoint_item(namespace)
        head, places = await self._run(checkpoints.find_records(session, first, last))
        positions = sorted((place.position for place in places), reverse=True)
        seen: set[tuple[str, str]] = set()
        for start in range(0, len(positions), _PAGE):
            for found in await self._load(session, head, positions[start : start + _PAGE]):
                name = found.namespace, found.id
                if name not in seen:
                    seen.add(name)
                    yield FoundCheckpoint(head, found)

    async def iter_sessions(self) -> AsyncIterator[str]:
        """Iterate over the sessions of all threads."""
        cursor: str | None = None
        while True:
            page = await self._store.list_sessions(prefix=THREAD_PREFIX, order="id", cursor=cursor)
            for session in page.ids:
                yield session
            if (cursor := page.cursor) is None:
                return

    # Reading

    async def read_values(
        self, session: str, head: Head, positions: Iterable[int]
    ) -> dict[int, Typed]:
        """Read values at positions. The next checkpoint of the thread then refers to them."""
        wanted = set(positions)
        with self._lock:
            cached = {at: self._values.get((head.life, at)) for at in wanted}
        values = {at: value for at, value in cached.items() if value is not None}
        read = checkpoints.read_thread(session, head, wanted - values.keys())
        for position, stored in (await self._run(read)).items():
            if isinstance(stored, StoredValue):
                values[position] = records.from_stored(stored)
                self._keep_value(head.life, position, values[position])
        for position in wanted - values.keys():
            raise _build_missing_error(session, position)
        with self._lock:
            state = self._states.setdefault(session, _ThreadState(head.version))
            if _get_view(state.version) == (head.life, head.generation):
                for position in wanted - set(state.known.values()):
                    state.known[records.compute_digest(values[position])] = position
        return values

    async def read_writes(
        self, session: str, namespace: str, checkpoint_id: str
    ) -> tuple[Head, list[Write]]:
        """Read the writes for a checkpoint: the first of each task and index."""
        item = records.build_writes_item(namespace, checkpoint_id)
        head, places = await self._run(checkpoints.find_records(session, item, item))
        stored = await self._read_records(session, head, {place.position for place in places})
        writes: dict[tuple[str, int], Write] = {}
        for position in sorted(stored):
            for write in records.parse_writes(stored[position], position):
                # Special writes, such as an interrupt, replace earlier ones.
                if write.number < 0 or (write.task, write.number) not in writes:
                    writes[write.task, write.number] = write
        return head, list(writes.values())

    async def _load(self, session: str, head: Head, positions: Sequence[int]) -> list[Checkpointed]:
        """Load the checkpoints whose records are at these positions, in this order."""
        known = self._get_records(head, positions)
        stored = await self._read_records(session, head, set(positions) - known.keys())
        needed = {at for record in stored.values() for at in records.get_chain(record)}
        known |= self._get_records(head, needed)
        stored |= await self._read_records(session, head, needed - stored.keys() - known.keys())
        # A record comes after those that it builds on.
        for position in sorted(stored):
            chain = records.get_chain(stored[position])
            base = known[chain[-1]] if chain else None
            known[position] = records.resolve(stored[position], position, base)
        with self._lock:
            for position in stored:
                self._records[head.life, position] = known[position]
            while len(self._records) > _RECORDS_CACHED:
                self._records.popitem(last=False)
        return [known[position] for position in positions]

    def _get_records(self, head: Head, positions: Iterable[int]) -> dict[int, Checkpointed]:
        with self._lock:
            cached = {at: self._records.get((head.life, at)) for at in positions}
        return {at: record for at, record in cached.items() if record is not None}

    async def _read_records(
        self, session: str, head: Head, positions: set[int]
    ) -> dict[int, StoredCheckpoint]:
        found = await self._run(checkpoints.read_thread(session, head, positions))
        for position in positions:
            if not isinstance(found.get(position), StoredCheckpoint):
                raise _build_missing_error(session, position)
        return cast("dict[int, StoredCheckpoint]", found)

    def _keep_value(self, life: str, position: int, value: Typed) -> None:
        with self._lock:
            if (life, position) in self._values:
                return
            self._values[life, position] = value
            self._values_bytes += len(value[1])
            while self._values_bytes > _BYTES_CACHED:
                _, (_, data) = self._values.popitem(last=False)
                self._values_bytes -= len(data)

    # Appending

    async def append_checkpoint(
        self, session: str, draft: CheckpointDraft, *, continues: bool = False
    ) -> None:
        """Append a checkpoint with what is new in it.

        If it `continues` its parent, that must be the newest of the namespace, or there must be
        none if it has no parent; otherwise it is a `ConflictError`.
        """
        namespace = draft.namespace

        async def attempt(state: _ThreadState) -> None:
            newest = state.newest.get(namespace)
            if newest is None and (continues or draft.parent is not None):
                newest = await self._find_newest(session, namespace, state)
            if continues:
                _refuse_if_moved(session, draft.parent, None if newest is None else newest.id)
            base = newest
            if base is None or base.id != draft.parent:
                base = await self._find_parent(session, draft)
            new = _NewValues(state.known)
            channels = _build_channels(draft, base, new)
            await self._send_surplus(session, state, new, room=1)
            record = records.build_record(
                namespace,
                draft.id,
                draft.parent,
                draft.body,
                draft.metadata,
                {name: new.place(channel) for name, channel in channels.items()},
                base,
            )
            position = await self._send(session, state, new, [record])
            with self._lock:
                state.newest[namespace] = records.resolve(record, position, base)

        await self._try(session, attempt)

    async def append_writes(
        self,
        session: str,
        namespace: str,
        checkpoint_id: str,
        task: str,
        path: str,
        writes: Sequence[tuple[int, str, Typed]],
    ) -> None:
        """Append writes of a task: number, channel and value of each."""

        async def attempt(state: _ThreadState) -> None:
            new = _NewValues(state.known)
            numbered = [(number, channel, new.add(value)) for number, channel, value in writes]
            await self._send_surplus(session, state, new, room=1)
            placed = [(number, channel, new.get_position(at)) for number, channel, at in numbered]
            record = records.build_writes(namespace, checkpoint_id, task, path, placed)
            await self._send(session, state, new, [record])

        await self._try(session, attempt)

    async def _try(
        self, session: str, attempt: Callable[[_ThreadState], Any], *, forgets: bool = False
    ) -> None:
        """Try something on what is known of a thread, until that is not out of date.

        With `forgets`, nothing that is known before counts.
        """
        async with self._take_turn(session):
            for _ in range(ATTEMPTS_MAX):
                state = None if forgets else self._states.get(session)
                state = state or await self._read_state(session)
                try:
                    await attempt(state)
                except ConflictError as error:
                    self._drop_state(session)
                    if error.details.get("reason") not in ("version", "view"):
                        raise
                except BaseException:
                    # Whether something was appended is not known.
                    self._drop_state(session)
                    raise
                else:
                    return
        raise _build_race_error(session)

    @asynccontextmanager
    async def _take_turn(self, session: str) -> AsyncIterator[None]:
        """Let one writer of this process at a time change a thread: others would have to retry."""
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

    async def _read_state(self, session: str) -> _ThreadState:
        head = await self._run(_read_head(session))
        state = _ThreadState(head.version)
        with self._lock:
            while len(self._states) >= _RECORDS_CACHED:
                self._states.popitem(last=False)
            self._states[session] = state
        return state

    def _drop_state(self, session: str) -> None:
        with self._lock:
            self._states.pop(session, None)

    async def _find_newest(
        self, session: str, namespace: str, state: _ThreadState
    ) -> Checkpointed | None:
        """Find the newest checkpoint of a namespace at the version of a state."""
        found = await self.find(session, namespace)
        if found is None:
            return None
        if found.head.version != state.version:
            raise _build_moved_error(session)
        with self._lock:
            state.newest[namespace] = found.checkpoint
        return found.checkpoint

    async def _find_parent(self, session: str, draft: CheckpointDraft) -> Checkpointed | None:
        if draft.parent is None:
            return None
        found = await self.find(session, draft.namespace, draft.parent)
        return None if found is None else found.checkpoint

    async def _send_surplus(
        self, session: str, state: _ThreadState, new: _NewValues, *, room: int
    ) -> None:
        """Append values that do not fit into one batch with so many records."""
        while batch := new.take_surplus(room):
            receipt = await self._append(session, batch, state.version)
            new.set_sent(receipt.positions)
            state.version = receipt.version

    async def _send(
        self,
        session: str,
        state: _ThreadState,
        new: _NewValues,
        written: Sequence[StoredCheckpoint],
    ) -> int:
        """Append values with the records that refer to them; return where the first record is."""
        receipt = await self._append(session, [*new.unsent, *written], state.version)
        position: int = receipt.positions[-len(written)]
        placed = new.resolve(position)
        with self._lock:
            state.version = receipt.version
            state.known.update({digest: at for digest, (at, _) in placed.items()})
        life, _ = _get_view(receipt.version)
        for at, value in placed.values():
            self._keep_value(life, at, value)
        return position

    async def _append(
        self, session: str, entries: Sequence[StoredCheckpoint | StoredValue], expected: str
    ) -> Receipt:
        # A blocking store is wrapped, to be awaited.
        settings = getattr(self._store, "wrapped", self._store)._settings  # noqa: SLF001 (our own)
        return await self._run(checkpoints.append_entries(settings, session, entries, expected))

    async def _run(self, plan: Plan[T]) -> T:
        """Run a plan that no public verb has."""
        return await self._store._run(plan)  # noqa: SLF001 (our own)

    # Maintenance

    async def forget(self, session: str) -> None:
        """Erase a thread."""
        await self._store.forget(session)
        self._drop_state(session)

    async def copy(self, source: str, target: str) -> None:
        """Copy a thread by an export and an import: positions stay, and everything is checked."""
        exported = io.StringIO()
        await self._store.export(exported, source)
        exported.seek(0)
        renamed = io.StringIO("".join(_rename(line, source, target) for line in exported))
        await self._store.import_(renamed)

    async def keep_only(
        self, session: str, choose: Callable[[Sequence[Checkpointed]], Sequence[Checkpointed]]
    ) -> None:
        """Append the chosen checkpoints again, with their writes, and erase all before them.

        All of them are one batch, behind their values. If others appended meanwhile, it begins
        again. `choose` gets the newest first.
        """

        async def attempt(state: _ThreadState) -> None:
            found = [each async for each in self.iter_checkpoints(session)]
            chosen = choose([each.checkpoint for each in found])
            if len(chosen) == len(found):
                return
            head = found[0].head
            if head.version != state.version:
                raise _build_moved_error(session)
            if chosen:
                await self._copy_records(session, state, head, chosen[::-1])
            positions = range(head.born, head.end)
            await self._store.hide(session, positions, expected=state.version)
            self._drop_state(session)
            await self._store.vacuum(session_id=session, undo_window=0.0)

        await self._try(session, attempt, forgets=True)

    async def _copy_records(
        self, session: str, state: _ThreadState, head: Head, chosen: Sequence[Checkpointed]
    ) -> None:
        """Append checkpoints and their writes again, oldest first."""
        # Nothing that is to be erased may be referred to.
        new = _NewValues({})
        numbers: dict[int, int] = {}
        pending: list[list[Write]] = []
        for checkpoint in chosen:
            _, writes = await self.read_writes(session, checkpoint.namespace, checkpoint.id)
            pending.append(writes)
            wanted = {at for each in checkpoint.channels.values() for at in each.positions}
            wanted |= {write.position for write in writes}
            values = await self.read_values(session, head, wanted)
            numbers |= {at: new.add(value) for at, value in values.items()}
        count = len(chosen) + sum(map(len, pending))
        if count > BATCH_ENTRIES_MAX:
            raise LimitError(
                f"{count} checkpoints and writes of thread {get_thread_id(session)!r} would stay,"
                f" and the limit is {BATCH_ENTRIES_MAX}; nothing was changed. Prune it first.",
                limit=BATCH_ENTRIES_MAX,
                actual=count,
            )
        await self._send_surplus(session, state, new, room=count)
        written: list[StoredCheckpoint] = []
        for checkpoint, writes in zip(chosen, pending, strict=True):
            channels = {
                name: channel._replace(positions=tuple(numbers[at] for at in channel.positions))
                for name, channel in checkpoint.channels.items()
            }
            written.append(
                records.build_record(
                    checkpoint.namespace,
                    checkpoint.id,
                    checkpoint.parent,
                    checkpoint.body,
                    checkpoint.metadata,
                    {name: new.place(each, len(written)) for name, each in channels.items()},
                    None,
                )
            )
            for write in writes:
                at = new.get_position(numbers[write.position], len(written))
                again = [(write.number, write.channel, at)]
                written.append(
                    records.build_writes(
                        checkpoint.namespace, checkpoint.id, write.task, write.path, again
                    )
                )
        await self._send(session, state, new, written)


def _read_head(session: str) -> Plan[Head]:
    return (yield from perform(ReadHead(session)))


def _get_view(version: str) -> tuple[str, int]:
    """Return life and generation of a version; those of a thread that is not active are none."""
    try:
        life, _, generation = parse_version(version)
    except ValueError:
        return "", 0
    return life, generation


def _refuse_if_moved(session: str, parent: str | None, newest: str | None) -> None:
    """Raise if a run does not continue the newest checkpoint."""
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


def _build_channels(
    draft: CheckpointDraft, base: Checkpointed | None, new: _NewValues
) -> dict[str, ChannelValue]:
    """Build the channels of a checkpoint: what changed, and the rest as its parent has it."""
    before = {} if base is None else base.channels
    channels: dict[str, ChannelValue] = {}
    for name, version in draft.versions.items():
        if name in draft.changed:
            parts = draft.changed[name]
            if parts is not None:
                places = tuple(map(new.add, parts.values))
                channels[name] = ChannelValue(version, parts.form, places, parts.keys)
            continue
        if name in before and before[name].version == version:
            channels[name] = before[name]
            continue
        # The parent is not there, or has another version: as LangGraph copies a checkpoint.
        parts = draft.get_parts(name)
        if parts is not None:
            places = tuple(map(new.add, parts.values))
            channels[name] = ChannelValue(version, parts.form, places, parts.keys)
    return channels


class _NewValues:
    """The values of a record that are not in the thread yet, each once."""

    def __init__(self, known: Mapping[bytes, int]) -> None:
        self._known = known
        self._numbers: dict[bytes, int] = {}
        self._values: list[Typed] = []
        # Positions of values that were sent before their record.
        self._sent: list[int] = []

    def add(self, value: Typed) -> int:
        """Return where a value is, or the number of a new one, as -1 - n."""
        digest = records.compute_digest(value)
        if (position := self._known.get(digest)) is not None:
            return position
        if digest not in self._numbers:
            self._numbers[digest] = len(self._values)
            self._values.append(value)
        return -1 - self._numbers[digest]

    def take_surplus(self, room: int) -> list[StoredValue]:
        """Return values to send before the records, if they do not fit into one batch with them."""
        waiting = self._values[len(self._sent) :]
        size = sum(len(data) for _, data in waiting)
        if len(waiting) + room <= BATCH_ENTRIES_MAX and size <= _VALUES_BYTES_MAX:
            return []
        batch: list[Typed] = []
        size = 0
        for value in waiting[:BATCH_ENTRIES_MAX]:
            size += len(value[1])
            if batch and size > _VALUES_BYTES_MAX:
                break
            batch.append(value)
        return list(map(records.to_stored, batch))

    def set_sent(self, positions: Iterable[int]) -> None:
        """Note where values were stored that were sent before their record."""
        self._sent += positions

    @property
    def unsent(self) -> list[StoredValue]:
        """The values to send with the record."""
        return list(map(records.to_stored, self._values[len(self._sent) :]))

    def get_position(self, at: int, before: int = 0) -> int:
        """Return where a value is, relative to the record if it is sent with it.

        So many records of the batch come `before` that one.
        """
        if at >= 0:
            return at
        number = -1 - at
        if number < len(self._sent):
            return self._sent[number]
        return number - len(self._values) - before

    def place(self, channel: ChannelValue, before: int = 0) -> ChannelValue:
        """Replace the numbers of new values by their positions."""
        positions = tuple(self.get_position(at, before) for at in channel.positions)
        return channel._replace(positions=positions)

    def resolve(self, record: int) -> dict[bytes, tuple[int, Typed]]:
        """Return positions and values of all that is new, by their digests."""
        placed: dict[bytes, tuple[int, Typed]] = {}
        for digest, number in self._numbers.items():
            at = self.get_position(-1 - number)
            placed[digest] = at if at >= 0 else record + at, self._values[number]
        return placed


def build_session(thread_id: object) -> str:
    """Return the session of a thread."""
    return check_session_id(f"{THREAD_PREFIX}{thread_id}")


def get_thread_id(session: str) -> str:
    """Return the thread of a session."""
    return session.removeprefix(THREAD_PREFIX)


def _rename(line: str, source: str, target: str) -> str:
    """Replace the name of a session in a line of its export."""
    if not line.startswith(('{"session":', '{"end":')):
        return line
    ((kind, fields),) = json.loads(line).items()
    key = "id" if kind == "session" else "session"
    assert fields[key] == source
    return json.dumps({kind: {**fields, key: target}}) + "\n"


def _build_moved_error(session: str) -> ConflictError:
    return ConflictError(
        f"the thread {get_thread_id(session)!r} was changed meanwhile",
        session=session,
        reason="version",
    )


def _build_race_error(session: str) -> ConflictError:
    return ConflictError(
        f"others kept changing the thread {get_thread_id(session)!r}; nothing was changed. Try"
        " again.",
        session=session,
        reason="version",
    )


def _build_missing_error(session: str, position: int) -> CorruptEntryError:
    return CorruptEntryError(
        f"the thread {get_thread_id(session)!r} cannot be read: what one of its checkpoints refers"
        f" to, at position {position}, is missing",
        session=session,
        position=position,
        reason="it is missing",
        raw=b"",
    )
