"""How a checkpoint is stored: as a record that refers to values, by what differs from its parent.

Elements of a list and items of a dict are values of their own, so that checkpoints share them;
everything else is one value. A record refers to values by their positions in the thread, and to
those that are appended with it by how far before it they are. What a channel has in common with
that of the parent is one reference to it. Pure functions; nothing here reads or writes.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from pydantic import JsonValue

from indelible.errors import FormatError
from indelible.model import StoredCheckpoint, StoredValue

# What a serializer makes of a value: a type, and bytes.
Typed = tuple[str, bytes]
Version = str | int | float

# A longer chain of differences would take longer to read; a shorter one, more space.
DEPTH_MAX: Final = 32
# What is smaller is stored as one value, and so is what has many small parts.
_SPLIT_BYTES: Final = 512
_PART_BYTES: Final = 64

# Item ids: `c` and the namespace for checkpoints, `w`, the namespace and the checkpoint for writes.
_SEPARATOR: Final = "\x1f"
ALL_CHECKPOINTS: Final = (f"c{_SEPARATOR}", f"c{chr(ord(_SEPARATOR) + 1)}")
# Ids of items are limited to 512 bytes.
_NAME_BYTES_MAX: Final = 400


class ChannelValue(NamedTuple):
    """The value of a channel: its version, and the positions of the values that it is made of."""

    version: Version
    # "one" value, the elements of a "list", or the items of a "dict".
    form: str
    positions: tuple[int, ...]
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """A stored checkpoint, with its differences resolved."""

    position: int
    namespace: str
    id: str
    parent: str | None
    # The checkpoint without the values of its channels.
    body: Typed
    metadata: Typed
    channels: Mapping[str, ChannelValue]
    # The records that are needed to resolve it, from the first on, itself included.
    chain: tuple[int, ...]


class Write(NamedTuple):
    """A write that is pending for a checkpoint."""

    task: str
    path: str
    number: int
    channel: str
    position: int


class Parts(NamedTuple):
    """A value of a channel, serialized: one value, or the parts of a list or a dict."""

    form: str
    values: tuple[Typed, ...]
    keys: tuple[str, ...] = ()


def build_checkpoint_item(namespace: str) -> str:
    """Return the item that all checkpoints of a namespace are versions of."""
    return f"c{_SEPARATOR}{_shorten(namespace)}"


def build_writes_item(namespace: str, checkpoint_id: str) -> str:
    """Return the item that all writes for a checkpoint are versions of."""
    return f"w{_SEPARATOR}{_shorten(namespace + _SEPARATOR + checkpoint_id)}"


def _shorten(name: str) -> str:
    data = name.encode()
    if len(data) <= _NAME_BYTES_MAX and "\0" not in name:
        return name
    return blake2b(data, digest_size=32).hexdigest()


def compute_digest(value: Typed) -> bytes:
    """Compute what tells values apart: equal digests are equal values."""
    kind, data = value
    return blake2b(kind.encode() + b"\0" + data, digest_size=16).digest()


def to_stored(value: Typed) -> StoredValue:
    """Build the entry of a value."""
    kind, data = value
    return StoredValue(type=kind, data=base64.b64encode(data).decode("ascii"))


def from_stored(stored: StoredValue) -> Typed:
    """Return the value of an entry."""
    return stored.type, base64.b64decode(stored.data, validate=True)


def _pack(value: Typed) -> list[JsonValue]:
    kind, data = value
    return [kind, base64.b64encode(data).decode("ascii")]


def _unpack(packed: Any) -> Typed:
    kind, data = packed
    return str(kind), base64.b64decode(data, validate=True)


def split(value: Any, dump: Callable[[Any], Typed]) -> Parts:
    """Serialize a value: in parts, if it is a list or a dict of some size."""
    if type(value) is list and value:
        parts = tuple(map(dump, value))
        if _is_worth_splitting(parts):
            return Parts("list", parts)
    elif type(value) is dict and value and all(type(key) is str for key in value):
        parts = tuple(map(dump, value.values()))
        if _is_worth_splitting(parts):
            return Parts("dict", parts, tuple(value))
    return Parts("one", (dump(value),))


def _is_worth_splitting(parts: Sequence[Typed]) -> bool:
    size = sum(len(data) for _, data in parts)
    return size > _SPLIT_BYTES and size >= _PART_BYTES * len(parts)


def join(channel: ChannelValue, load: Callable[[Typed], Any], values: Mapping[int, Typed]) -> Any:
    """Rebuild a value from its parts; each call makes objects of its own."""
    parts = [load(values[position]) for position in channel.positions]
    if channel.form == "list":
        return parts
    if channel.form == "dict":
        return dict(zip(channel.keys, parts, strict=True))
    return parts[0]


# Records


def build_record(
    namespace: str,
    checkpoint_id: str,
    parent: str | None,
    body: Typed,
    metadata: Typed,
    channels: Mapping[str, ChannelValue],
    base: Checkpointed | None,
) -> StoredCheckpoint:
    """Build the record of a checkpoint, as a difference to `base` if that saves something.

    Positions below zero are those of values in the same batch, counted back from the record.
    """
    if base is not None and len(base.chain) >= DEPTH_MAX:
        base = None
    before = {} if base is None else base.channels
    changed: dict[str, JsonValue] = {
        name: [
            channel.version,
            channel.form,
            _build_pieces(channel.positions, _get_positions(before, name, channel.form)),
            list(channel.keys),
        ]
        for name, channel in channels.items()
        if before.get(name) != channel
    }
    record: dict[str, JsonValue] = {
        "ns": namespace,
        "id": checkpoint_id,
        "parent": parent,
        "body": _pack(body),
        "metadata": _pack(metadata),
        "channels": changed,
    }
    if base is not None:
        record["chain"] = list(base.chain)
        record["without"] = [name for name in before if name not in channels]
    return StoredCheckpoint(id=build_checkpoint_item(namespace), record=record)


def _get_positions(channels: Mapping[str, ChannelValue], name: str, form: str) -> tuple[int, ...]:
    channel = channels.get(name)
    return channel.positions if channel is not None and channel.form == form else ()


def _build_pieces(positions: Sequence[int], before: Sequence[int]) -> list[JsonValue]:
    """Describe positions as pieces: `[first, count]`, or `[first, count, 1]` of those before."""
    shorter = min(len(positions), len(before))
    head = next((n for n in range(shorter) if positions[n] != before[n]), shorter)
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


def resolve(stored: StoredCheckpoint, position: int, base: Checkpointed | None) -> Checkpointed:
    """Build a checkpoint from its record and the one that it may be a difference to."""
    record: Any = stored.record
    try:
        # A record without a chain is complete.
        before = {} if base is None or not get_chain(stored) else base.channels
        channels = {
            name: channel
            for name, channel in before.items()
            if name not in record.get("without", ())
        }
        for name, (version, form, pieces, keys) in record["channels"].items():
            parent = _get_positions(before, name, form)
            channels[name] = ChannelValue(
                version, form, tuple(_expand(pieces, parent, position)), tuple(keys)
            )
        return Checkpointed(
            position=position,
            namespace=record["ns"],
            id=record["id"],
            parent=record["parent"],
            body=_unpack(record["body"]),
            metadata=_unpack(record["metadata"]),
            channels=channels,
            chain=(*record.get("chain", ()), position),
        )
    except (LookupError, TypeError, ValueError) as error:
        raise FormatError(f"the record at position {position} is no checkpoint") from error


def get_chain(stored: StoredCheckpoint) -> tuple[int, ...]:
    """Return the positions of the records that a record builds on, from the first on."""
    chain: Any = stored.record.get("chain", ())
    return tuple(chain)


def _expand(pieces: Sequence[Sequence[int]], before: Sequence[int], position: int) -> list[int]:
    positions: list[int] = []
    for first, count, *of_base in pieces:
        if of_base:
            positions += before[first : first + count]
        else:
            start = first if first >= 0 else position + first
            positions += range(start, start + count)
    return positions


def build_writes(
    namespace: str,
    checkpoint_id: str,
    task: str,
    path: str,
    writes: Sequence[tuple[int, str, int]],
) -> StoredCheckpoint:
    """Build the record of writes: number, channel, and position of each."""
    record: dict[str, JsonValue] = {
        "task": task,
        "path": path,
        "writes": [list(write) for write in writes],
    }
    return StoredCheckpoint(id=build_writes_item(namespace, checkpoint_id), record=record)


def parse_writes(stored: StoredCheckpoint, position: int) -> list[Write]:
    """Return the writes of a record."""
    record: Any = stored.record
    try:
        return [
            Write(record["task"], record["path"], number, channel, _place(at, position))
            for number, channel, at in record["writes"]
        ]
    except (LookupError, TypeError, ValueError) as error:
        raise FormatError(f"the record at position {position} holds no writes") from error


def _place(at: int, position: int) -> int:
    return at if at >= 0 else position + at
