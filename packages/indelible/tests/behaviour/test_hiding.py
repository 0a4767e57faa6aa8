"""Hiding single entries, and reading the newest with their positions: what a pop is made of."""

import pytest

from indelible import ConflictError, LimitError, UsageError
from indelible.view import EXTENTS_MAX
from tests.support.stores import message, said, say, shown


def test_hide_lets_go_of_the_named_positions_and_undo_shows_them_again(store):
    say(store, "s", "one", "two", "three", "four")
    change = store.hide("s", [1, 3])
    assert (change.change, change.dropped, change.restored) == ("hide", (1, 3), ())
    assert said(store, "s") == ["one", "three"]
    assert store.session("s").logged == 4
    say(store, "s", "five")
    assert store.undo("s").restored == (1, 3)
    assert said(store, "s") == ["one", "two", "three", "four", "five"]


def test_hide_passes_over_what_does_not_show(store):
    say(store, "s", "one", "two")
    version = store.session("s").version
    assert store.hide("s", [7]).dropped == ()
    assert store.hide("nobody", [0]).dropped == ()
    assert store.session("s").version == version
    assert store.hide("s", [1, 1, 9]).dropped == (1,)
    say(store, "s", "three")
    assert said(store, "s") == ["one", "three"], "a position from before is no later entry's"


def test_a_position_is_a_number_from_0_up(store):
    say(store, "s", "one", "two")
    for wrong in ([-1], ["1"], [True], [1.0], 0, None):
        with pytest.raises(UsageError):
            store.hide("s", wrong)
        assert said(store, "s") == ["one", "two"]


def test_hide_refuses_if_anyone_wrote_since(store):
    say(store, "s", "one")
    newest = store.get_entries("s", last=1)
    say(store, "s", "two")
    with pytest.raises(ConflictError):
        store.hide("s", [newest[0].position], expected=newest.version)
    assert said(store, "s") == ["one", "two"]


def test_the_same_key_hides_once(store):
    say(store, "s", "one", "two")
    first = store.hide("s", [1], key="k")
    store.undo("s")
    again = store.hide("s", [1], key="k")
    assert (again.replayed, again.dropped) == (True, first.dropped)
    assert said(store, "s") == ["one", "two"]


def test_hide_does_not_tear_a_view_into_more_pieces_than_a_snapshot_holds(store):
    for _ in range(2 * EXTENTS_MAX // 500 + 1):
        store.add_messages("s", [message(".")] * 500)
    with pytest.raises(LimitError):
        store.hide("s", range(1, 2 * EXTENTS_MAX + 2, 2))
    assert len(shown(store, "s")) == 2 * EXTENTS_MAX + 500


def test_the_newest_entries_come_with_their_positions(store):
    say(store, "s", "one", "two", "three")
    store.add_tool_call("s", "c", "look")
    newest = store.get_entries("s", last=2)
    assert [entry.position for entry in newest] == [2, 3]
    assert newest.cursor is None
    assert newest.version == store.session("s").version
    messages = store.get_entries("s", kinds=["message"], last=1)
    assert [entry.position for entry in messages] == [2]
    assert store.get_entries("nobody", last=1) == []
    with pytest.raises(UsageError):
        store.get_entries("s", last=1, limit=1)
