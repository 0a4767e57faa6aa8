"""A fork is a copy that goes its own way; it appears at once or not at all."""

import subprocess
import sys

import pytest

from indelible import (
    NEVER,
    ConflictError,
    SessionNotFoundError,
    SnapshotNotFoundError,
    Status,
    StoredValue,
    Summary,
    UsageError,
)
from indelible.core.limits import PAGE_ENTRIES_DEFAULT
from tests.support.stores import (
    CALL_S_MAX,
    call,
    message,
    one_of_each_kind,
    result,
    said,
    say,
    shown,
)


def covers(store, session):
    return [stored.summary.covers for stored in store.get_summaries(session)]


def test_a_fork_shows_what_its_original_shows(store, clock):
    store.add_entries("a", one_of_each_kind())
    clock.advance(5)
    info = store.fork("a", "b")
    original, copy = store.get_entries("a"), store.get_entries("b")
    assert [(e.kind, e.value, e.written_at) for e in copy] == [
        (e.kind, e.value, e.written_at) for e in original
    ]
    assert (info.session_id, info.status, info.forked_from) == ("b", Status.ACTIVE, "a")
    assert (info.entries, info.version) == (len(original), copy.version)
    assert info == store.session("b")


def test_a_receipt_names_the_forks_that_still_hold_copies(store, clock):
    say(store, "a", "one")
    for name in ("kept", "expired", "vacuumed"):
        store.fork("a", name, ttl=NEVER if name == "kept" else 5.0)
    clock.advance(6)
    store.vacuum(session_id="vacuumed")
    assert store.forget("a").forks == ("expired", "kept")


def test_a_session_that_changed_is_not_forked(store):
    say(store, "a", "one")
    version = store.session("a").version
    say(store, "a", "two")
    with pytest.raises(ConflictError) as caught:
        store.fork("a", "b", expected=version)
    assert caught.value.details["reason"] == "version"
    assert store.session("b").status is Status.NEW
    store.fork("a", "b", expected=store.session("a").version)
    assert said(store, "b") == said(store, "a")


def test_a_fork_and_its_original_go_their_own_ways(store):
    say(store, "a", "one", "two")
    store.fork("a", "b")
    say(store, "a", "three")
    say(store, "b", "other three")
    store.trim("b", keep_last=1)
    assert said(store, "a") == ["one", "two", "three"]
    assert said(store, "b") == ["other three"]
    store.clear("a")
    store.undo("b")
    assert said(store, "b") == ["one", "two", "other three"]


def test_a_fork_copies_what_shows_into_one_piece(store):
    say(store, "a", *"abcd")
    store.trim("a", before=1)
    snapshot = store.save_snapshot("a")
    say(store, "a", "hidden")
    store.rollback_to_snapshot("a", snapshot.id)
    say(store, "a", "e")
    store.fork("a", "b")
    assert said(store, "b") == list("bcde")
    assert shown(store, "b") == [0, 1, 2, 3]
    assert store.session("b").logged == 4


def test_a_fork_of_a_snapshot_copies_what_it_froze(store):
    say(store, "a", "one", "two")
    snapshot = store.save_snapshot("a")
    store.clear("a")
    say(store, "a", "three")
    store.fork("a", "b", at=snapshot.id)
    assert said(store, "b") == ["one", "two"]
    assert said(store, "a") == ["three"]


def test_a_fork_takes_neither_snapshots_nor_journal_nor_keys(store):
    store.add_message("a", "user", "one", key="k")
    store.save_snapshot("a")
    say(store, "a", "two")
    store.trim("a", keep_last=1)
    store.fork("a", "b")
    assert store.list_snapshots("b") == []
    with pytest.raises(UsageError):
        store.undo("b")
    assert not store.add_message("b", "user", "other", key="k").replayed


def test_a_fork_takes_the_metadata(store):
    say(store, "a", "one")
    store.set_metadata("a", {"name": "Ann"})
    assert store.fork("a", "b").metadata == {"name": "Ann"}
    store.set_metadata("b", {})
    assert store.session("a").metadata == {"name": "Ann"}


