"""Stores that keep texts under ids and find them again, driven as collections of items.

Each append is one item of the session's messages, with a key of its own, and a read lists them.
That asks of a store only what its interface says: what was put is found. A list under one key would
be read and put back, and lost in races by whoever does that, not by the store.

A list promises no order, so the keys have one: the machine's clock that never goes back, which all
of its processes share.
"""

from __future__ import annotations

import json
import math
import time
import uuid
import zlib
from typing import Any, Final

from memory_contract.adapter import Message
from memory_contract.targets.vocabulary import StoreHandle

# More than any case appends; by default, stores return ten or twenty.
ALL: Final = 100_000
OWN_IDS: Final = (
    "the store makes its ids, so an item is looked for before it is put: two who put a new item at"
    " once may put it twice, and neither they nor the store see that"
)
_DIMENSIONS: Final = 128

Fields = dict[str, Any] | None
Hit = dict[str, Any]


def new_key() -> str:
    """A key that sorts after all earlier ones, of any process."""
    return f"{time.monotonic_ns():020}-{uuid.uuid4()}"


def embed_words(text: str) -> list[float]:
    """A vector of the words of a text, for stores that need one and have no model."""
    vector = [0.0] * _DIMENSIONS
    for word in text.lower().split():
        vector[zlib.crc32(word.encode()) % _DIMENSIONS] += 1.0
    length = math.hypot(*vector) or 1.0
    return [value / length for value in vector]


class ItemsHandle(StoreHandle):
    """A handle for the gate `recall`: `put_item` and `list_items` are the framework's own."""

    async def append(self, session: str, messages: list[Message]) -> None:
        if messages:
            await self.put_item(_name_messages(session), new_key(), json.dumps(messages))

    async def read(self, session: str) -> list[Any]:
        items = await self.list_items(_name_messages(session))
        return [message for key in sorted(items) for message in json.loads(items[key])]

    async def clear(self, session: str) -> None:
        for collection in (session, _name_messages(session)):
            await self.clear_items(collection)

    async def put_item(self, session: str, item: str, text: str, fields: Fields = None) -> None:
        """Put a text under an id."""
        raise NotImplementedError

    async def list_items(self, session: str) -> dict[str, str]:
        """Every id of a collection, with its text."""
        raise NotImplementedError

    async def clear_items(self, session: str) -> None:
        """Remove all items of a collection."""
        raise NotImplementedError


def _name_messages(session: str) -> str:
    return f"messages-of-{session}"
