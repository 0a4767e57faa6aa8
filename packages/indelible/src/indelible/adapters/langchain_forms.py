"""LangChain's messages as ours. Works on its dicts, so importing old data needs no LangChain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from indelible import ChatMessage, FormatError
from indelible.adapters.forms import (
    MessageParts,
    StoredResult,
    keep_form,
    read_forms,
    to_content,
    to_role,
    to_text_or_none,
)
from indelible.core.content import to_common_role
from indelible.core.tool_calls import FoundCall

FRAMEWORK: Final = "langchain"
_TYPES: Final = {
    "user": "human",
    "assistant": "ai",
    "system": "system",
    "developer": "system",
    # Text beside results, or a result without a call.
    "tool": "human",
}


def from_dict(message: Mapping[str, Any]) -> ChatMessage:
    """Convert the result of `message_to_dict` to a message."""
    kind, data = message.get("type"), message.get("data")
    if not isinstance(kind, str) or not isinstance(data, dict):
        raise FormatError(f"not a message of LangChain: {list(message)} instead of type and data")
    calls = data.get("tool_calls")
    understood = {
        "role": _parse_role(kind, data),
        "content": to_content(data.get("content")),
        "name": to_text_or_none(data.get("name")),
        "tool_calls": calls if isinstance(calls, list) and calls else None,
        "tool_call_id": to_text_or_none(data.get("tool_call_id")),
        "is_error": True if data.get("status") == "error" else None,
    }
    return keep_form(FRAMEWORK, {**data, "type": kind}, understood)


def to_dicts(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Convert messages to the input of `messages_from_dict`, also those of other frameworks."""
    found = []
    for form, parts in read_forms(FRAMEWORK, messages):
        found += (
            _build_foreign_dicts(parts) if form is None else [{"type": form["type"], "data": form}]
        )
    return found


def _build_foreign_dicts(parts: MessageParts) -> list[dict[str, Any]]:
    """Convert a message of another framework: one for each result, and one for the rest."""
    found: list[dict[str, Any]] = [_build_result(result) for result in parts.results]
    if parts.said or parts.calls:
        kind = _TYPES.get(parts.role, "chat")
        data: dict[str, Any] = {"content": parts.content, "name": parts.name}
        if kind == "chat":
            data["role"] = parts.role
        elif kind == "ai":
            data |= _build_calls(parts.calls)
        found.append({"type": kind, "data": data})
    return found


def _build_result(result: StoredResult) -> dict[str, Any]:
    data = {
        "content": result.text,
        "tool_call_id": result.call_id,
        "name": result.name or None,
        "status": "error" if result.is_error else "success",
    }
    return {"type": "tool", "data": data}


def _build_calls(calls: list[FoundCall]) -> dict[str, list[dict[str, Any]]]:
    """Build the calls; LangChain lists those whose arguments are no object as invalid."""
    valid = [
        {"id": call.id, "name": call.name, "args": call.as_object}
        for call in calls
        if call.as_object is not None
    ]
    invalid = [
        {"id": call.id, "name": call.name, "args": call.as_text, "error": None}
        for call in calls
        if call.as_object is None
    ]
    return {"tool_calls": valid, "invalid_tool_calls": invalid}


def _parse_role(kind: str, data: dict[str, Any]) -> str:
    # A chunk is of the type that it is a chunk of.
    plain = kind.removesuffix("MessageChunk").lower()
    return to_role(data.get("role") if plain == "chat" else to_common_role(plain), "chat")
