"""Finding sessions: their dates, filters, orders, and pages of these."""

import io
from datetime import UTC, datetime, timedelta

import pytest

from indelible import Status, UsageError
from tests.support.stores import say


def at(seconds):
    return datetime.fromtimestamp(seconds, UTC)


def all_pages(store, **options):
    """Every page together, each of which is full but the last."""
    page = store.list_sessions(**options)
    found = list(page)
    while page.cursor is not None:
        assert len(page) == options["limit"]
        page = store.list_sessions(cursor=page.cursor, **options)
        found += page
    if options.get("order") is None:
        # Redis repeats a session if its table of keys is resized between two pages.
        found = list({each.session_id: each for each in found}.values())
    return found


def ids(sessions):
    return [session.session_id for session in sessions]


# What is listed


def test_a_listed_session_is_described_as_by_itself(store, clock):
    say(store, "s", "one", "two", "three", ttl=500)
    clock.advance(1)
    store.set_metadata("s", {"team": "support"})
    store.trim("s", keep_last=1)
    store.save_snapshot("s")
    store.fork("s", "fork")
    for order in (None, "id", "-last_activity"):
        listed = {each.session_id: each for each in store.list_sessions(order=order)}
        assert listed == {name: store.session(name) for name in ("s", "fork")}
    assert (listed["s"].entries, listed["s"].logged, listed["s"].snapshots) == (1, 3, 1)
    assert listed["fork"].forked_from == "s"


def test_the_last_activity_is_when_the_newest_entry_was_written(store, clock, reopened):
    began = clock.now_s
    say(store, "s", "one")
    for seconds in (1, 59, 60, 3600, 0.5):
        clock.advance(seconds)
        say(store, "s", "more")
        info = store.session("s")
        assert (info.created_at, info.last_activity) == (at(began), at(clock.now_s))
        assert info in store.list_sessions(order="-last_activity")
    assert reopened(store).session("s") == info


def test_only_appends_are_activity(store, clock):
    say(store, "s", "one", "two")
    active = clock.now_s
    snapshot = store.save_snapshot("s")
    for change in (
        lambda: store.get_history("s"),
        lambda: store.set_metadata("s", {"a": 1}),
        lambda: store.trim("s", keep_last=1),
        lambda: store.undo("s"),
        lambda: store.save_snapshot("s"),
        lambda: store.rollback_to_snapshot("s", snapshot.id),
        lambda: store.clear("s"),
        lambda: store.vacuum(undo_window=0),
    ):
        clock.advance(100)
        change()
        assert store.session("s").last_activity == at(active)


def test_a_replay_is_no_activity(store, clock):
    store.add_message("s", "user", "one", key="k")
    active = clock.now_s
    clock.advance(100)
    assert store.add_message("s", "user", "one", key="k").replayed
    assert store.session("s").last_activity == at(active)


def test_a_session_without_entries_was_active_when_it_began(store, clock):
    store.set_metadata("metadata", {})
    store.save_snapshot("snapshot")
    for name in ("metadata", "snapshot"):
        info = store.session(name)
        assert info.created_at == info.last_activity == at(clock.now_s)


def test_a_clock_that_goes_back_does_not_take_the_last_activity_with_it(store, clock):
    say(store, "s", "one")
    active = clock.now_s
    clock.advance(-500)
    say(store, "s", "two")
    (info,) = store.list_sessions(order="last_activity")
    assert info.last_activity == store.session("s").last_activity == at(active)


def test_a_fork_is_active_when_it_is_made_and_an_import_when_it_was(store, clock):
    say(store, "s", "one")
    clock.advance(90)
    say(store, "s", "two")
    active = clock.now_s
    before = store.session("s")
    lines = io.StringIO()
    store.export(lines, "s")
    clock.advance(1000)
    store.fork("s", "fork")
    assert store.session("fork").last_activity == at(clock.now_s)
    store.forget("s")
    lines.seek(0)
    store.import_(lines)
    after = store.session("s")
    assert (after.created_at, after.last_activity) == (before.created_at, at(active))
    assert ids(store.list_sessions(order="-last_activity")) == ["fork", "s"]


def test_an_expired_session_has_its_dates_also_after_a_vacuum(store, clock):
    began = clock.now_s
    say(store, "s", "one", ttl=500)
    clock.advance(100.5)
    say(store, "s", "two", ttl=500)
    active = clock.now_s
    clock.advance(500)
    for _ in range(2):
        assert store.list_sessions() == []
        (info,) = store.list_sessions(where={"status": "expired"}, order="created")
        assert (info.status, info.metadata) == (Status.EXPIRED, {})
        assert (info.created_at, info.last_activity) == (at(began), at(active))
        assert info == store.session("s")
        store.vacuum()
    say(store, "s", "new life")
    info = store.session("s")
    assert info.created_at == info.last_activity == at(clock.now_s)


