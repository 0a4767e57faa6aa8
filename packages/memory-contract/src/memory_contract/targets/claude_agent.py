"""Session stores of the Claude Agent SDK: transcripts of one project, all of it awaited.

An entry is what the SDK hands over: a type, a uuid of its own, and whatever else, to be given back
equal. Of the methods that a store may leave out, those that are missing are not claimed.
"""

from __future__ import annotations

import uuid
from typing import Any, Final

from memory_contract.adapter import Message
from memory_contract.targets.vocabulary import StoreHandle, Vocabulary

_PROJECT: Final = "kit"


class TranscriptsHandle(StoreHandle):
    """The main transcripts of a project's sessions."""

    async def append(self, session: str, messages: list[Message]) -> None:
        entries = [
            {"type": message["role"], "uuid": str(uuid.uuid4()), "message": message}
            for message in messages
        ]
        await self.store.append(_key(session), entries)

    async def read(self, session: str) -> list[Any]:
        """The messages of the entries."""
        found = await self.store.load(_key(session))
        return [entry["message"] for entry in found or ()]

    async def clear(self, session: str) -> None:
        await self._offered("delete")(_key(session))

    async def sessions(self) -> list[str]:
        """The ids of the project's sessions."""
        return [each["session_id"] for each in await self._offered("list_sessions")(_PROJECT)]

    def _offered(self, method: str) -> Any:
        found = getattr(self.store, method, None)
        if found is None:
            raise NotImplementedError(method)
        return found


def _key(session: str) -> dict[str, str]:
    return {"project_key": _PROJECT, "session_id": session}


VOCABULARY: Final = Vocabulary(
    package="claude-agent-sdk",
    module="claude_agent_sdk",
    described="a SessionStore of the Claude Agent SDK",
    methods=("append", "load"),
    handle=TranscriptsHandle,
    flavours=("async",),
    claims={"capabilities": ("clear", "list", "fields")},
)
