"""One caller at a time: what was said comes back, once, in order."""

from __future__ import annotations

import copy
from itertools import chain
from typing import Final

from memory_contract.adapter import Message
from memory_contract.calls import format_error
from memory_contract.case_context import CaseContext, Client
from memory_contract.cases.case import case
from memory_contract.cases.contents import (
    build_batch,
    expect_listed,
    expect_newest,
    expect_there,
    fail_missing,
    format_value,
    overwrite_deeply,
    to_role_content,
    try_put,
)
from memory_contract.cases.workload import append_many, pace
from memory_contract.entries import build_messages, parse_ids
from memory_contract.history import Ids
from memory_contract.results import RAISED

SINGLES: Final = 100
# Fast enough that many fall into one tick of a coarse clock.
BURST: Final = 200
BATCH: Final = 50


@case("sequential", catches="a new store that shows what another one left behind")
def fresh_store_is_empty(context: CaseContext) -> None:
    """Read sessions of a store that nobody wrote to."""
    context.open()
    for _ in range(2):
        context.expect_shown(context.new_session(), (), "not empty at first")


@case("sequential", catches="two stores that share a default path, key prefix or instance")
def workspaces_stay_apart(context: CaseContext) -> None:
    """Write the same session on two workspaces, and read each."""
    store, beside = context.open(), context.open(context.create_sibling_workspace())
    session = context.new_session()
    ours = build_messages(store.append(session))
    expect_there(store, session, ours, "an entry")
    theirs = build_messages(context.draw_ids("beside"))
    for written in ([], theirs):
        if written:
            beside.put(session, *written)
        expect_there(beside, session, written, "an entry")
        for client, expected in ((store, ours), (beside, written)):
            seen = client.get(session)
            proof = f"written on its workspace was {format_value(expected)},"
            proof += f" and it shows {format_value(seen)}"
            same = to_role_content(seen) == to_role_content(expected)
            context.expect(same, "leak between workspaces", proof, session=session)


@case("sequential", catches="nothing is read back")
def append_then_read(context: CaseContext) -> None:
    """Append one entry and read it back."""
    store, session = context.open(), context.new_session()
    context.expect_shown(session, store.append(session), "lost append", after="an append")


@case("sequential", catches="a history that comes back reversed or in no order")
def order_of_single_appends(context: CaseContext) -> None:
    """Append a hundred entries one by one and read them after every ten."""
    store, session = context.open(), context.new_session()
    count = _count_appends(context, SINGLES)
    appended: Ids = ()
    for number in pace(context, range(count), "single appends", least=20):
        appended += store.append(session)
        if number % 10 == 9:
            store.read(session)
    seen = store.read(session)
    is_window = 1 < len(seen) < len(appended) and seen == appended[-len(seen) :]
    if is_window and context.adapter.keeps_last is None:
        context.note(
            f"only the newest {len(seen)} of {len(appended)} entries are shown; a store that keeps"
            f" so many on purpose is judged by that with --keeps-last {len(seen)}"
        )


