"""Converts LlamaIndex's messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from indelible import ChatMessage
from indelible.adapters.forms import (
    MessageParts,
    build_call,
    keep_form,
    read_forms,
    to_text_or_none,
)
from indelible.core.extras import build_missing_framework_error

try:
    from llama_index.core.base.llms.types import ChatMessage as LlamaMessage
    from llama_index.core.base.llms.types import MessageRole
except ImportError as error:
    raise build_missing_framework_error(
        error, package="llama-index-core", extra="llama-index"
    ) from error

FRAMEWORK: Final = "llama_index"
# Replacements of roles that LlamaIndex may not have, and of the role of text beside a result.
_OTHERWISE: Final = {"developer": "system", "tool": "user"}


def from_llama(message: LlamaMessage) -> ChatMessage:
    """Convert a message of LlamaIndex."""
    form = message.model_dump(mode="json")
    more = form.get("additional_kwargs") or {}
    understood = {
        "role": form["role"],
        "content": form["blocks"],
        "name": to_text_or_none(more.get("name")),
        "tool_calls": _find_calls(form["blocks"], more.get("tool_calls")) or None,
        "tool_call_id": to_text_or_none(more.get("tool_call_id")),
    }
    if (text := _get_plain_text(form["blocks"])) is not None:
        # LlamaIndex rebuilds the same block from plain text.
        del form["blocks"]
        form["content"] = understood["content"] = text
    return keep_form(FRAMEWORK, form, understood)


def to_llama(message: ChatMessage) -> LlamaMessage:
    """Convert a message to LlamaIndex's; the first one, if it becomes several."""
    found = to_llama_all([message])
    return found[0][1] if found else LlamaMessage(role=MessageRole.ASSISTANT)


def to_llama_all(messages: Sequence[ChatMessage]) -> list[tuple[int, LlamaMessage]]:
    """Convert messages to LlamaIndex's, each with the index of its source.

    A message of another framework may become several: one for each result, and one for the rest.
    """
    found: list[tuple[int, LlamaMessage]] = []
    for index, (form, parts) in enumerate(read_forms(FRAMEWORK, messages)):
        theirs = _build_foreign_messages(parts) if form is None else [LlamaMessage(**form)]
        found += [(index, each) for each in theirs]
    return found


def map_indexes(messages: Sequence[ChatMessage]) -> list[int]:
    """Return the index of the stored message for each message of LlamaIndex's list."""
    return [index for index, _ in to_llama_all(messages)]


def _build_foreign_messages(parts: MessageParts) -> list[LlamaMessage]:
    found = []
    for result in parts.results:
        more: dict[str, Any] = {"tool_call_id": result.call_id}
        if result.name:
            more["name"] = result.name
        found.append(LlamaMessage(role="tool", content=result.text, additional_kwargs=more))
    if parts.said or parts.calls:
        known = {role.value for role in MessageRole} - {MessageRole.TOOL.value}
        role = parts.role if parts.role in known else _OTHERWISE.get(parts.role, "chatbot")
        found.append(
            LlamaMessage(role=role, content=parts.text, additional_kwargs=_build_tool_calls(parts))
        )
    return found


def _build_tool_calls(parts: MessageParts) -> dict[str, Any]:
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.as_text},
        }
        for call in parts.calls
    ]
    return {"tool_calls": calls} if calls else {}


def _get_plain_text(blocks: list[dict[str, Any]]) -> str | None:
    plain = len(blocks) == 1 and set(blocks[0]) == {"block_type", "text"}
    return to_text_or_none(blocks[0]["text"]) if plain else None


def _find_calls(blocks: list[dict[str, Any]], listed: Any) -> list[dict[str, Any]]:
    """Find the tool calls of a message, in its blocks and beside them."""
    found = [
        build_call(block.get("tool_call_id"), block["tool_name"], block["tool_kwargs"])
        for block in blocks
        if block.get("block_type") == "tool_call"
    ]
    ids = {call["id"] for call in found}
    beside = [call for call in listed if isinstance(call, dict)] if isinstance(listed, list) else []
    return found + [_parse_call(call) for call in beside if call.get("id") not in ids]


def _parse_call(call: dict[str, Any]) -> dict[str, Any]:
    """Parse a call in OpenAI's form, which LlamaIndex keeps beside a message."""
    function = call.get("function")
    named = function if isinstance(function, dict) else call
    return build_call(call.get("id"), named.get("name"), named.get("arguments"))