# Filters


@pytest.fixture
def teams(store, clock):
    """Sessions of teams: a0 to a3, b0 to b3, each appended to in turn, and one without metadata."""
    for number in range(4):
        for team in ("a", "b"):
            clock.advance(45)
            say(store, f"{team}{number}", *["x"] * (number + 1))
            store.set_metadata(f"{team}{number}", {"team": team, "user": {"score": number}})
    say(store, "none", "x", ttl=500)
    return store


FILTERS = [
    ({}, ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3", "none"]),
    ({"metadata.team": "a"}, ["a0", "a1", "a2", "a3"]),
    ({"metadata.team": {"$ne": "a"}}, ["b0", "b1", "b2", "b3", "none"]),
    ({"metadata.team": "a", "metadata.user.score": {"$gte": 2}}, ["a2", "a3"]),
    ({"metadata.user.score": {"$in": [0, 3]}}, ["a0", "a3", "b0", "b3"]),
    ({"metadata.team": {"$exists": False}}, ["none"]),
    ({"status": "expired"}, []),
    ({"status": "active", "metadata.team": "b"}, ["b0", "b1", "b2", "b3"]),
    ({"entries": {"$gt": 3}}, ["a3", "b3"]),
    ({"expires_at": {"$exists": True}}, ["none"]),
    ({"forked_from": {"$exists": True}}, []),
]


def test_a_filter_keeps_what_matches(teams):
    for order in (None, "id", "-created"):
        for where, expected in FILTERS:
            assert sorted(ids(teams.list_sessions(where=where, order=order))) == expected
            assert sorted(ids(all_pages(teams, where=where, order=order, limit=2))) == expected


def test_sessions_are_found_by_their_dates(teams, clock):
    times = {each.session_id: each.last_activity for each in teams.list_sessions()}
    before = times["a2"]
    expected = {name for name, active in times.items() if active < before}
    where = {"last_activity": {"$lt": before}}
    assert set(ids(teams.list_sessions(where=where))) == expected
    assert set(ids(teams.list_sessions(where={"created_at": {"$lt": before}}))) == expected
    later = at(clock.now_s) + timedelta(hours=5)
    assert teams.list_sessions(where={"last_activity": {"$gt": later}}) == []


def test_a_status_in_a_filter_decides_alone(store, clock):
    say(store, "expired", "x", ttl=5)
    say(store, "active", "x")
    clock.advance(5)
    assert ids(store.list_sessions()) == ["active"]
    assert ids(store.list_sessions(where={"status": "expired"})) == ["expired"]
    for where in ({"status": {"$in": ["active", Status.EXPIRED]}}, {"status": {"$ne": "new"}}):
        assert sorted(ids(store.list_sessions(where=where))) == ["active", "expired"]
    assert sorted(ids(store.list_sessions(expired=True))) == ["active", "expired"]
    assert ids(store.list_sessions(where={"metadata.a": 1}, expired=True)) == []


BAD_FILTERS = [
    ({"colour": "red"}, "colour"),
    ({"metadata": {"team": "a"}}, "metadata"),
    ({"status": "alive"}, "alive"),
    ({"status": {"$in": ["active", 5]}}, "status"),
    ({"last_activity": {"$lt": "2030-01-31"}}, "last_activity"),
    ({"entries": {"$gt": "1"}}, "entries"),
    ({"entries": True}, "entries"),
    ({"forked_from": None}, "forked_from"),
    ({"metadata.team": {"$like": "a%"}}, "$like"),
    ({"metadata.team": {"$gt": ["a"]}}, "metadata.team"),
    ("status=active", "where"),
]


def test_a_bad_filter_is_refused_by_name(store):
    for where, named in BAD_FILTERS:
        with pytest.raises(UsageError) as caught:
            store.list_sessions(where=where)
        assert named in str(caught.value)


# Orders


def sort_key(order):
    fields = {
        "id": lambda each: (each.session_id,),
        "created": lambda each: (each.created_at, each.session_id),
        "last_activity": lambda each: (each.last_activity, each.session_id),
    }
    return fields[order.removeprefix("-")]


@pytest.mark.parametrize(
    "order", ["id", "-id", "created", "-created", "last_activity", "-last_activity"]
)
def test_pages_come_in_the_order_that_was_asked_for(teams, clock, order):
    for number, name in enumerate(("b1", "a0", "none", "a3", "b1", "é", "\U0010ffff")):
        clock.advance((0, 10, 61)[number % 3])
        say(teams, name, "again")
    known = list(teams.list_sessions())
    assert len(known) == 11
    expected = sorted(known, key=sort_key(order), reverse=order.startswith("-"))
    for limit in (1, 2, 5, 10, 11, 100):
        assert all_pages(teams, order=order, limit=limit) == expected
    fewer = [each for each in expected if each.session_id.startswith("a")]
    assert all_pages(teams, order=order, limit=2, prefix="a") == fewer


def test_a_bounded_scan_finds_the_same_over_more_pages(teams):
    where = {"metadata.team": "b"}
    with pytest.raises(UsageError):
        teams.list_sessions(scan_max=0)
    for order in (None, "id", "-last_activity"):
        expected = teams.list_sessions(where=where, order=order).ids
        for scan_max in (1, 2, 3, 100):
            pages, cursor = [], None
            while not pages or cursor:
                page = teams.list_sessions(
                    where=where, order=order, limit=2, scan_max=scan_max, cursor=cursor
                )
                pages.append(page.ids)
                cursor = page.cursor
            found = [name for page in pages for name in page]
            assert (found if order else sorted(found)) == (expected if order else sorted(expected))
            assert all(len(page) <= 2 for page in pages)


def test_what_is_no_order_is_refused(store):
    for order in ("", "-", "name", "--id", "ID", "id,created", 5, ["id"]):
        with pytest.raises(UsageError) as caught:
            store.list_sessions(order=order)
        assert repr(order) in str(caught.value)


def test_writes_between_pages_repeat_no_session_in_the_order_of_ids(teams, clock):
    page = teams.list_sessions(order="id", limit=2)
    found = ids(page)
    while page.cursor is not None:
        clock.advance(70)
        say(teams, found[-1], "again")
        say(teams, f"0{len(found)}", "before all")
        teams.forget("b1")
        page = teams.list_sessions(order="id", limit=2, cursor=page.cursor)
        found += ids(page)
    assert found == ["a0", "a1", "a2", "a3", "b0", "b2", "b3", "none"]


def test_a_session_that_moves_between_pages_is_seen_again_or_not_at_all(teams, clock):
    """In the order of activity; those that stay where they are come once each."""
    for order, again in (("last_activity", 2), ("-last_activity", 0)):
        page = teams.list_sessions(order=order, limit=3)
        clock.advance(70)
        moved = ids(page)[0] if again else ids(teams.list_sessions(order=order))[-1]
        say(teams, moved, "again")
        found = ids(page)
        while page.cursor is not None:
            page = teams.list_sessions(order=order, limit=3, cursor=page.cursor)
            found += ids(page)
        assert found.count(moved) == again
        others = [name for name in found if name != moved]
        assert len(others) == len(set(others)) == 8


# Cursors


def test_a_cursor_belongs_to_one_list(teams):
    asked = {"order": "id", "where": {"metadata.team": "a"}, "prefix": "a", "limit": 1}
    cursor = teams.list_sessions(**asked).cursor
    assert ids(teams.list_sessions(cursor=cursor, **asked)) == ["a1"]
    assert len(teams.list_sessions(cursor=cursor, **asked | {"limit": 50})) == 3
    written = {"where": {"metadata.team": {"$eq": "a"}}}
    assert ids(teams.list_sessions(cursor=cursor, **asked | written)) == ["a1"]
    for changed in (
        {"order": "-id"},
        {"order": None},
        {"order": "created"},
        {"where": None},
        {"where": {"metadata.team": "b"}},
        {"where": {"metadata.team": {"$ne": "a"}}},
        {"prefix": ""},
        {"expired": True},
    ):
        with pytest.raises(UsageError, match="the same prefix, where and order"):
            teams.list_sessions(cursor=cursor, **asked | changed)


def test_a_cursor_of_entries_is_no_cursor_of_a_list(teams):
    entries = teams.get_entries("a3", limit=1).cursor
    sessions = teams.list_sessions(limit=1).cursor
    with pytest.raises(UsageError):
        teams.list_sessions(limit=1, cursor=entries)
    for name in ("a3", "", repr(("", False, (), None))):
        with pytest.raises(UsageError):
            teams.get_entries(name, cursor=sessions)


def test_a_cursor_of_another_namespace_is_refused(make_store, stores):
    one, two = make_store(namespace="one"), make_store(namespace="two")
    for name in ("a", "b"):
        say(one, name, "x")
        say(two, name, "x")
    cursor = one.list_sessions(limit=1, order="id").cursor
    assert ids(one.list_sessions(limit=1, order="id", cursor=cursor)) == ["b"]
    with pytest.raises(UsageError):
        two.list_sessions(limit=1, order="id", cursor=cursor)
