"""The methods of every kind of store that can be recorded, in the words of the contract.

A noter has the parameters of the method that it stands for and gives the note of a call; what the
store answers is read by `answers`. For a method that is in no table, see `unlisted`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from indelible.model import ChatMessage, Never
from memory_contract.recording.notes import Note
from memory_contract.recording.policy import Hand, Noted
from memory_contract.targets.duck_messages import messages_of_list, messages_of_turns
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
    """The fields of any message: a mapping, one of indelible's, LangChain's or another model's."""
    if isinstance(message, Mapping):
        return message
    if type(message) is ChatMessage:
        if message.__pydantic_fields_set__ == _TWO:
            return {"role": message.role, "content": message.content}
        return message.model_dump(exclude_unset=True)
    if hasattr(message, "type") and hasattr(message, "additional_kwargs"):
        from memory_contract.targets.langchain import from_langchain  # noqa: PLC0415

        found: dict[str, Any] = from_langchain(message)
        return found
    if hasattr(message, "role") and hasattr(message, "content"):
        return {"role": message.role, "content": message.content}
    return {"role": type(message).__name__, "content": repr(message)}


_TWO: Final = {"role", "content"}


def noted(messages: Iterable[Any], hand: Hand) -> list[Noted]:
    """What is remembered of messages."""
    return [hand.noted(fields_of(message)) for message in messages]


def _is_ttl(ttl: Any) -> float | None:
    return None if ttl is None or isinstance(ttl, Never) else float(ttl)


# Answers


def _showed(note: Note, answer: Any, hand: Hand) -> None:
    note.seen = noted(messages_of_list(answer) if answer is None else answer, hand)


def _showed_turns(note: Note, answer: Any, hand: Hand) -> None:
    found = [m for m in messages_of_turns(answer) if m.get("content") is not None]
    note.seen = noted(found, hand)


def _took(note: Note, answer: Any, hand: Hand) -> None:
    if isinstance(answer, list | tuple) and not hasattr(answer, "_fields"):
        answer = next(iter(answer), None)
    note.seen = None if answer is None else hand.noted(fields_of(answer))


def _froze(note: Note, answer: Any, _: Hand) -> None:
    note.snapshot = str(getattr(answer, "id", answer))


def _placed(note: Note, answer: Any, _: Hand) -> None:
    note.position = answer.positions.start


# indelible's own stores


def _get_history(
    session_id: str,
    *,
    last: int | None = None,
    max_tokens: int | None = None,
    on_corrupt: str = "raise",
    **_: Any,
) -> Note:
    # What is left out on purpose is no loss: such a read is not judged.
    if max_tokens is not None or on_corrupt != "raise":
        return Note(CALL, session_id)
    return Note("read", session_id, limit=last)


def _trim_last(
    session_id: str, *, keep_last: int | None = None, key: str | None = None, **_: Any
) -> Note:
    # A trim by tokens or by position drops what it drops: any of it may go.
    return Note("trim", session_id, keep=keep_last or 0, key=key).doubtful(keep_last is None)


def of_indelible(hand: Hand, ttl_s: Callable[[Any], float | None]) -> Verbs:
    """The verbs of `MemoryStore` and its twin. Their default time to live is known."""

    def add_message(
        session_id: str,
        role: str,
        content: Any,
        *,
        key: str | None = None,
        ttl: Any = None,
        expected: Any = None,
        replay: Any = None,
        **fields: Any,
    ) -> Note:
        del expected, replay
        one = hand.noted({"role": role, "content": content, **fields})
        return Note("append", session_id, messages=(one,), key=key, ttl_s=ttl_s(ttl))

    def add_messages(
        session_id: str, messages: Any, *, key: str | None = None, ttl: Any = None, **_: Any
    ) -> Note:
        batch = noted(messages, hand)
        return Note(
            "append" if batch else CALL, session_id, messages=batch, key=key, ttl_s=ttl_s(ttl)
        )

    def save_context(
        session_id: str,
        human_msg: str,
        ai_msg: str,
        *,
        key: str | None = None,
        ttl: Any = None,
        **_: Any,
    ) -> Note:
        turn = [
            hand.noted({"role": "user", "content": human_msg}),
            hand.noted({"role": "assistant", "content": ai_msg}),
        ]
        return Note("append", session_id, messages=turn, key=key, ttl_s=ttl_s(ttl))

    appends = {
        # A default time to live would have to be noted with each of them.
        "add_message": Verb(add_message, _placed, quick=hand.plain and ttl_s(None) is None),
        "add_messages": Verb(add_messages, _placed, (1, "messages")),
        "save_context": Verb(save_context, _placed),
    }
    reads = {
        "get_history": Verb(_get_history, _showed),
        "load_memory": Verb(lambda session_id: Note("read", session_id, turns=True), _showed_turns),
    }
    changes = {
        "trim": Verb(_trim_last, removes=True),
        "hide": Verb(_hide, removes=True),
        "clear": Verb(_change("clear"), removes=True),
        "clear_all": Verb(lambda: Note("clear", "", every=True), removes=True),
        "undo": Verb(_change("undo"), removes=True),
        "forget": Verb(_change("clear"), removes=True),
        "repair": Verb(_repair, removes=True),
        "save_snapshot": Verb(_change("snapshot"), _froze),
        "rollback_to_snapshot": Verb(_rollback, removes=True),
        "fork": Verb(_fork_at),
        "delete_snapshot": Verb(_delete_snapshot),
        "import_": Verb(lambda *_, **__: Note(CALL, "", every=True)),
    }
    others = {name: Verb(_other) for name in _OTHERS}
    others |= {name: Verb(_about_all) for name in _ABOUT_ALL}
    return {**appends, **reads, **changes, **others}


