"""Expiry ends a life: out of reach of every call, never undone, and not the same as new."""

import math

import pytest

from indelible import (
    NEVER,
    ConflictError,
    LimitError,
    SessionNotFoundError,
    SnapshotNotFoundError,
    Status,
    UsageError,
)
from indelible.core.limits import EXPIRED_KNOWN_S, TTL_S_MAX
from indelible.core.operations import Quarantine
from indelible.core.verbs import VERBS
from tests.support.stores import said, say, shown
from tests.support.verbs import CALLS


@pytest.fixture
def store(make_store):
    """A store whose sessions live for ten seconds after their last append."""
    return make_store(ttl=10)


def status(store, session="s"):
    return store.get_history(session).status


# What is out of reach


def test_a_quarantine_ends_with_its_life(store, clock):
    perform = getattr(store, "_loop_run", None) or store._backend.perform
    say(store, "s", "hi")
    perform(Quarantine("s", ((0, "unreadable", b"raw"),)))
    assert len(store.quarantined("s")) == 1
    clock.advance(10)
    assert store.quarantined("s") == []
    say(store, "s", "again")
    assert store.quarantined("s") == []
    store.vacuum(session_id="s")
    assert store.quarantined("s") == []


# The deadline


def test_a_session_ends_when_its_time_has_run_out(store, clock):
    say(store, "s", "hi")
    clock.advance(9.999)
    assert said(store, "s") == ["hi"]
    clock.advance(0.001)
    history = store.get_history("s")
    assert (history, history.status) == ([], Status.EXPIRED)


def test_a_session_says_how_long_it_has(store, clock):
    say(store, "s", "hi")
    clock.advance(4)
    info = store.session("s")
    assert info.ttl_s == 6.0
    assert info.expires_at.timestamp() == clock.now_s + 6
    clock.advance(100)
    info = store.session("s")
    assert (info.status, info.ttl_s) == (Status.EXPIRED, 0.0)
    assert info.expires_at.timestamp() == clock.now_s - 94


def test_an_append_slides_the_deadline(store, clock):
    for _ in range(4):
        say(store, "s", "hi")
        clock.advance(9)
    assert said(store, "s") == ["hi"] * 4


def test_a_batch_slides_the_deadline(store, clock):
    store.save_context("s", "hi", "hello")
    clock.advance(9)
    store.save_context("s", "hi", "hello")
    clock.advance(9)
    assert len(said(store, "s")) == 4


def test_nothing_but_an_append_slides_the_deadline(store, clock):
    # `forget` leaves no deadline.
    others = [name for name, verb in VERBS.items() if not verb.appends and name != "forget"]
    for verb in others:
        session = f"s-{verb}"
        say(store, session, "hi", "there")
        snapshot = store.save_snapshot(session)
        store.trim(session, keep_last=1)
        if verb == "redo":
            store.undo(session)
        expires_at = store.session(session).expires_at
        clock.advance(9)
        CALLS[verb](store, session, snapshot.id)
        assert store.session(session).expires_at == expires_at, verb
        clock.advance(1)
        assert status(store, session) is Status.EXPIRED, verb


def test_an_append_that_writes_nothing_slides_no_deadline(store, clock):
    store.add_message("s", "user", "hi", key="k")
    store.clear("s")
    expires_at = store.session("s").expires_at
    clock.advance(9)
    store.add_messages("s", [])
    store.add_message("s", "user", "hi", key="k", replay="hidden-ok")
    assert store.session("s").expires_at == expires_at


def test_a_session_that_begins_without_an_entry_expires_too(store, clock):
    store.save_snapshot("a")
    store.set_metadata("b", {"x": 1})
    clock.advance(9)
    assert {status(store, "a"), status(store, "b")} == {Status.ACTIVE}
    clock.advance(1)
    assert {status(store, "a"), status(store, "b")} == {Status.EXPIRED}
    assert store.session("b").metadata == {}


def test_an_append_may_have_a_time_to_live_of_its_own(store, clock):
    say(store, "short", "hi", ttl=1)
    say(store, "long", "hi", ttl=100)
    say(store, "never", "hi", ttl=NEVER)
    assert store.session("never").expires_at is None
    assert store.session("never").ttl_s is None
    clock.advance(1)
    assert status(store, "short") is Status.EXPIRED
    clock.advance(98)
    assert said(store, "long") == ["hi"]
    clock.advance(1)
    assert status(store, "long") is Status.EXPIRED
    clock.advance(TTL_S_MAX)
    assert said(store, "never") == ["hi"]


