"""Stores of LangGraph (`BaseStore`), as its documentation uses them: a collection of items.

Each append is one item under the session's namespace, with a key of its own, and a read searches
the namespace. That asks of a store only what its interface says: what was put is found. A list
under one key would be read and put back, and lost in races by whoever does that, not by the store.

A search promises no order, so the keys have one: the machine's clock that never goes back, which
all of its processes share. There is no verb that empties a namespace, so none is claimed.
"""

from __future__ import annotations

import time
import uuid
from typing import Any, Final

from memory_contract.adapter import Message
from memory_contract.targets.vocabulary import StoreHandle, Vocabulary

_ROOT: Final = "conversations"
_ITEMS: Final = "items"
# More than any case appends: a search without a limit gives ten.
_ALL: Final = 100_000


class CollectionHandle(StoreHandle):
    """Items of a session's namespace; those of the gate `recall` in one of their own."""

    async def append(self, session: str, messages: list[Message]) -> None:
        """Put one item that holds the messages."""
        if messages:
            key = f"{time.monotonic_ns():020}-{uuid.uuid4()}"
            await self.call_twin(
                self.store, "put", (_ROOT, session), key, {"messages": messages}, index=False
            )

    async def read(self, session: str) -> list[Any]:
        """The messages of all items, by key."""
        found = await self.call_twin(self.store, "search", (_ROOT, session), limit=_ALL)
        items = sorted(found, key=lambda item: item.key)
        return [message for item in items for message in item.value["messages"]]

    async def sessions(self) -> list[str]:
        """The namespaces below ours."""
        found = await self.call_twin(self.store, "list_namespaces", prefix=(_ROOT,), limit=_ALL)
        return [namespace[-1] for namespace in found]

    async def put_item(
        self, session: str, item: str, text: str, fields: dict[str, Any] | None = None
    ) -> None:
        """Put a text under an id."""
        await self.call_twin(
            self.store, "put", (_ITEMS, session), item, {"text": text, **(fields or {})}
        )

    async def get_item(self, session: str, item: str) -> Any:
        """The text that an id has."""
        found = await self.call_twin(self.store, "get", (_ITEMS, session), item)
        return None if found is None else found.value["text"]

    async def search(
        self, session: str, query: str, limit: int, where: dict[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """What the store finds; without an index, it lists items."""
        found = await self.call_twin(
            self.store, "search", (_ITEMS, session), query=query, filter=where, limit=limit
        )
        return [{"id": item.key, "text": item.value["text"]} for item in found]

    async def retract(self, session: str, item: str) -> None:
        """Delete an item."""
        await self.call_twin(self.store, "delete", (_ITEMS, session), item)


VOCABULARY: Final = Vocabulary(
    package="langgraph",
    module="langgraph",
    described="a BaseStore of LangGraph",
    methods=("batch", "abatch", "put", "search"),
    handle=CollectionHandle,
    inherited="langgraph.store.base:BaseStore.abatch",
    claims={
        "capabilities": ("list", "fields", "search", "filter", "retract"),
        # A graph calls its store from a pool of threads.
        "thread_safe": True,
    },
)