_OTHERS: Final = (
    *("add_entries", "add_tool_call", "add_tool_result", "add_summary", "get_entries"),
    *("get_tool_calls", "get_summaries", "search_summaries", "list_snapshots", "diff_snapshots"),
    *("session", "set_metadata", "timeline", "verify", "vacuum", "quarantined"),
)
# Of the store, and of no session.
_ABOUT_ALL: Final = ("claims", "export", "identity", "list_sessions", "risks")


def _other(session_id: Any = "", *_: Any, **__: Any) -> Note:
    return Note(CALL, session_id if isinstance(session_id, str) else "")


def _about_all(*_: Any, **__: Any) -> Note:
    return Note(CALL, "")


def _hide(session_id: str, *_: Any, key: str | None = None, **__: Any) -> Note:
    # Which entries stand at its positions is not in the trace: any may go.
    return Note("trim", session_id, keep=0, key=key).doubtful()


def _delete_snapshot(session_id: str, snapshot_id: str) -> Note:
    return Note(CALL, session_id, snapshot=snapshot_id)


def _change(op: str) -> Noter:
    def note(session_id: str, *_: Any, key: str | None = None, **__: Any) -> Note:
        return Note(op, session_id, key=key)

    return note


def _repair(session_id: str | None = None, *, dry_run: bool = False) -> Note:
    if dry_run:
        return Note(CALL, session_id or "")
    return Note("trim", session_id or "", keep=0, every=session_id is None).doubtful()


def _rollback(session_id: str, snapshot_id: Any, *, key: str | None = None, **_: Any) -> Note:
    return Note("rollback", session_id, snapshot=str(snapshot_id), key=key)


def _fork_at(session_id: str, new_session_id: str, *, at: str | None = None, **_: Any) -> Note:
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
        "read": Verb(read, _showed),
        "pop": Verb(_change("pop"), _took, removes=True),
        "trim": Verb(trim, removes=True),
        "clear": Verb(_change("clear"), removes=True),
        "undo": Verb(_change("undo"), removes=True),
        "snapshot": Verb(_change("snapshot"), _froze),
        "rollback": Verb(_rollback, removes=True),
        "fork": Verb(lambda session, target: Note("fork", session, target=target)),
        "version": Verb(_other),
        "sessions": Verb(_about_all),
    }


# Any class with one of two small interfaces


def of_duck(store: Any, hand: Hand) -> Verbs:
    """The verbs of a class of messages or of turns, under any of the names that the kit knows."""
    from memory_contract.targets.duck_handles import OFFERED, offers_of  # noqa: PLC0415

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
        found[f"{letter}load_memory"] = Verb(read, _showed_turns)
    for what in OFFERED:
        for offer in offers_of(store, what):
            if what in _DUCK_CHANGES:
                found[offer.method] = _DUCK_CHANGES[what]
            elif what == "trim":
                found[offer.method] = Verb(_trim_by(offer.parameter), removes=True)
            elif what == "list":
                found[offer.method] = Verb(_about_all)
    return found


def _showed_list(note: Note, answer: Any, hand: Hand) -> None:
    note.seen = noted(messages_of_list(answer), hand)


def _trim_by(parameter: str) -> Noter:
    def note(session: str, *rest: Any, **options: Any) -> Note:
        keep = options.get(parameter, rest[0] if rest else None)
        sure = isinstance(keep, int)
        return Note("trim", session, keep=keep if sure else 0).doubtful(not sure)

    return note


_DUCK_CHANGES: Final[dict[str, Verb]] = {
    "pop": Verb(_change("pop"), _took, removes=True),
    "clear": Verb(_change("clear"), removes=True),
    "snapshot": Verb(_change("snapshot"), _froze),
    "rollback": Verb(_rollback, removes=True),
    "fork": Verb(_fork_at),
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
        "aget_messages": Verb(lambda: Note("read", session), _showed),
        "messages": Verb(lambda: Note("read", session), _showed),
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
        "get_items": Verb(get_items, _showed),
        "pop_item": Verb(lambda: Note("pop", session), _took, removes=True),
        "clear_session": Verb(lambda: Note("clear", session), removes=True),
    }
