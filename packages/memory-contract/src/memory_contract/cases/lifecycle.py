"""Trimming, snapshots, forks, undo, closing and eviction. Expiry has a module of its own."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Sequence
from typing import Any, Final

from memory_contract.adapter import Message
from memory_contract.calls import format_error
from memory_contract.case_context import CaseContext, CaseNotClaimed, Client
from memory_contract.cases.case import case
from memory_contract.cases.programs import ExpectedSession
from memory_contract.cases.workload import pace
from memory_contract.history import Ids, OpName

_BOTH: Final = ("snapshot", "rollback")
_ROUNDS: Final = 3
_APPENDS: Final[tuple[OpName, ...]] = ("append",) * 9
_CHANGES: Final[tuple[OpName, ...]] = ("append", "pop", "trim", "clear")


def _open_two(context: CaseContext) -> tuple[Client, Client]:
    return context.open(), context.open_elsewhere()


def _expect_session(context: CaseContext) -> ExpectedSession:
    """A new session that every open handle reads after each step."""
    return ExpectedSession(context.new_session(), context.clients)


@case("lifecycle", catches="a wrong window: only the last exchange is kept", needs=["trim"])
def trim_keeps_the_newest(context: CaseContext) -> None:
    """Trim to some entries, to more than there are and to none; the newest stay, in order."""
    store, other = _open_two(context)
    session, beside = _expect_session(context), _expect_session(context)
    beside.run(store, "append", "append")
    turn = 2 if context.adapter.pairs else 1
    for turns in (context.random.randint(4, 7), context.random.randint(2, 3), 1, 40):
        session.run(store, *_APPENDS)
        # The newest of all sessions are not the newest of one.
        beside.run(store, "append")
        session.step(store, "trim", keep=turns * turn)
    try:
        session.step(other, "trim", keep=0)
    except Exception:  # noqa: BLE001 -- it may be refused
        context.note("a trim to none is refused")
    session.run(store, "append")
    beside.look(store, other)


def _build_message(role: str, content: str, **fields: Any) -> Message:
    return {"role": role, "content": content, **fields}


def _build_tool_calls(content: str, *ids: str) -> Message:
    calls = [
        {"id": id_, "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
        for id_ in ids
    ]
    return _build_message("assistant", content, tool_calls=calls)


# Tool calls answered at once, calls of one message answered out of order, and plain turns around
# them, so that a trim at every place meets each kind.
_CONVERSATION: Final[tuple[Message, ...]] = (
    _build_message("system", "m0 Be brief."),
    _build_message("user", "m1 Where is my parcel?"),
    _build_tool_calls("m2 I look.", "call-a"),
    _build_message("tool", "m3 In Ghent.", tool_call_id="call-a"),
    _build_message("assistant", "m4 It is in Ghent."),
    _build_message("user", "m5 And the two others?"),
    _build_tool_calls("m6 I look again.", "call-b", "call-c"),
    _build_message("tool", "m7 On the train.", tool_call_id="call-c"),
    _build_message("tool", "m8 Delivered.", tool_call_id="call-b"),
    _build_message("assistant", "m9 One is on a train, one is delivered."),
    _build_message("user", "m10 Thanks."),
    _build_message("assistant", "m11 You are welcome."),
)


@case(
    "lifecycle",
    catches="a tool result without its call, or a system message that is gone, after a trim",
    needs=["trim", "structure", "fields"],
)
def trim_keeps_structure(context: CaseContext) -> None:
    """Trim a conversation with tool calls at every place; calls and results stay together."""
    context.require_room(len(_CONVERSATION))
    store, other = context.open(), context.open_elsewhere()
    for keep in range(len(_CONVERSATION) + 1):
        session = context.new_session()
        store.put(session, *_CONVERSATION)
        store.ask("trim", session, keep)
        broken = _find_broken_structure(other.get(session))
        proof = f"after a trim to {keep}, {broken}"
        context.expect(not broken, "broken structure", proof, session=session)


def _find_broken_structure(kept: Sequence[Message]) -> str:
    """What is wrong after a trim; empty if nothing is."""
    contents = [message.get("content") for message in kept]
    known = [message["content"] for message in _CONVERSATION]
    if contents != [content for content in known if content in contents]:
        return "messages are doubled, strange or in another order"
    if _CONVERSATION[0] not in kept:
        return "the system message is gone"
    calls = {call["id"] for message in kept for call in message.get("tool_calls") or ()}
    results = {message["tool_call_id"] for message in kept if message.get("tool_call_id")}
    if orphans := sorted(results - calls):
        return f"the result of {orphans[0]} is there without its call"
    if open_calls := sorted(calls - results):
        return f"{open_calls[0]} is there without its result"
    return ""


@case("lifecycle", catches="a snapshot that changes with its session", needs=_BOTH)
def snapshot_is_frozen(context: CaseContext) -> None:
    """Take a snapshot, change the session in every claimed way, and return to it after each."""
    store, other = _open_two(context)
    session = _expect_session(context)
    session.run(store, "append", "append", "append", "snapshot")
    for change in _CHANGES:
        for client in (store, other):
            session.run(client, change, "rollback")


@case("lifecycle", catches="entries that a rollback should have removed", needs=_BOTH)
def rollback_is_exact(context: CaseContext) -> None:
    """Roll back and go on; only the snapshot and what came after the rollback ever shows."""
    store, other = _open_two(context)
    session, beside = _expect_session(context), _expect_session(context)
    beside.run(store, "append")
    session.run(store, "append", "append", "snapshot")
    beside.run(store, "snapshot", "append")
    for client in (store, other, store):
        session.run(client, "append", "append", "rollback", "append")
    session.run(other, "append")
    beside.run(other, "rollback")


@case(
    "lifecycle",
    catches="a rollback that wipes the snapshots: what was there to return to is gone",
    needs=_BOTH,
)
def rollback_keeps_every_snapshot(context: CaseContext) -> None:
    """Take snapshots, roll back to each over and over from other callers; all stay."""
    store = context.open()
    session = _expect_session(context)
    for change in _CHANGES:
        session.run(store, "append", "snapshot", change, "snapshot")
    for _ in range(_ROUNDS):
        caller, names = context.open_elsewhere(), [*session.snapshots]
        context.random.shuffle(names)
        for name in names:
            session.step(caller, "rollback", snapshot=name)
        # Appends to a branch that is abandoned must not change the snapshots.
        session.run(caller, "append", "snapshot")
    for name in session.snapshots:
        session.step(store, "rollback", snapshot=name)


@case("lifecycle", catches="a snapshot that is lost when an earlier one is restored", needs=_BOTH)
def rollback_there_and_back(context: CaseContext) -> None:
    """Go back to the first of two snapshots, forward to the second, and to a branch."""
    store, other = _open_two(context)
    session = _expect_session(context)
    session.run(store, "append", "snapshot", "append", "snapshot")
    for client in (store, other):
        for place in (0, 1, 1, 0):
            session.step(client, "rollback", snapshot=session.snapshots[place])
    session.run(other, "append", "snapshot")
    for place in (1, 2, 0, 2):
        session.step(store, "rollback", snapshot=session.snapshots[place])


@case(
    "lifecycle",
    catches="a fork that writes into the branch it left, or the other way round",
    needs=["fork"],
)
def fork_is_independent(context: CaseContext) -> None:
    """Fork a session, and the fork, and change all sides in turn: none affects another."""
    store, other = _open_two(context)
    source = _expect_session(context)
    (target,) = source.run(store, "append", "append", "append", "fork")
    (again,) = target.run(other, "fork")
    for changed, beside in ((target, source), (source, again), (again, target)) * 2:
        for client in (store, other):
            changed.run(client, "append", "snapshot", "trim", "append", "clear", "rollback")
            beside.look(store, other)


@case(
    "lifecycle",
    catches="an undo that brings back too little, too much, or the wrong change",
    needs=["undo", "clear"],
)
def undo_takes_back(context: CaseContext) -> None:
    """Clear, trim and roll back, and undo each; what showed before and what came since shows."""
    store, other = _open_two(context)
    session = _expect_session(context)
    session.run(store, *_APPENDS, "clear")
    session.run(other, "undo")
    session.run(store, "trim", "snapshot", "clear")
    session.run(other, "rollback")
    session.run(store, "clear")
    session.run(other, "undo", "undo", "undo", "undo")
    session.run(store, "clear", "append", "undo")


@case("lifecycle", catches="an append after close that is acknowledged and lost")
def close_is_final(context: CaseContext) -> None:
    """Close a store twice and go on; whatever is acknowledged after that is there."""
    store = context.open()
    if not callable(getattr(store.handle, "close", None)):
        raise CaseNotClaimed("there is nothing to close")
    alone = context.adapter.reach == "handle"
    readers, session = [store] if alone else [context.open()], context.new_session()
    kept: Ids = store.append(session, 2)
    said: Ids = ()
    store.ask("close")
    try:
        store.close()
    except Exception as error:  # noqa: BLE001 -- whatever is raised refuses, and loses nothing
        context.note(f"a second close is refused ({format_error(error)})")
    with contextlib.suppress(Exception):
        said = store.append(session, 2)
    if alone and not said:
        return
    for reader in readers if alone else [*readers, context.open_elsewhere()]:
        seen = reader.read(session)
        lost = [id_ for id_ in context.keep_newest(kept + said) if id_ not in seen]
        proof = f"{' '.join(lost)}: acknowledged around a close, and not there for {reader.name}"
        context.expect(not lost, "lost append", proof, session=session)


# More sessions than small caches hold.
OTHERS: Final = 150


@case("lifecycle", catches="a cache or an eviction that drops sessions which nobody touched")
def nothing_goes_unasked(context: CaseContext) -> None:
    """A session that was written first is still whole after many others came and were read."""
    store, first = context.open(), context.new_session()
    for _ in range(3):
        store.append(first)
    for _ in pace(context, range(OTHERS), "other sessions", least=20):
        other = context.new_session()
        store.append(other)
        store.read(other)
    gc.collect()
    store.read(first)
    context.read_with_fresh_client([first])
