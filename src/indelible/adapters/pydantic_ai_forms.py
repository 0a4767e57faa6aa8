"""pydantic-ai's messages as ours, in the dicts that its own type adapter makes of them."""

from __future__ import annotations

from typing import Any, Final

from indelible import ChatMessage
from indelible.adapters.forms import calls_of, form_of, kept, text_of, text_or_none

FRAMEWORK: Final = "pydantic_ai"


def from_dict(form: dict[str, Any]) -> ChatMessage:
    """What is stored for a message."""
    parts = [part for part in form.get("parts", ()) if isinstance(part, dict)]
    understood = _response(parts) if form.get("kind") == "response" else _request(parts)
    return kept(FRAMEWORK, form, understood)


def _response(parts: list[dict[str, Any]]) -> dict[str, Any]:
    calls = [
        {"id": part.get("tool_call_id"), "name": part.get("tool_name"), "args": part.get("args")}
        for part in parts
        if part.get("part_kind") == "tool-call"
    ]
    return {"role": "assistant", "content": _text(parts, "text"), "tool_calls": calls or None}


def _request(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """A request may hold a system prompt, what the user said, and the answers of several tools."""
    kinds = {part.get("part_kind") for part in parts}
    answers = [
        {
            "type": "tool_result",
            "tool_use_id": part["tool_call_id"],
            "content": part.get("content"),
            "is_error": part.get("part_kind") == "retry-prompt"
            or part.get("outcome", "success") != "success",
        }
        for part in parts
        if part.get("part_kind") in ("tool-return", "retry-prompt")
        and text_or_none(part.get("tool_call_id")) is not None
        and part.get("tool_name") is not None
    ]
    said = _text(parts, "user-prompt")
    if answers:
        texts = [] if said is None else [{"type": "text", "text": said}]
        return {"role": "tool", "content": [*answers, *texts]}
    if kinds == {"system-prompt"}:
        return {"role": "system", "content": _text(parts, "system-prompt")}
    # A trim would take the system prompt with it.
    return {"role": "user", "content": said, "pinned": "system-prompt" in kinds or None}


def _text(parts: list[dict[str, Any]], kind: str) -> str | None:
    texts = [
        piece
        for part in parts
        if part.get("part_kind") == kind
        for piece in (
            part["content"] if isinstance(part.get("content"), list) else [part.get("content")]
        )
        if isinstance(piece, str)
    ]
    return "\n".join(texts) if texts else None


def to_dict(message: ChatMessage) -> dict[str, Any]:
    """What the type adapter takes, also for a message that pydantic-ai did not write."""
    form = form_of(FRAMEWORK, message)
    if form is not None:
        return form
    text = text_of(message)
    if message.role in ("assistant", "ai"):
        parts: list[dict[str, Any]] = [{"part_kind": "text", "content": text}] if text else []
        parts += [
            {"part_kind": "tool-call", "tool_name": tool, "args": given, "tool_call_id": call}
            for call, tool, given in calls_of(message)
        ]
        return {"kind": "response", "parts": parts}
    if message.role == "tool" and message.tool_call_id is not None:
        part = {
            "part_kind": "tool-return",
            "tool_name": message.name or "",
            "content": text,
            "tool_call_id": message.tool_call_id,
        }
    elif message.role in ("system", "developer"):
        part = {"part_kind": "system-prompt", "content": text}
    else:
        part = {"part_kind": "user-prompt", "content": text}
    return {"kind": "request", "parts": [part]}
