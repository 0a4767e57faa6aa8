"""Chat stores of LlamaIndex, used as its memories use them: `add_message` and `get_messages`.

The interface takes one message at a time, so there are no batches to keep whole.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from memory_contract.adapter import Message, Refused
from memory_contract.targets.vocabulary import StoreHandle, Vocabulary


class ChatStoreHandle(StoreHandle):
    """A chat store's methods."""

    async def append(self, session: str, messages: list[Message]) -> None:
        """Add messages, one by one."""
        for message in list(map(to_llama, messages)):
            # The one async method whose name does not begin with an `a` alone.
            add = self.store.async_add_message if self.awaited else self.store.add_message
            await self.settle(add(session, message))

    async def read(self, session: str) -> list[Any]:
        return list(map(from_llama, await self.call_twin(self.store, "get_messages", session)))

    async def pop(self, session: str) -> Any:
        found = await self.call_twin(self.store, "delete_last_message", session)
        if isinstance(found, bytes | str):
            # Some stores return the JSON that they stored; the message is not lost.
            kind = import_module("llama_index.core.base.llms.types").ChatMessage
            found = kind.model_validate_json(found)
        return None if found is None else from_llama(found)

    async def clear(self, session: str) -> None:
        await self.call_twin(self.store, "delete_messages", session)

    async def sessions(self) -> list[str]:
        return list(await self.call_twin(self.store, "get_keys"))


def to_llama(message: Message) -> Any:
    """Convert a message of the kit; fields that LlamaIndex does not know become additional ones."""
    types = import_module("llama_index.core.base.llms.types")
    rest = dict(message)
    role, content = rest.pop("role"), rest.pop("content")
    if role not in {known.value for known in types.MessageRole}:
        raise Refused(f"LlamaIndex knows no role {role!r}")
    if content is None or isinstance(content, list):
        content, rest["content"] = "", content
    if not isinstance(content, str):
        raise Refused("a message of LlamaIndex is text or a list of blocks")
    try:
        return types.ChatMessage(role=role, content=content, additional_kwargs=rest)
    except ValueError as error:
        raise Refused(f"LlamaIndex makes no message of it: {error}") from error


def from_llama(message: Any) -> Any:
    """Convert a message of LlamaIndex to one of the kit; return anything else as it is."""
    if not hasattr(message, "additional_kwargs") or not hasattr(message, "role"):
        return message
    role = getattr(message.role, "value", message.role)
    return {"role": role, "content": message.content, **message.additional_kwargs}


VOCABULARY: Final = Vocabulary(
    package="llama-index-core",
    module="llama_index.core",
    described="a BaseChatStore of LlamaIndex",
    methods=("add_message", "get_messages", "delete_messages", "delete_last_message"),
    handle=ChatStoreHandle,
    inherited="llama_index.core.storage.chat_store.base:BaseChatStore.async_add_message",
    claims={
        "capabilities": ("pop", "clear", "list", "fields"),
        # Async methods that a store does not have itself are its blocking ones, in threads.
        "thread_safe": True,
        "batches": False,
    },
)
