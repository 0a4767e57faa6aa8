"""indelible as the chat stores of LlamaIndex.

    Memory.from_defaults(session_id="user-42", chat_store=IndelibleMemoryStore(store))
    ChatMemoryBuffer.from_defaults(chat_store_key="user-42", chat_store=IndelibleChatStore(store))

`Memory` takes an `AsyncDBChatStore`, its older kin a `BaseChatStore`; both are here, and a session
that one wrote can be read by the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pydantic import JsonValue

from indelible import AsyncMemoryStore, Snapshot, ViewChange
from indelible import ChatMessage as StoredMessage
from indelible.adapters import conversations
from indelible.adapters.conversations import VisibleMessages, get_message
from indelible.adapters.forms import (
    MessageParts,
    build_call,
    get_extra,
    keep_form,
    read_forms,
    refuse_invalid,
    to_text_or_none,
)
from indelible.adapters.store_variants import (
    Store,
    StoreVariants,
    check_store,
    make_pair,
    to_async,
)
from indelible.core.extras import need_extra
from indelible.core.plans import sessions
from indelible.core.tool_calls import parse_call

with need_extra("llama-index"):
    from llama_index.core.base.llms.types import ChatMessage, MessageRole
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.storage.chat_store.base import BaseChatStore
    from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus

FRAMEWORK: Final = "llama_index"
# Replacements of roles that LlamaIndex may not have, and of the role of text beside a result.
_OTHERWISE: Final = {"developer": "system", "tool": "user"}
# In a session's metadata: messages before this position are archived.
_ARCHIVED_BEFORE: Final = f"{FRAMEWORK}_archived_before"
# Beside the form of a message: it was added as an archived one.
_ARCHIVED: Final = "archived"


class IndelibleChatStore(StoreVariants, BaseChatStore):
    """A `BaseChatStore`: the sessions of a store, each under its key, for blocking and async code.

    What is deleted or replaced is hidden; `undo` and snapshots bring it back.
    """

    _store: Store = PrivateAttr()

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = check_store(store)

    @classmethod
    def class_name(cls) -> str:
        """Return the name that LlamaIndex uses."""
        return "IndelibleChatStore"

    async def _set_messages(
        self, store: AsyncMemoryStore, key: str, messages: list[ChatMessage]
    ) -> None:
        """Make exactly these messages visible; those that exist are not written again."""
        await _set(store, key, messages)

    set_messages, aset_messages = make_pair(_set_messages)

    async def _get_messages(self, store: AsyncMemoryStore, key: str) -> list[ChatMessage]:
        """Return the messages of a key, in order."""
        return [message for _, message in _to_llama_all(await store.get_history(key))]

    get_messages, aget_messages = make_pair(_get_messages)

    async def _add_message(self, store: AsyncMemoryStore, key: str, message: ChatMessage) -> None:
        """Append a message."""
        await _add(store, key, [message])

    add_message, async_add_message = make_pair(_add_message, "async_add_message")

    async def _delete_messages(self, store: AsyncMemoryStore, key: str) -> list[ChatMessage] | None:
        """Hide all messages of a key and return them; None if there are none."""

        async def attempt() -> list[StoredMessage]:
            shown = await conversations.read_visible(store, key)
            # A message that arrives meanwhile must not be hidden without being returned.
            await store.clear(key, expected=shown.version)
            return shown.messages

        return [_to_llama(each) for each in await conversations.retry(key, attempt)] or None

    delete_messages, adelete_messages = make_pair(_delete_messages)

    async def _delete_message(
        self, store: AsyncMemoryStore, key: str, idx: int
    ) -> ChatMessage | None:
        """Hide one message by its index and return it."""
        return await _delete(store, key, idx)

    delete_message, adelete_message = make_pair(_delete_message)

    async def _delete_last_message(self, store: AsyncMemoryStore, key: str) -> ChatMessage | None:
        """Hide the newest message and return it."""
        found = await conversations.pop(store, key)
        return None if found is None else _to_llama(found)

    delete_last_message, adelete_last_message = make_pair(_delete_last_message)

    async def _get_keys(self, store: AsyncMemoryStore) -> list[str]:
        """Return the keys that have messages."""
        return await _list_keys(store)

    get_keys, aget_keys = make_pair(_get_keys)

    async def _snapshot(
        self, store: AsyncMemoryStore, key: str, label: str | None = None
    ) -> Snapshot:
        """Save the current view of a key."""
        return await store.save_snapshot(key, label=label)

    snapshot, asnapshot = make_pair(_snapshot)

    async def _rollback(self, store: AsyncMemoryStore, key: str, snapshot_id: str) -> ViewChange:
        """Restore the view of a snapshot."""
        return await store.rollback_to_snapshot(key, snapshot_id)

    rollback, arollback = make_pair(_rollback)

    async def _undo(self, store: AsyncMemoryStore, key: str) -> ViewChange:
        """Undo the newest change of what a key shows."""
        return await store.undo(key)

    undo, aundo = make_pair(_undo)


class IndelibleMemoryStore(AsyncDBChatStore):
    """The chat store of `Memory`: a queue of active messages, and archived ones before it.

    Archiving moves a mark in the session's metadata and hides nothing: `get_history` of the store
    still has the whole conversation. Messages that are added as archived say so themselves. What is
    deleted is hidden; `undo` brings it back.
    """

    _store: AsyncMemoryStore = PrivateAttr()

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = to_async(check_store(store))

    @classmethod
    def class_name(cls) -> str:
        """Return the name that LlamaIndex uses."""
        return "IndelibleMemoryStore"

    async def get_messages(
        self,
        key: str,
        status: MessageStatus | None = MessageStatus.ACTIVE,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[ChatMessage]:
        """Return the messages of a key with a status, or of any, in order."""
        found = _to_llama_all((await self._read_with_status(key, status)).messages)[offset or 0 :]
        return [message for _, message in found[:limit]]

    async def count_messages(
        self, key: str, status: MessageStatus | None = MessageStatus.ACTIVE
    ) -> int:
        """Count the messages of a status."""
        return len(_to_llama_all((await self._read_with_status(key, status)).messages))

    async def add_message(
        self, key: str, message: ChatMessage, status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Append a message."""
        await self.add_messages(key, [message], status)

    async def add_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Append messages as one batch."""
        await _add(self._store, key, messages, archived=status is MessageStatus.ARCHIVED)

    async def set_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Make exactly these messages visible; those that exist are not written again."""
        await _set(self._store, key, messages)
        shown = await conversations.read_visible(self._store, key)
        archived = len(shown.entries) if status is MessageStatus.ARCHIVED else 0
        await self._archive(
            key, VisibleMessages(shown.entries[:archived], shown.version), restart=True
        )

    async def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Hide one message by its index in the list of all, and return it."""
        return await _delete(self._store, key, idx)

    async def delete_messages(self, key: str, status: MessageStatus | None = None) -> None:
        """Hide the messages of a status, or all."""
        entries, _ = await self._read_with_status(key, status)
        await self._store.hide(key, [entry.position for entry in entries])

    async def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Hide the oldest active messages and return them."""
        entries, _ = await self._read_with_status(key, MessageStatus.ACTIVE)
        oldest = entries[: max(n, 0)]
        change = await self._store.hide(key, [entry.position for entry in oldest])
        # Another writer may have hidden some of them first.
        return [_to_llama(get_message(each)) for each in oldest if each.position in change.dropped]

    async def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Archive the oldest active messages, and return them."""
        entries, version = await self._read_with_status(key, MessageStatus.ACTIVE)
        oldest = VisibleMessages(entries[: max(n, 0)], version)
        await self._archive(key, oldest)
        return [_to_llama(message) for message in oldest.messages]

    async def get_keys(self) -> list[str]:
        """Return the keys that have messages."""
        return await _list_keys(self._store)

    async def snapshot(self, key: str, label: str | None = None) -> Snapshot:
        """Save the current view of a key."""
        return await self._store.save_snapshot(key, label=label)

    async def rollback(self, key: str, snapshot_id: str) -> ViewChange:
        """Restore the view of a snapshot; archived messages stay archived."""
        return await self._store.rollback_to_snapshot(key, snapshot_id)

    async def undo(self, key: str) -> ViewChange:
        """Undo the newest change of what a key shows; archived messages stay archived."""
        return await self._store.undo(key)

    async def _read_with_status(self, key: str, status: MessageStatus | None) -> VisibleMessages:
        shown = await conversations.read_visible(self._store, key)
        if status is None:
            return shown
        before = _get_archive_mark((await self._store.session(key)).metadata)
        wanted = status is MessageStatus.ARCHIVED
        entries = [
            entry
            for entry in shown.entries
            if (entry.position < before or _was_added_archived(get_message(entry))) is wanted
        ]
        return VisibleMessages(entries, shown.version)

    async def _archive(self, key: str, shown: VisibleMessages, *, restart: bool = False) -> None:
        """Archive these messages and all before them; `restart` discards the earlier mark."""
        mark = shown.entries[-1].position + 1 if shown.entries else 0

        def move_mark(metadata: dict[str, JsonValue]) -> dict[str, JsonValue]:
            before = _get_archive_mark(metadata)
            after = mark if restart else max(mark, before)
            return metadata if after == before else {**metadata, _ARCHIVED_BEFORE: after}

        # A blocking store is wrapped.
        settings = getattr(self._store, "wrapped", self._store)._settings  # noqa: SLF001 (our own)

        async def attempt() -> None:
            plan = sessions.change_metadata(settings, key, move_mark)
            await self._store._run(plan)  # noqa: SLF001 (our own)

        await conversations.retry(key, attempt)


def _get_archive_mark(metadata: dict[str, JsonValue]) -> int:
    mark = metadata.get(_ARCHIVED_BEFORE, 0)
    return mark if isinstance(mark, int) else 0


def _was_added_archived(message: StoredMessage) -> bool:
    return (get_extra(FRAMEWORK, message) or {}).get(_ARCHIVED) is True


async def _add(
    store: AsyncMemoryStore, key: str, messages: list[ChatMessage], *, archived: bool = False
) -> None:
    beside = {_ARCHIVED: True} if archived else {}
    batch = [_from_llama(message, **beside) for message in messages]
    await conversations.append(store, key, batch, identified=False)


async def _set(store: AsyncMemoryStore, key: str, messages: list[ChatMessage]) -> None:
    await conversations.replace(store, key, [_from_llama(message) for message in messages])


async def _delete(store: AsyncMemoryStore, key: str, index: int) -> ChatMessage | None:
    found = await conversations.pop_at(store, key, index, listed=_map_indexes)
    return None if found is None else _to_llama(found)


async def _list_keys(store: AsyncMemoryStore) -> list[str]:
    # One that is damaged is listed: reading it says so.
    return [
        each.session_id
        async for page in conversations.iter_pages(store.list_sessions)
        for each in page
        if each.entries or each.status == "damaged"
    ]


# Forms


def _from_llama(message: ChatMessage, **beside: Any) -> StoredMessage:
    """Convert a message of LlamaIndex."""
    with refuse_invalid(FRAMEWORK):
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
    return keep_form(FRAMEWORK, form, understood, **beside)


def _to_llama(message: StoredMessage) -> ChatMessage:
    """Convert a message to LlamaIndex's; the first one, if it becomes several."""
    found = _to_llama_all([message])
    return found[0][1] if found else ChatMessage(role=MessageRole.ASSISTANT)


