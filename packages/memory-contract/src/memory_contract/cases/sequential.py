"""One caller at a time: what was said comes back, once, in order."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

from memory_contract.adapter import Message
from memory_contract.calls import format_error
from memory_contract.case_context import CaseContext, Client
from memory_contract.cases.case import case
from memory_contract.cases.contents import (
    appears_late,
    build_batch,
    expect_there,
    scribble,
    shown,
    to_spoken,
    try_put,
)
from memory_contract.cases.workload import append_many, pace
from memory_contract.entries import EntryIds, messages_of
from memory_contract.history import Ids

SINGLES: Final = 100
# Fast enough that many fall into one tick of a coarse clock.
BURST: Final = 200
BATCH: Final = 50


@case("sequential", catches="a new store that shows what another one left behind")
def fresh_store_is_empty(context: CaseContext) -> None:
    """Read sessions of a store that nobody wrote to."""
    store = context.open()
    for session in (context.new_session(), context.new_session()):
        seen = store.read(session)
        context.expect(
            seen == (),
            "not empty at first",
            f"a session that nobody wrote to shows {len(seen)} entries",
            session=session,
        )


@case("sequential", catches="two stores that share a default path, key prefix or instance")
def workspaces_stay_apart(context: CaseContext) -> None:
    """Write the same session on two workspaces, and read each."""
    store, beside = context.open(), context.open(context.create_sibling_workspace())
    session = context.new_session()
    ours = store.append(session)
    expect_there(context, store, session, messages_of(ours), "an entry")
    seen = beside.get(session)
    context.expect(
        not seen,
        "leak between workspaces",
        f"an entry that was written on one workspace shows on another: {shown(seen)}",
        session=session,
    )
    theirs = messages_of(EntryIds("beside").draw(pairs=context.adapter.pairs))
    beside.put(session, *theirs)
    expect_there(context, beside, session, theirs, "an entry")
    context.expect(
        store.read(session) == ours,
        "leak between workspaces",
        "a session shows what was written on another workspace, or lost its own entry to it",
        session=session,
    )
    context.expect(
        to_spoken(beside.get(session)) == to_spoken(theirs),
        "leak between workspaces",
        "a session does not show just what was written on its own workspace",
        session=session,
    )


@case("sequential", catches="nothing is read back")
def append_then_read(context: CaseContext) -> None:
    """Append one entry and read it back."""
    store, session = context.open(), context.new_session()
    context.expect_shown(store, session, store.append(session), "lost append", after="an append")


@case("sequential", catches="a history that comes back reversed or in no order")
def order_of_single_appends(context: CaseContext) -> None:
    """Append a hundred entries one by one and read them after every ten."""
    store, session = context.open(), context.new_session()
    for number in pace(
        context, range(_count_entries(context, SINGLES)), "single appends", least=20
    ):
        store.append(session)
        if number % 10 == 9:
            store.read(session)
    store.read(session)


@case("sequential", catches="ordering by a clock: what is written in one tick is swapped")
def order_in_one_instant(context: CaseContext) -> None:
    """Append as fast as the store can, one by one and in small batches, and read the order."""
    store, singles, batches = context.open(), context.new_session(), context.new_session()
    for _ in pace(context, range(_count_entries(context, BURST)), "appends in a burst", least=10):
        store.append(singles)
    for _ in pace(
        context, range(_count_entries(context, BURST) // 10), "batches in a burst", least=2
    ):
        append_many(context, store, batches, 10)
    store.read(singles)
    store.read(batches)


@case("sequential", catches="a batch that comes back in another order, or in part")
def batch_in_order(context: CaseContext) -> None:
    """Append batches of fifty with single entries between them, and read after each."""
    store, session = context.open(), context.new_session()
    for count in (1, _count_entries(context, BATCH), 1, _count_entries(context, BATCH), 2):
        append_many(context, store, session, count)
        store.read(session)


@case("sequential", catches="an empty batch that adds, removes or breaks something")
def empty_batch_changes_nothing(context: CaseContext) -> None:
    """Append an empty batch to a new session and to a running one; a clean refusal is fine."""
    store, new, running = context.open(), context.new_session(), context.new_session()
    expected = store.append(running)
    for session in (new, running):
        if not try_put(context, store, session, (), "an empty batch"):
            context.note("an empty batch is refused")
        store.read(session)
    expected += store.append(running)
    context.expect(
        (store.read(new), store.read(running)) == ((), context.keep_newest(expected)),
        "changed by nothing",
        "an empty batch changed what a session shows",
        session=running,
    )


@case("sequential", needs=["limit"], catches="a limit that counts from the wrong end")
def limit_gives_the_newest(context: CaseContext) -> None:
    """Read the newest 1, 2, all and more than all of a session; of 0, nothing."""
    store, session = context.open(), context.new_session()
    context.expect(
        store.read(session, limit=2) == (),
        "wrong limit",
        "the newest 2 entries of an empty session are some",
        session=session,
    )
    appended = store.append(session, 3) + store.append(session) + store.append(session)
    everything = tuple(context.keep_newest(appended))
    count = len(everything)
    for limit in (1, 2, 3, count - 1, count, count + 1, 10 * count):
        _expect_newest(context, session, everything, limit, store.read(session, limit=limit))
    try:
        none = store.read(session, limit=0)
    except Exception:  # noqa: BLE001 -- a limit of nothing may be refused
        context.note("a limit of 0 is refused")
    else:
        _expect_newest(context, session, everything, 0, none)


def _expect_newest(
    context: CaseContext, session: str, everything: Ids, limit: int, seen: Ids
) -> None:
    context.expect(
        seen == everything[max(0, len(everything) - limit) :],
        "wrong limit",
        f"the newest {limit} of {' '.join(everything)} came back as [{' '.join(seen)}]",
        session=session,
    )


@case("sequential", catches="memory shared with the caller: a change of a message changes history")
def reads_are_copies(context: CaseContext) -> None:
    """Change what was handed in and what was handed out, all the way down, and read again."""
    store, session = context.open(), context.new_session()
    given = messages_of(EntryIds("alias").draw(pairs=context.adapter.pairs))
    if context.adapter.claims(["fields"]):
        for message in given:
            message["metadata"] = {"tags": ["as it was"], "nested": {"deep": ["as it was"]}}
    before = copy.deepcopy(given)
    store.ask("append", session, given)
    scribble(given)
    scribble(get_exchanged(store))
    _expect_unchanged(context, store, session, before, "what was handed to append")
    for _ in range(2):
        scribble(store.ask("read", session))
        scribble(get_exchanged(store))
        _expect_unchanged(context, store, session, before, "what a read returned")


def get_exchanged(store: Client) -> Any:
    """The objects that an adapting handle itself passed in or got back, if it exposes them."""
    return getattr(store.handle, "exchanged", None)


def _expect_unchanged(
    context: CaseContext, store: Client, session: str, before: list[Message], what: str
) -> None:
    # A store that writes late, or never, has another failure.
    expect_there(context, store, session, before, "a message")
    now = copy.deepcopy(store.get(session))
    fields = [("metadata", m["metadata"]) for m in before if "metadata" in m]
    kept = [("metadata", m.get("metadata")) for m in now if "metadata" in m] if fields else []
    context.expect(
        to_spoken(now) == to_spoken(before) and kept == fields,
        "alias",
        f"the history changed when the caller changed {what}; it is now {shown(now)}",
        session=session,
    )


@case("sequential", needs=["pop"], catches="a pop from the wrong end, or one that removes nothing")
def pop_from_the_end(context: CaseContext) -> None:
    """Pop entry by entry until there is none, then one more, then append again."""
    store, session = context.open(), context.new_session()
    left = store.append(session, 2) + store.append(session) + store.append(session, 2)
    context.require_room(len(left))
    while left:
        popped = store.pop(session)
        context.expect(
            popped == left[-1],
            "wrong pop",
            f"pop returned {popped}, the newest entry was {left[-1]}",
            session=session,
        )
        left = left[:-1]
        context.expect_shown(store, session, left, after="a pop")
    _expect_empty_pop(context, store, session)
    context.expect_shown(
        store,
        session,
        store.append(session),
        after="an append to what was popped",
    )


def _expect_empty_pop(context: CaseContext, store: Client, session: str) -> None:
    """Pop from an empty session: it returns None, or is refused."""
    try:
        popped = store.pop(session)
    except Exception as error:  # noqa: BLE001 -- whatever is raised refuses
        context.note(f"a pop from an empty session is refused ({format_error(error)})")
        return
    proof = f"pop returned {popped} from an empty session"
    context.expect(popped is None, "wrong pop", proof, session=session)


@case("sequential", needs=["clear"], catches="a clear that takes other sessions with it")
def clear_only_this_session(context: CaseContext) -> None:
    """Clear one of several sessions; the others stay, for another caller too."""
    store = context.open()
    sessions = [context.new_session() for _ in range(4)]
    expected: dict[str, Ids] = {session: store.append(session, 2) for session in sessions}
    cleared = sessions[1]
    store.clear(cleared)
    expected[cleared] = ()
    for reader in (store, context.open_elsewhere()):
        for session, ids in expected.items():
            context.expect_shown(reader, session, ids, after=f"{cleared} was cleared")


@case("sequential", needs=["clear"], catches="a cleared session whose next life is not clean")
def clear_then_append(context: CaseContext) -> None:
    """Clear and write again, several times; each time only what came after shows."""
    store, session = context.open(), context.new_session()
    for count in (1, 3, 2):
        store.append(session, count)
        store.clear(session)
        context.expect_shown(store, session, (), after="a clear")
    ids = store.append(session) + store.append(session, 2)
    for reader in (store, context.open_elsewhere()):
        context.expect_shown(reader, session, ids, after="a clear and new appends")


class Unstorable:
    """A value that is equal to its copies and cannot be serialized."""

    def __eq__(self, other: object) -> bool:
        return type(other) is Unstorable

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "Unstorable()"


@case("sequential", catches="half of a refused batch stays, or a lock stays behind")
def refused_append_leaves_nothing(context: CaseContext) -> None:
    """Append a batch whose last message cannot be stored; then another caller writes at once."""
    store, session = context.open(), context.new_session()
    ids = store.append(session)
    expect_there(context, store, session, messages_of(ids), "an entry")
    bad: list[Message] = [
        {"role": "user", "content": "this could be stored"},
        {"role": "assistant", "content": Unstorable()},
    ]
    if not context.adapter.batches:
        del bad[0]
    before = store.get(session)
    if try_put(context, store, session, bad, "a batch with a value that cannot be stored"):
        if len(store.get(session)) <= len(before):
            expect_there(context, store, session, [*before, *bad], "a batch")
        seen = to_spoken(store.get(session))[-len(bad) :]
        context.expect(
            seen == to_spoken(bad),
            "torn batch",
            f"a batch was acknowledged, and of {len(bad)} messages there came back {shown(seen)}",
            session=session,
        )
        session, ids = context.new_session(), ()
    other = context.open_elsewhere()
    ids += other.append(session)
    ids += store.append(session)
    for reader in (store, other):
        context.expect_shown(reader, session, ids, after="a refused append and two right ones")


@case("sequential", reach="process", catches="a handle that answers from a cache of its own")
def two_handles_one_session(context: CaseContext) -> None:
    """Write and read one session through two handles by turns; each sees the other's at once."""
    first, second = context.open(), context.open()
    session = context.new_session()
    expected: Ids = ()
    for count in (1, 2, 1):
        for writer, reader in ((first, second), (second, first)):
            expected += writer.append(session, count)
            context.expect_shown(reader, session, expected, after="another handle's append")
            context.expect_shown(writer, session, expected, after="its own append")


