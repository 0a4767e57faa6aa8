"""The methods of every kind of store that can be recorded, in the words of the contract.

A noter has the parameters of the method that it stands for and gives the note of a call; what the
store answers is read by `answers`. For a method that is in no table, see `unlisted`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from memory_contract.targets.simple_messages import messages_from_list, messages_from_turns
from memory_contract.traces.format import CALL
from memory_contract.traces.recorder.call_records import CallRecord
from memory_contract.traces.recorder.hasher import CapturedMessage, Hasher

Noter = Callable[..., CallRecord]
Answers = Callable[[CallRecord, Any, Hasher], None]

# What takes entries away, or may: known before it is done.
REMOVERS: Final = frozenset({"clear", "pop", "trim", "rollback", "undo", "expire"})


@dataclass(frozen=True, slots=True)
class MethodSpec:
    """One method: its note, what its answer says, and where its batch stands, if it has one."""

    noter: Noter
    answers: Answers | None = None
    # The place and the name of the parameter that holds messages, which may be given only once.
    batch: tuple[int, str] | None = None
    # Whether it is the append that must cost next to nothing.
    quick: bool = False
    # Whether it may take entries away: then no call of it may go unnoticed.
    removes: bool = False


MethodSpecs = Mapping[str, MethodSpec]


# Messages


def read_fields(message: Any) -> Mapping[str, Any]:
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


def capture_messages(messages: Iterable[Any], hasher: Hasher) -> list[CapturedMessage]:
    """What is remembered of messages."""
    return [hasher.noted(read_fields(message)) for message in messages]


# Answers


def record_messages(note: CallRecord, answer: Any, hasher: Hasher) -> None:
    """Note the messages that a read answered with."""
    note.seen = capture_messages(messages_from_list(answer) if answer is None else answer, hasher)


def record_turns(note: CallRecord, answer: Any, hasher: Hasher) -> None:
    """Note the messages of the turns that a read answered with."""
    found = [m for m in messages_from_turns(answer) if m.get("content") is not None]
    note.seen = capture_messages(found, hasher)


def record_popped(note: CallRecord, answer: Any, hasher: Hasher) -> None:
    """Note the message that was taken away."""
    if isinstance(answer, list | tuple) and not hasattr(answer, "_fields"):
        answer = next(iter(answer), None)
    note.seen = None if answer is None else hasher.noted(read_fields(answer))


def record_snapshot_id(note: CallRecord, answer: Any, _: Hasher) -> None:
    """Note the id of a snapshot."""
    note.snapshot = str(getattr(answer, "id", answer))


def record_position(note: CallRecord, answer: Any, _: Hasher) -> None:
    """Note the position of an append."""
    note.position = answer.positions.start


def describe_session_call(session_id: Any = "", *_: Any, **__: Any) -> CallRecord:
    """A call that is about a session and of which no more is known."""
    return CallRecord(CALL, session_id if isinstance(session_id, str) else "")


def describe_store_call(*_: Any, **__: Any) -> CallRecord:
    """A call that is about the store, and about no session."""
    return CallRecord(CALL, "")


def describe_change(op: str) -> Noter:
    """A verb whose note is its session and its key."""

    def note(session_id: str, *_: Any, key: str | None = None, **__: Any) -> CallRecord:
        return CallRecord(op, session_id, key=key)

    return note


def describe_rollback(
    session_id: str, snapshot_id: Any, *, key: str | None = None, **_: Any
) -> CallRecord:
    """A rollback to a snapshot."""
    return CallRecord("rollback", session_id, snapshot=str(snapshot_id), key=key)


def describe_fork(
    session_id: str, new_session_id: str, *, at: str | None = None, **_: Any
) -> CallRecord:
    """A fork of a session, of a snapshot if one is named."""
    return CallRecord("fork", session_id, target=new_session_id, snapshot=at)


# Handles of the kit: whatever an adapter opens


def build_handle_methods(hasher: Hasher) -> MethodSpecs:
    """The verbs of a handle."""

    def append(
        session: str,
        messages: Any,
        *,
        key: str | None = None,
        ttl_s: float | None = None,
        **_: Any,
    ) -> CallRecord:
        batch = capture_messages(messages, hasher)
        op = "append" if batch else CALL
        return CallRecord(op, session, messages=batch, key=key, ttl_s=ttl_s)

    def read(session: str, *, limit: int | None = None) -> CallRecord:
        return CallRecord("read", session, limit=limit)

    def trim(session: str, keep: int) -> CallRecord:
        return CallRecord("trim", session, keep=keep)

    return {
        "append": MethodSpec(append, None, (1, "messages")),
        "read": MethodSpec(read, record_messages),
        "pop": MethodSpec(describe_change("pop"), record_popped, removes=True),
        "trim": MethodSpec(trim, removes=True),
        "clear": MethodSpec(describe_change("clear"), removes=True),
        "undo": MethodSpec(describe_change("undo"), removes=True),
        "snapshot": MethodSpec(describe_change("snapshot"), record_snapshot_id),
        "rollback": MethodSpec(describe_rollback, removes=True),
        "fork": MethodSpec(lambda session, target: CallRecord("fork", session, target=target)),
        "version": MethodSpec(describe_session_call),
        "sessions": MethodSpec(describe_store_call),
    }


# Any class with one of two small interfaces


def build_duck_methods(store: Any, hasher: Hasher) -> MethodSpecs:
    """The verbs of a class of messages or of turns, under any of the names that the kit knows."""
    from memory_contract.targets.simple_stores import METHOD_NAMES, find_offers  # noqa: PLC0415

    def add_messages(session: str, messages: Any, *_: Any, **__: Any) -> CallRecord:
        batch = capture_messages(messages, hasher)
        return CallRecord("append" if batch else CALL, session, messages=batch)

    def save_context(session: str, human_msg: Any, ai_msg: Any, *_: Any, **__: Any) -> CallRecord:
        turn = (("user", human_msg), ("assistant", ai_msg))
        batch = [hasher.noted({"role": role, "content": text}) for role, text in turn]
        return CallRecord("append", session, messages=batch)

    def read(session: str, *rest: Any, **options: Any) -> CallRecord:
        # A read that was asked for something else than all of it is not judged.
        return CallRecord(CALL if rest or options else "read", session)

    found: dict[str, MethodSpec] = {
        "add_messages": MethodSpec(add_messages, None, (1, "messages")),
        "get_history": MethodSpec(read, _showed_list),
    }
    for letter in ("", "a"):
        found[f"{letter}save_context"] = MethodSpec(save_context)
        found[f"{letter}load_memory"] = MethodSpec(read, record_turns)
    for what in METHOD_NAMES:
        for offer in find_offers(store, what):
            if what in _DUCK_CHANGES:
                found[offer.method] = _DUCK_CHANGES[what]
            elif what == "trim":
                found[offer.method] = MethodSpec(_trim_by(offer.parameter), removes=True)
            elif what == "list":
                found[offer.method] = MethodSpec(describe_store_call)
    return found


def _showed_list(note: CallRecord, answer: Any, hasher: Hasher) -> None:
    note.seen = capture_messages(messages_from_list(answer), hasher)


def _trim_by(parameter: str) -> Noter:
    def note(session: str, *rest: Any, **options: Any) -> CallRecord:
        keep = options.get(parameter, rest[0] if rest else None)
        sure = isinstance(keep, int)
        return CallRecord("trim", session, keep=keep if sure else 0).doubtful(not sure)

    return note


_DUCK_CHANGES: Final[dict[str, MethodSpec]] = {
    "pop": MethodSpec(describe_change("pop"), record_popped, removes=True),
    "clear": MethodSpec(describe_change("clear"), removes=True),
    "snapshot": MethodSpec(describe_change("snapshot"), record_snapshot_id),
    "rollback": MethodSpec(describe_rollback, removes=True),
    "fork": MethodSpec(describe_fork),
}


# One object for each session


def build_langchain_methods(session: str, hasher: Hasher) -> MethodSpecs:
    """The verbs of a chat message history. Its `messages` are a read too; see the proxy."""

    def add(messages: Any) -> CallRecord:
        batch = capture_messages(messages if isinstance(messages, Sequence) else [messages], hasher)
        return CallRecord("append" if batch else CALL, session, messages=batch)

    def add_text(message: Any, *, role: str) -> CallRecord:
        text = message if isinstance(message, str) else getattr(message, "content", message)
        return CallRecord(
            "append", session, messages=[hasher.noted({"role": role, "content": text})]
        )

    found: dict[str, MethodSpec] = {
        "add_message": MethodSpec(add),
        "add_user_message": MethodSpec(lambda message: add_text(message, role="user")),
        "add_ai_message": MethodSpec(lambda message: add_text(message, role="assistant")),
        "aget_messages": MethodSpec(lambda: CallRecord("read", session), record_messages),
        "messages": MethodSpec(lambda: CallRecord("read", session), record_messages),
    }
    for letter in ("", "a"):
        found[f"{letter}add_messages"] = MethodSpec(add, None, (0, "messages"))
        found[f"{letter}clear"] = MethodSpec(lambda: CallRecord("clear", session), removes=True)
    return found


def build_openai_methods(session: str, hasher: Hasher) -> MethodSpecs:
    """The verbs of a session of the OpenAI Agents SDK."""

    def add_items(items: Any) -> CallRecord:
        batch = capture_messages(items, hasher)
        return CallRecord("append" if batch else CALL, session, messages=batch)

    def get_items(limit: int | None = None) -> CallRecord:
        return CallRecord("read", session, limit=limit)

    return {
        "add_items": MethodSpec(add_items, None, (0, "items")),
        "get_items": MethodSpec(get_items, record_messages),
        "pop_item": MethodSpec(lambda: CallRecord("pop", session), record_popped, removes=True),
        "clear_session": MethodSpec(lambda: CallRecord("clear", session), removes=True),
    }
