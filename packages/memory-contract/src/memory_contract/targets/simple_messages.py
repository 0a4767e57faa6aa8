"""Messages, turns and session ids, as simple stores take and return them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from enum import Enum
from types import SimpleNamespace
from typing import Any, Final

# Keys and attributes that hold the id of a listed session.
_SESSION_NAMES: Final = ("session_id", "session", "id", "name", "thread_id", "conversation_id")
_TURN_NAMES: Final = (
    *(("human", "ai"), ("human_msg", "ai_msg"), ("human_message", "ai_message")),
    *(("user", "assistant"), ("user_message", "assistant_message"), ("input", "output")),
)
# Roles that frameworks call by other names. The kit never appends a message with such a role.
_ROLES: Final = {"human": "user", "ai": "assistant", "model": "assistant"}


class ChatMessage(SimpleNamespace):
    """A message with attributes, copies and dumps like a frozen pydantic model.

    Fields are checked when they are dumped, not before: so it is the store that accepts or refuses
    what is not text.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a message does not change: {name} cannot be set to {value!r}")

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self.__dict__.items())

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(repr(self))

    def model_copy(
        self, *, update: Mapping[str, Any] | None = None, deep: bool = False
    ) -> ChatMessage:
        """Copy the message, with some fields changed."""
        fields = copy.deepcopy(self.__dict__) if deep else self.__dict__
        return ChatMessage(**{**fields, **(update or {})})

    def model_dump(self, **_: Any) -> dict[str, Any]:
        """Return the fields; raise `ValueError` if role or content are not those of a message."""
        role, content = self.__dict__.get("role"), self.__dict__.get("content")
        if not isinstance(role, str) or not role:
            raise ValueError(f"a role is text, not {role!r}")
        if not (content is None or isinstance(content, str | list)):
            raise ValueError(f"content is text or a list of blocks, not {content!r}")
        _check_text(self.__dict__)
        return dict(self.__dict__)

    def model_dump_json(self, **_: Any) -> str:
        """Return the fields as JSON."""
        return json.dumps(self.model_dump(), ensure_ascii=False)


def _check_text(value: Any) -> None:
    """Raise `UnicodeEncodeError` for text that no encoding can hold, at any depth."""
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, Mapping):
        for name, item in value.items():
            _check_text(name)
            _check_text(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_text(item)


def messages_from_list(history: Any) -> list[Any]:
    """Convert a history; None means that the session is unknown."""
    return [] if history is None else [to_message(message) for message in history]


def get_messages(history: Any) -> Any:
    """The messages of a history that holds them under that name, else the history itself."""
    if isinstance(history, Mapping):
        return history.get("messages", history)
    return getattr(history, "messages", history)


def message_from_pop(answer: Any) -> Any:
    """Convert what a pop returned: a message, a list of one, or None."""
    if isinstance(answer, list | tuple) and not hasattr(answer, "_fields"):
        if len(answer) > 1:
            return to_message(answer)
        answer = next(iter(answer), None)
    return None if answer is None else to_message(answer)


def messages_from_turns(turns: Any) -> list[Any]:
    """Convert turns, two messages each."""
    return [] if turns is None else [message for turn in turns for message in _split_turn(turn)]


def session_from_listed(item: Any) -> Any:
    """Find the id of a session that was listed with more than its id."""
    if isinstance(item, tuple) and item and not hasattr(item, "_fields"):
        return item[0]
    if isinstance(item, str):
        return _to_plain(item)
    for name in _SESSION_NAMES:
        found = item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
        if isinstance(found, str):
            return found
    return item


def _to_plain(value: Any) -> Any:
    """Convert enums and subclasses of `str` to plain text."""
    if isinstance(value, Enum):
        value = value.value
    return str.__str__(value) if isinstance(value, str) else value


def to_message(message: Any) -> Any:
    """Convert a mapping, an object or a pair to a mapping; leave anything else as it is."""
    if isinstance(message, Mapping):
        found = dict(message)
        if "role" in found:
            found["role"] = to_role(found["role"])
        if "content" in found:
            found["content"] = _to_plain(found["content"])
        return found
    for name in ("role", "type"):
        if hasattr(message, name) and hasattr(message, "content"):
            role = to_role(getattr(message, name))
            return {"role": role, "content": _to_plain(message.content)}
    if isinstance(message, tuple) and len(message) == 2 and isinstance(message[0], str | Enum):
        return {"role": to_role(message[0]), "content": _to_plain(message[1])}
    return message


def to_role(value: Any) -> Any:
    """Convert a role to plain text, with the name that the kit has for it."""
    role = _to_plain(value)
    return _ROLES.get(role, role) if isinstance(role, str) else role


def _split_turn(turn: Any) -> list[Any]:
    both = next(_find_both(turn), None)
    if both is None:
        return [to_message(turn)]
    human, ai = map(_to_plain, both)
    return [{"role": "user", "content": human}, {"role": "assistant", "content": ai}]


def _find_both(turn: Any) -> Iterator[tuple[Any, Any]]:
    for human, ai in _TURN_NAMES:
        if isinstance(turn, Mapping):
            if human in turn and ai in turn:
                yield turn[human], turn[ai]
        elif hasattr(turn, human) and hasattr(turn, ai):
            yield getattr(turn, human), getattr(turn, ai)
    if isinstance(turn, list | tuple) and len(turn) == 2:
        yield turn[0], turn[1]
