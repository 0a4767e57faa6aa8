"""LlamaIndex's messages as ours."""

from __future__ import annotations

from typing import Any, Final

from indelible import ChatMessage
from indelible.adapters.forms import calls_of, form_of, kept, text_of, text_or_none
from indelible.adapters.missing import framework_missing

try:
    from llama_index.core.base.llms.types import ChatMessage as LlamaMessage
    from llama_index.core.base.llms.types import MessageRole
except ImportError as error:
    raise framework_missing(error, package="llama-index-core", extra="llama-index") from error

FRAMEWORK: Final = "llama_index"


def stored(message: LlamaMessage) -> ChatMessage:
    """What is stored for a message."""
    form = message.model_dump(mode="json")
    more = form.get("additional_kwargs") or {}
    understood = {
        "role": form["role"],
        "content": form["blocks"],
        "tool_calls": _calls(form["blocks"], more.get("tool_calls")) or None,
        "tool_call_id": text_or_none(more.get("tool_call_id")),
    }
    if (text := _plain_text(form["blocks"])) is not None:
        # Of a message that is nothing but text, LlamaIndex makes the same block again.
        del form["blocks"]
        form["content"] = understood["content"] = text
    return kept(FRAMEWORK, form, understood)


def restored(message: ChatMessage) -> LlamaMessage:
    """LlamaIndex's message, also for one that it did not write."""
    form = form_of(FRAMEWORK, message)
    if form is not None:
        return LlamaMessage(**form)
    known = {role.value for role in MessageRole}
    role = message.role if message.role in known else MessageRole.CHATBOT.value
    more: dict[str, Any] = {}
    if message.tool_call_id is not None:
        more["tool_call_id"] = message.tool_call_id
    if calls := calls_of(message):
        more["tool_calls"] = [
            {"id": call, "type": "function", "function": {"name": tool, "arguments": given}}
            for call, tool, given in calls
        ]
    return LlamaMessage(role=role, content=text_of(message), additional_kwargs=more)


def _plain_text(blocks: list[dict[str, Any]]) -> str | None:
    plain = len(blocks) == 1 and set(blocks[0]) == {"block_type", "text"}
    return text_or_none(blocks[0]["text"]) if plain else None


def _calls(blocks: list[dict[str, Any]], listed: Any) -> list[dict[str, Any]]:
    """The tool calls of a message, which stand in blocks or beside them."""
    found = [
        {"id": block.get("tool_call_id"), "name": block["tool_name"], "args": block["tool_kwargs"]}
        for block in blocks
        if block.get("block_type") == "tool_call"
    ]
    if isinstance(listed, list):
        ids = {call["id"] for call in found}
        found += [call for call in listed if isinstance(call, dict) and call.get("id") not in ids]
    return found
