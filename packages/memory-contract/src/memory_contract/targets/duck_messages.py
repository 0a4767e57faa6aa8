"""Messages, turns and names as stores of two small interfaces take them and give them back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final

from memory_contract.adapter import Message
from memory_contract.messages import ChatMessage

# Where what is listed is more than a name, the names under which the name may be found.
NAMED: Final = ("session_id", "session", "id", "name", "thread_id", "conversation_id")
TURN: Final = (("human", "ai"), ("human_msg", "ai_msg"))


def chat_message(message: Message) -> ChatMessage:
    """A message to hand over; one that is refused when it is dumped is the store's to refuse."""
    return ChatMessage(**message)


def _plain(value: Any) -> Any:
    """Text that is more than text, as text."""
    if isinstance(value, Enum):
        value = value.value
    return str.__str__(value) if isinstance(value, str) else value


def messages_of_list(history: Any) -> list[Any]:
    """The messages of a history."""
    # None is how many say that they know no such session.
    return [] if history is None else [_message(message) for message in history]


def popped_message(answer: Any) -> Any:
    """The message that was taken away, or None: given as it is, or in a list."""
    if isinstance(answer, list | tuple) and not hasattr(answer, "_fields"):
        if len(answer) > 1:
            return answer
        answer = next(iter(answer), None)
    return None if answer is None else _message(answer)


def _message(message: Any) -> Any:
    if isinstance(message, Mapping):
        found = dict(message)
        return found | {name: _plain(found[name]) for name in ("role", "content") if name in found}
    if hasattr(message, "role") and hasattr(message, "content"):
        return {"role": _plain(message.role), "content": _plain(message.content)}
    return message


def messages_of_turns(turns: Any) -> list[Any]:
    """The messages of turns, two each."""
    return [] if turns is None else [message for turn in turns for message in _turn(turn)]


def _turn(turn: Any) -> list[Any]:
    said_by = next(_both(turn), None)
    if said_by is None:
        return [_message(turn)]
    human, ai = map(_plain, said_by)
    return [{"role": "user", "content": human}, {"role": "assistant", "content": ai}]


def _both(turn: Any) -> Iterator[tuple[Any, Any]]:
    """What both said, wherever the turn has it."""
    for human, ai in TURN:
        if isinstance(turn, Mapping):
            if human in turn and ai in turn:
                yield turn[human], turn[ai]
        elif hasattr(turn, human) and hasattr(turn, ai):
            yield getattr(turn, human), getattr(turn, ai)
    if isinstance(turn, list | tuple) and len(turn) == len(("human", "ai")):
        yield turn[0], turn[1]


def session_name(item: Any) -> Any:
    """The name of a session that was listed with more than its name."""
    if isinstance(item, tuple) and item and not hasattr(item, "_fields"):
        return item[0]
    if isinstance(item, str):
        return _plain(item)
    for name in NAMED:
        found = item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
        if isinstance(found, str):
            return found
    return item
