"""Sessions as a whole: hostile ids, metadata, listing, clearing all."""

import math
from types import MappingProxyType

import pytest

from indelible import ConflictError, LimitError, Status, UsageError
from indelible.core.limits import (
    METADATA_BYTES_MAX,
    PAGE_ENTRIES_MAX,
    SESSION_ID_BYTES_MAX,
)
from tests.support.stores import said, say

# Ids that an engine, a glob, a path or a query might take for something else; all are different.
HOSTILE = [
    "%",
    "%%",
    "_",
    "*",
    "?",
    "[a-z]",
    ":",
    "a:b",
    "/",
    "..",
    "../../etc/passwd",
    "{tag}",
    "{}",
    "'",
    '"',
    "'; DROP TABLE session; --",
    "\\",
    "\0",
    "a\0b",
    "a\0",
    " ",
    " a",
    "a ",
    "\n",
    "a",
    "ab",
    "abc",
    "A",
    "Ab",
    "ss",
    "ß",
    "i",
    "ı",
    "\N{LATIN SMALL LETTER E WITH ACUTE}",
    "e\N{COMBINING ACUTE ACCENT}",
    "\N{ANGSTROM SIGN}",
    "\N{LATIN CAPITAL LETTER A WITH RING ABOVE}",
    "\N{GRINNING FACE}",
    "\uffff",
    "\U0010ffff",
    "\x7f",
    "~",
    "new",
    "None",
    "0",
    "00",
    "-1",
    "1e3",
    "x" * SESSION_ID_BYTES_MAX,
    "x" * (SESSION_ID_BYTES_MAX - 1),
    "é" * (SESSION_ID_BYTES_MAX // 2),
]


def listed(store, **options):
    """Every page of ids together."""
    page = store.list_sessions(**options)
    ids = page.ids
    while page.cursor is not None:
        page = store.list_sessions(cursor=page.cursor, **options)
        ids += page.ids
    return ids


# Ids


def test_every_id_is_a_session_of_its_own(store, reopened):
    for number, session in enumerate(HOSTILE):
        say(store, session, str(number))
        store.set_metadata(session, {"id": session})
    store = reopened(store)
    for number, session in enumerate(HOSTILE):
        assert said(store, session) == [str(number)]
        info = store.session(session)
        assert (info.session_id, info.metadata) == (session, {"id": session})
    assert sorted(listed(store)) == sorted(HOSTILE)


def test_a_prefix_is_taken_literally(store):
    for session in HOSTILE:
        say(store, session, "x")
    prefixes = {session[:length] for session in HOSTILE for length in (1, 2, 511, 512)}
    for limit in (1, 7, PAGE_ENTRIES_MAX):
        for prefix in [*prefixes, "nothing", "b", "\x01"]:
            expected = [session for session in HOSTILE if session.startswith(prefix)]
            assert sorted(listed(store, prefix=prefix, limit=limit)) == sorted(expected)


def test_every_verb_keeps_to_its_session(store):
    near = ["a", "ab", "A", "a\0", "a%", "é", "e\N{COMBINING ACUTE ACCENT}"]
    for session in near:
        say(store, session, "one", "two")
        store.save_snapshot(session)
    for cleared in near:
        store.clear(cleared)
        for session in near:
            shows = [] if session == cleared else ["one", "two"]
            assert said(store, session) == shows
            assert store.session(session).snapshots == 1
        store.undo(cleared)


# Python has no repr of it.
DEEP: list = []
for _ in range(10_000):
    DEEP = [DEEP]


@pytest.mark.parametrize("session", ["", None, 5, b"s", ["s"], "\ud800", "a\udfff"])
def test_what_is_no_session_id_is_refused(store, session):
    for use in (
        lambda: store.add_message(session, "user", "x"),
        lambda: store.get_history(session),
        lambda: store.session(session),
        lambda: store.save_snapshot(session),
        lambda: store.clear(session),
        lambda: store.set_metadata(session, {}),
    ):
        with pytest.raises(UsageError) as caught:
            use()
        assert repr(session) in str(caught.value)
    with pytest.raises(UsageError, match="a list without a repr"):
        store.get_history(DEEP)
    assert listed(store) == []


@pytest.mark.parametrize(
    "session", ["x" * (SESSION_ID_BYTES_MAX + 1), "é" * (SESSION_ID_BYTES_MAX // 2) + "x"]
)
def test_an_id_over_the_limit_is_refused(store, session):
    with pytest.raises(LimitError) as caught:
        store.add_message(session, "user", "x")
    error = caught.value
    assert (error.limit, error.actual) == (SESSION_ID_BYTES_MAX, SESSION_ID_BYTES_MAX + 1)
    with pytest.raises(LimitError):
        store.get_history(session)
    assert listed(store) == []


# Listing


def test_pages_of_ids_together_are_all_of_them(store):
    ids = {f"user-{number}" for number in range(10)}
    for session in ids:
        say(store, session, "x")
    for limit in (1, 2, 3, 10, 11):
        found = listed(store, limit=limit)
        assert (set(found), len(found)) == (ids, 10)
        page = store.list_sessions(limit=limit)
        assert len(page) == min(limit, 10)
        assert (page.cursor is None) == (limit >= 10)


def test_sessions_are_listed_that_are_active(store, clock):
    say(store, "messages", "x")
    store.set_metadata("metadata", {})
    store.save_snapshot("snapshot")
    say(store, "cleared", "x")
    store.clear("cleared")
    say(store, "expired", "x", ttl=5)
    store.get_history("looked at")
    clock.advance(5)
    assert set(listed(store)) == {"messages", "metadata", "snapshot", "cleared"}


def test_expired_sessions_do_not_shorten_a_list(store, clock):
    for number in range(20):
        say(store, f"{number:02}", "x", ttl=5 if number % 4 else 50)
    clock.advance(5)
    for limit in (1, 2, 5):
        assert sorted(listed(store, limit=limit)) == ["00", "04", "08", "12", "16"]


@pytest.mark.parametrize("order", [None, "id"])
def test_sessions_that_stay_are_listed_though_others_come_and_go(store, clock, order):
    for number in range(6):
        say(store, f"stays-{number}", "x")
        say(store, f"goes-{number}", "x", ttl=5)
    page = store.list_sessions(order=order, limit=3)
    found = page.ids
    clock.advance(5)
    say(store, "a-newcomer", "x")
    while page.cursor is not None:
        page = store.list_sessions(order=order, limit=3, cursor=page.cursor)
        found += page.ids
    assert {session for session in found if session.startswith("stays")} == {
        f"stays-{number}" for number in range(6)
    }
    # Without an order, Redis may return a session again when others came.
    if order is not None:
        assert len(found) == len(set(found))


def test_what_is_no_page_is_refused(store):
    for limit in (0, -1, "5", True, DEEP):
        with pytest.raises(UsageError):
            store.list_sessions(limit=limit)
    with pytest.raises(LimitError):
        store.list_sessions(limit=PAGE_ENTRIES_MAX + 1)
    for prefix in (5, "\ud800", "x" * (SESSION_ID_BYTES_MAX + 1)):
        with pytest.raises(UsageError):
            store.list_sessions(prefix=prefix)


def test_what_is_no_cursor_is_refused(store):
    say(store, "s", "x")
    for cursor in (5, b"x", "\ud800"):
        with pytest.raises(UsageError):
            store.list_sessions(cursor=cursor)


# Metadata


def test_metadata_is_replaced_as_a_whole(store, reopened):
    info = store.set_metadata("s", {"name": "Ann", "tags": ["a", None], "n": 2**70})
    assert info.metadata == {"name": "Ann", "tags": ["a", None], "n": 2**70}
    assert info == store.session("s")
    store.set_metadata("s", {"other": 1.5})
    store = reopened(store)
    assert store.session("s").metadata == {"other": 1.5}
    assert store.set_metadata("s", MappingProxyType({})).metadata == {}


def test_metadata_begins_a_session(store, clock):
    info = store.set_metadata("s", {"name": "Ann"})
    assert (info.status, info.entries, info.logged) == (Status.ACTIVE, 0, 0)
    assert info.created_at.timestamp() == clock.now_s
    (receipt,) = say(store, "s", "hi")
    assert receipt.positions == range(1)
    assert store.session("s").metadata == {"name": "Ann"}


def test_metadata_is_refused_if_the_session_moved(store):
    version = store.add_message("s", "user", "hi").version
    store.set_metadata("s", {"a": 1}, expected=version)
    say(store, "s", "more")
    with pytest.raises(ConflictError) as caught:
        store.set_metadata("s", {"a": 2}, expected=version)
    assert caught.value.reason == "version"
    assert store.session("s").metadata == {"a": 1}


def test_metadata_that_would_not_read_back_is_refused(store):
    for metadata in (
        None,
        [],
        "x",
        {1: 2},
        {"a": math.nan},
        {"a": b"x"},
        {"a": (1,)},
        {"a": "\ud800"},
        {"a": {1}},
    ):
        with pytest.raises(UsageError):
            store.set_metadata("s", metadata)
        assert store.session("s").status is Status.NEW


def test_metadata_never_makes_a_session_unreadable(store):
    try:
        store.set_metadata("s", {"n": 10**5000})
    except UsageError:
        assert store.session("s").status is Status.NEW
    else:
        assert store.session("s").metadata == {"n": 10**5000}


def test_metadata_over_the_limit_is_refused(store):
    store.set_metadata("s", {"a": "x" * (METADATA_BYTES_MAX - 8)})
    with pytest.raises(LimitError) as caught:
        store.set_metadata("s", {"a": "x" * (METADATA_BYTES_MAX - 7)})
    error = caught.value
    assert (error.limit, error.actual) == (METADATA_BYTES_MAX, METADATA_BYTES_MAX + 1)
    assert len(store.session("s").metadata["a"]) == METADATA_BYTES_MAX - 8


# What a session is


def test_a_stranger_is_new(store):
    info = store.session("nobody")
    assert (info.status, info.entries, info.logged, info.snapshots) == (Status.NEW, 0, 0, 0)
    assert (info.created_at, info.expires_at, info.ttl_s) == (None, None, None)
    assert (info.metadata, info.forked_from) == ({}, None)
    assert info.version == store.get_history("nobody").version


def test_a_session_counts_what_shows_and_what_is_logged(store, clock):
    say(store, "s", "one", "two", "three")
    store.trim("s", keep_last=1)
    store.save_snapshot("s")
    clock.advance(60)
    info = store.session("s")
    assert (info.entries, info.logged, info.snapshots) == (1, 3, 1)
    assert info.created_at.timestamp() == clock.now_s - 60
    assert (info.expires_at, info.ttl_s) == (None, None)


# Clearing all


def test_clear_all_clears_every_session_and_can_be_undone(store):
    for session in HOSTILE:
        say(store, session, "x")
    store.set_metadata("empty", {"a": 1})
    assert store.clear_all() == len(HOSTILE)
    assert all(said(store, session) == [] for session in HOSTILE)
    assert len(listed(store)) == len(HOSTILE) + 1
    assert store.clear_all() == 0
    store.undo(HOSTILE[0])
    assert said(store, HOSTILE[0]) == ["x"]


def test_clear_all_of_nothing(store):
    assert store.clear_all() == 0