def test_a_summary_in_a_fork_covers_the_copies(store):
    say(store, "a", *"abcdef")
    store.add_summary("a", "b to e", [1.0], covers=range(1, 5))
    store.trim("a", before=3)
    store.fork("a", "b")
    assert [entry.position for entry in store.get_entries("b")] == [0, 1, 2, 3]
    assert covers(store, "b") == [((0, 2),)], "d and e; what b and c were is not in the copy"
    assert covers(store, "a") == [((1, 5),)]


def test_a_summary_whose_entries_were_all_left_behind_covers_nothing(store):
    say(store, "a", "one", "two")
    store.add_summary("a", "both", covers=[0, 1])
    store.trim("a", keep_last=0)
    store.fork("a", "b")
    assert covers(store, "b") == [()]
    assert store.get_summaries("b")[0].summary.text == "both"


def test_a_summary_of_a_summary_is_remapped_too(store):
    say(store, "a", "x", "one")
    store.trim("a", keep_last=1)
    store.add_summary("a", "first", covers=[1])
    store.add_summary("a", "second", covers=[1, 2])
    store.fork("a", "b")
    assert covers(store, "b") == [((0, 1),), ((0, 2),)]


def test_a_summary_in_a_fork_covers_copies_behind_it_too(store):
    say(store, "a", "hidden")
    store.add_summary("a", "what comes", covers=[0, *range(2, PAGE_ENTRIES_DEFAULT + 50)])
    store.add_messages("a", [message("later")] * (PAGE_ENTRIES_DEFAULT + 20))
    store.trim("a", before=1)
    store.fork("a", "b")
    assert covers(store, "b") == [((1, PAGE_ENTRIES_DEFAULT + 21),)]


def test_a_thread_keeps_its_positions_in_a_fork_wherever_its_values_stand(store):
    store.add_messages("a", [message("before")] * (PAGE_ENTRIES_DEFAULT + 1))
    store.add_entries("a", [StoredValue(type="msgpack", data="gaFh")])
    store.hide("a", [0])
    store.fork("a", "b")
    assert shown(store, "b") == shown(store, "a")


