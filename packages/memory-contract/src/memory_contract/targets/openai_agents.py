"""Sessions of the OpenAI Agents SDK: one object for each session, all of it awaited."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory_contract.adapter import Adapter, Message, imported
from memory_contract.targets.factories import (
    Sessions,
    adapted,
    close_all,
    factory_named,
    of_one_session,
    server_of,
)


def adapter_of_factory(name: str) -> Adapter:
    """The adapter of `factory(session_id, workspace)`, which returns an Agents SDK `Session`."""
    factory = factory_named(name, "openai-agents", "agents")
    adapter = Adapter(
        open_async=OpenSessions(name),
        capabilities=["pop", "clear", "limit", "fields"],
        name=f"openai-agents:{name}",
        server=server_of(factory, name),
    )
    return adapted(adapter, of_one_session(factory))


@dataclass(frozen=True, slots=True)
class OpenSessions:
    """Opens sessions by the name of their factory, so that other processes can."""

    name: str
    # Whether what the factory made is left open: it is shared, or all that there is.
    keep: bool = False

    def __call__(self, workspace: Path, *, server: str | None = None) -> SessionHandle:
        """A handle, which makes each session when it is first used."""
        return SessionHandle(
            Sessions.of(imported(self.name), workspace, server=server, keep=self.keep)
        )


class SessionHandle:
    """The SDK's verbs in the kit's words. Its items are messages as they are."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def append(self, session: str, messages: list[Message]) -> None:
        """Add items."""
        await self._call(session, "add_items", messages)

    async def read(self, session: str, *, limit: int | None = None) -> Any:
        """The items."""
        return await (
            self._call(session, "get_items")
            if limit is None
            else self._call(session, "get_items", limit)
        )

    async def pop(self, session: str) -> Any:
        """Take the newest item away."""
        return await self._call(session, "pop_item")

    async def clear(self, session: str) -> None:
        """Remove all items."""
        await self._call(session, "clear_session")

    async def close(self) -> None:
        """Close what was opened."""
        await close_all(self._sessions.rest())

    async def _call(self, session: str, method: str, *arguments: Any) -> Any:
        with self._sessions.using(session) as ours:
            answer = await getattr(ours, method)(*arguments)
        await close_all(self._sessions.surplus())
        return answer
