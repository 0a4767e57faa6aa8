"""Items of a LangGraph store, as the gate `recall` asks for them: those of a namespace."""

from __future__ import annotations

from typing import Any, Final

from memory_contract.targets.vocabulary import StoreHandle

_ITEMS: Final = "items"


class ItemHandle(StoreHandle):
    """What `search`, `filter` and `retract` need of a `BaseStore`."""

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
