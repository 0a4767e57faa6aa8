"""Chat message histories of LangChain: one object for each session, blocking, awaited or both."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from memory_contract.adapter import Adapter, Message, Refused, imported
from memory_contract.targets.factories import (
    Sessions,
    adapted,
    close_all,
    close_all_blocking,
    factory_named,
    of_one_session,
    server_of,
)

# What LangChain calls those who speak.
_ROLES: Final = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}
_CLASSES: Final = {
    "user": "HumanMessage",
    "assistant": "AIMessage",
    "system": "SystemMessage",
    "tool": "ToolMessage",
}
# Fields that a LangChain message has a place for; all others stand in its `additional_kwargs`.
_NATIVE: Final = ("name", "id", "tool_call_id")


def adapter_of_factory(name: str) -> Adapter:
    """The adapter of `factory(session_id, workspace)`, which returns a `BaseChatMessageHistory`."""
    factory = factory_named(name, "langchain-core", "langchain_core")
    adapter = Adapter(
        open=OpenHistories(name),
        open_async=OpenHistories(name, awaited=True),
        capabilities=["clear", "fields"],
        name=f"langchain:{name}",
        server=server_of(factory, name),
    )
    return adapted(adapter, of_one_session(factory), awaited=_is_awaited)


def _is_awaited(kind: type) -> bool:
    """Whether it has awaited methods of its own; else they are the blocking ones, in threads."""
    base = import_module("langchain_core.chat_history").BaseChatMessageHistory
    return getattr(kind, "aadd_messages", None) is not base.aadd_messages


@dataclass(frozen=True, slots=True)
class OpenHistories:
    """Opens histories by the name of their factory, so that other processes can."""

    name: str
    awaited: bool = False
    # Whether what the factory made is left open: it is shared, or all that there is.
    keep: bool = False

    def __call__(
        self, workspace: Path, *, server: str | None = None
    ) -> BlockingHandle | AwaitedHandle:
        """A handle, which makes each history when it is first used."""
        sessions = Sessions.of(imported(self.name), workspace, server=server, keep=self.keep)
        return AwaitedHandle(sessions) if self.awaited else BlockingHandle(sessions)


class BlockingHandle:
    """A history's methods in the kit's words."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def append(self, session: str, messages: list[Message]) -> None:
        """Add messages."""
        batch = list(map(to_langchain, messages))
        with self._sessions.using(session) as history:
            history.add_messages(batch)
        close_all_blocking(self._sessions.surplus())

    def read(self, session: str) -> list[Any]:
        """The messages."""
        with self._sessions.using(session) as history:
            found = list(map(from_langchain, history.messages))
        close_all_blocking(self._sessions.surplus())
        return found

    def clear(self, session: str) -> None:
        """Remove all messages."""
        with self._sessions.using(session) as history:
            history.clear()

    def close(self) -> None:
        """Close what was opened."""
        close_all_blocking(self._sessions.rest())


class AwaitedHandle:
    """A history's awaited methods in the kit's words."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def append(self, session: str, messages: list[Message]) -> None:
        """Add messages."""
        batch = list(map(to_langchain, messages))
        with self._sessions.using(session) as history:
            await history.aadd_messages(batch)
        await close_all(self._sessions.surplus())

    async def read(self, session: str) -> list[Any]:
        """The messages."""
        with self._sessions.using(session) as history:
            found = list(map(from_langchain, await history.aget_messages()))
        await close_all(self._sessions.surplus())
        return found

    async def clear(self, session: str) -> None:
        """Remove all messages."""
        with self._sessions.using(session) as history:
            await history.aclear()

    async def close(self) -> None:
        """Close what was opened."""
        await close_all(self._sessions.rest())


def to_langchain(message: Message) -> Any:
    """LangChain's message for one of the kit's; what it has no place for goes along beside it."""
    rest = dict(message)
    role, content = rest.pop("role"), rest.pop("content")
    fields: dict[str, Any] = {name: rest.pop(name) for name in _NATIVE if name in rest}
    if content is None:
        content, rest["content"] = "", None
    if not isinstance(content, str | list):
        raise Refused("a message of LangChain is text or a list of blocks")
    if role not in _CLASSES:
        fields["role"] = role
    elif role == "tool":
        fields.setdefault("tool_call_id", "")
    # Not a dependency of ours, so it is imported where it is needed.
    kind = getattr(import_module("langchain_core.messages"), _CLASSES.get(role, "ChatMessage"))
    try:
        return kind(content=content, additional_kwargs=rest, **fields)
    except ValueError as error:
        raise Refused(f"LangChain makes no message of it: {error}") from error


def from_langchain(message: Any) -> Any:
    """The kit's message for one of LangChain's; what is none is given as it is."""
    if not hasattr(message, "type") or not hasattr(message, "content"):
        return message
    role = _ROLES.get(message.type) or getattr(message, "role", message.type)
    found = {"role": role, "content": message.content, **message.additional_kwargs}
    if "tool_calls" in found and not _has_calls(message):
        # They were read from there when the message was made, and got lost since.
        del found["tool_calls"]
    for name in _NATIVE:
        if value := getattr(message, name, None):
            found[name] = value
    return found


def _has_calls(message: Any) -> bool:
    return bool(getattr(message, "tool_calls", ()) or getattr(message, "invalid_tool_calls", ()))
