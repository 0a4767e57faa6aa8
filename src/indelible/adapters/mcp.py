"""indelible as a server of the Model Context Protocol: memory as tools, over stdio.

indelible mcp agent.db
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, ParamSpec, TypeVar

from indelible import AsyncMemoryStore, ChatMessage, MemoryStoreError, UsageError
from indelible.adapters.conversations import all_shown, message_of
from indelible.adapters.forms import text_of
from indelible.adapters.missing import framework_missing

try:
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError:
        # Its name until 2.0.
        from mcp.server.fastmcp import FastMCP as MCPServer  # type: ignore[attr-defined, no-redef]
        from mcp.server.fastmcp.exceptions import ToolError  # type: ignore[import-not-found, no-redef]
except ImportError as error:
    raise framework_missing(error, package="mcp", extra="mcp") from error

# What one answer holds at most: a model reads all of it.
LAST_MAX: Final = 200
INSTRUCTIONS: Final = """\
Memory that is not lost. Remember what matters of a conversation, and read it back with history or \
search. Take a snapshot before something risky; rollback shows that state again, and undo takes a \
rollback back. Nothing is ever deleted by these tools."""

P = ParamSpec("P")
T = TypeVar("T")
Role = Literal["user", "assistant", "system"]


def server_of(store: AsyncMemoryStore, *, session: str) -> MCPServer[Any]:
    """A server whose tools work on a store; `session` is used where a call names none."""
    server = MCPServer("indelible", instructions=INSTRUCTIONS, log_level="ERROR")
    for tool in Tools(store, session).all():
        server.tool()(_telling(tool))
    return server


def _telling(tool: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """The tool, with errors of the store told to the model: they say what became of the data."""

    @functools.wraps(tool)
    async def told(*given: P.args, **named: P.kwargs) -> T:
        try:
            return await tool(*given, **named)
        except MemoryStoreError as error:
            raise ToolError(str(error)) from error

    return told


class Tools:
    """The tools; their names, parameters and docstrings are what a model sees."""

    def __init__(self, store: AsyncMemoryStore, session: str) -> None:
        self._store = store
        self._session = session

    def all(self) -> list[Any]:
        """Every tool."""
        return [
            self.remember,
            self.history,
            self.search,
            self.snapshot,
            self.snapshots,
            self.rollback,
            self.undo,
        ]

    async def remember(
        self, content: str, role: Role = "user", session: str = "", key: str = ""
    ) -> dict[str, Any]:
        """Store a message. It is safe on disk when this returns.

        With a key of your own, doing the same again stores nothing twice.
        """
        name = session or self._session
        receipt = await self._store.add_message(name, role, content, key=key or None)
        return {
            "session": name,
            "position": receipt.positions[0],
            "already_there": receipt.replayed,
        }

    async def history(self, last: int = 20, session: str = "") -> dict[str, Any]:
        """The newest messages of a session, oldest of them first."""
        name = session or self._session
        found = await self._store.get_history(name, last=_count(last, "last"))
        messages = [_told(message) for message in found]
        return {"session": name, "status": found.status.value, "messages": messages}

    async def search(self, query: str, limit: int = 10, session: str = "") -> dict[str, Any]:
        """Messages and summaries of a session that hold every word of the query, newest first."""
        name, words = session or self._session, query.casefold().split()
        if not words:
            raise UsageError("query names at least one word to look for")
        summaries = [
            {"position": each.position, "role": "summary", "content": each.summary.text}
            for each in await self._store.get_summaries(name)
        ]
        messages = [
            {"position": entry.position, **_told(message_of(entry))}
            for entry in (await all_shown(self._store, name)).entries
        ]
        found = [
            each
            for each in sorted(summaries + messages, key=lambda each: -each["position"])
            if all(word in each["content"].casefold() for word in words)
        ]
        return {"session": name, "found": len(found), "matches": found[: _count(limit, "limit")]}

    async def snapshot(self, label: str = "", session: str = "") -> dict[str, Any]:
        """Write down what a session shows now, so that rollback can show it again."""
        name = session or self._session
        taken = await self._store.save_snapshot(name, label=label or None)
        return {"session": name, "snapshot_id": taken.id, "entries": taken.entries}

    async def snapshots(self, session: str = "") -> dict[str, Any]:
        """The snapshots of a session, oldest first."""
        name = session or self._session
        found = [
            {
                "snapshot_id": each.id,
                "label": each.label,
                "taken_at": each.taken_at.isoformat(),
                "entries": each.entries,
            }
            for each in await self._store.list_snapshots(name)
        ]
        return {"session": name, "snapshots": found}

    async def rollback(self, snapshot_id: str, session: str = "") -> dict[str, Any]:
        """Show exactly what a snapshot froze. Later messages are hidden, not deleted."""
        name = session or self._session
        change = await self._store.rollback_to_snapshot(name, snapshot_id)
        return _changed(name, len(change.dropped), len(change.restored))

    async def undo(self, session: str = "") -> dict[str, Any]:
        """Take back the newest rollback, or other change of what a session shows."""
        name = session or self._session
        change = await self._store.undo(name)
        return _changed(name, len(change.dropped), len(change.restored))


def _told(message: ChatMessage) -> dict[str, Any]:
    return {"role": message.role, "content": text_of(message)}


def _changed(session: str, hidden: int, shown: int) -> dict[str, Any]:
    return {"session": session, "hidden": hidden, "shown_again": shown}


def _count(number: int, what: str) -> int:
    if not 1 <= number <= LAST_MAX:
        raise UsageError(f"{what} is from 1 to {LAST_MAX}, not {number}", value=number)
    return number


async def serve(store: AsyncMemoryStore, *, session: str) -> None:
    """Answer over stdin and stdout until the other side closes them."""
    await server_of(store, session=session).run_stdio_async()
