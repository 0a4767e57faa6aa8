"""Stores of LangGraph (`BaseStore`), as its documentation uses them: a collection of items.

Messages are values as they are, not text. There is no verb that empties a namespace, so none is
claimed.
"""

from __future__ import annotations

from typing import Any, Final

from memory_contract.adapter import Message
from memory_contract.targets.items import ALL, Fields, Hit, ItemsHandle, new_key
from memory_contract.targets.vocabulary import Vocabulary

_ROOT: Final = "conversations"
_ITEMS: Final = "items"


class CollectionHandle(ItemsHandle):
    """Items in a namespace for each session; those of the gate `recall` have another one."""

    async def append(self, session: str, messages: list[Message]) -> None:
        """Put one item that holds the messages."""
        if messages:
            value = {"messages": messages}
            await self.call_twin(self.store, "put", (_ROOT, session), new_key(), value, index=False)

    async def read(self, session: str) -> list[Any]:
        """The messages of all items, by key."""
        found = await self.call_twin(self.store, "search", (_ROOT, session), limit=ALL)
        items = sorted(found, key=lambda item: item.key)
        return [message for item in items for message in item.value["messages"]]

    async def sessions(self) -> list[str]:
        """The namespaces below ours."""
        found = await self.call_twin(self.store, "list_namespaces", prefix=(_ROOT,), limit=ALL)
        return [namespace[-1] for namespace in found]

    async def put_item(self, session: str, item: str, text: str, fields: Fields = None) -> None:
        value = {"text": text, **(fields or {})}
        await self.call_twin(self.store, "put", (_ITEMS, session), item, value)

    async def get_item(self, session: str, item: str) -> Any:
        """The text that an id has."""
        found = await self.call_twin(self.store, "get", (_ITEMS, session), item)
        return None if found is None else found.value["text"]

    async def search(self, session: str, query: str, limit: int, where: Fields = None) -> list[Hit]:
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
        "ordered": False,
        # A graph calls its store from a pool of threads.
        "thread_safe": True,
    },
)
