"""LangChain's messages as ours. Works on its dicts, so importing old data needs no LangChain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from indelible import ChatMessage, FormatError
from indelible.adapters.forms import (
    calls_of,
    form_of,
    kept,
    text_or_none,
    understood_content,
    understood_role,
)

FRAMEWORK: Final = "langchain"
# By the first letters of LangChain's types: a chunk is of the type that it is a chunk of.
_ROLES: Final = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "tool",
}
_TYPES: Final = {
    "user": "human",
    "human": "human",
    "assistant": "ai",
    "ai": "ai",
    "system": "system",
    "developer": "system",
    "tool": "tool",
}


def from_dict(message: Mapping[str, Any]) -> ChatMessage:
    """What is stored for the dict that `message_to_dict` makes of a message."""
    kind, data = message.get("type"), message.get("data")
    if not isinstance(kind, str) or not isinstance(data, dict):
        raise FormatError(f"not a message of LangChain: {list(message)} instead of type and data")
    calls = data.get("tool_calls")
    understood = {
        "role": _role(kind, data),
        "content": understood_content(data.get("content")),
        "name": text_or_none(data.get("name")),
        "tool_calls": calls if isinstance(calls, list) and calls else None,
        "tool_call_id": text_or_none(data.get("tool_call_id")),
    }
    return kept(FRAMEWORK, {**data, "type": kind}, understood)


def to_dict(message: ChatMessage) -> dict[str, Any]:
    """What `messages_from_dict` takes, also for a message that LangChain did not write."""
    form = form_of(FRAMEWORK, message)
    if form is not None:
        return {"type": form["type"], "data": form}
    kind = _TYPES.get(message.role, "chat")
    data: dict[str, Any] = {"content": message.content or "", "name": message.name}
    if kind == "chat":
        data["role"] = message.role
    elif kind == "tool":
        data["tool_call_id"] = message.tool_call_id or ""
    elif kind == "ai":
        data["tool_calls"] = [
            {"id": call, "name": tool, "args": given if isinstance(given, dict) else {"": given}}
            for call, tool, given in calls_of(message)
        ]
    return {"type": kind, "data": data}


def _role(kind: str, data: dict[str, Any]) -> str:
    plain = kind.removesuffix("MessageChunk").lower()
    if plain == "chat":
        return understood_role(data.get("role"), "chat")
    return _ROLES.get(plain) or understood_role(plain, "chat")