@case("sequential", catches="ordering by a clock: what is written in one tick is swapped")
def order_in_one_instant(context: CaseContext) -> None:
    """Append as fast as the store can, one by one and in small batches, and read the order."""
    store, singles, batches = context.open(), context.new_session(), context.new_session()
    count = _count_appends(context, BURST)
    for _ in pace(context, range(count), "appends in a burst", least=10):
        store.append(singles)
    for _ in pace(context, range(count // 10), "batches in a burst", least=2):
        append_many(store, batches, 10)
    store.read(singles)
    store.read(batches)


@case("sequential", catches="a batch that comes back in another order, or in part")
def batch_in_order(context: CaseContext) -> None:
    """Append batches of fifty with single entries between them, and read after each."""
    store, session, many = context.open(), context.new_session(), _count_appends(context, BATCH)
    for count in (1, many, 1, many, 2):
        append_many(store, session, count)
        store.read(session)


def _count_appends(context: CaseContext, entries: int) -> int:
    """How many appends make so many entries."""
    return entries // 2 if context.adapter.pairs else entries


@case("sequential", catches="an empty batch that adds, removes or breaks something")
def empty_batch_changes_nothing(context: CaseContext) -> None:
    """Append an empty batch to a new session and to a running one; a clean refusal is fine."""
    store, new, running = context.open(), context.new_session(), context.new_session()
    expected = store.append(running)
    for session in (new, running):
        if not try_put(store, session, (), "an empty batch"):
            context.note("an empty batch is refused")
        store.read(session)
    expected += store.append(running)
    for session, ids in ((new, ()), (running, expected)):
        context.expect_shown(session, ids, "changed by nothing", after="an empty batch")


@case("sequential", needs=["limit"], catches="a limit that counts from the wrong end")
def limit_gives_the_newest(context: CaseContext) -> None:
    """Read the newest 1, 2, all and more than all of a session; of 0, nothing."""
    store, session = context.open(), context.new_session()
    expect_newest(store, session, (), 2)
    appended = store.append(session, 3) + store.append(session) + store.append(session)
    everything = tuple(context.keep_newest(appended))
    count = len(everything)
    for limit in (1, 2, 3, count - 1, count, count + 1, 10 * count, 0):
        expect_newest(store, session, everything, limit)


@case("sequential", catches="aliasing: the caller's change of a message changes history")
def reads_are_copies(context: CaseContext) -> None:
    """Mutate appended and returned messages at every depth, and read again."""
    store, session = context.open(), context.new_session()
    given = build_messages(context.draw_ids("alias"))
    if context.claims("fields"):
        for message in given:
            message["metadata"] = {"tags": ["as it was"], "nested": {"deep": ["as it was"]}}
    before = copy.deepcopy(given)
    store.ask("append", session, given)
    _expect_unchanged(store, session, before, given, "what was handed to append")
    for _ in range(2):
        read = store.ask("read", session)
        _expect_unchanged(store, session, before, read, "what a read returned")


def _expect_unchanged(
    store: Client, session: str, before: list[Message], ours: object, what: str
) -> None:
    overwrite_deeply(ours)
    # The objects that an adapting handle itself passed in or got back, if it exposes them.
    overwrite_deeply(getattr(store.handle, "exchanged", None))
    # A store that writes late, or never, has another failure.
    expect_there(store, session, before, "a message")
    now = copy.deepcopy(store.get(session))
    fields = [m["metadata"] for m in before if "metadata" in m]
    same = not fields or [m["metadata"] for m in now if "metadata" in m] == fields
    proof = f"the history changed when the caller changed {what}; it is now {format_value(now)}"
    same = same and to_role_content(now) == to_role_content(before)
    store.context.expect(same, "alias", proof, session=session)


@case("sequential", needs=["pop"], catches="a pop from the wrong end, or one that removes nothing")
def pop_from_the_end(context: CaseContext) -> None:
    """Pop entry by entry until there is none, then one more, then append again."""
    store, session = context.open(), context.new_session()
    left = store.append(session, 2) + store.append(session) + store.append(session, 2)
    context.require_room(len(left))
    while left:
        popped = store.pop(session)
        proof = f"pop returned {popped}, the newest entry was {left[-1]}"
        context.expect(popped == left[-1], "wrong pop", proof, session=session)
        left = left[:-1]
        context.expect_shown(session, left, after="a pop")
    try:
        popped = store.pop(session)
    except Exception as error:  # noqa: BLE001 -- whatever is raised refuses
        context.note(f"a pop from an empty session is refused ({format_error(error)})")
    else:
        proof = f"pop returned {popped} from an empty session"
        context.expect(popped is None, "wrong pop", proof, session=session)
    context.expect_shown(session, store.append(session), after="an append to what was popped")


@case("sequential", needs=["clear"], catches="a clear that takes other sessions with it")
def clear_only_this_session(context: CaseContext) -> None:
    """Clear one of several sessions; the others stay, for another caller too."""
    store = context.open()
    expected = {(session := context.new_session()): store.append(session, 2) for _ in range(4)}
    cleared = list(expected)[1]
    store.clear(cleared)
    expected[cleared] = ()
    context.open_elsewhere()
    for session, ids in expected.items():
        context.expect_shown(session, ids, after=f"{cleared} was cleared")


@case(
    "sequential",
    needs=["clear"],
    catches="a cleared session that shows old entries after the next append",
)
def clear_then_append(context: CaseContext) -> None:
    """Clear and write again, several times; each time only what came after shows."""
    store, session = context.open(), context.new_session()
    for count in (1, 3, 2):
        store.append(session, count)
        store.clear(session)
        context.expect_shown(session, (), after="a clear")
    ids = store.append(session) + store.append(session, 2)
    context.open_elsewhere()
    context.expect_shown(session, ids, after="a clear and new appends")


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
    expect_there(store, session, build_messages(ids), "an entry")
    bad: list[Message] = [
        {"role": "user", "content": "this could be stored"},
        {"role": "assistant", "content": Unstorable()},
    ]
    if not context.adapter.batches:
        del bad[0]
    before, what = store.get(session), "a batch with a value that cannot be stored"
    if try_put(store, session, bad, what):
        if len(store.get(session)) <= len(before):
            expect_there(store, session, [*before, *bad], "a batch")
        seen = to_role_content(store.get(session))[-len(bad) :]
        proof = f"a batch of {len(bad)} was acknowledged, and there came back {format_value(seen)}"
        context.expect(seen == to_role_content(bad), "torn batch", proof, session=session)
        session, ids = context.new_session(), ()
        refused = ""
    else:
        refused = f"after {what} was refused ({format_error(context.raised[-1])}), "
    try:
        other = context.open_elsewhere()
        ids += other.append(session)
        ids += store.append(session)
    except Exception as error:
        if not refused:
            raise
        proof = f"{refused}the next append to {session} raised {format_error(error)}"
        context.fail(RAISED, proof, session=session)
    context.expect_shown(session, ids, after="a refused append and two right ones")


@case("sequential", reach="process", catches="a handle that answers from a cache of its own")
def two_handles_one_session(context: CaseContext) -> None:
    """Write and read one session through two handles by turns; each sees the other's at once."""
    first, second, session = context.open(), context.open(), context.new_session()
    expected: Ids = ()
    for count in (1, 2, 1):
        for writer in (first, second):
            expected += writer.append(session, count)
            context.expect_shown(session, expected, after=f"an append of {writer.name}")


@case("sequential", reach="machine", catches="a store that forgets when it is closed")
def reopened_store_remembers(context: CaseContext) -> None:
    """Write, close, and read from a new handle and from a new process; then go on writing."""
    expected: dict[str, Ids] = {context.new_session(): () for _ in range(3)}
    for open_it in (context.open, context.open_in_process, context.open, context.open_in_process):
        store = open_it()
        for session, ids in expected.items():
            context.expect_shown(session, ids, after="the store was reopened")
            expected[session] = ids + store.append(session, 2)
        store.close()


@case("sequential", catches="deduplication by content: the second yes is dropped")
def same_words_twice(context: CaseContext) -> None:
    """Append the same text again: at once, later, in one batch and in another session."""
    store, session, other = context.open(), context.new_session(), context.new_session()
    yes, no = build_batch(context, "yes"), build_batch(context, "no")
    batches = [yes, yes, no, yes, [*yes, *yes]]
    store.put(session, *yes)
    expect_there(store, session, yes, "the first message")
    for batch in batches[1:]:
        store.put(session, *batch)
    store.put(other, *yes)
    for name, said in ((session, [*chain.from_iterable(batches)]), (other, yes)):
        seen, expected = (
            to_role_content(store.get(name)),
            to_role_content(context.keep_newest(said)),
        )
        words = format_value([content for _, content in seen])
        proof = f"of {len(expected)} messages, some with the same words, {len(seen)} came back: "
        if len(seen) < len(expected):
            # Duplicates that were dropped are still there once.
            once = all(told in seen for told in expected)
            why = "dropped as a duplicate" if once else "lost append"
            fail_missing(store, name, expected, why, proof + words)
        context.expect(seen == expected, "wrong history", proof + words, session=name)


@case("sequential", needs=["keys"], catches="a retried append that is stored twice")
def same_key_once(context: CaseContext) -> None:
    """Append with one key again and again, here and from another caller: it is one append."""
    store, other, session = context.open(), context.open_elsewhere(), context.new_session()
    keyed = store.append(session, context.adapter.batch_size(2), key="request-1")
    context.require_room(2 * len(keyed))
    for caller in (store, other):
        caller.append(session, ids=keyed, key="request-1")
        context.expect_shown(session, keyed, "duplicate after retry")
    later = store.append(session, key="request-2") + store.append(session)
    store.append(session, ids=keyed, key="request-1")
    context.expect_shown(session, keyed + later, "duplicate after retry")
    # The key of one session means nothing in another, unless the store says so aloud.
    session = context.new_session()
    try:
        ids = store.append(session, key="request-1")
    except Exception as error:  # noqa: BLE001 -- refusing is not swallowing
        context.note(f"a key that another session used is refused ({format_error(error)})")
    else:
        context.expect_shown(session, ids, "swallowed append")


@case("sequential", needs=["keys"], catches="a new message that is swallowed by a used key")
def key_with_other_content_is_refused(context: CaseContext) -> None:
    """Append something else with a key that was used: it is refused and nothing is stored."""
    store, other, session = context.open(), context.open_elsewhere(), context.new_session()
    ids = store.append(session, key="request-1")
    # Not recorded: to the checker, a key stands for one batch.
    different = build_messages(context.draw_ids("other"))
    for caller in (store, other):
        try:
            caller.put(session, *different, key="request-1")
        except Exception:  # noqa: BLE001, S112 -- this is what must happen
            continue
        seen = caller.read(session)
        name = "swallowed append" if seen == ids else "key used twice"
        proof = "an append with a used key and other content was acknowledged"
        context.fail(name, f"{proof}, and {session} shows [{' '.join(seen)}]", session=session)
    ids += store.append(session, key="request-2")
    context.expect_shown(session, ids, "refused and changed")


@case(
    "sequential",
    needs=["keys", "clear"],
    catches="a repeated append that is acknowledged and does not show",
)
def key_of_what_was_cleared(context: CaseContext) -> None:
    """Repeat an append with its key after a clear: it shows again, or it is refused."""
    store, other, session = context.open(), context.open_elsewhere(), context.new_session()
    batch = build_messages(store.append(session, key="request-1"))
    store.clear(session)
    # Not recorded: to the checker, all attempts with a key are one append, before the clear.
    for caller in (store, other):
        try:
            caller.put(session, *batch, key="request-1")
        except Exception as error:  # noqa: BLE001 -- refusing is not swallowing
            context.note(f"a key whose entries were cleared is refused ({format_error(error)})")
            continue
        seen = caller.look(session)
        proof = "an append was repeated with its key after a clear and was acknowledged"
        proof += f", and the session shows [{' '.join(seen)}]"
        context.expect({*parse_ids(batch)} <= {*seen}, "swallowed append", proof, session=session)


@case("sequential", needs=["expected"], catches="a writer that overwrites what it never read")
def stale_version_is_refused(context: CaseContext) -> None:
    """Append with the version of a read: it succeeds if nobody wrote since, or is refused."""
    store, other, session = context.open(), context.open_elsewhere(), context.new_session()
    ids = store.append(session, expected=store.ask("version", session))
    version = store.ask("version", session)
    ids += store.append(session, expected=version)
    _expect_stale(store, session, version)
    context.expect_shown(session, ids, "refused and changed")
    version = store.ask("version", session)
    ids += other.append(session)
    _expect_stale(store, session, version)
    context.expect_shown(session, ids, "refused and changed")
    if context.claims("clear"):
        # As many entries as before are no reason to accept it.
        version = store.ask("version", session)
        other.clear(session)
        ids = other.append(session, len(ids) // (2 if context.adapter.pairs else 1))
        _expect_stale(store, session, version)
        # Nor is a session that is empty again.
        emptied = context.new_session()
        version = store.ask("version", emptied)
        store.append(emptied)
        other.clear(emptied)
        _expect_stale(store, emptied, version)
    ids += store.append(session, expected=store.ask("version", session))
    context.expect_shown(session, ids, "lost append")


def _expect_stale(store: Client, session: str, version: object) -> None:
    try:
        store.append(session, expected=version)
    except Exception:  # noqa: BLE001 -- this is what must happen
        return
    proof = (
        f"an append that expected version {format_value(version)} landed, and somebody wrote since"
    )
    store.context.fail("stale write accepted", proof, session=session)


@case("sequential", needs=["list"], catches="a session that is not listed, or listed twice")
def sessions_are_listed(context: CaseContext) -> None:
    """List the sessions of a fresh store, and again as they grow in number and in length."""
    store, other = context.open(), context.open_elsewhere()
    expect_listed(store, [])
    written = [context.new_session() for _ in range(12)]
    for session in written:
        store.append(session)
    for caller in (store, other):
        expect_listed(caller, written)
        caller.append(written[0], 2)
        expect_listed(caller, written)
