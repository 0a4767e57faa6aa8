"""One caller at a time: what was said comes back, once, in order."""

from __future__ import annotations

import copy
from itertools import chain
from typing import Any, Final

from memory_contract.adapter import Message
from memory_contract.calling import said
from memory_contract.cases import case
from memory_contract.client import Client
from memory_contract.entries import messages_of
from memory_contract.gates.batching import append_many
from memory_contract.gates.contents import (
    comes_late,
    expect_there,
    saying,
    shown,
    spoken,
    taken,
)
from memory_contract.gates.pacing import paced
from memory_contract.gates.scribbling import scribble
from memory_contract.history import Ids
from memory_contract.room import Room

SINGLES: Final = 100
# Quick enough for many of them to fall into one tick of a coarse clock.
BURST: Final = 200
BATCH: Final = 50


@case("sequential", catches="a new store that shows what another one left behind")
def fresh_store_is_empty(room: Room) -> None:
    """Read sessions of a store that nobody wrote to."""
    store = room.open()
    for session in (room.session(), room.session()):
        seen = store.read(session)
        room.expect(
            seen == (),
            "not empty at first",
            f"a session that nobody wrote to shows {len(seen)} entries",
            session=session,
        )


@case("sequential", catches="two stores that share a default path, key prefix or instance")
def workspaces_stay_apart(room: Room) -> None:
    """Write the same session on two workspaces, and read each."""
    store, beside = room.open(), room.open(room.workspace_beside())
    session = room.session()
    ours = store.append(session)
    expect_there(room, store, session, messages_of(ours), "an entry")
    seen = beside.get(session)
    room.expect(
        not seen,
        "leak between workspaces",
        f"an entry that was written on one workspace shows on another: {shown(seen)}",
        session=session,
    )
    theirs = messages_of(room.ids("beside").draw(pairs=room.adapter.pairs))
    beside.put(session, *theirs)
    expect_there(room, beside, session, theirs, "an entry")
    room.expect(
        store.read(session) == ours,
        "leak between workspaces",
        "a session shows what was written on another workspace, or lost its own entry to it",
        session=session,
    )
    room.expect(
        spoken(beside.get(session)) == spoken(theirs),
        "leak between workspaces",
        "a session does not show just what was written on its own workspace",
        session=session,
    )


@case("sequential", catches="nothing is read back")
def append_then_read(room: Room) -> None:
    """Append one entry and read it back."""
    store, session = room.open(), room.session()
    ids = store.append(session)
    room.expect(
        store.read(session) == ids,
        "lost append",
        "what was just appended does not come back",
        session=session,
    )


@case("sequential", catches="a history that comes back reversed or in no order")
def order_of_single_appends(room: Room) -> None:
    """Append a hundred entries one by one and read them after every ten."""
    store, session = room.open(), room.session()
    for number in paced(room, range(_turns(room, SINGLES)), "single appends", least=20):
        store.append(session)
        if number % 10 == 9:
            store.read(session)
    store.read(session)


