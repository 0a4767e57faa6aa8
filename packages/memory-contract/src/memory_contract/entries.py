"""Entries that know themselves: each message carries its id and a checksum in its text.

So the kit works with stores that return no ids of their own, and sees an entry that came back
changed.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any, Final

from memory_contract.adapter import Message
from memory_contract.history import CORRUPTED, Ids

_WORDS: Final = (
    *("order", "refund", "address", "night", "train", "name", "coffee", "seven", "delay"),
    *("garden", "invoice", "parcel", "number", "late", "ticket", "window", "river", "account"),
    *("yes", "no", "maybe", "tomorrow", "thanks", "again", "blue", "winter", "lamp", "call"),
)
_FORM: Final = re.compile(r"\[(?P<id>[^\s\]]+) (?P<sum>[0-9a-f]{8})\] (?P<text>.*)", re.DOTALL)


def choose_role(id_: str) -> str:
    """Entries take turns: even ones are the user's."""
    return "assistant" if int(id_[-1]) % 2 else "user"


def build_message(id_: str) -> Message:
    """The message of an entry; the same for the same id, in every process."""
    text = " ".join(Random(id_).choices(_WORDS, k=4))  # noqa: S311 -- made-up words
    role = choose_role(id_)
    return {"role": role, "content": f"[{id_} {_sum(id_, role, text)}] {text}"}


def build_messages(ids: Ids) -> list[Message]:
    """The messages of a batch."""
    return [build_message(id_) for id_ in ids]


def parse_id(message: Any) -> str:
    """The id of a message that came back, with a mark if its checksum is wrong."""
    fields = message if isinstance(message, Mapping) else {}
    role, content = str(fields.get("role")), fields.get("content")
    found = _FORM.fullmatch(content) if isinstance(content, str) else None
    if found is None:
        return f"?{_digest(message)}"
    id_, sum_, text = found["id"], found["sum"], found["text"]
    return id_ if _sum(id_, role, text) == sum_ else CORRUPTED + id_


def parse_ids(messages: Any, identify: Callable[[Any], str] = parse_id) -> Ids:
    """The ids of the messages of a read; anything but a list counts as one strange entry."""
    if isinstance(messages, str) or not isinstance(messages, Iterable):
        return (f"?{_digest(messages)}",)
    return tuple(map(identify, messages))


def _sum(id_: str, role: str, text: str) -> str:
    return f"{zlib.crc32(f'{id_} {role} {text}'.encode()):08x}"


def _digest(message: Any) -> str:
    return hashlib.sha256(repr(message).encode("utf-8", "backslashreplace")).hexdigest()[:8]


class EntryIds:
    """Draws the ids of one worker: `w2e17`. A turn is an even one and the odd one after it."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._next = 0

    def draw(self, count: int = 1, *, pairs: bool = False) -> Ids:
        """Ids that were never drawn before; with `pairs`, `count` whole turns."""
        if pairs:
            self._next += self._next % 2
            count *= 2
        first, self._next = self._next, self._next + count
        return tuple(f"{self._worker}e{number}" for number in range(first, self._next))