def test_a_summary_that_covers_more_than_there_is_does_not_hold_up_a_fork():
    # In a process of its own: what counts through all that a log could hold can only be killed.
    code = """
import indelible
from indelible.core.limits import LOG_ENTRIES_MAX

with indelible.open("memory:") as store:
    store.add_message("a", "user", "one")
    store.add_summary("a", "all", covers=[(0, LOG_ENTRIES_MAX)])
    store.fork("a", "b")
    assert store.get_summaries("b")[0].summary.covers == ((0, 2),)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=CALL_S_MAX)


def test_tool_calls_stay_joined_in_a_fork(store):
    store.add_entries("a", [message("x"), call("c"), result("c"), call("d")])
    store.fork("a", "b")
    assert [(r.call_id, str(r.status)) for r in store.get_tool_calls("b")] == [
        ("c", "done"),
        ("d", "dangling"),
    ]
    assert store.trim("b", keep_last=0, align=None).dropped == (0, 1, 2)


def test_pinned_messages_stay_pinned_in_a_fork(store):
    store.add_messages("a", [message("be kind", role="system"), message("x", pinned=True)])
    say(store, "a", "chat")
    store.fork("a", "b")
    assert store.trim("b", keep_last=0).dropped == (2,)


def test_a_target_that_exists_is_a_conflict(store):
    say(store, "a", "one")
    say(store, "b", "mine")
    store.set_metadata("c", {"x": 1})
    for target in ("b", "c", "a"):
        with pytest.raises(ConflictError) as caught:
            store.fork("a", target)
        assert (caught.value.reason, caught.value.session) == ("exists", target)
    assert (said(store, "a"), said(store, "b"), said(store, "c")) == (["one"], ["mine"], [])


def test_a_cleared_target_exists(store):
    say(store, "a", "one")
    say(store, "b", "mine")
    store.clear("b")
    with pytest.raises(ConflictError):
        store.fork("a", "b")
    store.undo("b")
    assert said(store, "b") == ["mine"]


def test_what_is_not_there_cannot_be_forked(store):
    with pytest.raises(SessionNotFoundError):
        store.fork("nobody", "b")
    say(store, "a", "one")
    with pytest.raises(SnapshotNotFoundError):
        store.fork("a", "b", at="nothing")
    assert store.session("b").status is Status.NEW
    say(store, "b", "fresh")
    assert shown(store, "b") == [0]


def test_a_fork_of_nothing_is_an_empty_session(store):
    store.save_snapshot("a")
    info = store.fork("a", "b")
    assert (info.status, info.entries, info.forked_from) == (Status.ACTIVE, 0, "a")
    (receipt,) = say(store, "b", "one")
    assert receipt.positions == range(1)


def test_a_fork_into_an_expired_session_begins_its_next_life(store, clock):
    say(store, "b", "old", "older", ttl=5)
    old = store.save_snapshot("b")
    say(store, "a", "x", "one", "two")
    store.trim("a", before=1)
    store.add_summary("a", "both", covers=[1, 2])
    clock.advance(5)
    assert store.get_history("b").status is Status.EXPIRED
    info = store.fork("a", "b")
    assert said(store, "b") == ["one", "two"]
    assert shown(store, "b") == [2, 3, 4], "positions go on"
    assert covers(store, "b") == [((2, 4),)]
    assert (info.logged, info.snapshots) == (3, 0)
    with pytest.raises(SnapshotNotFoundError):
        store.rollback_to_snapshot("b", old.id)


def test_a_fork_lives_as_long_as_it_was_told(make_store, clock):
    store = make_store(ttl=10)
    say(store, "a", "one", ttl=NEVER)
    store.fork("a", "short")
    store.fork("a", "long", ttl=100)
    store.fork("a", "never", ttl=NEVER)
    clock.advance(10)
    assert store.get_history("short").status is Status.EXPIRED
    assert said(store, "long") == ["one"]
    clock.advance(90)
    assert store.get_history("long").status is Status.EXPIRED
    assert said(store, "never") == ["one"]
    assert store.session("never").expires_at is None


def test_an_empty_fork_expires_too(make_store, clock):
    store = make_store(ttl=10)
    store.save_snapshot("a")
    store.fork("a", "b")
    clock.advance(10)
    assert store.get_history("b").status is Status.EXPIRED


def test_a_long_session_is_copied_whole(store):
    texts = [str(number) for number in range(2 * PAGE_ENTRIES_DEFAULT + 1)]
    store.add_messages("a", [message(text) for text in texts])
    store.fork("a", "b")
    assert said(store, "b") == texts


def test_a_fork_of_a_fork_names_its_own_original(store):
    say(store, "a", "one")
    store.fork("a", "b")
    assert store.fork("b", "c").forked_from == "b"
    assert store.session("a").forked_from is None


def test_a_fork_outlives_reopening(store, reopened):
    say(store, "a", "one")
    before = store.fork("a", "b")
    store = reopened(store)
    assert store.session("b") == before
    assert said(store, "b") == ["one"]


def test_a_copied_summary_is_found_by_search(store):
    store.add_entries("a", [Summary(text="t", vector=(1.0, 0.0), embedder="e")])
    store.fork("a", "b")
    (match,) = store.search_summaries("b", [1.0, 0.0], embedder="e")
    assert (match.score, match.summary.text) == (1.0, "t")


def test_what_is_no_session_id_is_no_target(store):
    say(store, "a", "one")
    for target in ("", "x" * 513, 5, "\ud800"):
        with pytest.raises(UsageError):
            store.fork("a", target)
        assert store.list_sessions().ids == ["a"]
