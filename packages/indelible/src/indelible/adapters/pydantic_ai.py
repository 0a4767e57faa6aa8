"""indelible as the message history of pydantic-ai agents.

history = IndelibleMessageHistory("user-42", indelible.open("agent.db"))
past = history.load()
result = agent.run_sync("Hello", message_history=past)
history.save(result.new_messages(), expected=past.version)
"""

from __future__ import annotations

from collections.abc import Sequence

import pydantic_core

from indelible import AsyncMemoryStore, Receipt
from indelible.adapters import conversations
from indelible.adapters.branches import Branches
from indelible.adapters.conversations import VisibleMessages, read_visible
from indelible.adapters.pydantic_ai_forms import from_dict, to_dicts
from indelible.adapters.store_variants import run_blocking, to_async, to_blocking
from indelible.core.extras import build_missing_framework_error

try:
    from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
except ImportError as error:
    raise build_missing_framework_error(
        error, package="pydantic-ai-slim", extra="pydantic-ai"
    ) from error


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

    def load(self) -> Messages:
        """Load the visible messages, in order."""
        return _to_model_messages(
            run_blocking(read_visible(to_blocking(self._store), self.session_id))
        )

    async def aload(self) -> Messages:
        """Load the visible messages, in order."""
        return _to_model_messages(await read_visible(to_async(self._store), self.session_id))

    def save(
        self, messages: Sequence[ModelMessage], *, expected: str | None = None
    ) -> Receipt | None:
        """Append messages, such as `result.new_messages()`, as one batch; None if there are none.

        With `expected`, a session that changed since that version is a `ConflictError`, and nothing
        is written.
        """
        return run_blocking(_append(to_blocking(self._store), self.session_id, messages, expected))

    async def asave(
        self, messages: Sequence[ModelMessage], *, expected: str | None = None
    ) -> Receipt | None:
        """Append messages, such as `result.new_messages()`, as one batch; None if there are none.

        With `expected`, a session that changed since that version is a `ConflictError`, and nothing
        is written.
        """
        return await _append(to_async(self._store), self.session_id, messages, expected)


def _to_model_messages(shown: VisibleMessages) -> Messages:
    # Through JSON, since bytes are stored in base64.
    text = pydantic_core.to_json(to_dicts(shown.entries))
    return Messages(ModelMessagesTypeAdapter.validate_json(text), version=shown.version)


async def _append(
    store: AsyncMemoryStore,
    session_id: str,
    messages: Sequence[ModelMessage],
    expected: str | None,
) -> Receipt | None:
    dicts = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    identified = any(form.get("run_id") for form in dicts)
    batch = [from_dict(form) for form in dicts]
    return await conversations.append(
        store, session_id, batch, identified=identified, expected=expected
    )
