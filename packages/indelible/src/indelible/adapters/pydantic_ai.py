"""indelible as the message history of pydantic-ai agents.

history = IndelibleMessageHistory("user-42", indelible.open("agent.db"))
past = history.load()
result = agent.run_sync("Hello", message_history=past)
history.save(result.new_messages(), expected=past.version)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pydantic_core

from indelible import AsyncMemoryStore, ChatMessage, Entry, Receipt
from indelible.adapters import conversations
from indelible.adapters.branches import Branches
from indelible.adapters.conversations import get_message, read_visible
from indelible.adapters.forms import (
    MessageParts,
    build_call,
    keep_form,
    read_forms,
    refuse_invalid,
    to_text_or_none,
)
from indelible.adapters.store_variants import make_pair
from indelible.core.extras import need_extra

with need_extra("pydantic-ai"):
    from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter

FRAMEWORK: Final = "pydantic_ai"


class Messages(list[ModelMessage]):
    """Messages for `message_history=`, and the version of the session."""

    def __init__(self, messages: Sequence[ModelMessage], *, version: str) -> None:
        super().__init__(messages)
        #: Pass it as `expected=` to save only if the session has not changed since.
        self.version = version


class IndelibleMessageHistory(Branches):
    """The model messages of one session: load them, run the agent, save the new ones.

    Messages that are saved together are one batch. The messages of a run are stored once, even if
    they are saved again. `expected=` refuses to add to a conversation that changed meanwhile.
    """

    async def _load(self, store: AsyncMemoryStore) -> Messages:
        """Load the visible messages, in order."""
        shown = await read_visible(store, self.session_id)
        # Through JSON, since bytes are stored in base64.
        text = pydantic_core.to_json(_to_dicts(shown.entries))
        return Messages(ModelMessagesTypeAdapter.validate_json(text), version=shown.version)

    load, aload = make_pair(_load)

    async def _save(
        self,
        store: AsyncMemoryStore,
        messages: Sequence[ModelMessage],
        *,
        expected: str | None = None,
    ) -> Receipt | None:
        """Append messages, such as `result.new_messages()`, as one batch; None if there are none.

        With `expected`, a session that changed since that version is a `ConflictError`, and nothing
        is written.
        """
        with refuse_invalid(FRAMEWORK):
            dicts = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
        identified = any(form.get("run_id") for form in dicts)
        batch = [_from_dict(form) for form in dicts]
        return await conversations.append(
            store, self.session_id, batch, identified=identified, expected=expected
        )

    save, asave = make_pair(_save)


# Forms: dicts of the type adapter


def _from_dict(form: dict[str, Any]) -> ChatMessage:
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


def _to_dicts(entries: Sequence[Entry]) -> list[dict[str, Any]]:
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