def _to_llama_all(messages: Sequence[StoredMessage]) -> list[tuple[int, ChatMessage]]:
    """Convert messages to LlamaIndex's, each with the index of its source.

    A message of another framework may become several: one for each result, and one for the rest.
    """
    found: list[tuple[int, ChatMessage]] = []
    for index, (form, parts) in enumerate(read_forms(FRAMEWORK, messages)):
        theirs = _build_foreign_messages(parts) if form is None else [ChatMessage(**form)]
        found += [(index, each) for each in theirs]
    return found


def _map_indexes(messages: Sequence[StoredMessage]) -> list[int]:
    """Return the index of the stored message for each message of LlamaIndex's list."""
    return [index for index, _ in _to_llama_all(messages)]


def _build_foreign_messages(parts: MessageParts) -> list[ChatMessage]:
    found = []
    for result in parts.results:
        more: dict[str, Any] = {"tool_call_id": result.call_id}
        if result.name:
            more["name"] = result.name
        found.append(ChatMessage(role="tool", content=result.text, additional_kwargs=more))
    if parts.said or parts.calls:
        known = {role.value for role in MessageRole} - {MessageRole.TOOL.value}
        role = parts.role if parts.role in known else _OTHERWISE.get(parts.role, "chatbot")
        found.append(
            ChatMessage(role=role, content=parts.text, additional_kwargs=_build_tool_calls(parts))
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
    return found + [build_call(*parse_call(call)) for call in beside if call.get("id") not in ids]
