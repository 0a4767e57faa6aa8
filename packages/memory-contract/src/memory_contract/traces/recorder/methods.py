"""The methods of every kind of store that can be recorded, in the terms of the contract.

`describe` has the parameters of the method and returns the record of a call; `read_result` adds
what the store returned. A call of a method that no table lists makes its session undecided for
`explain`, and every session if it names none; only methods whose names say that they read are taken
to change nothing.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from memory_contract.targets.langchain import from_langchain
from memory_contract.targets.simple_messages import (
    get_messages,
    message_from_pop,
    messages_from_turns,
    to_message,
)
from memory_contract.targets.simple_stores import (
    METHODS,
    find_method,
    find_snapshot_id,
    list_parameters,
    sort_parameters,
    takes_arguments,
    takes_name,
    takes_role_and_content,
    takes_session_first,
)
from memory_contract.traces.format import CALL
from memory_contract.traces.recorder.call_records import CallRecord
from memory_contract.traces.recorder.hasher import HashedMessage, Hasher


@dataclass(frozen=True, slots=True)
class MethodSpec:
    """How the recorder understands one method of a store."""

    describe: Callable[..., CallRecord]
    read_result: Callable[[CallRecord, Any, Hasher], None] | None = None
    # Whether it takes several messages: an iterator of them can be read only once.
    takes_batch: bool = False
    # Whether it may remove entries: no call of it may be missing from the trace.
    removes: bool = False
    # Whether it closes the store.
    closes: bool = False
    # Whether it is no method, but a property that reads.
    is_property: bool = False


MethodSpecs = Mapping[str, MethodSpec]

# Options that change nothing about what a call does.
_REMARKS: Final = frozenset({"reason", "note", "comment"})
_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


# Messages


def read_fields(message: Any) -> Mapping[str, Any]:
    """Return the fields of a message: a mapping, a pydantic model, LangChain's, another object."""
    if isinstance(message, Mapping):
        return message
    if hasattr(message, "type") and hasattr(message, "additional_kwargs"):
        found: dict[str, Any] = from_langchain(message)
        return found
    given: frozenset[str] = getattr(message, "__pydantic_fields_set__", frozenset())
    if given > {"role", "content"}:
        fields: dict[str, Any] = message.model_dump(exclude_unset=True)
        return fields
    if hasattr(message, "role") and hasattr(message, "content"):
        return {"role": message.role, "content": message.content}
    return {"role": type(message).__name__, "content": repr(message)}


def is_message(message: Any) -> bool:
    """Return whether `read_fields` finds a role and a content; another form is its store's own."""
    if isinstance(message, Mapping) or (hasattr(message, "role") and hasattr(message, "content")):
        return True
    return hasattr(message, "type") and hasattr(message, "additional_kwargs")


def hash_messages(messages: Iterable[Any], hasher: Hasher) -> list[HashedMessage]:
    """Hash a list of messages."""
    return [hasher.hash_message(read_fields(message)) for message in messages]


def hash_turn(human: Any, ai: Any, hasher: Hasher) -> list[HashedMessage]:
    """Hash the two texts of a turn."""
    turn = (("user", human), ("assistant", ai))
    return [hasher.hash_message({"role": role, "content": text}) for role, text in turn]


# Results


def record_messages(record: CallRecord, answer: Any, hasher: Hasher) -> None:
    """Note the messages that a read returned."""
    messages = () if answer is None else answer
    record.value = tuple(message.token for message in hash_messages(messages, hasher))


def record_turns(record: CallRecord, answer: Any, hasher: Hasher) -> None:
    """Note the messages of the turns that a read returned."""
    messages = messages_from_turns(get_messages(answer))
    if not all(isinstance(each, Mapping) and "role" in each for each in messages):
        record.outcome = "info"
        return
    # Of a turn, one half may be empty.
    record_messages(record, [m for m in messages if m.get("content") is not None], hasher)


def record_popped(record: CallRecord, answer: Any, hasher: Hasher) -> None:
    """Note the message that a pop removed."""
    if isinstance(answer, list | tuple) and not hasattr(answer, "_fields"):
        answer = next(iter(answer), None)
    record.value = None if answer is None else hasher.hash_message(read_fields(answer)).token


def _is_known(message: Any) -> bool:
    # Items of tool calls have neither a role nor a content.
    return isinstance(message, Mapping) and ("role" in message) == ("content" in message)


def _record_list(record: CallRecord, answer: Any, hasher: Hasher) -> None:
    listed = get_messages(answer)
    # As they were read when they were appended; what is no message may be a pair.
    messages = [
        read_fields(each) if is_message(each) else to_message(each)
        for each in (() if listed is None else listed)
    ]
    if all(map(_is_known, messages)):
        record_messages(record, messages, hasher)
    else:
        record.outcome = "info"


