"""indelible as a session of the OpenAI Agents SDK.

session = IndelibleSession("user-42", indelible.open("agent.db"))
await Runner.run(agent, "Hello", session=session)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from indelible import ChatMessage, Snapshot, ViewChange
from indelible.adapters import conversations
from indelible.adapters.forms import (
    MessageParts,
    build_call,
    keep_form,
    read_forms,
    to_content,
    to_role,
    to_text_or_none,
)
from indelible.adapters.store_variants import Store, check_store, to_async
from indelible.core.extras import need_extra

with need_extra("openai-agents"):
    from agents.items import TResponseInputItem
    from agents.memory import Session
    from agents.models.fake_id import FAKE_RESPONSES_ID

FRAMEWORK: Final = "openai_agents"
_ROLES: Final = ("user", "assistant", "system", "developer")


class IndelibleSession:
    """The items of one session, for `Runner.run(…, session=…)`.

    Items that are added together are one batch. A batch that contains an id and is added again,
    unchanged, is stored once. Popped and cleared items are hidden, not deleted.
    """

    def __init__(self, session_id: str, store: Store, *, session_settings: Any = None) -> None:
        self.session_id = session_id
        #: The SDK's settings; `limit` is the default of `get_items`.
        self.session_settings = session_settings
        self._store = check_store(store)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.session_id!r}, {self._store!r})"

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the visible items, in order; with `limit`, the newest of them."""
        limit = _get_limit(self.session_settings) if limit is None else limit
        # As in the SDK's own sessions, a negative limit means none.
        last = limit if limit is not None and limit >= 0 else None
        found = await to_async(self._store).get_history(self.session_id, last=last)
        items = _to_items(found)
        return items if last is None else items[max(0, len(items) - last) :]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items as one batch."""
        forms = [cast("dict[str, Any]", item) for item in items]
        stored = [keep_form(FRAMEWORK, form, _parse_item(form)) for form in forms]
        identified = any(map(_is_identified, forms))
        store = to_async(self._store)
        await conversations.append(store, self.session_id, stored, identified=identified)

    async def pop_item(self) -> TResponseInputItem | None:
        """Hide the newest item and return it; None if there is none.

        A message of another framework that is several items here is hidden with all of them.
        """
        message = await conversations.pop(to_async(self._store), self.session_id)
        items = [] if message is None else _to_items([message])
        return items[-1] if items else None

    async def clear_session(self) -> None:
        """Hide all items; nothing is deleted."""
        await to_async(self._store).clear(self.session_id)

    async def snapshot(self, label: str | None = None) -> Snapshot:
        """Save the current view of the session."""
        return await to_async(self._store).save_snapshot(self.session_id, label=label)

    async def rollback(self, snapshot_id: str) -> ViewChange:
        """Show exactly what a snapshot froze."""
        return await to_async(self._store).rollback_to_snapshot(self.session_id, snapshot_id)

    async def undo(self) -> ViewChange:
        """Undo the newest change of what the session shows: a rollback, a pop, a clear."""
        return await to_async(self._store).undo(self.session_id)

    async def branch(self, session_id: str, *, at: str | None = None) -> IndelibleSession:
        """Fork the session, or a snapshot of it, into a new one."""
        await to_async(self._store).fork(self.session_id, session_id, at=at)
        return type(self)(session_id, self._store, session_settings=self.session_settings)


def _get_limit(settings: Any) -> int | None:
    limit = (
        settings.get("limit") if isinstance(settings, dict) else getattr(settings, "limit", None)
    )
    return cast("int | None", limit)


def _is_identified(item: dict[str, Any]) -> bool:
    # The SDK gives this id to all items of models without ids.
    return isinstance(item.get("id"), str) and item["id"] != FAKE_RESPONSES_ID


def _parse_item(item: dict[str, Any]) -> dict[str, Any]:
    kind, call_id = item.get("type"), to_text_or_none(item.get("call_id"))
    if "role" in item:
        calls = item.get("tool_calls")
        valid = isinstance(calls, list) and all(isinstance(call, dict) for call in calls)
        return {
            "role": to_role(item["role"], "user"),
            "content": to_content(item.get("content")),
            "name": to_text_or_none(item.get("name")),
            "tool_calls": calls if valid else None,
            "tool_call_id": to_text_or_none(item.get("tool_call_id")),
        }
    if call_id is not None and str(kind).endswith("_output"):
        output = to_content(item.get("output"))
        return {"role": "tool", "content": output, "tool_call_id": call_id}
    if call_id is not None:
        arguments = item.get("arguments", item.get("input", item.get("action")))
        call = build_call(call_id, item.get("name", kind), arguments)
        return {"role": "assistant", "tool_calls": [call]}
    return {"role": "assistant", "content": to_content(item.get("content"))}


def _to_items(messages: Sequence[ChatMessage]) -> list[TResponseInputItem]:
    """Convert messages to items: one each, unless another framework wrote them."""
    items: list[Any] = []
    for form, parts in read_forms(FRAMEWORK, messages):
        items += _build_foreign_items(parts) if form is None else [form]
    return items


def _build_foreign_items(parts: MessageParts) -> list[dict[str, Any]]:
    """Convert a message of another framework: results, then text, then calls."""
    items: list[dict[str, Any]] = [
        {"type": "function_call_output", "call_id": result.call_id, "output": result.text}
        for result in parts.results
    ]
    if parts.said:
        role = parts.role if parts.role in _ROLES else "user"
        content = parts.content if role == "user" else parts.text
        if isinstance(content, list):
            content = [_to_input_block(block) for block in content]
        items.append({"role": role, "content": content})
    for call in parts.calls:
        said = {"call_id": call.id, "name": call.name, "arguments": call.as_text}
        items.append({"type": "function_call", **said})
    return items


def _to_input_block(block: dict[str, Any]) -> dict[str, Any]:
    is_text = block.get("type") == "text"
    return {"type": "input_text", "text": block["text"]} if is_text else block


if TYPE_CHECKING:
    _: Session = IndelibleSession("", cast("Store", None))
