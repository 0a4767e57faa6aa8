"""How checkpoints are stored: as records that refer to values. This module does no I/O.

A thread is a session. Its entries are values (the output of a serializer) and records. The elements
of a list are separate values, so that checkpoints can share them; of a dict, the list of its keys
and each item. In this example, a checkpoint has two messages and a name, a task writes a third
message, the next checkpoint includes it, and one more replaces the second message:

    position  item      entry
    0, 1, 2             values: "a", "b", "ana"
    3         c ␟       {id: c1, channels: {messages: [1, list, [[-3, 2]]],
                                            name: [1, one, [[-1, 1]]]}}
    4                   value: "c"
    5         w ␟ ␟ c1  {task: t, writes: [[0, messages, -1]]}
    6         c ␟       {id: c2, parent: c1, chain: [3],
                         channels: {messages: [2, list, [[0, 2, 1], [4, 1]]]}}
    7                   value: "B"
    8         c ␟       {id: c3, parent: c2, chain: [3, 6],
                         channels: {messages: [3, list, [[0, 1, 1], [-1, 1], [2, 1, 1]]]}}

- All checkpoints of a namespace (here "") are versions of one item, so the newest is found at once.
  So are all writes for a checkpoint.
- A channel has a version, a form, and pieces. `[4, 1]` is one value from position 4 on; `[-3, 2]`,
  two values from three entries before the record on, because a batch does not know its positions.
  `[-2, 3]` is the two before the record, and position 0.
- A record with a `chain` is a difference to the last record in the chain: channels that it does not
  name are as in that record, unless they are listed in `without`, and a piece `[0, 2, 1]` is the
  first two values of the channel in that record. The whole chain is read at once. After 32
  differences comes a complete record.
- `compact` and `prune` move values and checkpoints into packs and hide them in the log. A pack is
  one compressed entry with the item `p ␟ last ␟ first`. A hidden position is looked up in packs.
  The newest checkpoint of a namespace is appended again, so it is never packed. Writes become part
  of the record of their checkpoint, as `pending`. Writes whose checkpoint is not stored yet stay in
  the log.
- Checkpoint ids usually grow. An id that is not greater than all before it in its namespace may
  have been stored before, so its record copies the `pending` writes for it. From then on, records
  name the `greatest` id so far; a newest record without it says that all ids grew.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate, zip_longest
from typing import Any, Final, NamedTuple

from pydantic import JsonValue

from indelible.errors import FormatError
from indelible.model import StoredCheckpoint, StoredValue

# The output of a serializer: a type and bytes.
SerializedValue = tuple[str, bytes]
Version = str | int | float

# The longest chain of differences: a longer one is slower to read, a shorter one takes more space.
DEPTH_MAX: Final = 32
# A list or dict is split if it is larger than the first, and its parts are not mostly smaller than
# the second.
_SPLIT_BYTES: Final = 512
_PART_BYTES: Final = 64

# Item ids: `c` and the namespace for checkpoints, `w`, the namespace and the checkpoint for writes,
# `p` and the last and the first position for packs.
_SEPARATOR: Final = "\x1f"
_AFTER: Final = chr(ord(_SEPARATOR) + 1)
ALL_CHECKPOINTS: Final = (f"c{_SEPARATOR}", f"c{_AFTER}")
ALL_WRITES: Final = (f"w{_SEPARATOR}", f"w{_AFTER}")
LAST_PACK: Final = f"p{_AFTER}"
# Item ids are limited to 512 bytes.
_NAME_BYTES_MAX: Final = 400


class ChannelValue(NamedTuple):
    """The value of a channel: its version, and the positions of its parts."""

    version: Version
    # "one" value, the elements of a "list", or the keys and then the items of a "dict".
    form: str
    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointHeader:
    """The fields of a checkpoint that its record always holds completely."""

    namespace: str
    id: str
    parent: str | None
    # The checkpoint without the values of its channels.
    body: SerializedValue
    metadata: SerializedValue
    # The greatest id of its namespace so far; None while each id was greater than all before it.
    greatest: str | None = None


class Write(NamedTuple):
    """A pending write for a checkpoint."""

    task: str
    path: str
    number: int
    channel: str
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedCheckpoint(CheckpointHeader):
    """A stored checkpoint, and the names of the channels that have a value in it."""

    position: int
    channels: Collection[str]
    # Writes in the record itself; others are records of their own.
    pending: tuple[Write, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRecord(ListedCheckpoint):
    """A stored checkpoint with its differences resolved."""

    channels: Mapping[str, ChannelValue]
    # The positions of the records that resolve it, oldest first, its own included.
    chain: tuple[int, ...]


class Parts(NamedTuple):
    """The serialized value of a channel: one value, or the parts of a list or dict."""

    form: str
    values: tuple[SerializedValue, ...]


def build_checkpoint_item(namespace: str) -> str:
    """Return the item that all checkpoints of a namespace are versions of."""
    return f"c{_SEPARATOR}{_shorten(namespace)}"


def build_writes_item(namespace: str, checkpoint_id: str) -> str:
    """Return the item that all writes for a checkpoint are versions of."""
    return f"w{_SEPARATOR}{_shorten(namespace + _SEPARATOR + checkpoint_id)}"


def choose_early_writes(
    items: Collection[str], listed: Iterable[ListedCheckpoint], *, newer_only: bool
) -> set[str]:
    """Choose the items of writes for checkpoints that are not stored, or only for newer ones."""
    stored = {build_writes_item(each.namespace, each.id) for each in listed}
    early = set(items) - stored
    if not newer_only:
        return early
    greatest = {item.rpartition(_SEPARATOR)[0]: item for item in sorted(stored)}
    # Hashes do not grow with the ids, so keep all of these.
    greatest.pop("w", None)
    return {item for item in early if item > greatest.get(item.rpartition(_SEPARATOR)[0], "")}


def _shorten(name: str) -> str:
    data = name.encode()
    if len(data) <= _NAME_BYTES_MAX and "\0" not in name:
        return name
    return blake2b(data, digest_size=32).hexdigest()


def to_stored(value: SerializedValue) -> StoredValue:
    """Build the entry of a value."""
    kind, data = _to_texts(value)
    return StoredValue(type=kind, data=data)


def _to_texts(value: SerializedValue) -> tuple[str, str]:
    return value[0], base64.b64encode(value[1]).decode("ascii")


def from_stored(kind: str, data: str) -> SerializedValue:
    """Return the value of an entry."""
    return kind, base64.b64decode(data, validate=True)


def split(
    value: Any,
    dump: Callable[[Any], SerializedValue],
    before: Sequence[SerializedValue | None] = (),
) -> Parts:
    """Serialize a value; a large list or dict in parts.

    Parts that are the same `before` are not kept twice: many new objects slow garbage collection.
    """
    form = "one"
    items: Sequence[Any] = ()
    if type(value) is list:
        form, items = "list", value
    elif type(value) is dict and all(type(key) is str for key in value):
        form, items = "dict", (list(value), *value.values())
    compared = zip_longest(items, before[: len(items)])
    parts = [old if (new := dump(item)) == old else new for item, old in compared]
    if parts and _is_worth_splitting(parts):
        return Parts(form, tuple(parts))
    return Parts("one", (dump(value),))


def _is_worth_splitting(parts: Sequence[SerializedValue]) -> bool:
    wanted = max(_SPLIT_BYTES + 1, _PART_BYTES * len(parts))
    # Usually the first few parts decide.
    return any(size >= wanted for size in accumulate(len(data) for _, data in parts))


def join(
    channel: ChannelValue,
    load: Callable[[SerializedValue], Any],
    values: Mapping[int, SerializedValue],
) -> Any:
    """Rebuild a value from its parts; each call returns new objects."""
    parts = [load(values[position]) for position in channel.positions]
    if channel.form == "list":
        return parts
    if channel.form == "dict":
        keys, *items = parts
        return dict(zip(keys, items, strict=True))
    return parts[0]


# Records


def build_record(
    header: CheckpointHeader,
    channels: Mapping[str, ChannelValue],
    base: CheckpointRecord | None = None,
) -> StoredCheckpoint:
    """Build the record of a checkpoint, as a difference to `base` unless its chain is too long.

    Negative positions are values of the same batch, counted back from the record.
    """
    if base is not None and len(base.chain) >= DEPTH_MAX:
        base = None
    before = {} if base is None else base.channels
    changed: dict[str, JsonValue] = {
        name: [
            channel.version,
            channel.form,
            _build_pieces(channel.positions, _get_positions(before, name, channel.form)),
        ]
        for name, channel in channels.items()
        if before.get(name) != channel
    }
    record: dict[str, JsonValue] = {
        "ns": header.namespace,
        "id": header.id,
        "parent": header.parent,
        "body": [*_to_texts(header.body)],
        "metadata": [*_to_texts(header.metadata)],
        "channels": changed,
    }
    if header.greatest is not None:
        record["greatest"] = header.greatest
    if base is not None:
        record["chain"] = list(base.chain)
        record["without"] = [name for name in before if name not in channels]
    return StoredCheckpoint(id=build_checkpoint_item(header.namespace), record=record)


def add_pending(stored: StoredCheckpoint, writes: Sequence[Write]) -> StoredCheckpoint:
    """Add pending writes to the record of a checkpoint."""
    pending: JsonValue = [list(write) for write in writes]
    record = {**stored.record, "pending": pending} if writes else stored.record
    return StoredCheckpoint(id=stored.id, record=record)


def _get_positions(channels: Mapping[str, ChannelValue], name: str, form: str) -> tuple[int, ...]:
    channel = channels.get(name)
    return channel.positions if channel is not None and channel.form == form else ()


def _build_pieces(positions: tuple[int, ...], before: tuple[int, ...]) -> list[JsonValue]:
    """Describe positions as pieces: `[first, count]`, or `[first, count, 1]` of `before`."""
    shorter = min(len(positions), len(before))
    head = shorter
    if positions[:shorter] != before[:shorter]:
        head = next(n for n in range(shorter) if positions[n] != before[n])
    tail = next(
        (n for n in range(shorter - head) if positions[-1 - n] != before[-1 - n]), shorter - head
    )
    pieces: list[JsonValue] = [[0, head, 1]] if head else []
    run: list[int] = []
    for position in positions[head : len(positions) - tail]:
        if run and position == run[0] + run[1]:
            run[1] += 1
        else:
            pieces += [list(run)] if run else []
            run = [position, 1]
    pieces += [list(run)] if run else []
    if tail:
        pieces.append([len(before) - tail, tail, 1])
    return pieces


def resolve(
    stored: StoredCheckpoint, position: int, base: CheckpointRecord | None
) -> CheckpointRecord:
    """Build a checkpoint from its record and the checkpoint that it is a difference to, if any."""
    record: Any = stored.record
    with _naming_errors(position, "no checkpoint"):
        # A record without a chain is complete.
        before = {} if base is None or not get_chain(stored) else base.channels
        gone = record.get("without", ())
        channels = {name: channel for name, channel in before.items() if name not in gone}
        for name, (version, form, pieces) in record["channels"].items():
            parent = _get_positions(before, name, form)
            channels[name] = ChannelValue(version, form, tuple(_expand(pieces, parent, position)))
        return CheckpointRecord(
            **_parse_header(record),
            position=position,
            channels=channels,
            chain=(*get_chain(stored), position),
        )


def list_checkpoints(stored: Mapping[int, StoredCheckpoint]) -> list[ListedCheckpoint]:
    """List the checkpoints of all records of a thread, newest first; of each id, the newest."""
    channels: dict[int, frozenset[str]] = {}
    found: dict[tuple[str, str], ListedCheckpoint] = {}
    for position in sorted(stored):
        record: Any = stored[position].record
        with _naming_errors(position, "no checkpoint"):
            chain = get_chain(stored[position])
            before = channels[chain[-1]] if chain else frozenset()
            names = before.difference(record.get("without", ())).union(record["channels"])
            channels[position] = names
            listed = ListedCheckpoint(**_parse_header(record), position=position, channels=names)
        # Remove an older record of the id, so that this one is last.
        found.pop((listed.namespace, listed.id), None)
        found[listed.namespace, listed.id] = listed
    return list(found.values())[::-1]


def _parse_header(record: Any) -> dict[str, Any]:
    return {
        "namespace": record["ns"],
        "id": record["id"],
        "parent": record["parent"],
        "body": from_stored(*record["body"]),
        "metadata": from_stored(*record["metadata"]),
        "greatest": record.get("greatest"),
        "pending": tuple([Write(*write) for write in record.get("pending", ())]),
    }


def find_new_positions(stored: StoredCheckpoint, position: int) -> set[int]:
    """Return the positions of values that a record names itself, not through its base."""
    record: Any = stored.record
    pieces = [piece for channel in record["channels"].values() for piece in channel[2]]
    pieces += [[Write(*write).position, 1] for write in record.get("pending", ())]
    return set(_expand([piece for piece in pieces if len(piece) == 2], (), position))


def get_chain(stored: StoredCheckpoint) -> tuple[int, ...]:
    """Return the positions of the records that a record is based on, oldest first."""
    chain: Any = stored.record.get("chain", ())
    return tuple(chain)


def _expand(pieces: Sequence[Sequence[int]], before: Sequence[int], position: int) -> list[int]:
    positions: list[int] = []
    for first, count, *of_base in pieces:
        if of_base:
            positions += before[first : first + count]
        else:
            # After -1, the entry before the record, may come 0, the first of the thread.
            positions += [at if at >= 0 else position + at for at in range(first, first + count)]
    return positions


def build_writes(
    namespace: str,
    checkpoint_id: str,
    task: str,
    path: str,
    writes: Sequence[tuple[int, str, int]],
) -> StoredCheckpoint:
    """Build the record of writes, given as tuples of number, channel and position."""
    record: dict[str, JsonValue] = {
        "task": task,
        "path": path,
        "writes": [list(write) for write in writes],
    }
    return StoredCheckpoint(id=build_writes_item(namespace, checkpoint_id), record=record)


def parse_writes(stored: StoredCheckpoint, position: int) -> list[Write]:
    """Return the writes of a record."""
    record: Any = stored.record
    with _naming_errors(position, "no record of writes"):
        return [
            Write(record["task"], record["path"], number, channel, at if at >= 0 else position + at)
            for number, channel, at in record["writes"]
        ]


@contextmanager
def _naming_errors(position: int, what: str) -> Iterator[None]:
    """Name the entry that is malformed."""
    try:
        yield
    except (LookupError, TypeError, ValueError, zlib.error) as error:
        raise FormatError(f"the entry at position {position} is {what}") from error


# Packs


class Pack(NamedTuple):
    """Entries of a thread, by position, that are stored as one entry."""

    records: dict[int, StoredCheckpoint]
    values: dict[int, SerializedValue]


def build_pack_item(last: int, first: int = 0) -> str:
    """Return the item of a pack; packs are ordered by the last position that they hold."""
    return f"p{_SEPARATOR}{last:010}{_SEPARATOR}{first:010}"


def parse_pack_item(item: str) -> tuple[int, int]:
    """Return the last and the first position of a pack."""
    _, last, first = item.split(_SEPARATOR)
    return int(last), int(first)


def build_pack(pack: Pack) -> StoredCheckpoint:
    """Build the entry of a pack: a header in JSON, then the bytes of the values, compressed."""
    header = {
        "records": [[position, each.id, each.record] for position, each in pack.records.items()],
        "values": [[position, kind, len(data)] for position, (kind, data) in pack.values.items()],
    }
    positions = pack.records.keys() | pack.values.keys()
    parts = [json.dumps(header, separators=(",", ":")).encode(), b"\n"]
    packed = zlib.compress(b"".join([*parts, *(data for _, data in pack.values.values())]))
    return StoredCheckpoint(
        id=build_pack_item(max(positions), min(positions)),
        record={"pack": base64.b64encode(packed).decode("ascii")},
    )


def parse_pack(stored: StoredCheckpoint, position: int) -> Pack:
    """Return the entries of a pack."""
    with _naming_errors(position, "no pack"):
        packed: Any = stored.record["pack"]
        data = zlib.decompress(base64.b64decode(packed, validate=True))
        head, _, rest = data.partition(b"\n")
        header = json.loads(head)
        values: dict[int, SerializedValue] = {}
        start = 0
        for at, kind, size in header["values"]:
            values[at] = kind, rest[start : start + size]
            start += size
        found = {at: StoredCheckpoint(id=id_, record=each) for at, id_, each in header["records"]}
        return Pack(found, values)


# For people


class RecordSummary(NamedTuple):
    """A record in a few words: a "checkpoint", the "writes" of a task, or a "pack"."""

    kind: str
    name: str
    channels: tuple[str, ...] = ()
    parent: str | None = None
    namespace: str = ""
    # The node of the graph that a task ran.
    node: str = ""


def summarize_record(stored: StoredCheckpoint) -> RecordSummary:
    """Summarize a record; one that is malformed becomes a checkpoint without a name."""
    record: Any = stored.record
    try:
        if "pack" in record:
            last, first = parse_pack_item(stored.id)
            return RecordSummary("pack", f"{first} and {last}")
        if "writes" in record:
            channels = tuple(str(channel) for _, channel, _ in record["writes"])
            node = str(record.get("path", "")).rpartition(", ")[2]
            return RecordSummary("writes", str(record.get("task")), channels, node=node)
        parent = None if record.get("parent") is None else str(record["parent"])
        channels = tuple(map(str, record.get("channels", ())))
        name, namespace = str(record.get("id", "")), str(record.get("ns", ""))
        return RecordSummary("checkpoint", name, channels, parent, namespace)
    except (TypeError, ValueError):
        return RecordSummary("checkpoint", "")


def describe_record(stored: StoredCheckpoint) -> str:
    """Describe a record in one line."""
    kind, name, channels, parent, namespace, _ = summarize_record(stored)
    changed = ", ".join(channels)
    if kind == "pack":
        return f"packed entries between {name}"
    if kind == "writes":
        return f"task {name} writes {changed}"
    where = f" in {namespace}" if namespace else ""
    after = f" after {parent}" if parent else ""
    return f"{name}{where}{after}" + (f": {changed}" if changed else "")


class BranchFinder:
    """Finds checkpoints whose parent was not the newest one when they were stored."""

    def __init__(self) -> None:
        self._newest: dict[str, object] = {}

    def is_branch(self, stored: StoredCheckpoint) -> bool:
        """Return whether a branch begins with the next record of the thread."""
        if "parent" not in stored.record:
            return False
        parent, name = stored.record["parent"], stored.record.get("id")
        newest = self._newest.get(stored.id, parent)
        self._newest[stored.id] = name
        # `compact` appends the newest one again.
        return newest not in (parent, name)