def _record_popped_message(record: CallRecord, answer: Any, hasher: Hasher) -> None:
    message = read_fields(answer) if is_message(answer) else message_from_pop(answer)
    if _is_known(message):
        record.value = hasher.hash_message(message).token
    elif message is not None:
        record.outcome = "info"


def record_snapshot_id(record: CallRecord, answer: Any, _: Hasher) -> None:
    """Note the id of a snapshot."""
    record.snapshot = str(getattr(answer, "id", answer))


def record_position(record: CallRecord, answer: Any, _: Hasher) -> None:
    """Note the position of an append."""
    record.position = answer.positions.start


# Calls


def describe_append(
    session: str,
    messages: Sequence[HashedMessage],
    *,
    key: str | None = None,
    ttl_s: float | None = None,
) -> CallRecord:
    """Describe an append; an empty one changes nothing."""
    op = "append" if messages else CALL
    return CallRecord(op, session, messages=messages, key=key, ttl_s=ttl_s)


def describe_session_call(session_id: Any = "", *_: Any, **__: Any) -> CallRecord:
    """Describe a call that is about a session and changes nothing."""
    return CallRecord(CALL, session_id if isinstance(session_id, str) else "")


def describe_store_call(*_: Any, **__: Any) -> CallRecord:
    """Describe a call that is about no session."""
    return CallRecord(CALL, "")


def describe_change(op: str) -> Callable[..., CallRecord]:
    """Describe calls of which the session and the key are all that matters."""

    def describe(session_id: str, *_: Any, key: str | None = None, **__: Any) -> CallRecord:
        return CallRecord(op, session_id, key=key)

    return describe


def describe_rollback(
    session_id: str, snapshot_id: Any, *, key: str | None = None, **_: Any
) -> CallRecord:
    """Describe a rollback to a snapshot."""
    return CallRecord("rollback", session_id, snapshot=str(snapshot_id), key=key)


def describe_fork(
    session_id: str, new_session_id: str, *, at: str | None = None, **_: Any
) -> CallRecord:
    """Describe a fork of a session, or of one of its snapshots."""
    return CallRecord("fork", session_id, target=new_session_id, snapshot=at)


# Handles of the kit: whatever an adapter opens


def build_handle_methods(hasher: Hasher) -> MethodSpecs:
    """Build the table of a handle."""

    def append(
        session: str,
        messages: Any,
        *,
        key: str | None = None,
        ttl_s: float | None = None,
        **_: Any,
    ) -> CallRecord:
        return describe_append(session, hash_messages(messages, hasher), key=key, ttl_s=ttl_s)

    def read(session: str, *, limit: int | None = None) -> CallRecord:
        return CallRecord("read", session, limit=limit)

    def trim(session: str, keep: int) -> CallRecord:
        return CallRecord("trim", session, keep=keep)

    def fork(session: str, target: str) -> CallRecord:
        return CallRecord("fork", session, target=target)

    return {
        "append": MethodSpec(append, takes_batch=True),
        "read": MethodSpec(read, record_messages),
        "pop": MethodSpec(describe_change("pop"), record_popped, removes=True),
        "trim": MethodSpec(trim, removes=True),
        "clear": MethodSpec(describe_change("clear"), removes=True),
        "undo": MethodSpec(describe_change("undo"), removes=True),
        "snapshot": MethodSpec(describe_change("snapshot"), record_snapshot_id),
        "rollback": MethodSpec(describe_rollback, removes=True),
        "fork": MethodSpec(fork),
        "version": MethodSpec(describe_session_call),
        "sessions": MethodSpec(describe_store_call),
    }


# Any class with one of two small interfaces


def build_duck_methods(store: Any, hasher: Hasher) -> MethodSpecs:
    """Build the table of a class of messages or of turns."""
    found: dict[str, MethodSpec] = {}
    for name, spec in _build_append_and_read(store, hasher).items():
        if callable(method := getattr(store, name, None)):
            is_part = spec.read_result is not None and _may_return_part(method)
            found[name] = replace(spec, describe=describe_session_call) if is_part else spec
    for capability, (name, *_) in METHODS.items():
        method = find_method(store, capability)
        # Any other method may change the store in a way that the recorder does not know.
        if method is not None and takes_arguments(method, capability):
            named = capability == "snapshot" and takes_name(method)
            found[name] = (
                MethodSpec(_describe_named_snapshot, _record_named_snapshot)
                if named
                else _DUCK_METHODS[capability]
            )
    if "save_context" in found:
        # It may take one message or two.
        found.pop("pop", None)
    return {
        name: replace(spec, describe=_describe_by_signature(store, name, spec))
        for name, spec in found.items()
    }


