"""indelible as a chat message history of LangChain.

store = indelible.open("agent.db")
history = IndelibleChatMessageHistory("user-42", store)
"""

from __future__ import annotations

from collections.abc import Sequence

from indelible import AsyncMemoryStore
from indelible.adapters import conversations
from indelible.adapters.branches import Branches
from indelible.adapters.forms import refuse_invalid
from indelible.adapters.langchain_forms import FRAMEWORK, from_dict, to_dicts
from indelible.adapters.store_variants import make_pair, run_blocking
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
        return run_blocking(self._get_messages(self._blocking))

    async def aget_messages(self) -> list[BaseMessage]:
        """Return the visible messages, in order."""
        return await self._get_messages(self._awaited)

    async def _get_messages(self, store: AsyncMemoryStore) -> list[BaseMessage]:
        return messages_from_dict(to_dicts(await store.get_history(self.session_id)))

    async def _add_messages(self, store: AsyncMemoryStore, messages: Sequence[BaseMessage]) -> None:
        """Append messages as one batch."""
        dicts = [message_to_dict(message) for message in messages]
        with refuse_invalid(FRAMEWORK):
            # LangChain restores messages by their types, and knows only its own.
            messages_from_dict(dicts)
        stored = [from_dict(each) for each in dicts]
        identified = any(message.id for message in messages)
        await conversations.append(store, self.session_id, stored, identified=identified)

    add_messages, aadd_messages = make_pair(_add_messages)

    async def _clear(self, store: AsyncMemoryStore) -> None:
        """Hide all messages; nothing is deleted."""
        await store.clear(self.session_id)

    clear, aclear = make_pair(_clear)
