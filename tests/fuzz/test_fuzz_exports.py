"""Exports that somebody edits: refused and without a trace, or a session like any other."""

import copy
import io
import json
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

import indelible
from indelible import ChatMessage, ConflictError, FormatError
from tests.fuzz.neighbours import Neighbours, leaked
from tests.support.stores import unsynced

NUMBERS = st.one_of(
    st.integers(-2, 14),
    st.sampled_from(
        [1000, 1001, 2**31, 2**32 - 1, 2**32, 2**32 + 3, 2**40, 2**53, 2**63, -(2**63), 10**30]
    ),
    st.sampled_from([0, 1_700_000_000_000, 253_402_300_799_999, 253_402_300_800_000]),
)
SCALARS = st.one_of(
    NUMBERS,
    st.none(),
    st.booleans(),
    st.floats(allow_nan=False),
    st.text(max_size=6),
    st.sampled_from(["k" * 513, "\0", "a b|c", "mine", "theirs", "op1", "message", "summary"]),
)
VIEWS = st.fixed_dictionaries(
    {"extents": st.lists(st.lists(NUMBERS, min_size=2, max_size=2), max_size=3), "tail": NUMBERS}
)
VALUES = st.one_of(SCALARS, VIEWS, st.lists(SCALARS, max_size=3), st.just({}))


def exported(*, with_changes):
    """An honest export, as one object a line."""
    with indelible.open("memory:") as store:
        store.add_message("mine", "system", "mine")
        store.save_context("mine", "mine q", "mine a", key="turn-1")
        store.add_tool_call("mine", "c1", "search", {"q": 1})
        store.add_tool_result("mine", "c1", "mine found")
        store.save_snapshot("mine", label="first")
        store.add_summary("mine", "mine sum", [0.5, 0.5], covers=range(2), embedder="e")
        if with_changes:
            store.hide("mine", [1], key="op1")
            store.save_snapshot("mine")
            store.clear("mine", key="op2")
            store.undo("mine", key="op3")
        store.add_messages("mine", [ChatMessage(role="user", content="mine")] * 3)
        store.set_metadata("mine", {"user": "ann"})
        lines = io.StringIO()
        store.export(lines)
    return [json.loads(line) for line in lines.getvalue().splitlines()]


HONEST = [exported(with_changes=True), exported(with_changes=False)]


def places(value, path=()):
    """Every place in a line: the keys and indexes that lead to it."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*path, key)
        if isinstance(inner, (dict, list)):
            yield from places(inner, (*path, key))


def change_line(draw, lines):
    """Replace or remove something inside of one line."""
    at = draw(st.integers(0, len(lines) - 1))
    if not isinstance(lines[at], dict):
        return
    found = list(places(lines[at]))
    if not found:
        return
    *path, last = draw(st.sampled_from(found))
    inside = lines[at]
    for key in path:
        inside = inside[key]
    if draw(st.integers(0, 5)) == 0:
        del inside[last]
    else:
        inside[last] = draw(VALUES)


def change_lines(draw, lines):
    """Remove, repeat or move whole lines, or put something else in the place of one."""
    at, other = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
    kind = draw(st.sampled_from(["remove", "repeat", "move", "replace", "cut"]))
    if kind == "remove":
        del lines[at]
    elif kind == "repeat":
        lines.insert(other, copy.deepcopy(lines[at]))
    elif kind == "move":
        lines.insert(other, lines.pop(at))
    elif kind == "replace":
        lines[at] = draw(VALUES)
    else:
        del lines[at:]
    if not lines:
        lines.append({})


# Fields that may hold many things: some edits of them are a file that a store could write.
FREE = (
    "label",
    "taken_at_ms",
    "changed_at_ms",
    "created_at_ms",
    "written_at_ms",
    "metadata",
    "key",
)


def change_free(draw, lines):
    """Replace a field that other fields do not depend on."""
    name = draw(st.sampled_from(FREE))
    inside = [
        fields
        for line in lines
        if isinstance(line, dict)
        for fields in line.values()
        if isinstance(fields, dict) and fields.get(name) is not None
    ]
    if inside:
        draw(st.sampled_from(inside))[name] = draw(VALUES)


@st.composite
def edited(draw):
    """The lines of an export after some edits."""
    lines = copy.deepcopy(draw(st.sampled_from(HONEST)))
    for _ in range(draw(st.integers(1, 3))):
        draw(st.sampled_from([change_line, change_line, change_lines, change_free]))(draw, lines)
    return lines


def text_of(lines):
    return io.StringIO("".join(json.dumps(line) + "\n" for line in lines))


def exported_again(store, session):
    lines = io.StringIO()
    store.export(lines, session)
    return lines.getvalue()


def use(store, session):
    """Everything that can be done with a session that was imported; it must be like any other."""
    assert store.verify(session).ok
    assert not leaked(store.timeline(session).entries)
    with indelible.open("memory:", clock=lambda: 1_700_000_000) as copied:
        text = exported_again(store, session)
        copied.import_(io.StringIO(text))
        assert exported_again(copied, session).splitlines()[2:] == text.splitlines()[2:]
    for snapshot in store.list_snapshots(session):
        store.rollback_to_snapshot(session, snapshot.id)
        assert not leaked(store.get_entries(session))
    for _ in range(3):
        store.undo(session) if store.timeline(session).undo else None
    store.add_message(session, "user", "mine next")
    store.trim(session, keep_last=2)
    assert not leaked(store.get_history(session))
    assert store.verify(session).ok


def test_an_edited_export_is_refused_or_an_honest_one(stores, bounded):
    store = stores.open(**unsynced(stores.target))
    neighbours = Neighbours(stores, store)
    mine = {"before", "zebra"}
    outcomes = []

    @bounded
    @given(edited())
    def attack(lines):
        # A file may name a session that is there; everything else that is wrong is of the file.
        with suppress(FormatError, ConflictError):
            store.import_(text_of(lines))
        imported = set(store.list_sessions(expired=True).ids) - mine
        outcomes.append(bool(imported))
        store.add_message("behind", "user", "nobody else may see this either")
        for session in imported:
            if store.session(session).status == "active":
                use(store, session)
        store.vacuum(undo_window=0)
        assert store.verify().ok
        assert len(store.get_history("behind")) == 1
        for session in (*imported, "behind"):
            store.forget(session)

    attack()
    assert {True, False} == set(outcomes), "a fuzzer that only sees one outcome tests nothing"
    neighbours.check()
