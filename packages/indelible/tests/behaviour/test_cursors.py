"""A page cursor is signed: a client can keep one and hand it back, but cannot write one."""

import base64
import json

import pytest

import indelible
from indelible import ConflictError, UsageError, view


def first_page(store, session="mine", count=5):
    for number in range(count):
        store.add_message(session, "user", f"{session} {number}")
    return store.get_entries(session, limit=2)


def forged_payload(cursor, **changes):
    """The cursor with fields of its payload replaced, under its old signature."""
    data = base64.urlsafe_b64decode(cursor)
    signature, payload = data[:16], json.loads(data[16:])
    names = ("life", "extents", "version", "vacuums", "resume")
    fields = {**dict(zip(names, payload, strict=True)), **changes}
    text = json.dumps([fields[name] for name in names], separators=(",", ":"))
    return base64.urlsafe_b64encode(signature + text.encode()).decode()


def refused(store, session, cursor):
    with pytest.raises(UsageError, match="not a cursor of this store and session"):
        store.get_entries(session, cursor=cursor)


def extents_text(*extents):
    return base64.b64encode(view.encode(extents)).decode()


@pytest.mark.parametrize(
    "extents",
    [((0, 2**33),), ((2**32, 2**32 + 9),), ((0, 5),), ((7, 9),)],
    ids=["past the log", "the next session", "hidden entries", "outside"],
)
def test_a_cursor_whose_extents_were_edited_is_refused(store, extents):
    first_page(store)
    for neighbour in ("before", "zebra"):
        store.add_message(neighbour, "user", "secret")
    store.hide("mine", [0])
    page = store.get_entries("mine", limit=2)
    refused(store, "mine", forged_payload(page.cursor, extents=extents_text(*extents)))


def test_a_cursor_whose_position_was_edited_is_refused(store):
    page = first_page(store)
    for resume in (0, 1, -1, 2**32, 2**70, "3", None, 1.5):
        refused(store, "mine", forged_payload(page.cursor, resume=resume))


def test_every_byte_of_a_cursor_counts(store):
    page = first_page(store)
    for at in range(len(page.cursor)):
        other = "A" if page.cursor[at] != "A" else "B"
        refused(store, "mine", page.cursor[:at] + other + page.cursor[at + 1 :])


def test_anything_else_is_refused_as_a_cursor(store):
    first_page(store)
    for cursor in (
        "",
        "x",
        "====",
        "é",
        "\ud800",
        "null",
        "W10=",
        "A" * 100_000,
        5,
        b"abc",
        ["a"],
        True,
    ):
        refused(store, "mine", cursor)


def test_a_cursor_of_another_session_is_refused(store):
    page = first_page(store, "theirs")
    first_page(store, "mine")
    refused(store, "mine", page.cursor)


def test_a_cursor_of_another_namespace_is_refused(make_store, stores):
    if stores.engine == "memory":
        pytest.skip("a memory store has one namespace")
    theirs, mine = make_store(namespace="theirs"), make_store(namespace="mine")
    page = first_page(theirs)
    first_page(mine)
    refused(mine, "mine", page.cursor)


def test_a_cursor_of_another_store_is_refused(store, tmp_path):
    page = first_page(store)
    with indelible.open(tmp_path / "other.db") as other:
        first_page(other)
        refused(other, "mine", page.cursor)


def test_a_cursor_works_in_another_process_of_the_same_store(store, reopened):
    page = first_page(store)
    again = reopened(store)
    rest = again.get_entries("mine", cursor=page.cursor)
    assert [entry.position for entry in rest] == [2, 3, 4]


def test_two_handles_share_one_secret(make_store, stores):
    if stores.engine == "memory":
        pytest.skip("two memory stores share nothing")
    one, two = make_store(), make_store()
    first_page(one)
    pages = [handle.get_entries("mine", limit=2) for handle in (one, two)]
    assert pages[0].cursor == pages[1].cursor
    for handle, page in ((one, pages[1]), (two, pages[0])):
        assert len(handle.get_entries("mine", cursor=page.cursor)) == 3


def test_a_cursor_of_an_earlier_life_is_gone(make_store, clock):
    store = make_store(ttl=60)
    page = first_page(store)
    clock.advance(61)
    first_page(store)
    with pytest.raises(ConflictError) as caught:
        store.get_entries("mine", cursor=page.cursor)
    assert caught.value.reason == "gone"


@pytest.mark.parametrize(
    "bookmark",
    [
        [-5, "", 0, []],
        [0, "", -1, []],
        [0, "", 2**70, []],
        [2**70, "", 0, []],
        [0, "", 0, "abc"],
        [0, "", 0, [[1]]],
        [1e308 * 10, "", 0, []],
        [True, "", 0, []],
        {"a": 1, "b": 2, "c": 3, "d": 4},
        "1234",
        5,
        None,
    ],
    ids=str,
)
def test_a_crafted_cursor_of_a_list_names_sessions_of_its_namespace_or_is_refused(
    make_store, stores, bookmark
):
    mine = make_store(namespace="mine")
    mine.add_message("a", "user", "hello")
    if stores.engine != "memory":
        make_store(namespace="theirs").add_message("secret", "user", "hello")
    text = base64.urlsafe_b64encode(json.dumps(bookmark).encode()).decode()
    try:
        page = mine.list_sessions(cursor=text)
    except UsageError:
        return
    assert set(page.ids) <= {"a"}
