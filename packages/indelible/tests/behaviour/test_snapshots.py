"""Snapshots: a state under a name, in a few bytes."""

import pytest

from indelible import (
    LimitError,
    SessionNotFoundError,
    SnapshotNotFoundError,
    Status,
    UsageError,
)
from indelible.core.limits import LABEL_BYTES_MAX
from tests.support.stores import call, message, one_of_each_kind, result, said, say, shown


def positions(entries):
    return [entry.position for entry in entries]


def test_a_snapshot_says_what_it_froze(store, clock):
    say(store, "s", "one", "two")
    clock.advance(1.5)
    snapshot = store.save_snapshot("s", label="before the storm")
    assert (snapshot.session_id, snapshot.label) == ("s", "before the storm")
    assert (snapshot.entries, snapshot.extents) == (2, ((0, 2),))
    assert snapshot.taken_at.timestamp() == clock.now_s
    assert store.list_snapshots("s") == [snapshot]
    assert store.session("s").snapshots == 1


def test_snapshots_are_listed_oldest_first(store, clock):
    taken = []
    for number in range(5):
        # A clock that runs backwards must not change the order.
        clock.advance(-1)
        taken.append(store.save_snapshot("s", label=str(number)))
    assert store.list_snapshots("s") == taken
    assert len({snapshot.id for snapshot in taken}) == 5


def test_a_snapshot_covers_all_kinds_of_entry(store):
    store.add_entries("s", one_of_each_kind())
    snapshot = store.save_snapshot("s")
    assert snapshot.entries == len(one_of_each_kind())
    store.clear("s")
    assert (store.get_tool_calls("s"), store.get_summaries("s")) == ([], [])
    store.rollback_to_snapshot("s", snapshot.id)
    assert [entry.value for entry in store.get_entries("s")] == one_of_each_kind()
    assert len(store.get_tool_calls("s")) == len(store.get_summaries("s")) == 1


def test_a_snapshot_covers_what_shows_and_no_more(store):
    say(store, "s", *"abcdef")
    store.trim("s", before=2)
    first = store.save_snapshot("s")
    say(store, "s", "g")
    store.rollback_to_snapshot("s", first.id)
    say(store, "s", "h")
    second = store.save_snapshot("s")
    assert second.extents == ((2, 6), (7, 8))
    assert second.entries == 5


def test_what_comes_later_does_not_change_a_snapshot(store):
    say(store, "s", "one")
    snapshot = store.save_snapshot("s")
    say(store, "s", "two")
    store.trim("s", keep_last=0)
    assert store.list_snapshots("s") == [snapshot]


def test_a_snapshot_of_a_new_session_begins_it(store):
    snapshot = store.save_snapshot("s")
    assert (snapshot.entries, snapshot.extents) == (0, ())
    assert store.session("s").status is Status.ACTIVE


def test_what_is_no_text_is_no_label(store):
    for label in ("", 5, b"x", "\ud800"):
        with pytest.raises(UsageError):
            store.save_snapshot("s", label=label)
        assert store.list_snapshots("s") == []


