"""Cursors and versions that a client edits: refused, or what an honest one would have got."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indelible import ConflictError, MemoryStoreError, UsageError
from tests.fuzz.neighbours import Neighbours, leaked
from tests.support.verbs import CALLS, WithOptions, list_parameters

NUMBERS = st.one_of(
    st.integers(-2, 12), st.sampled_from([2**31, 2**32, 2**32 + 3, 2**63, -(2**63), 10**30])
)
VALUES = st.one_of(
    NUMBERS, st.none(), st.booleans(), st.floats(), st.text(max_size=8), st.lists(NUMBERS)
)


def edited(draw, cursor):
    """A cursor with some characters replaced, added or taken away."""
    text = list(cursor)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(text) - 1)))
        kind = draw(st.sampled_from(["replace", "insert", "delete", "cut"]))
        if kind == "replace" and text:
            text[at] = draw(st.characters())
        elif kind == "insert":
            text.insert(at, draw(st.sampled_from("ABCz019-_=+/ \n")))
        elif kind == "delete" and text:
            del text[at]
        else:
            del text[at:]
    return "".join(text)


def rebuilt(draw, cursor):
    """A cursor whose payload was changed under its old signature."""
    data = base64.urlsafe_b64decode(cursor)
    payload = json.loads(data[16:])
    payload[draw(st.integers(0, len(payload) - 1))] = draw(VALUES)
    signature = draw(st.sampled_from([data[:16], b"", bytes(16)]))
    return base64.urlsafe_b64encode(signature + json.dumps(payload).encode()).decode()


def spliced(draw, one, other):
    """The signature of a cursor with the payload of another one."""
    cut = draw(st.integers(0, 24))
    mixed = base64.urlsafe_b64decode(one)[:cut] + base64.urlsafe_b64decode(other)[cut:]
    return base64.urlsafe_b64encode(mixed).decode()


@st.composite
def crafted(draw, cursors):
    """Something that a client might hand in as a cursor."""
    one, other = draw(st.sampled_from(cursors)), draw(st.sampled_from(cursors))
    kind = draw(st.sampled_from(["edit", "rebuild", "splice", "other", "noise"]))
    if kind == "edit":
        return edited(draw, one)
    if kind == "rebuild":
        return rebuilt(draw, one)
    if kind == "splice":
        return spliced(draw, one, other)
    return other if kind == "other" else draw(VALUES)


def test_a_crafted_cursor_is_refused_or_an_honest_one(stores, bounded):
    store = stores.open()
    neighbours = Neighbours(stores, store)
    for number in range(9):
        store.add_message("mine", "user", f"mine {number}")
    store.hide("mine", [0, 4])
    honest = {}
    for limit in (1, 2, 5):
        page = store.get_entries("mine", limit=limit)
        while page.cursor is not None:
            cursor = page.cursor
            page = store.get_entries("mine", limit=limit, cursor=cursor)
            honest[cursor] = list(store.get_entries("mine", cursor=cursor))
    cursors = [*honest, *(store.get_entries(one, limit=1).cursor for one in ("before", "zebra"))]

    @bounded
    @given(crafted(cursors))
    def attack(cursor):
        try:
            found = list(store.get_entries("mine", cursor=cursor))
        except UsageError:
            assert not isinstance(cursor, str) or cursor not in honest
        else:
            assert cursor is None or found == honest[cursor]
            assert not leaked(found)

    attack()
    neighbours.check()
    store.vacuum(undo_window=0)
    neighbours.check()
    assert store.verify().ok


LISTS = (
    {},
    {"order": "id"},
    {"order": "-last_activity"},
    {"order": "created", "where": {"metadata.team": {"$in": ["a", "b"]}}},
    {"expired": True},
)


def test_a_crafted_cursor_of_a_list_is_refused_or_an_honest_one(stores, bounded):
    store = stores.open(namespace="mine")
    others = stores.open(namespace="theirs")
    for number in range(5):
        for each, name in ((store, "mine"), (others, "theirs")):
            each.add_message(f"{name} {number}", "user", "x")
            each.set_metadata(f"{name} {number}", {"team": "ab"[number % 2]})
    honest = {}
    for number, asked in enumerate(LISTS):
        page = store.list_sessions(limit=2, **asked)
        while page.cursor is not None:
            cursor = page.cursor
            page = store.list_sessions(limit=2, cursor=cursor, **asked)
            honest[cursor, number] = page
    cursors = [cursor for cursor, _ in honest]
    cursors += [others.list_sessions(limit=2, **asked).cursor for asked in LISTS]

    @bounded
    @given(crafted(cursors), st.integers(0, len(LISTS) - 1))
    def attack(cursor, number):
        try:
            found = store.list_sessions(cursor=cursor, limit=2, **LISTS[number])
        except UsageError:
            assert not isinstance(cursor, str) or (cursor, number) not in honest
        else:
            assert cursor is None or found == honest[cursor, number]

    attack()


@st.composite
def versions(draw, current):
    """Something that a client might hand in as the version that it expects."""
    kind = draw(st.sampled_from(["edit", "parts", "noise", "text"]))
    if kind == "edit":
        return edited(draw, current)
    if kind == "parts":
        parts = current.split(".")
        parts[draw(st.integers(0, len(parts) - 1))] = str(draw(NUMBERS))
        return ".".join(parts)
    return draw(st.text(max_size=20)) if kind == "text" else draw(VALUES)


# A memory is expected by its position.
VERSIONED = [verb for verb in CALLS if {"session_id", "expected"} <= {*list_parameters(verb)}]


@pytest.mark.parametrize("verb", VERSIONED)
def test_a_crafted_version_is_refused_and_nothing_is_written(stores, bounded, verb):
    store = stores.open()
    neighbours = Neighbours(stores, store)
    for number in range(4):
        store.add_message("mine", "user", f"mine {number}")
    at = store.save_snapshot("mine").id
    store.hide("mine", [0])
    current = store.session("mine").version
    before = store.timeline("mine")
    state = (before.entries, before.changes, before.snapshots, before.info.metadata)

    @bounded
    @given(versions(current))
    def attack(expected):
        if expected is None or expected == current:
            return
        with pytest.raises((ConflictError, UsageError)):
            CALLS[verb](WithOptions(store, expected=expected), "mine", at)

    attack()
    after = store.timeline("mine")
    assert (after.entries, after.changes, after.snapshots, after.info.metadata) == state
    neighbours.check()


def test_a_snapshot_id_that_was_made_up_is_refused(stores, bounded):
    store = stores.open()
    store.add_message("mine", "user", "mine")
    Neighbours(stores, store)
    theirs = store.list_snapshots("before")[0].id

    @bounded
    @given(st.one_of(VALUES, st.just(theirs), st.text(max_size=20)))
    def attack(name):
        for verb in (store.rollback_to_snapshot, store.delete_snapshot, store.diff_snapshots):
            with pytest.raises(MemoryStoreError):
                verb("mine", name)

    attack()
    assert len(store.get_history("mine")) == 1
