"""Memories of mem0 (`Memory` or `AsyncMemory`), stored as they are: `infer=False` asks no model.

A collection is a user. mem0 makes the ids of memories, so that of an item is kept in its metadata.
"""

from __future__ import annotations

from typing import Any, Final

from memory_contract.targets.items import ALL, OWN_IDS, Fields, Hit, ItemsHandle
from memory_contract.targets.vocabulary import Vocabulary

_ID: Final = "kit_item"


class MemoryHandle(ItemsHandle):
    """Memories of users."""

    async def put_item(self, session: str, item: str, text: str, fields: Fields = None) -> None:
        metadata = {_ID: item, **(fields or {})}
        if found := await self._list(session, **{_ID: item}):
            await self.settle(self.store.update(found[0]["id"], text=text, metadata=metadata))
            return
        await self.settle(self.store.add(text, user_id=session, metadata=metadata, infer=False))

    async def get_item(self, session: str, item: str) -> Any:
        found = await self._list(session, **{_ID: item})
        return found[0]["memory"] if found else None

    async def list_items(self, session: str) -> dict[str, str]:
        found = await self._list(session)
        return {each["metadata"][_ID]: each["memory"] for each in found}

    async def search(self, session: str, query: str, limit: int, where: Fields = None) -> list[Hit]:
        filters = {"user_id": session, **(where or {})}
        found = await self.settle(self.store.search(query, filters=filters, top_k=limit))
        return [{"id": e["metadata"][_ID], "text": e["memory"]} for e in found["results"]]

    async def retract(self, session: str, item: str) -> None:
        for found in await self._list(session, **{_ID: item}):
            await self.settle(self.store.delete(found["id"]))

    async def clear_items(self, session: str) -> None:
        await self.settle(self.store.delete_all(user_id=session))

    async def _list(self, session: str, **fields: str) -> list[dict[str, Any]]:
        filters = {"user_id": session, **fields}
        found = await self.settle(self.store.get_all(filters=filters, top_k=ALL))
        return list(found["results"])


VOCABULARY: Final = Vocabulary(
    package="mem0ai",
    module="mem0",
    described="a Memory of mem0",
    methods=("add", "get_all", "search", "update", "delete_all"),
    handle=MemoryHandle,
    claims={
        "capabilities": ("clear", "fields", "search", "filter", "retract"),
        "ordered": False,
        "notes": (OWN_IDS,),
    },
)