def _may_return_part(read: Callable[..., Any]) -> bool:
    """Return whether a read has an option that may say how much it returns."""
    defaults = [each.default for each in list_parameters(read)]
    return any(type(default) is int and default > 0 for default in defaults)


def _build_append_and_read(store: Any, hasher: Hasher) -> dict[str, MethodSpec]:
    def add_message(session: str, message: Any, **_: Any) -> CallRecord:
        return add_messages(session, [message])

    def add_texts(session: str, role: Any, content: Any, **_: Any) -> CallRecord:
        if not (isinstance(role, str) and isinstance(content, str | list)):
            return CallRecord(CALL, session, changes=True)
        return add_messages(session, [{"role": role, "content": content}])

    def add_messages(session: str, messages: Any, **_: Any) -> CallRecord:
        messages = list(messages)
        if not all(map(is_message, messages)):
            # In which form they come back is not known.
            return CallRecord(CALL, session, changes=True)
        return describe_append(session, hash_messages(messages, hasher))

    def save_context(session: str, human_msg: Any, ai_msg: Any, **_: Any) -> CallRecord:
        if not (isinstance(human_msg, str) and isinstance(ai_msg, str)):
            return CallRecord(CALL, session, changes=True)
        return describe_append(session, hash_turn(human_msg, ai_msg, hasher))

    def read(session: str, **options: Any) -> CallRecord:
        # A read of a part is not judged.
        return CallRecord(CALL if options else "read", session)

    has_texts = callable(getattr(store, "add_message", None)) and takes_role_and_content(store)
    return {
        "add_message": MethodSpec(add_texts if has_texts else add_message),
        "add_messages": MethodSpec(add_messages, takes_batch=True),
        "get_history": MethodSpec(read, _record_list),
        "save_context": MethodSpec(save_context),
        "load_memory": MethodSpec(read, record_turns),
        "asave_context": MethodSpec(save_context),
        "aload_memory": MethodSpec(read, record_turns),
    }


def _describe_by_signature(store: Any, name: str, spec: MethodSpec) -> Callable[..., CallRecord]:
    """Describe calls by session and further arguments: by their names, or else in their order."""
    method = getattr(store, name)
    ordered = sort_parameters(store, method)
    of_describe = inspect.signature(spec.describe).parameters.values()
    wanted = [each.name for each in of_describe if each.kind is each.POSITIONAL_OR_KEYWORD]
    count = len(wanted)
    if not ordered or any(each.kind in _VARIADIC for each in ordered[:count]):
        if takes_session_first(store, method):
            return spec.describe
        return build_unknown_method(method, None).describe
    signature = inspect.signature(method)
    names = [each.name for each in ordered[:count]]
    if set(wanted[1:]) <= signature.parameters.keys():
        names[1:] = wanted[1:]

    def describe_call(*arguments: Any, **options: Any) -> CallRecord:
        given = signature.bind(*arguments, **options).arguments
        first = [given.pop(name, signature.parameters[name].default) for name in names]
        others = {
            name
            for name, value in given.items()
            if name not in _REMARKS and value is not signature.parameters[name].default
        }
        if spec.removes and others:
            # They may say how much is removed, or that nothing is.
            return CallRecord(CALL, first[0], changes=True)
        return spec.describe(*first, **given)

    return describe_call


def _describe_named_snapshot(session: str, name: Any, **_: Any) -> CallRecord:
    return CallRecord("snapshot", session, snapshot=str(name))


def _record_named_snapshot(record: CallRecord, answer: Any, _: Hasher) -> None:
    record.snapshot = str(find_snapshot_id(answer, record.snapshot))


def _describe_fork(session: str, target: str, *, at: Any = None, **options: Any) -> CallRecord:
    if options or not isinstance(at, str | None):
        # Which state it copies is not known.
        return CallRecord(CALL, target, changes=True)
    return CallRecord("fork", session, target=target, snapshot=at)


def _describe_trim(session: str, _keep: Any, **_: Any) -> CallRecord:
    # The number may count messages, turns or tokens.
    return CallRecord("trim", session, keep=0, unsure=True)


_DUCK_METHODS: Final[dict[str, MethodSpec]] = {
    "trim": MethodSpec(_describe_trim, removes=True),
    "list": MethodSpec(describe_store_call),
    "pop": MethodSpec(describe_change("pop"), _record_popped_message, removes=True),
    "clear": MethodSpec(describe_change("clear"), removes=True),
    # A key may mean anything here, so it is left out.
    "snapshot": MethodSpec(
        lambda session, **_: CallRecord("snapshot", session), record_snapshot_id
    ),
    "rollback": MethodSpec(describe_rollback, removes=True),
    "fork": MethodSpec(_describe_fork),
}