@case("sequential", reach="machine", catches="a store that forgets when it is closed")
def reopened_store_remembers(context: CaseContext) -> None:
    """Write, close, and read from a new handle and from a new process; then go on writing."""
    expected: dict[str, Ids] = {context.new_session(): () for _ in range(3)}
    for round_ in range(3):
        store = context.open_in_process() if round_ == 1 else context.open()
        for session, ids in expected.items():
            context.expect_shown(store, session, ids, after="the store was reopened")
            expected[session] = ids + store.append(session, 2)
        store.close()
    reader = context.open_in_process()
    for session, ids in expected.items():
        context.expect_shown(reader, session, ids, after="the store was reopened")


@case("sequential", catches="deduplication by content: the second yes is dropped")
def same_words_twice(context: CaseContext) -> None:
    """Say the same words again, at once, later, in one batch and in another session."""
    store, session, other = context.open(), context.new_session(), context.new_session()
    yes, no = build_batch(context, "yes"), build_batch(context, "no")
    batches = [yes, yes, no, yes, [*yes, *yes]]
    store.put(session, *yes)
    expect_there(context, store, session, yes, "the first message")
    for batch in batches[1:]:
        store.put(session, *batch)
    store.put(other, *yes)
    for name, said in ((session, [*chain.from_iterable(batches)]), (other, yes)):
        seen, expected = store.get(name), context.keep_newest(said)
        if to_spoken(seen) != to_spoken(expected):
            context.fail(
                _name_failure(store, name, seen, expected),
                f"of {len(expected)} messages, some with the same words, {len(seen)} came back: "
                f"{shown([content for _, content in to_spoken(seen)])}",
                session=name,
            )


def _name_failure(
    store: Client, session: str, seen: Sequence[Message], expected: Sequence[Message]
) -> str:
    """The failure's name: duplicates that were dropped are still there once."""
    if len(seen) >= len(expected):
        return "wrong history"
    if appears_late(store, session, expected):
        return "late write"
    once = all(told in to_spoken(seen) for told in to_spoken(expected))
    return "dropped as a duplicate" if once else "lost append"


def _count_entries(context: CaseContext, entries: int) -> int:
    """The number of entries that so many appends make."""
    return entries // 2 if context.adapter.pairs else entries


__all__ = ["Unstorable"]
