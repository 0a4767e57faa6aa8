"""Chat message histories of LangChain: one object for each session, blocking, awaited or both."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from memory_contract.adapter import Message, Refused
from memory_contract.targets.vocabulary import SessionsHandle, Vocabulary

# LangChain's types of messages, and the kit's roles.
_ROLES: Final = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}
_CLASSES: Final = {
    "user": "HumanMessage",
    "assistant": "AIMessage",
    "system": "SystemMessage",
    "tool": "ToolMessage",
}
# Fields of a LangChain message; all others go into its `additional_kwargs`.
_NATIVE: Final = ("name", "id", "tool_call_id")


class HistoryHandle(SessionsHandle):
    """A history's methods, blocking or async."""

    async def append(self, session: str, messages: list[Message]) -> None:
        batch = list(map(to_langchain, messages))
        await self.call(session, "aadd_messages" if self.awaited else "add_messages", batch)

    async def read(self, session: str) -> list[Any]:
        found = await self.call(session, "aget_messages" if self.awaited else "messages")
        return list(map(from_langchain, found))

    async def clear(self, session: str) -> None:
        await self.call(session, "aclear" if self.awaited else "clear")


def to_langchain(message: Message) -> Any:
    """Convert a message of the kit; fields that LangChain does not know become additional ones."""
    rest = dict(message)
    role, content = rest.pop("role"), rest.pop("content")
    fields: dict[str, Any] = {name: rest.pop(name) for name in _NATIVE if name in rest}
    if content is None:
        content, rest["content"] = "", None
    if not isinstance(content, str | list):
        raise Refused("a message of LangChain is text or a list of blocks")
    if role not in _CLASSES:
        fields["role"] = role
    elif role == "tool":
        fields.setdefault("tool_call_id", "")
    # Not a dependency of ours, so it is imported where it is needed.
    kind = getattr(import_module("langchain_core.messages"), _CLASSES.get(role, "ChatMessage"))
    try:
        return kind(content=content, additional_kwargs=rest, **fields)
    except ValueError as error:
        raise Refused(f"LangChain makes no message of it: {error}") from error


def from_langchain(message: Any) -> Any:
    """Convert a message of LangChain to one of the kit; return anything else as it is."""
    if not hasattr(message, "type") or not hasattr(message, "content"):
        return message
    role = _ROLES.get(message.type) or getattr(message, "role", message.type)
    found = {"role": role, "content": message.content, **message.additional_kwargs}
    calls = ("tool_calls", "invalid_tool_calls")
    if "tool_calls" in found and not any(getattr(message, name, ()) for name in calls):
        # They were read from there when the message was made, and got lost since.
        del found["tool_calls"]
    for name in _NATIVE:
        if value := getattr(message, name, None):
            found[name] = value
    return found


VOCABULARY: Final = Vocabulary(
    package="langchain-core",
    module="langchain_core",
    described="a BaseChatMessageHistory of LangChain",
    methods=("add_messages", "aadd_messages", "aget_messages", "clear"),
    handle=HistoryHandle,
    per_session=True,
    inherited="langchain_core.chat_history:BaseChatMessageHistory.aadd_messages",
    claims={"capabilities": ("clear", "fields")},
)