def test_the_newest_append_decides(store, clock):
    say(store, "s", "one", ttl=NEVER)
    say(store, "s", "two")
    clock.advance(10)
    assert status(store) is Status.EXPIRED
    say(store, "s", "three", ttl=1)
    say(store, "s", "four", ttl=NEVER)
    clock.advance(1000)
    assert said(store, "s") == ["three", "four"]


def test_a_store_without_a_time_to_live_keeps_sessions_forever(make_store, clock):
    store = make_store()
    say(store, "s", "hi")
    say(store, "t", "hi", ttl=5)
    clock.advance(TTL_S_MAX)
    assert said(store, "s") == ["hi"]
    assert status(store, "t") is Status.NEW


def test_a_deadline_is_fixed_when_an_entry_is_written(store, clock, reopened):
    say(store, "s", "hi")
    store = reopened(store, ttl=10_000)
    store.get_history("s")
    clock.advance(9)
    assert said(store, "s") == ["hi"]
    clock.advance(1)
    assert status(store) is Status.EXPIRED


def test_what_is_no_time_to_live_is_refused(store, make_store):
    for ttl in (0, -1, math.nan, -math.inf, "10", True, [5]):
        with pytest.raises(UsageError) as caught:
            store.add_message("s", "user", "hi", ttl=ttl)
        assert repr(ttl) in str(caught.value)
        assert status(store) is Status.NEW
        with pytest.raises(UsageError):
            make_store(ttl=ttl)


def test_a_time_to_live_beyond_a_century_is_refused(store, make_store):
    for ttl in (TTL_S_MAX + 1, math.inf, 10**30):
        with pytest.raises(LimitError) as caught:
            store.add_message("s", "user", "hi", ttl=ttl)
        assert caught.value.limit == TTL_S_MAX
        with pytest.raises(LimitError):
            make_store(ttl=ttl)
        assert status(store) is Status.NEW


def test_a_time_to_live_of_a_century_and_of_a_moment(store, clock):
    say(store, "long", "hi", ttl=TTL_S_MAX)
    say(store, "short", "hi", ttl=0.001)
    assert said(store, "short") == ["hi"]
    clock.advance(0.002)
    assert status(store, "short") is Status.EXPIRED
    assert said(store, "long") == ["hi"]


def test_what_was_just_appended_shows_however_short_its_time(store, clock):
    say(store, "s", "hi", ttl=0.0004)
    assert said(store, "s") == ["hi"]
    clock.advance(0.001)
    assert status(store) is Status.EXPIRED


# Expired is not new


def test_an_expired_session_is_known_for_a_while_and_then_new(store, clock):
    say(store, "s", "hi")
    clock.advance(10)
    assert status(store) is Status.EXPIRED
    clock.advance(EXPIRED_KNOWN_S - 0.001)
    assert status(store) is Status.EXPIRED
    clock.advance(0.001)
    assert status(store) is Status.NEW
    assert store.session("s").expires_at is None


def test_an_expired_session_shows_nothing_of_itself(store, clock):
    store.set_metadata("s", {"name": "Ann"})
    say(store, "s", "hi")
    store.save_snapshot("s")
    clock.advance(10)
    info = store.session("s")
    assert (info.entries, info.logged, info.snapshots, info.metadata) == (0, 0, 0, {})
    assert info.forked_from is None
    assert store.list_snapshots("s") == []
    assert store.load_memory("s") == []
    assert store.get_tool_calls("s") == []
    assert store.get_summaries("s") == []
    assert store.list_sessions().ids == []


def test_reading_an_expired_session_does_not_begin_it_anew(store, clock):
    say(store, "s", "hi")
    clock.advance(10)
    store.get_history("s")
    store.trim("s", keep_last=1)
    store.clear("s")
    store.clear_all()
    assert status(store) is Status.EXPIRED


def test_an_expired_session_cannot_be_rolled_back_undone_or_forked(store, clock):
    say(store, "s", "hi")
    snapshot = store.save_snapshot("s")
    store.clear("s")
    clock.advance(10)
    for attempt in (
        lambda: store.rollback_to_snapshot("s", snapshot.id),
        lambda: store.undo("s"),
        lambda: store.fork("s", "t"),
        lambda: store.fork("s", "t", at=snapshot.id),
        lambda: store.diff_snapshots("s", snapshot.id),
    ):
        with pytest.raises(SessionNotFoundError) as caught:
            attempt()
        assert caught.value.status is Status.EXPIRED
    with pytest.raises(SnapshotNotFoundError):
        store.delete_snapshot("s", snapshot.id)
    assert status(store, "t") is Status.NEW


