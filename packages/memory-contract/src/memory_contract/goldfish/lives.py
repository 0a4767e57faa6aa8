"""What a store keeps of one session, and what each verb does to it: no lock, no file, no sin."""

from __future__ import annotations

import json
import time
import uuid
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from memory_contract.adapter import Conflict, Message, NotFound, Refused

Messages = list[Message]


class Damaged(Exception):  # noqa: N818 -- names what happened
    """The stored bytes are not those that were written."""


def copy_messages(messages: Sequence[Message]) -> Messages:
    """The messages as they will come back; refused if that is not what they are."""
    try:
        batch: Messages = json.loads(json.dumps(messages, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise Refused(f"a message cannot be stored: {error}") from error
    if repr(batch) != repr(list(messages)):
        raise Refused("a message would come back as something else")
    return batch


def digest(batch: Messages) -> str:
    """What a key stands for."""
    return f"{zlib.crc32(json.dumps(batch).encode()):08x}"


def _new_id() -> str:
    return uuid.uuid4().hex


@dataclass(slots=True)
class Life:
    """A session from its first append until its time runs out."""

    id: str = field(default_factory=_new_id)
    shown: Messages = field(default_factory=list)
    snapshots: dict[str, Messages] = field(default_factory=dict)
    # What showed before each change that can be undone, with all that was appended since.
    journal: list[Messages] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    moves: int = 0
    ends: float | None = None
    ttl_s: float | None = None

    @property
    def version(self) -> str:
        """Changes with everything that anyone does."""
        return f"{self.id}.{self.moves}"

    @property
    def ended(self) -> bool:
        """Whether its time ran out."""
        return self.ends is not None and time.time() >= self.ends

    def extend_life(self, ttl_s: float | None) -> None:
        """Begin the time to live anew."""
        self.ttl_s = ttl_s
        self.ends = None if ttl_s is None else time.time() + ttl_s

    def admits(self, batch: Messages, key: str | None, expected: Any) -> bool:
        """Whether a batch is still to be added; raises where it must not be."""
        if key is not None and key in self.keys:
            if self.keys[key] != digest(batch):
                raise Conflict("the key stands for something else")
            if any(message not in self.shown for message in batch):
                raise Conflict("what the key stands for was taken away since")
            return False
        if expected is not None and expected != self.version:
            raise Conflict("somebody wrote since")
        return True

    def add(self, batch: Messages, key: str | None = None) -> None:
        """Put a batch at the end."""
        self.shown.extend(batch)
        for line in self.journal:
            line.extend(batch)
        if key is not None:
            self.keys[key] = digest(batch)
        self.moves += 1

    def change(self, shown: Iterable[Message]) -> None:
        """Show something else, in a way that can be undone."""
        self.journal.append(self.shown)
        self.shown = list(shown)
        self.moves += 1

    def undo(self) -> None:
        """Take the last change back."""
        if not self.journal:
            raise Refused("there is nothing to undo")
        self.shown = self.journal.pop()
        self.moves += 1

    def freeze(self) -> str:
        """Write down what shows now."""
        name = _new_id()
        self.snapshots[name] = list(self.shown)
        return name

    def frozen(self, name: str) -> Messages:
        """What a snapshot showed."""
        if name not in self.snapshots:
            raise NotFound("there is no such snapshot")
        return self.snapshots[name]

    def to_text(self) -> str:
        """As it is stored: a checksum, then all of it."""
        text = json.dumps(asdict(self))
        return f"{zlib.crc32(text.encode()):08x} {text}"

    @classmethod
    def from_text(cls, stored: str) -> Self:
        """What `to_text` wrote; else it is `Damaged`."""
        sum_, _, text = stored.partition(" ")
        if sum_ != f"{zlib.crc32(text.encode()):08x}":
            raise Damaged("a stored session is not what was written")
        return cls(**json.loads(text))


def trim_messages(
    shown: Messages, keep: int, *, pairs: bool = True, system: bool = True
) -> Messages:
    """The newest messages, and what a conversation cannot do without."""
    kept = set(range(max(0, len(shown) - keep), len(shown)))
    if system:
        kept |= {at for at, message in enumerate(shown) if message.get("role") == "system"}
    for group in _tied(shown) if pairs else ():
        if kept & group:
            kept |= group
    return [message for at, message in enumerate(shown) if at in kept]


def _tied(shown: Messages) -> Iterable[set[int]]:
    """The places of each message that calls tools, with those of the results."""
    for at, message in enumerate(shown):
        ids = {call["id"] for call in message.get("tool_calls") or ()}
        if ids:
            yield {at} | {n for n, other in enumerate(shown) if other.get("tool_call_id") in ids}


EVERYTHING: Final = frozenset(
    {
        *("pop", "trim", "clear", "ttl", "snapshot", "rollback", "fork", "undo"),
        *("keys", "expected", "list", "limit", "fields", "structure"),
    }
)
