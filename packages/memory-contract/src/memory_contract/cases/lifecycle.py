"""Trimming, snapshots, forks, undo, closing and eviction. Expiry has a module of its own."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Sequence
from typing import Any, Final

from memory_contract.adapter import Message
from memory_contract.case_context import CaseContext, CaseNotClaimed, Client
from memory_contract.cases.case import case
from memory_contract.cases.workload import pace
from memory_contract.history import Ids
from memory_contract.model import take_last

_BOTH: Final = ("snapshot", "rollback")
_ROUNDS: Final = 3


@case("lifecycle", catches="a wrong window: only the last exchange is kept", needs=["trim"])
def trim_keeps_the_newest(context: CaseContext) -> None:
    """Trim to some entries, to more than there are and to none; the newest stay, in order."""
    store, other = context.open(), context.open_elsewhere()
    session, beside = context.new_session(), context.new_session()
    untouched = store.append(beside, 3)
    shown: Ids = ()
    turn = 2 if context.adapter.pairs else 1
    for turns in (context.random.randint(4, 7), context.random.randint(2, 3), 1, 40):
        keep = turns * turn
        shown += sum((store.append(session) for _ in range(9)), ())
        store.trim(session, keep)
        shown = take_last(shown, keep)
        context.expect_shown(session, shown, after=f"a trim to {keep}")
    try:
        other.trim(session, 0)
    except Exception:  # noqa: BLE001 -- it may be refused
        context.note("a trim to none is refused")
    else:
        context.expect_shown(session, (), after="a trim to none")
        shown = store.append(session)
        context.expect_shown(session, shown, after="a trim to none and an append")
    context.expect_shown(beside, untouched, after="trims of another session")


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
    store, other, session = context.open(), context.open_elsewhere(), context.new_session()
    frozen = store.append(session, 2) + store.append(session) + store.append(session)
    taken = store.snapshot(session)
    changes: dict[str, Callable[[Client], object]] = {
        "append": lambda client: client.append(session, 2),
        "pop": lambda client: client.pop(session),
        "trim": lambda client: client.trim(session, 2),
        "clear": lambda client: client.clear(session),
    }
    for op, change in changes.items():
        if op != "append" and not context.claims(op):
            continue
        for client in (store, other):
            change(client)
            client.rollback(session, taken)
            context.expect_shown(session, frozen, after=f"{op} and a rollback")


@case("lifecycle", catches="ghosts: entries that a rollback should have taken away", needs=_BOTH)
def rollback_is_exact(context: CaseContext) -> None:
    """Roll back and go on; only the snapshot and what came after the rollback ever shows."""
    store, other = context.open(), context.open_elsewhere()
    session, beside = context.new_session(), context.new_session()
    untouched = store.append(beside, 2)
    frozen = store.append(session) + store.append(session, 2)
    taken = store.snapshot(session)
    later: Ids = ()
    for client in (store, other, store):
        client.append(session)
        client.append(session, 2)
        client.rollback(session, taken)
        context.expect_shown(session, frozen, after="a rollback")
        later = client.append(session)
        context.expect_shown(session, frozen + later, after="a rollback and an append")
    later += other.append(session, 2)
    context.expect_shown(session, frozen + later, after="a rollback and two appends")
    context.expect_shown(beside, untouched, after="rollbacks of another session")


@case(
    "lifecycle",
    catches="a rollback that wipes the snapshots: what was there to return to is gone",
    needs=_BOTH,
)
def rollback_keeps_every_snapshot(context: CaseContext) -> None:
    """Take snapshots, roll back to each over and over from other callers; all stay."""
    store, session = context.open(), context.new_session()
    snapshots = _take_snapshots(context, store, session)
    names = list(snapshots)
    for _ in range(_ROUNDS):
        caller = context.open_elsewhere()
        context.random.shuffle(names)
        for name in names:
            caller.rollback(session, name)
            context.expect_shown(session, snapshots[name], after=f"a rollback to {name}")
        context.expect_shown(session, snapshots[names[-1]], after="a rollback elsewhere")
        # Appends to a branch that is abandoned must not change the snapshots.
        said = caller.append(session)
        name = caller.snapshot(session)
        snapshots[name] = snapshots[names[-1]] + said
        names.append(name)
    for name, shown in snapshots.items():
        store.rollback(session, name)
        context.expect_shown(session, shown, after=f"a rollback to {name}")


def _take_snapshots(context: CaseContext, store: Client, session: str) -> dict[str, Ids]:
    """Snapshots of a session that grows, is trimmed and is cleared, as far as that is claimed."""
    found: dict[str, Ids] = {}
    shown: Ids = ()
    for count in (2, 1, 3):
        shown += store.append(session, count)
        found[store.snapshot(session)] = shown
    if context.claims("trim"):
        store.trim(session, 2)
        shown = shown[-2:]
        found[store.snapshot(session)] = shown
    if context.claims("clear"):
        store.clear(session)
        shown = store.append(session)
        found[store.snapshot(session)] = shown
    return found


@case("lifecycle", catches="a way back that is no way forward again", needs=_BOTH)
def rollback_there_and_back(context: CaseContext) -> None:
    """Go back to the first of two snapshots, forward to the second, and to a branch."""
    store, other, session = context.open(), context.open_elsewhere(), context.new_session()
    early = store.append(session, 2)
    first = store.snapshot(session)
    late = early + store.append(session, 2)
    second = store.snapshot(session)
    for client in (store, other):
        for taken, shown in ((first, early), (second, late), (second, late), (first, early)):
            client.rollback(session, taken)
            context.expect_shown(session, shown, after=f"a rollback to {taken}")
    branch = early + other.append(session)
    third = other.snapshot(session)
    for taken, shown in ((second, late), (third, branch), (first, early), (third, branch)):
        store.rollback(session, taken)
        context.expect_shown(session, shown, after=f"a rollback to {taken}")


@case(
    "lifecycle",
    catches="a fork that writes into the branch it left, or the other way round",
    needs=["fork"],
)
def fork_is_independent(context: CaseContext) -> None:
    """Fork a session, change both sides in turn, and see that neither hears of the other."""
    store, other = context.open(), context.open_elsewhere()
    source = context.new_session()
    ours = sum((store.append(source, count) for count in (1, 2, 1)), ())
    target = store.fork(source)
    theirs = ours
    for writer in (store, other):
        context.expect_shown(target, theirs, after="a fork of another session")
        theirs += writer.append(target)
        context.expect_shown(source, ours, after="an append to its fork")
        ours += writer.append(source)
        context.expect_shown(target, theirs, after="an append to what it was forked from")
    if context.claims("snapshot", "rollback"):
        taken = store.snapshot(target)
        if context.claims("trim"):
            store.trim(target, 2)
            context.expect_shown(source, ours, after="a trim of its fork")
        if context.claims("clear"):
            store.clear(source)
            ours = store.append(source)
        other.rollback(target, taken)
        context.expect_shown(target, theirs, after="a rollback to its own snapshot")
        context.expect_shown(source, ours, after="a rollback of its fork")
    elif context.claims("clear"):
        store.clear(target)
        context.expect_shown(source, ours, after="a clear of its fork")


@case(
    "lifecycle",
    catches="an undo that brings back too little, too much, or the wrong change",
    needs=["undo", "clear"],
)
def undo_takes_back(context: CaseContext) -> None:
    """Clear, trim and roll back, and undo each; what showed before shows again."""
    store, other, session = context.open(), context.open_elsewhere(), context.new_session()
    shown = sum((store.append(session) for _ in range(5)), ())
    store.clear(session)
    context.expect_shown(session, (), after="a clear")
    other.undo(session)
    context.expect_shown(session, shown, after="a clear that was undone")
    _undo_one_by_one(store, other)


def _undo_one_by_one(store: Client, other: Client) -> None:
    # Not recorded: reads of one client are proof enough, and the checker does not search through
    # trims that were undone.
    context, session = store.context, store.context.new_session()
    shown = sum((store.append(session) for _ in range(6)), ())
    context.require_room(len(shown))
    states = [shown]
    if context.claims("trim"):
        store.trim(session, 4)
        states.append(take_last(shown, 4))
    if context.claims("snapshot", "rollback"):
        taken = store.snapshot(session)
        store.clear(session)
        other.rollback(session, taken)
        states += [(), states[-1]]
    store.clear(session)
    while states:
        other.undo(session)
        before, seen = states.pop(), store.look(session)
        proof = f"an undo of {session} shows {list(seen)}, where {list(before)} showed before"
        context.expect(seen == before, "wrong undo", proof, session=session)


@case("lifecycle", catches="a save after the end that says yes and keeps nothing")
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
    store.ask("close")
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
