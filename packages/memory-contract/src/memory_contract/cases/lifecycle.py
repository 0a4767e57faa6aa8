"""Trimming, forks, undoing and closing. Snapshots and expiry have files of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from memory_contract.adapter import Message
from memory_contract.case_context import CaseContext, CaseNotClaimed
from memory_contract.cases.case import case
from memory_contract.checker.phrases import is_, was
from memory_contract.client import Client
from memory_contract.entries import ids_of
from memory_contract.history import Ids
from memory_contract.model import take_last


def expect_shown(
    context: CaseContext, reader: Client, session: str, shown: Ids, *, after: str
) -> None:
    """Hold a session to what it must show by now."""
    seen = reader.read(session)
    if seen == shown:
        return
    lost = [id_ for id_ in shown if id_ not in seen]
    more = [id_ for id_ in seen if id_ not in shown]
    wrong = "the order is another"
    if lost or more:
        wrong = f"lacks [{' '.join(lost)}], has [{' '.join(more)}] too much"
    proof = f"after {after}, {session} does not show to {reader.name} what it must: {wrong}"
    context.fail("wrong contents", proof, session=session, ids=tuple(lost + more))


# Trimming


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
        expect_shown(context, store, session, shown, after=f"a trim to {keep}")
        expect_shown(context, other, session, shown, after=f"a trim to {keep}")
    if _takes_it(context, lambda: other.trim(session, 0)):
        expect_shown(context, store, session, (), after="a trim to none")
        shown = store.append(session)
        expect_shown(context, other, session, shown, after="a trim to none and an append")
    else:
        context.note("a trim to none is refused")
    expect_shown(context, other, beside, untouched, after="trims of another session")


def _takes_it(context: CaseContext, call: Callable[[], object]) -> bool:
    """Whether the store does what it may as well refuse."""
    try:
        call()
    except Exception as error:
        if not any(error is known for known in context.raised):
            raise
        return False
    return True


def _says(role: str, content: str, **fields: Any) -> Message:
    return {"role": role, "content": content, **fields}


def _calls(content: str, *ids: str) -> Message:
    calls = [
        {"id": id_, "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
        for id_ in ids
    ]
    return _says("assistant", content, tool_calls=calls)


# Calls that are answered at once, calls of one message answered out of order, and plain turns
# before, between and after them: a cut at any place meets each kind.
_CONVERSATION: Final[tuple[Message, ...]] = (
    _says("system", "m0 Be brief."),
    _says("user", "m1 Where is my parcel?"),
    _calls("m2 I look.", "call-a"),
    _says("tool", "m3 In Ghent.", tool_call_id="call-a"),
    _says("assistant", "m4 It is in Ghent."),
    _says("user", "m5 And the two others?"),
    _calls("m6 I look again.", "call-b", "call-c"),
    _says("tool", "m7 On the train.", tool_call_id="call-c"),
    _says("tool", "m8 Delivered.", tool_call_id="call-b"),
    _says("assistant", "m9 One is on a train, one is delivered."),
    _says("user", "m10 Thanks."),
    _says("assistant", "m11 You are welcome."),
)


@case(
    "lifecycle",
    catches="a tool result without its call, or a system message that is gone, after a trim",
    needs=["trim", "structure", "fields"],
)
def trim_keeps_structure(context: CaseContext) -> None:
    """Trim a conversation with tool calls at every place; calls and results stay together."""
    store, other = context.open(), context.open_elsewhere()
    for keep in range(len(_CONVERSATION) + 1):
        session = context.new_session()
        store.put(session, *_CONVERSATION)
        store.ask("trim", session, keep)
        broken = _broken_structure(other.get(session))
        context.expect(
            not broken, "broken structure", f"after a trim to {keep}, {broken}", session=session
        )


def _broken_structure(kept: Sequence[Message]) -> str:
    """What is wrong with what a trim left; nothing if nothing is."""
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


# Forking


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
        expect_shown(context, writer, target, theirs, after="a fork of another session")
        theirs += writer.append(target)
        expect_shown(context, writer, source, ours, after="an append to its fork")
        ours += writer.append(source)
        expect_shown(context, writer, target, theirs, after="an append to what it was forked from")
    if context.adapter.claims(["snapshot", "rollback"]):
        _snapshots_of_a_fork(context, store, other, source, target)
        return
    for session, beside, shown in ((target, source, ours), (source, target, ())):
        if context.adapter.claims(["clear"]):
            store.clear(session)
            expect_shown(context, other, beside, shown, after="a clear of the other side of a fork")


def _snapshots_of_a_fork(
    context: CaseContext, store: Client, other: Client, source: str, target: str
) -> None:
    ours, theirs = store.read(source), store.read(target)
    taken = store.snapshot(target)
    if context.adapter.claims(["trim"]):
        store.trim(target, 2)
        expect_shown(context, other, source, ours, after="a trim of its fork")
    if context.adapter.claims(["clear"]):
        store.clear(source)
        ours = store.append(source)
    other.rollback(target, taken)
    expect_shown(context, store, target, theirs, after="a rollback to its own snapshot")
    expect_shown(context, store, source, ours, after="a rollback of its fork")


# Undoing


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
    expect_shown(context, other, session, (), after="a clear")
    other.undo(session)
    expect_shown(context, store, session, shown, after="a clear that was undone")
    _undo_one_by_one(context, store, other)


def _undo_one_by_one(context: CaseContext, store: Client, other: Client) -> None:
    # Reads of one caller after the other are proof enough, so what follows is kept out of the
    # checker's record: it does not search through trims that were undone.
    session = context.new_session()
    shown = sum((store.append(session) for _ in range(6)), ())
    states = [shown]
    if context.adapter.claims(["trim"]):
        store.trim(session, 4)
        states.append(take_last(shown, 4))
    if context.adapter.claims(["snapshot", "rollback"]):
        taken = store.snapshot(session)
        store.clear(session)
        states.append(())
        other.rollback(session, taken)
        states.append(states[1] if context.adapter.claims(["trim"]) else shown)
    store.clear(session)
    while states:
        other.undo(session)
        before = states.pop()
        seen = reads_aside(store, session)
        proof = f"an undo of {session} shows {list(seen)}, where {list(before)} showed before"
        context.expect(seen == before, "wrong undo", proof, session=session)


def reads_aside(reader: Client, session: str) -> Ids:
    """What a session shows, without a record."""
    return ids_of(reader.get(session))


# Closing


@case("lifecycle", catches="a save after the end that says yes and keeps nothing")
def close_is_final(context: CaseContext) -> None:
    """Close a store twice and go on; whatever is acknowledged after that is there."""
    store = context.open()
    if not callable(getattr(store.handle, "close", None)):
        raise CaseNotClaimed("there is nothing to close")
    alone = context.adapter.reach == "handle"
    witness = store if alone else context.open()
    session = context.new_session()
    kept = store.append(session, 2)
    store.ask("close")
    store.ask("close")
    said: list[Ids] = []
    _takes_it(context, lambda: said.append(store.append(session, 2)))
    kept += sum(said, ())
    if not alone:
        _expect_all(context, witness, session, kept)
        _expect_all(context, context.open_elsewhere(), session, kept)
    elif said:
        _expect_all(context, store, session, kept)


def _expect_all(context: CaseContext, reader: Client, session: str, ids: Ids) -> None:
    seen = reader.read(session)
    lost = tuple(id_ for id_ in ids if id_ not in seen)
    proof = (
        f"{' '.join(lost)} {was(lost)} acknowledged around a close and {is_(lost)} not there "
        f"for {reader.name}"
    )
    context.expect(not lost, "lost append", proof, session=session)
