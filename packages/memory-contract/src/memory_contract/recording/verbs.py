"""The methods of every kind of store that can be recorded, in the words of the contract.

A noter has the parameters of the method that it stands for and gives the note of a call; what the
store answers is read by `answers`. For a method that is in no table, see `unlisted`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from memory_contract.recording.notes import Note
from memory_contract.recording.policy import Hand, Noted
from memory_contract.targets.simple_messages import messages_from_list, messages_from_turns
from memory_contract.traces import CALL

Noter = Callable[..., Note]
Answers = Callable[[Note, Any, Hand], None]

# What takes entries away, or may: known before it is done.
REMOVERS: Final = frozenset({"clear", "pop", "trim", "rollback", "undo", "expire"})


@dataclass(frozen=True, slots=True)
class Verb:
    """One method: its note, what its answer says, and where its batch stands, if it has one."""

    noter: Noter
    answers: Answers | None = None
    # The place and the name of the parameter that holds messages, which may be given only once.
    batch: tuple[int, str] | None = None
    # Whether it is the append that must cost next to nothing.
    quick: bool = False
    # Whether it may take entries away: then no call of it may go unnoticed.
    removes: bool = False


Verbs = Mapping[str, Verb]


# Messages


def fields_of(message: Any) -> Mapping[str, Any]:
    """The fields of any message: a mapping, a pydantic model, LangChain's or another object."""
    if isinstance(message, Mapping):
        return message
    if hasattr(message, "type") and hasattr(message, "additional_kwargs"):
        from memory_contract.targets.langchain import from_langchain  # noqa: PLC0415

        found: dict[str, Any] = from_langchain(message)
        return found
    given: frozenset[str] = getattr(message, "__pydantic_fields_set__", frozenset())
    if given > _TWO:
        fields: dict[str, Any] = message.model_dump(exclude_unset=True)
        return fields
    if hasattr(message, "role") and hasattr(message, "content"):
        return {"role": message.role, "content": message.content}
    return {"role": type(message).__name__, "content": repr(message)}


_TWO: Final = {"role", "content"}


def noted(messages: Iterable[Any], hand: Hand) -> list[Noted]:
    """What is remembered of messages."""
    return [hand.noted(fields_of(message)) for message in messages]


# Answers


def showed(note: Note, answer: Any, hand: Hand) -> None:
    """Note the messages that a read answered with."""
    note.seen = noted(messages_from_list(answer) if answer is None else answer, hand)


def showed_turns(note: Note, answer: Any, hand: Hand) -> None:
    """Note the messages of the turns that a read answered with."""
    found = [m for m in messages_from_turns(answer) if m.get("content") is not None]
    note.seen = noted(found, hand)


def took(note: Note, answer: Any, hand: Hand) -> None:
    """Note the message that was taken away."""
    if isinstance(answer, list | tuple) and not hasattr(answer, "_fields"):
        answer = next(iter(answer), None)
    note.seen = None if answer is None else hand.noted(fields_of(answer))


def froze(note: Note, answer: Any, _: Hand) -> None:
    """Note the id of a snapshot."""
    note.snapshot = str(getattr(answer, "id", answer))


def placed(note: Note, answer: Any, _: Hand) -> None:
    """Note the position of an append."""
    note.position = answer.positions.start


def other_call(session_id: Any = "", *_: Any, **__: Any) -> Note:
    """A call that is about a session and of which no more is known."""
    return Note(CALL, session_id if isinstance(session_id, str) else "")


def store_call(*_: Any, **__: Any) -> Note:
    """A call that is about the store, and about no session."""
    return Note(CALL, "")


def change(op: str) -> Noter:
    """A verb whose note is its session and its key."""

    def note(session_id: str, *_: Any, key: str | None = None, **__: Any) -> Note:
        return Note(op, session_id, key=key)

    return note


def rollback(session_id: str, snapshot_id: Any, *, key: str | None = None, **_: Any) -> Note:
    """A rollback to a snapshot."""
    return Note("rollback", session_id, snapshot=str(snapshot_id), key=key)


def fork_at(session_id: str, new_session_id: str, *, at: str | None = None, **_: Any) -> Note:
    """A fork of a session, of a snapshot if one is named."""
    return Note("fork", session_id, target=new_session_id, snapshot=at)


# Handles of the kit: whatever an adapter opens


