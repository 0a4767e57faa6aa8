"""Converts pydantic-ai's messages, in the form of dicts of its type adapter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from indelible import ChatMessage, Entry
from indelible.adapters.conversations import get_message
from indelible.adapters.forms import (
    MessageParts,
    build_call,
    keep_form,
    read_forms,
    to_text_or_none,
)

FRAMEWORK: Final = "pydantic_ai"


def from_dict(form: dict[str, Any]) -> ChatMessage:
    """Convert a message of pydantic-ai."""
    parts = [part for part in form.get("parts", ()) if isinstance(part, dict)]
    understood = _parse_response(parts) if form.get("kind") == "response" else _parse_request(parts)
    return keep_form(FRAMEWORK, form, understood)


def _parse_response(parts: list[dict[str, Any]]) -> dict[str, Any]:
    calls = [
        build_call(part.get("tool_call_id"), part.get("tool_name"), part.get("args"))
        for part in parts
        if part.get("part_kind") == "tool-call"
    ]
    return {"role": "assistant", "content": _join_text(parts, "text"), "tool_calls": calls or None}


def _parse_request(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Parse a request: a system prompt, the user's text, and results of several tools."""
    kinds = {part.get("part_kind") for part in parts}
    answers = [
        {
            "type": "tool_result",
            "tool_use_id": part["tool_call_id"],
            "name": part["tool_name"],
            "content": part.get("content"),
            "is_error": part.get("part_kind") == "retry-prompt"
            or part.get("outcome", "success") != "success",
        }
        for part in parts
        if part.get("part_kind") in ("tool-return", "retry-prompt")
        and to_text_or_none(part.get("tool_call_id")) is not None
        and part.get("tool_name") is not None
    ]
    said = _join_text(parts, "user-prompt")
    if answers:
        texts = [] if said is None else [{"type": "text", "text": said}]
        return {"role": "tool", "content": [*answers, *texts]}
    if kinds == {"system-prompt"}:
        return {"role": "system", "content": _join_text(parts, "system-prompt")}
    # Pinned, so that a trim does not hide the system prompt.
    return {"role": "user", "content": said, "pinned": "system-prompt" in kinds or None}


def _join_text(parts: list[dict[str, Any]], kind: str) -> str | None:
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


def to_dicts(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Convert messages to the input of the type adapter, also those of other frameworks."""
    read = read_forms(FRAMEWORK, [get_message(entry) for entry in entries])
    found = []
    for entry, (form, parts) in zip(entries, read, strict=True):
        if form is not None:
            found.append(form)
        elif not parts.is_empty:
            # Without a time of its own, a message has the time of its append.
            found.append(_build_foreign_message(parts, (parts.at or entry.written_at).isoformat()))
    return found


def _build_foreign_message(parts: MessageParts, at: str) -> dict[str, Any]:
    text = parts.text
    if parts.role == "assistant":
        said: list[dict[str, Any]] = [{"part_kind": "text", "content": text}] if text else []
        said += [
            {
                "part_kind": "tool-call",
                "tool_name": call.name,
                "args": call.as_text if call.as_object is None else call.as_object,
                "tool_call_id": call.id,
            }
            for call in parts.calls
        ]
        return {"kind": "response", "parts": said, "timestamp": at}
    asked: list[dict[str, Any]] = [
        {
            "part_kind": "tool-return",
            "tool_name": result.name,
            "content": result.content if isinstance(result.content, dict) else result.text,
            "tool_call_id": result.call_id,
            "timestamp": at,
        }
        for result in parts.results
    ]
    if parts.said:
        kind = "system-prompt" if parts.role in ("system", "developer") else "user-prompt"
        asked.append({"part_kind": kind, "content": text, "timestamp": at})
    return {"kind": "request", "parts": asked}