@case("sequential", catches="ordering by a clock: what is written in one tick is swapped")
def order_in_one_instant(room: Room) -> None:
    """Append as fast as the store can, one by one and in small batches, and read the order."""
    store, singles, batches = room.open(), room.session(), room.session()
    for _ in paced(room, range(_turns(room, BURST)), "appends in a burst", least=10):
        store.append(singles)
    for _ in paced(room, range(_turns(room, BURST) // 10), "batches in a burst", least=2):
        append_many(room, store, batches, 10)
    store.read(singles)
    store.read(batches)


@case("sequential", catches="a batch that comes back in another order, or in part")
def batch_in_order(room: Room) -> None:
    """Append batches of fifty with single entries between them, and read after each."""
    store, session = room.open(), room.session()
    for count in (1, _turns(room, BATCH), 1, _turns(room, BATCH), 2):
        append_many(room, store, session, count)
        store.read(session)


@case("sequential", catches="an empty batch that adds, removes or breaks something")
def empty_batch_changes_nothing(room: Room) -> None:
    """Append an empty batch to a new session and to a running one; a clean refusal is fine."""
    store, new, running = room.open(), room.session(), room.session()
    expected = store.append(running)
    for session in (new, running):
        if not taken(room, store, session, (), "an empty batch"):
            room.note("an empty batch is refused")
        store.read(session)
    expected += store.append(running)
    room.expect(
        (store.read(new), store.read(running)) == ((), expected),
        "changed by nothing",
        "an empty batch changed what a session shows",
        session=running,
    )


@case("sequential", needs=["limit"], catches="a limit that counts from the wrong end")
def limit_gives_the_newest(room: Room) -> None:
    """Read the newest 1, 2, all and more than all of a session; of 0, nothing."""
    store, session = room.open(), room.session()
    room.expect(
        store.read(session, limit=2) == (),
        "wrong limit",
        "the newest 2 entries of an empty session are some",
        session=session,
    )
    everything = store.append(session, 3) + store.append(session) + store.append(session)
    count = len(everything)
    for limit in (1, 2, 3, count - 1, count, count + 1, 10 * count):
        _expect_newest(room, session, everything, limit, store.read(session, limit=limit))
    try:
        none = store.read(session, limit=0)
    except Exception:  # noqa: BLE001 -- a limit of nothing may be refused
        room.note("a limit of 0 is refused")
    else:
        _expect_newest(room, session, everything, 0, none)


def _expect_newest(room: Room, session: str, everything: Ids, limit: int, seen: Ids) -> None:
    room.expect(
        seen == everything[max(0, len(everything) - limit) :],
        "wrong limit",
        f"the newest {limit} of {' '.join(everything)} came back as [{' '.join(seen)}]",
        session=session,
    )


@case("sequential", catches="memory shared with the caller: a change of a message changes history")
def reads_are_copies(room: Room) -> None:
    """Change what was handed in and what was handed out, all the way down, and read again."""
    store, session = room.open(), room.session()
    given = messages_of(room.ids("alias").draw(pairs=room.adapter.pairs))
    if room.adapter.claims(["fields"]):
        for message in given:
            message["metadata"] = {"tags": ["as it was"], "nested": {"deep": ["as it was"]}}
    before = copy.deepcopy(given)
    store.ask("append", session, given)
    scribble(given)
    scribble(exchanged(store))
    _expect_unchanged(room, store, session, before, "what was handed to append")
    for _ in range(2):
        scribble(store.ask("read", session))
        scribble(exchanged(store))
        _expect_unchanged(room, store, session, before, "what a read returned")


def exchanged(store: Client) -> Any:
    """What a handle that only translates handed in or out itself, behind the kit's own dicts."""
    return getattr(store.handle, "exchanged", None)


def _expect_unchanged(
    room: Room, store: Client, session: str, before: list[Message], what: str
) -> None:
    # A store that writes late, or never, shares nothing: that is another failure.
    expect_there(room, store, session, before, "a message")
    now = copy.deepcopy(store.get(session))
    fields = [("metadata", m["metadata"]) for m in before if "metadata" in m]
    kept = [("metadata", m.get("metadata")) for m in now if "metadata" in m] if fields else []
    room.expect(
        spoken(now) == spoken(before) and kept == fields,
        "alias",
        f"the history changed when the caller changed {what}; it is now {shown(now)}",
        session=session,
    )


@case("sequential", needs=["pop"], catches="a pop from the wrong end, or one that removes nothing")
def pop_from_the_end(room: Room) -> None:
    """Pop entry by entry until there is none, then one more, then append again."""
    store, session = room.open(), room.session()
    left = store.append(session, 2) + store.append(session) + store.append(session, 2)
    while left:
        popped = store.pop(session)
        room.expect(
            popped == left[-1],
            "wrong pop",
            f"pop returned {popped}, the newest entry was {left[-1]}",
            session=session,
        )
        left = left[:-1]
        _expect_shows(room, store, session, left, "after a pop")
    _pop_of_nothing(room, store, session)
    _expect_shows(room, store, session, store.append(session), "after an append to what was popped")


def _pop_of_nothing(room: Room, store: Client, session: str) -> None:
    """It gives None, or is refused: a store may say that there is nothing to take."""
    try:
        popped = store.pop(session)
    except Exception as error:  # noqa: BLE001 -- whatever is raised refuses
        room.note(f"a pop from an empty session is refused ({said(error)})")
        return
    proof = f"pop returned {popped} from an empty session"
    room.expect(popped is None, "wrong pop", proof, session=session)


def _expect_shows(room: Room, store: Client, session: str, expected: Ids, when: str) -> None:
    seen = store.read(session)
    room.expect(
        seen == expected,
        "wrong history",
        f"{when} the session shows [{' '.join(seen)}] instead of [{' '.join(expected)}]",
        session=session,
    )


@case("sequential", needs=["clear"], catches="a clear that takes other sessions with it")
def clear_only_this_session(room: Room) -> None:
    """Clear one of several sessions; the others stay, for another caller too."""
    store = room.open()
    sessions = [room.session() for _ in range(4)]
    expected: dict[str, Ids] = {session: store.append(session, 2) for session in sessions}
    cleared = sessions[1]
    store.clear(cleared)
    expected[cleared] = ()
    for reader in (store, room.another()):
        for session, ids in expected.items():
            _expect_shows(room, reader, session, ids, f"after {cleared} was cleared")


@case("sequential", needs=["clear"], catches="a cleared session whose next life is not clean")
def clear_then_append(room: Room) -> None:
    """Clear and write again, several times; each time only what came after shows."""
    store, session = room.open(), room.session()
    for count in (1, 3, 2):
        store.append(session, count)
        store.clear(session)
        _expect_shows(room, store, session, (), "after a clear")
    ids = store.append(session) + store.append(session, 2)
    for reader in (store, room.another()):
        _expect_shows(room, reader, session, ids, "after a clear and new appends")


class Unstorable:
    """A value that is equal to its copies and that no plain format holds."""

    def __eq__(self, other: object) -> bool:
        return type(other) is Unstorable

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "Unstorable()"


@case("sequential", catches="half of a refused batch stays, or a lock stays behind")
def refused_append_leaves_nothing(room: Room) -> None:
    """Append a batch whose last message cannot be stored; then another caller writes at once."""
    store, session = room.open(), room.session()
    ids = store.append(session)
    expect_there(room, store, session, messages_of(ids), "an entry")
    bad: list[Message] = [
        {"role": "user", "content": "this could be stored"},
        {"role": "assistant", "content": Unstorable()},
    ]
    if not room.adapter.batches:
        del bad[0]
    before = store.get(session)
    if taken(room, store, session, bad, "a batch with a value that cannot be stored"):
        if len(store.get(session)) <= len(before):
            expect_there(room, store, session, [*before, *bad], "a batch")
        seen = spoken(store.get(session))[len(before) :]
        room.expect(
            seen == spoken(bad),
            "torn batch",
            f"a batch was acknowledged, and of {len(bad)} messages there came back {shown(seen)}",
            session=session,
        )
        session, ids = room.session(), ()
    other = room.another()
    ids += other.append(session)
    ids += store.append(session)
    for reader in (store, other):
        _expect_shows(room, reader, session, ids, "after a refused append and two right ones")


@case("sequential", reach="process", catches="a handle that answers from a cache of its own")
def two_handles_one_session(room: Room) -> None:
    """Write and read one session through two handles by turns; each sees the other's at once."""
    first, second = room.open(), room.open()
    session = room.session()
    expected: Ids = ()
    for count in (1, 2, 1):
        for writer, reader in ((first, second), (second, first)):
            expected += writer.append(session, count)
            _expect_shows(room, reader, session, expected, "right after another handle's append")
            _expect_shows(room, writer, session, expected, "after its own append")


@case("sequential", reach="machine", catches="a store that forgets when it is closed")
def reopened_store_remembers(room: Room) -> None:
    """Write, close, and read from a new handle and from a new process; then go on writing."""
    expected: dict[str, Ids] = {room.session(): () for _ in range(3)}
    for round_ in range(3):
        store = room.elsewhere() if round_ == 1 else room.open()
        for session, ids in expected.items():
            _expect_shows(room, store, session, ids, "after the store was reopened")
            expected[session] = ids + store.append(session, 2)
        store.close()
    reader = room.elsewhere()
    for session, ids in expected.items():
        _expect_shows(room, reader, session, ids, "after the store was reopened")


@case("sequential", catches="deduplication by content: the second yes is dropped")
def same_words_twice(room: Room) -> None:
    """Say the same words again, at once, later, in one batch and in another session."""
    store, session, other = room.open(), room.session(), room.session()
    yes, no = saying(room, "yes"), saying(room, "no")
    batches = [yes, yes, no, yes, [*yes, *yes]]
    store.put(session, *yes)
    expect_there(room, store, session, yes, "the first message")
    for batch in batches[1:]:
        store.put(session, *batch)
    store.put(other, *yes)
    for name, expected in ((session, [*chain.from_iterable(batches)]), (other, yes)):
        seen = store.get(name)
        if spoken(seen) != spoken(expected):
            room.fail(
                _dropped(store, name, seen, expected),
                f"of {len(expected)} messages, some with the same words, {len(seen)} came back: "
                f"{shown([content for _, content in spoken(seen)])}",
                session=name,
            )


def _dropped(store: Client, session: str, seen: list[Message], expected: list[Message]) -> str:
    """What to call it: of what is dropped as a duplicate, each word is still there once."""
    if len(seen) >= len(expected):
        return "wrong history"
    if comes_late(store, session, expected):
        return "late write"
    once = all(told in spoken(seen) for told in spoken(expected))
    return "dropped as a duplicate" if once else "lost append"


def _turns(room: Room, entries: int) -> int:
    """So many entries, counted as the store's appends are."""
    return entries // 2 if room.adapter.pairs else entries


__all__ = ["Unstorable"]