def of_handle(hand: Hand) -> Verbs:
    """The verbs of a handle."""

    def append(
        session: str,
        messages: Any,
        *,
        key: str | None = None,
        ttl_s: float | None = None,
        **_: Any,
    ) -> Note:
        batch = noted(messages, hand)
        op = "append" if batch else CALL
        return Note(op, session, messages=batch, key=key, ttl_s=ttl_s)

    def read(session: str, *, limit: int | None = None) -> Note:
        return Note("read", session, limit=limit)

    def trim(session: str, keep: int) -> Note:
        return Note("trim", session, keep=keep)

    return {
        "append": Verb(append, None, (1, "messages")),
        "read": Verb(read, showed),
        "pop": Verb(change("pop"), took, removes=True),
        "trim": Verb(trim, removes=True),
        "clear": Verb(change("clear"), removes=True),
        "undo": Verb(change("undo"), removes=True),
        "snapshot": Verb(change("snapshot"), froze),
        "rollback": Verb(rollback, removes=True),
        "fork": Verb(lambda session, target: Note("fork", session, target=target)),
        "version": Verb(other_call),
        "sessions": Verb(store_call),
    }


# Any class with one of two small interfaces


def of_duck(store: Any, hand: Hand) -> Verbs:
    """The verbs of a class of messages or of turns, under any of the names that the kit knows."""
    from memory_contract.targets.simple_stores import METHOD_NAMES, find_offers  # noqa: PLC0415

    def add_messages(session: str, messages: Any, *_: Any, **__: Any) -> Note:
        batch = noted(messages, hand)
        return Note("append" if batch else CALL, session, messages=batch)

    def save_context(session: str, human_msg: Any, ai_msg: Any, *_: Any, **__: Any) -> Note:
        turn = (("user", human_msg), ("assistant", ai_msg))
        batch = [hand.noted({"role": role, "content": text}) for role, text in turn]
        return Note("append", session, messages=batch)

    def read(session: str, *rest: Any, **options: Any) -> Note:
        # A read that was asked for something else than all of it is not judged.
        return Note(CALL if rest or options else "read", session)

    found: dict[str, Verb] = {
        "add_messages": Verb(add_messages, None, (1, "messages")),
        "get_history": Verb(read, _showed_list),
    }
    for letter in ("", "a"):
        found[f"{letter}save_context"] = Verb(save_context)
        found[f"{letter}load_memory"] = Verb(read, showed_turns)
    for what in METHOD_NAMES:
        for offer in find_offers(store, what):
            if what in _DUCK_CHANGES:
                found[offer.method] = _DUCK_CHANGES[what]
            elif what == "trim":
                found[offer.method] = Verb(_trim_by(offer.parameter), removes=True)
            elif what == "list":
                found[offer.method] = Verb(store_call)
    return found


def _showed_list(note: Note, answer: Any, hand: Hand) -> None:
    note.seen = noted(messages_from_list(answer), hand)


def _trim_by(parameter: str) -> Noter:
    def note(session: str, *rest: Any, **options: Any) -> Note:
        keep = options.get(parameter, rest[0] if rest else None)
        sure = isinstance(keep, int)
        return Note("trim", session, keep=keep if sure else 0).doubtful(not sure)

    return note


_DUCK_CHANGES: Final[dict[str, Verb]] = {
    "pop": Verb(change("pop"), took, removes=True),
    "clear": Verb(change("clear"), removes=True),
    "snapshot": Verb(change("snapshot"), froze),
    "rollback": Verb(rollback, removes=True),
    "fork": Verb(fork_at),
}


# One object for each session


def of_langchain(session: str, hand: Hand) -> Verbs:
    """The verbs of a chat message history. Its `messages` are a read too; see the proxy."""

    def add(messages: Any) -> Note:
        batch = noted(messages if isinstance(messages, Sequence) else [messages], hand)
        return Note("append" if batch else CALL, session, messages=batch)

    def add_text(message: Any, *, role: str) -> Note:
        text = message if isinstance(message, str) else getattr(message, "content", message)
        return Note("append", session, messages=[hand.noted({"role": role, "content": text})])

    found: dict[str, Verb] = {
        "add_message": Verb(add),
        "add_user_message": Verb(lambda message: add_text(message, role="user")),
        "add_ai_message": Verb(lambda message: add_text(message, role="assistant")),
        "aget_messages": Verb(lambda: Note("read", session), showed),
        "messages": Verb(lambda: Note("read", session), showed),
    }
    for letter in ("", "a"):
        found[f"{letter}add_messages"] = Verb(add, None, (0, "messages"))
        found[f"{letter}clear"] = Verb(lambda: Note("clear", session), removes=True)
    return found


def of_openai(session: str, hand: Hand) -> Verbs:
    """The verbs of a session of the OpenAI Agents SDK."""

    def add_items(items: Any) -> Note:
        batch = noted(items, hand)
        return Note("append" if batch else CALL, session, messages=batch)

    def get_items(limit: int | None = None) -> Note:
        return Note("read", session, limit=limit)

    return {
        "add_items": Verb(add_items, None, (0, "items")),
        "get_items": Verb(get_items, showed),
        "pop_item": Verb(lambda: Note("pop", session), took, removes=True),
        "clear_session": Verb(lambda: Note("clear", session), removes=True),
    }
