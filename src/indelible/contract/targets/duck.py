"""Any class with one of two small interfaces, taken as it is.

`add_messages(session_id, messages)` with `get_history(session_id)`, or
`save_context(session_id, human_msg, ai_msg)` with `load_memory(session_id)`; each blocking or
async, `asave_context` and `aload_memory` where they are there. Other methods are used if they go
by a name that the kit knows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import indelible
from indelible.contract.adapter import Adapter, Capability, Message, imported, opened_elsewhere
from indelible.contract.handles import then

# What the kit calls it, and the names under which classes may offer it.
OFFERED: Final[dict[Capability, tuple[str, ...]]] = {
    "pop": ("pop", "pop_message", "pop_item"),
    "trim": ("trim", "trim_history"),
    "clear": ("clear", "clear_session", "clear_history", "delete_session"),
    "snapshot": ("save_snapshot",),
    "rollback": ("rollback_to_snapshot",),
    "fork": ("fork",),
    "list": ("list_sessions", "sessions"),
}


# Of a second parameter called so, a trim keeps that many messages. Another may mean anything.
KEPT: Final = frozenset(
    {"keep", "keep_last", "n", "last", "limit", "max_messages", "max_len", "size", "count"}
)


def adapter_of_class(found: Callable[..., Any], name: str) -> Adapter | None:
    """The adapter of a class; None if it has neither interface."""
    if not isinstance(found, type) or not (_is_list(found) or _is_turns(found)):
        return None
    pairs = not _is_list(found)
    own_workspace = _takes_parameter(found)
    blocking, awaited = _flavours(found, pairs=pairs)
    return Adapter(
        open=OpenDuck(name, pairs, own_workspace) if blocking else None,
        open_async=OpenDuck(name, pairs, own_workspace, awaited=True) if awaited else None,
        capabilities=_capabilities(found, pairs=pairs),
        name=name,
        reach="machine" if own_workspace else "handle",
        pairs=pairs,
        notes=() if own_workspace else ("it takes no workspace: each instance is on its own",),
    )


def _is_list(found: type) -> bool:
    return hasattr(found, "add_messages") and hasattr(found, "get_history")


def _is_turns(found: type) -> bool:
    return hasattr(found, "save_context") and hasattr(found, "load_memory")


def _takes_parameter(found: type) -> bool:
    """Whether it wants to know the workspace: a parameter named so, or one that must be given."""
    parameters = inspect.signature(found).parameters.values()
    return any(p.name == "workspace" or p.default is p.empty for p in parameters if _is_plain(p))


def _is_plain(parameter: inspect.Parameter) -> bool:
    return parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)


def _flavours(found: type, *, pairs: bool) -> tuple[bool, bool]:
    """Whether it can be called blocking, and awaited."""
    awaited = inspect.iscoroutinefunction(
        getattr(found, "save_context" if pairs else "add_messages")
    )
    also = inspect.iscoroutinefunction(getattr(found, "asave_context", None))
    return not awaited, awaited or also


def _capabilities(found: type, *, pairs: bool) -> list[str]:
    offered: list[str] = [what for what in OFFERED if method_of(found, what) is not None]
    if "trim" in offered and (pairs or _kept_parameter(found) is None):
        # Turns or messages, how many or how long: what is not known is not held against it.
        offered.remove("trim")
    if pairs and "pop" in offered:
        offered.remove("pop")
    return offered


def method_of(found: Any, what: str) -> Any:
    """The method that offers a capability; None if there is none."""
    names = OFFERED[what]  # type: ignore[index]
    return next((getattr(found, name) for name in names if hasattr(found, name)), None)


def _kept_parameter(found: Any) -> str | None:
    """The name of the parameter that says how many messages a trim keeps."""
    parameters = list(inspect.signature(method_of(found, "trim")).parameters)
    return next((name for name in parameters if name in KEPT), None)


@dataclass(frozen=True, slots=True)
class OpenDuck:
    """Makes an instance, by name, so that other processes can."""

    name: str
    pairs: bool
    own_workspace: bool
    awaited: bool = False

    def __reduce__(self) -> Any:
        options = (self.pairs, self.own_workspace, self.awaited)
        return opened_elsewhere, (type(self), self.name, *options)

    def __call__(self, workspace: Path) -> DuckHandle:
        """A handle on a new instance."""
        made = imported(self.name)
        if not self.own_workspace:
            return self._handle(made())
        parameters = inspect.signature(made).parameters
        named = "workspace" in parameters
        return self._handle(made(workspace=workspace) if named else made(workspace))

    def _handle(self, store: Any) -> DuckHandle:
        return (TurnsHandle if self.pairs else ListHandle)(store, awaited=self.awaited)


class DuckHandle:
    """What both interfaces share: methods by the names that the kit knows."""

    def __init__(self, store: Any, *, awaited: bool) -> None:
        self._store = store
        self._awaited = awaited
        # What was last handed in or out, itself: whoever keeps it shares memory with the caller.
        self.exchanged: Any = None

    def _passed_on(self, answer: Any) -> Any:
        self.exchanged = answer
        return answer

    def pop(self, session: str) -> Any:
        """Take the newest away."""
        return then(method_of(self._store, "pop")(session), _message_or_none)

    def trim(self, session: str, keep: int) -> Any:
        """Keep the newest."""
        return method_of(self._store, "trim")(session, **{_kept_parameter(self._store) or "": keep})

    def clear(self, session: str) -> Any:
        """Show nothing."""
        return method_of(self._store, "clear")(session)

    def snapshot(self, session: str) -> Any:
        """The id of a new snapshot."""
        return then(method_of(self._store, "snapshot")(session), lambda s: getattr(s, "id", s))

    def rollback(self, session: str, snapshot: Any) -> Any:
        """Show what it showed."""
        return method_of(self._store, "rollback")(session, snapshot)

    def fork(self, session: str, target: str) -> Any:
        """Copy into a new session."""
        return method_of(self._store, "fork")(session, target)

    def sessions(self) -> Any:
        """The sessions that there are."""
        return method_of(self._store, "list")()

    def close(self) -> Any:
        """Close it, if it can be."""
        for name in ("aclose", "close") if self._awaited else ("close",):
            if hasattr(self._store, name):
                return getattr(self._store, name)()
        return None


class ListHandle(DuckHandle):
    """A store of messages."""

    def append(self, session: str, messages: list[Message]) -> Any:
        """Add messages."""
        batch = [indelible.ChatMessage(**message) for message in messages]
        return self._store.add_messages(session, self._passed_on(batch))

    def read(self, session: str) -> Any:
        """The messages."""
        history = self._store.get_history(session)
        return then(history, lambda found: _messages(self._passed_on(found)))


class TurnsHandle(DuckHandle):
    """A store of turns: what the user said and what was answered."""

    def append(self, session: str, messages: list[Message]) -> Any:
        """Add turns, one call each."""
        save = self._method("save_context")
        answers = [
            save(session, user["content"], assistant["content"])
            for user, assistant in zip(messages[::2], messages[1::2], strict=True)
        ]
        return _all_of(answers) if any(map(inspect.isawaitable, answers)) else None

    def read(self, session: str) -> Any:
        """The turns, as messages."""
        turns = self._method("load_memory")(session)
        return then(turns, lambda found: _messages_of_turns(self._passed_on(found)))

    def _method(self, name: str) -> Any:
        awaited = getattr(self._store, f"a{name}", None) if self._awaited else None
        return awaited or getattr(self._store, name)


async def _all_of(answers: list[Any]) -> None:
    for answer in answers:
        if inspect.isawaitable(answer):
            await answer


def _messages(history: Any) -> Any:
    return history if history is None else [_message(message) for message in history]


def _message_or_none(message: Any) -> Any:
    return None if message is None else _message(message)


def _message(message: Any) -> Any:
    if isinstance(message, Mapping):
        return dict(message)
    if hasattr(message, "role") and hasattr(message, "content"):
        return {"role": message.role, "content": message.content}
    return message


def _messages_of_turns(turns: Any) -> Any:
    if turns is None:
        return None
    return [message for turn in turns for message in _turn(turn)]


def _turn(turn: Any) -> list[Any]:
    if not isinstance(turn, Mapping) or not {"human", "ai"} <= set(turn):
        return [turn]
    return [
        {"role": "user", "content": turn["human"]},
        {"role": "assistant", "content": turn["ai"]},
    ]