@pytest.mark.parametrize(
    "label", ["é" * (LABEL_BYTES_MAX // 2), "\0", "'; --", "\N{GRINNING FACE}"]
)
def test_any_text_within_the_limit_is_a_label(store, label, reopened):
    store.save_snapshot("s", label=label)
    store = reopened(store)
    assert [snapshot.label for snapshot in store.list_snapshots("s")] == [label]


def test_a_label_over_the_limit_is_refused(store):
    with pytest.raises(LimitError) as caught:
        store.save_snapshot("s", label="é" * (LABEL_BYTES_MAX // 2) + "x")
    assert caught.value.limit == LABEL_BYTES_MAX


def test_two_snapshots_may_have_one_label(store):
    one, two = store.save_snapshot("s", label="x"), store.save_snapshot("s", label="x")
    assert store.list_snapshots("s") == [one, two]


# Comparing


def test_a_diff_names_what_was_added_and_what_was_removed(store):
    say(store, "s", "one", "two")
    first = store.save_snapshot("s")
    store.trim("s", keep_last=1)
    store.add_entries("s", [call("c"), result("c")])
    second = store.save_snapshot("s")
    diff = store.diff_snapshots("s", first.id, second.id)
    assert (positions(diff.removed), positions(diff.added)) == ([0], [2, 3])
    assert diff.removed[0].value == message("one")
    assert [entry.value for entry in diff.added] == [call("c"), result("c")]


def test_a_diff_the_other_way_round_is_the_other_way_round(store):
    say(store, "s", "one")
    first = store.save_snapshot("s")
    say(store, "s", "two")
    second = store.save_snapshot("s")
    forth = store.diff_snapshots("s", first.id, second.id)
    back = store.diff_snapshots("s", second.id, first.id)
    assert (forth.added, forth.removed) == (back.removed, back.added)
    assert positions(forth.added) == [1]


def test_a_diff_with_now(store):
    say(store, "s", "one", "two")
    snapshot = store.save_snapshot("s")
    diff = store.diff_snapshots("s", snapshot.id)
    assert (diff.removed, diff.added) == ((), ())
    store.trim("s", keep_last=1)
    say(store, "s", "three")
    diff = store.diff_snapshots("s", snapshot.id)
    assert (positions(diff.removed), positions(diff.added)) == ([0], [2])


def test_a_diff_with_itself_is_nothing(store):
    say(store, "s", "one")
    snapshot = store.save_snapshot("s")
    diff = store.diff_snapshots("s", snapshot.id, snapshot.id)
    assert (diff.removed, diff.added) == ((), ())


def test_a_diff_shows_entries_that_no_longer_show(store):
    say(store, "s", "one")
    first = store.save_snapshot("s")
    say(store, "s", "two")
    second = store.save_snapshot("s")
    store.clear("s")
    diff = store.diff_snapshots("s", first.id, second.id)
    assert [entry.value.content for entry in diff.added] == ["two"]


def test_a_diff_needs_both_snapshots(store):
    snapshot = store.save_snapshot("s")
    for pair in (("nothing", snapshot.id), (snapshot.id, "nothing"), ("nothing", None)):
        with pytest.raises(SnapshotNotFoundError) as caught:
            store.diff_snapshots("s", *pair)
        assert caught.value.snapshot == "nothing"
    with pytest.raises(SessionNotFoundError):
        store.diff_snapshots("nobody", snapshot.id)


# Deleting


def test_deleting_a_snapshot_leaves_everything_else(store):
    say(store, "s", "one")
    first = store.save_snapshot("s")
    say(store, "s", "two")
    second = store.save_snapshot("s")
    store.rollback_to_snapshot("s", first.id)
    assert store.delete_snapshot("s", first.id) is None
    assert said(store, "s") == ["one"]
    assert store.list_snapshots("s") == [second]
    assert store.session("s").snapshots == 1
    store.rollback_to_snapshot("s", second.id)
    assert said(store, "s") == ["one", "two"]


def test_a_deleted_snapshot_is_not_found(store, reopened):
    snapshot = store.save_snapshot("s")
    store.delete_snapshot("s", snapshot.id)
    store = reopened(store)
    for attempt in (
        lambda: store.delete_snapshot("s", snapshot.id),
        lambda: store.rollback_to_snapshot("s", snapshot.id),
        lambda: store.diff_snapshots("s", snapshot.id),
        lambda: store.fork("s", "t", at=snapshot.id),
    ):
        with pytest.raises(SnapshotNotFoundError) as caught:
            attempt()
        assert caught.value.snapshot == snapshot.id


def test_the_rollback_to_a_deleted_snapshot_can_still_be_undone(store):
    say(store, "s", "one")
    snapshot = store.save_snapshot("s")
    say(store, "s", "two")
    store.rollback_to_snapshot("s", snapshot.id)
    store.delete_snapshot("s", snapshot.id)
    store.undo("s")
    assert shown(store, "s") == [0, 1]


def test_deleting_from_a_session_that_is_not_there_finds_nothing(store):
    with pytest.raises(SnapshotNotFoundError):
        store.delete_snapshot("nobody", "id")
    assert store.list_sessions().ids == []


@pytest.mark.parametrize(
    ("snapshot_id", "error"),
    [
        ("\0", SnapshotNotFoundError),
        ("%", SnapshotNotFoundError),
        ("", UsageError),
        (5, UsageError),
        ("\ud800", UsageError),
        ("a\udfff", UsageError),
    ],
)
def test_an_id_that_no_snapshot_can_have_is_refused_and_harms_nobody(store, snapshot_id, error):
    snapshot = store.save_snapshot("s")
    for attempt in (
        lambda: store.delete_snapshot("s", snapshot_id),
        lambda: store.rollback_to_snapshot("s", snapshot_id),
        lambda: store.diff_snapshots("s", snapshot_id),
        lambda: store.diff_snapshots("s", snapshot.id, snapshot_id),
        lambda: store.fork("s", "t", at=snapshot_id),
    ):
        with pytest.raises(error):
            attempt()
    say(store, "s", "one")
    assert said(store, "s") == ["one"]
    assert store.list_snapshots("s") == [snapshot]


def test_a_snapshot_itself_is_not_taken_for_its_id(store):
    snapshot = store.save_snapshot("s")
    for attempt in (
        lambda: store.delete_snapshot("s", snapshot),
        lambda: store.rollback_to_snapshot("s", snapshot),
        lambda: store.diff_snapshots("s", snapshot),
        lambda: store.fork("s", "t", at=snapshot),
    ):
        with pytest.raises(UsageError, match=r"pass snapshot\.id"):
            attempt()
    assert store.list_snapshots("s") == [snapshot]


# Names


def test_a_snapshot_is_found_by_label_by_the_beginning_of_its_id_and_as_the_latest(store):
    say(store, "s", "one")
    first = store.save_snapshot("s", label="first")
    say(store, "s", "two")
    second = store.save_snapshot("s")
    say(store, "s", "three")
    for name, showing in (
        ("first", ["one"]),
        ("latest", ["one", "two"]),
        (first.id[:-4], ["one"]),
        (second.id, ["one", "two"]),
    ):
        store.rollback_to_snapshot("s", name)
        assert said(store, "s") == showing
    assert positions(store.diff_snapshots("s", "first", "latest").added) == [1]
    assert positions(store.diff_snapshots("s", "latest", "first").removed) == [1]
    assert store.diff_snapshots("s", "latest", "latest").added == ()
    store.fork("s", "copy", at="first")
    assert said(store, "copy") == ["one"]
    store.delete_snapshot("s", "latest")
    assert [snapshot.id for snapshot in store.list_snapshots("s")] == [first.id]


def test_a_name_that_fits_several_snapshots_is_refused(store):
    say(store, "s", "one")
    taken = [store.save_snapshot("s", label="nightly") for _ in range(2)]
    version = store.session("s").version
    for verb in (
        lambda: store.rollback_to_snapshot("s", "nightly"),
        lambda: store.delete_snapshot("s", "nightly"),
        lambda: store.fork("s", "copy", at="nightly"),
    ):
        with pytest.raises(UsageError, match=f"2 snapshots .*{taken[0].id}, {taken[1].id}"):
            verb()
    assert store.session("s").version == version
    assert len(store.list_snapshots("s")) == 2


def test_a_label_comes_before_the_latest(store):
    say(store, "s", "one")
    store.save_snapshot("s", label="latest")
    say(store, "s", "two")
    store.save_snapshot("s")
    store.rollback_to_snapshot("s", "latest")
    assert said(store, "s") == ["one"]


def test_short_beginnings_and_other_sessions_are_not_found(store):
    say(store, "s", "one")
    snapshot = store.save_snapshot("s", label="here")
    say(store, "t", "one")
    for session, name in (
        ("s", snapshot.id[:3]),
        ("t", "latest"),
        ("t", "here"),
        ("t", snapshot.id[:12]),
    ):
        with pytest.raises(SnapshotNotFoundError):
            store.rollback_to_snapshot(session, name)
        with pytest.raises(SnapshotNotFoundError):
            store.delete_snapshot(session, name)