@pytest.mark.parametrize("wait_s", [10, 10 + EXPIRED_KNOWN_S])
@pytest.mark.parametrize("begun_anew", [False, True])
def test_a_later_page_of_a_life_that_ended_is_gone(store, clock, wait_s, begun_anew):
    say(store, "s", *"abcdef")
    first = store.get_entries("s", limit=2)
    clock.advance(wait_s)
    if begun_anew:
        say(store, "s", "new")
    with pytest.raises(ConflictError) as caught:
        store.get_entries("s", limit=2, cursor=first.cursor)
    assert caught.value.reason == "gone"


def test_running_out_moves_the_version(store, clock):
    version = store.add_message("s", "user", "hi").version
    clock.advance(10)
    expired = store.get_history("s").version
    assert expired != version
    with pytest.raises(ConflictError) as caught:
        store.add_message("s", "user", "late", expected=version)
    assert caught.value.reason == "version"
    store.add_message("s", "user", "welcome back", expected=expired)
    assert said(store, "s") == ["welcome back"]


# The next life


def test_positions_go_on_in_the_next_life(store, clock):
    say(store, "s", "one", "two")
    clock.advance(10)
    (receipt,) = say(store, "s", "three")
    assert receipt.positions == range(2, 3)
    assert shown(store, "s") == [2]
    assert said(store, "s") == ["three"]
    info = store.session("s")
    assert (info.entries, info.logged, info.status) == (1, 1, Status.ACTIVE)
    assert info.created_at.timestamp() == clock.now_s


@pytest.mark.parametrize(
    "begin",
    [
        pytest.param(lambda store: say(store, "s", "new"), id="append"),
        pytest.param(lambda store: store.save_snapshot("s"), id="snapshot"),
        pytest.param(lambda store: store.set_metadata("s", {}), id="metadata"),
    ],
)
def test_nothing_of_the_last_life_reaches_the_next(store, clock, begin):
    store.set_metadata("s", {"name": "Ann"})
    store.add_message("s", "user", "old", key="k")
    snapshot = store.save_snapshot("s")
    store.trim("s", keep_last=0, key="t")
    clock.advance(10)
    begin(store)
    assert "old" not in said(store, "s")
    assert snapshot.id not in [taken.id for taken in store.list_snapshots("s")]
    assert store.session("s").metadata == {}
    with pytest.raises(SnapshotNotFoundError):
        store.rollback_to_snapshot("s", snapshot.id)
    with pytest.raises(UsageError):
        store.undo("s")
    again = store.add_message("s", "user", "other", key="k")
    assert not again.replayed
    assert "other" in said(store, "s")
    change = store.trim("s", keep_last=0, key="t")
    assert not change.replayed
    assert said(store, "s") == []


def test_a_clear_and_its_undo_stay_within_a_life(store, clock):
    say(store, "s", "old")
    clock.advance(10)
    say(store, "s", "new")
    store.clear("s")
    store.undo("s")
    assert shown(store, "s") == [1]


def test_many_lives(store, clock, reopened):
    for life in range(5):
        say(store, "s", *[f"{life}-{n}" for n in range(life + 1)])
        assert said(store, "s") == [f"{life}-{n}" for n in range(life + 1)]
        assert store.session("s").logged == life + 1
        clock.advance(10)
        store = reopened(store, ttl=10)
        assert status(store) is Status.EXPIRED
    say(store, "s", "last")
    assert shown(store, "s") == [15]


def test_a_life_that_had_no_entry_is_followed_by_one_that_has(store, clock):
    say(store, "s", "one")
    clock.advance(10)
    store.set_metadata("s", {"a": 1})
    clock.advance(10)
    assert status(store) is Status.EXPIRED
    (receipt,) = say(store, "s", "two")
    assert receipt.positions == range(1, 2)
    assert said(store, "s") == ["two"]
    assert store.session("s").metadata == {}


def test_an_active_session_keeps_its_life_when_its_neighbours_end(store, clock):
    say(store, "a", "hi")
    say(store, "b", "hi", ttl=NEVER)
    say(store, "c", "hi")
    clock.advance(10)
    assert said(store, "b") == ["hi"]
    assert store.list_sessions().ids == ["b"]
    (receipt,) = say(store, "b", "there")
    assert receipt.positions == range(1, 2)


@pytest.mark.parametrize("moment", [None, "now", math.nan, math.inf, -1, 1e12, 2**70])
def test_a_time_that_is_no_date_is_refused(store, clock, moment):
    store.add_message("s", "user", "one")
    start, clock.now_s = clock.now_s, moment
    for use in (
        lambda: store.add_message("s", "user", "two"),
        lambda: store.save_snapshot("s"),
        lambda: store.get_history("s"),
    ):
        with pytest.raises(UsageError, match="the clock says"):
            use()
    clock.now_s = start
    assert [message.content for message in store.get_history("s")] == ["one"]
    assert store.verify().findings == ()
