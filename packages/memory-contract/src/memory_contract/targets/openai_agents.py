"""Sessions of the OpenAI Agents SDK: one object per session, with async methods."""

from __future__ import annotations

from typing import Any, Final

from memory_contract.adapter import Message
from memory_contract.targets.vocabulary import SessionsHandle, Vocabulary


class SessionHandle(SessionsHandle):
    """The SDK's items are messages as they are."""

    async def append(self, session: str, messages: list[Message]) -> None:
        await self.call(session, "add_items", messages)

    async def read(self, session: str, *, limit: int | None = None) -> Any:
        return await self.call(session, "get_items", *([] if limit is None else [limit]))

    async def pop(self, session: str) -> Any:
        return await self.call(session, "pop_item")

    async def clear(self, session: str) -> None:
        await self.call(session, "clear_session")


VOCABULARY: Final = Vocabulary(
    package="openai-agents",
    module="agents",
    described="a Session of the OpenAI Agents SDK",
    methods=("add_items", "get_items", "pop_item", "clear_session"),
    handle=SessionHandle,
    per_session=True,
    flavours=("async",),
    claims={"capabilities": ("pop", "clear", "limit", "fields")},
)
