"""indelible as a chat message history of LangChain.

store = indelible.open("agent.db")
history = IndelibleChatMessageHistory("user-42", store)
"""

from __future__ import annotations

from collections.abc import Sequence

from indelible import AsyncMemoryStore
from indelible.adapters import conversations
from indelible.adapters.branches import Branches
from indelible.adapters.langchain_forms import from_dict, to_dicts
from indelible.adapters.store_variants import run_blocking, to_async, to_blocking
from indelible.core.extras import need_extra

with need_extra("langchain"):
    from langchain_core.chat_history import BaseChatMessageHistory
    from langchain_core.messages import BaseMessage, message_to_dict, messages_from_dict


class IndelibleChatMessageHistory(Branches, BaseChatMessageHistory):
    """The messages of one session. `clear` hides them; `undo` of the store brings them back.

    With a store of `indelible.open` it works in sync and async code; with one of
    `indelible.open_async`, in async code only. Messages that are added together are one batch. A
    batch that contains an id and is added again, unchanged, is stored once.
    """

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """The visible messages, in order."""
        found = run_blocking(to_blocking(self._store).get_history(self.session_id))
        return messages_from_dict(to_dicts(found))

    async def aget_messages(self) -> list[BaseMessage]:
        """Return the visible messages, in order."""
        found = await to_async(self._store).get_history(self.session_id)
        return messages_from_dict(to_dicts(found))

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages as one batch."""
        store = to_blocking(self._store)
        run_blocking(_append(store, self.session_id, messages))

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages as one batch."""
        await _append(to_async(self._store), self.session_id, messages)

    def clear(self) -> None:
        """Hide all messages; nothing is deleted."""
        run_blocking(to_blocking(self._store).clear(self.session_id))

    async def aclear(self) -> None:
        """Hide all messages; nothing is deleted."""
        await to_async(self._store).clear(self.session_id)


async def _append(
    store: AsyncMemoryStore, session_id: str, messages: Sequence[BaseMessage]
) -> None:
    stored = [from_dict(message_to_dict(message)) for message in messages]
    identified = any(message.id for message in messages)
    await conversations.append(store, session_id, stored, identified=identified)