# One object for each session


def build_langchain_methods(session: str, hasher: Hasher) -> MethodSpecs:
    """Build the table of a chat message history. Its property `messages` is a read, too."""

    def add(messages: Any) -> CallRecord:
        batch = messages if isinstance(messages, Sequence) else [messages]
        return describe_append(session, hash_messages(batch, hasher))

    def add_text(message: Any, *, role: str) -> CallRecord:
        text = message if isinstance(message, str) else getattr(message, "content", message)
        return describe_append(session, [hasher.hash_message({"role": role, "content": text})])

    def read() -> CallRecord:
        return CallRecord("read", session)

    found: dict[str, MethodSpec] = {
        "add_message": MethodSpec(add),
        "add_user_message": MethodSpec(lambda message: add_text(message, role="user")),
        "add_ai_message": MethodSpec(lambda message: add_text(message, role="assistant")),
        "aget_messages": MethodSpec(read, record_messages),
        "messages": MethodSpec(read, record_messages, is_property=True),
    }
    for letter in ("", "a"):
        found[f"{letter}add_messages"] = MethodSpec(add, takes_batch=True)
        found[f"{letter}clear"] = MethodSpec(lambda: CallRecord("clear", session), removes=True)
    return found


def build_openai_methods(session: str, hasher: Hasher) -> MethodSpecs:
    """Build the table of a session of the OpenAI Agents SDK."""

    def add_items(items: Any) -> CallRecord:
        return describe_append(session, hash_messages(items, hasher))

    def get_items(limit: int | None = None) -> CallRecord:
        return CallRecord("read", session, limit=limit)

    return {
        "add_items": MethodSpec(add_items, takes_batch=True),
        "get_items": MethodSpec(get_items, record_messages),
        "pop_item": MethodSpec(lambda: CallRecord("pop", session), record_popped, removes=True),
        "clear_session": MethodSpec(lambda: CallRecord("clear", session), removes=True),
    }


# Methods that no table lists

_READS: Final = frozenset(
    {
        *("get", "list", "load", "read", "search", "count", "find", "has", "is", "exists", "fetch"),
        *("peek", "show", "describe", "export", "iter", "len", "query", "stats", "ping"),
    }
)
# Words after the first that say otherwise: get_or_create, read_and_clear.
_CHANGES: Final = frozenset(
    {
        *("or", "and", "then", "add", "append", "clear", "clean", "compact", "create", "delete"),
        *("drop", "expire", "init", "merge", "pop", "prune", "put", "remove", "replace", "reset"),
        *("restore", "save", "set", "store", "trim", "update", "write"),
    }
)
# Methods that frameworks give to every object.
_HARMLESS: Final = frozenset({"model_dump", "model_dump_json", "dict", "json"})


def can_change(name: str, found: Any, read_only: Collection[str]) -> bool:
    """Return whether calling an attribute may change a session, as far as its name tells."""
    if name in read_only or name in _HARMLESS or (name.startswith("__") and name.endswith("__")):
        return False
    if not (inspect.ismethod(found) or inspect.isfunction(found) or inspect.isbuiltin(found)):
        return False
    first, *rest = [word for word in re.split(r"_+", name.lower()) if word] or [""]
    # `aget` is the awaited `get`.
    reads = first in _READS or (first.startswith("a") and first[1:] in _READS)
    return not reads or not _CHANGES.isdisjoint(rest)


def build_unknown_method(method: Callable[..., Any], session: str | None) -> MethodSpec:
    """Describe a method that may change a session.

    `session` is the one that the whole object stands for, if it does.
    """

    def describe(*arguments: Any, **options: Any) -> CallRecord:
        found = session if session is not None else _find_only_session(method, arguments, options)
        if found is None:
            return CallRecord(CALL, "", every=True, changes=True)
        return CallRecord(CALL, found, changes=True)

    return MethodSpec(describe)


def _find_only_session(
    method: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]
) -> str | None:
    """Find the only session that a call can be about; None if it may be about others too."""
    try:
        given = inspect.signature(method).bind(*arguments, **options).arguments
    except (TypeError, ValueError):
        return None
    named = [value for name, value in given.items() if "session" in name.lower()]
    # Anything but numbers and flags may name another session: `merge(session_id, into)`.
    others = [value for name, value in given.items() if "session" not in name.lower()]
    alone = all(value is None or isinstance(value, int | float) for value in others)
    return named[0] if len(named) == 1 and isinstance(named[0], str) and alone else None
