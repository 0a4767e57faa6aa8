"""Trim, clear, rollback and undo: they move what shows, and delete nothing."""

import pytest

from indelible import (
    ConflictError,
    LimitError,
    SessionNotFoundError,
    SnapshotNotFoundError,
    Summary,
    UsageError,
)
from indelible.core.limits import JOURNAL_MAX
from indelible.view import EXTENTS_MAX
from tests.support.stores import call, message, result, said, say, shown

# Trimming


def test_trim_keeps_the_last_messages(store):
    say(store, "s", "one", "two", "three", "four")
    change = store.trim("s", keep_last=2)
    assert said(store, "s") == ["three", "four"]
    assert (change.change, change.session_id, change.replayed) == ("trim", "s", False)
    assert (change.dropped, change.restored) == ((0, 1), ())
    assert change.version == store.session("s").version


def test_trim_to_nothing_and_trim_to_more_than_there_is(store):
    say(store, "s", "one", "two")
    version = store.session("s").version
    for keep_last in (2, 3, 99):
        change = store.trim("s", keep_last=keep_last)
        assert (change.dropped, change.version) == ((), version)
    assert store.trim("s", keep_last=0).dropped == (0, 1)
    assert said(store, "s") == []


def test_trim_deletes_nothing(store):
    say(store, "s", "one", "two", "three")
    store.trim("s", keep_last=1)
    info = store.session("s")
    assert (info.entries, info.logged) == (1, 3)


def test_trim_counts_messages_and_drops_what_stands_between(store):
    store.add_entries(
        "s", [message("one"), call("a"), result("a"), message("two"), call("b"), result("b")]
    )
    assert store.trim("s", keep_last=1).dropped == (0, 1, 2)
    assert shown(store, "s") == [3, 4, 5]


def test_trim_leaves_pinned_and_system_messages_and_summaries(store):
    store.add_entries(
        "s",
        [
            message("be kind", role="system"),
            message("be brief", role="developer"),
            message("my name is Ann", pinned=True),
            message("chat"),
            Summary(text="we chatted"),
            message("more"),
        ],
    )
    assert store.trim("s", keep_last=0).dropped == (3, 5)
    assert shown(store, "s") == [0, 1, 2, 4]


def test_trim_never_splits_a_call_from_its_result(store):
    store.add_entries("s", [message("one"), call("c"), message("two"), result("c"), message("x")])
    assert store.trim("s", before=3, align=None).dropped == (0, 2)
    assert shown(store, "s") == [1, 3, 4]
    assert store.trim("s", before=4, align=None).dropped == (1, 3)


def test_trim_never_splits_the_calls_that_stand_in_messages(store):
    store.add_messages(
        "s",
        [
            message(None, role="assistant", tool_calls=[{"id": "a"}, {"id": "b"}]),
            message("1", role="tool", tool_call_id="a"),
            message("2", role="tool", tool_call_id="b"),
            message([{"type": "tool_use", "id": "c"}], role="assistant"),
            message([{"type": "tool_result", "tool_use_id": "c"}]),
            message("done", role="assistant"),
        ],
    )
    assert store.trim("s", keep_last=4).dropped == (), "b's result is among the last four"
    assert store.trim("s", keep_last=2).dropped == (0, 1, 2)
    assert store.trim("s", keep_last=1).dropped == (3, 4)


def test_trim_leaves_a_call_whose_result_may_be_on_its_way(store):
    store.add_entries("s", [call("c"), message("one"), message("two")])
    assert store.trim("s", keep_last=0).dropped == (1, 2)
    store.add_tool_result("s", "c", "found")
    assert store.trim("s", keep_last=0).dropped == (0, 3)


def test_trim_before_a_position(store):
    say(store, "s", *"abcde")
    assert store.trim("s", before=3).dropped == (0, 1, 2)
    assert store.trim("s", before=2).dropped == ()
    assert store.trim("s", before=99).dropped == (3, 4)


def test_trim_to_a_budget(store):
    say(store, "s", "aaaa", "bb", "c")
    counted = {"count_tokens": lambda m: len(m.content)}
    assert store.trim("s", max_tokens=7, **counted).dropped == ()
    assert store.trim("s", max_tokens=6, **counted).dropped == (0,)
    assert store.trim("s", max_tokens=0, **counted).dropped == (1, 2)


def test_trim_to_a_budget_estimated_from_what_is_stored(store):
    say(store, "s", "x" * 4000, "y" * 400, "z" * 400)
    assert store.trim("s", max_tokens=300).dropped == (0,)
    assert store.trim("s", max_tokens=150).dropped == (1,)


def test_what_must_stay_is_paid_for_first(store):
    store.add_messages("s", [message("s" * 5, role="system"), message("aaa"), message("bb")])
    counted = {"count_tokens": lambda m: len(m.content)}
    assert store.trim("s", max_tokens=7, **counted).dropped == (1,)
    assert store.trim("s", max_tokens=1, **counted).dropped == (2,)
    assert said(store, "s") == ["sssss"]


TURNS = [
    message("be kind", role="system"),
    message("question 1"),
    message("answer 1", role="assistant"),
    message("question 2"),
    message("", role="assistant", tool_calls=[{"id": "a", "name": "look"}]),
    message("found", role="tool", tool_call_id="a"),
    message("answer 2", role="assistant"),
    message("more", role="assistant"),
]


LEFT_BY_TRIM = [
    ({"keep_last": 1}, [0, 3, 7]),
    ({"keep_last": 3}, [0, 3, 4, 5, 6, 7]),
    ({"keep_last": 4}, [0, 3, 4, 5, 6, 7]),
    ({"keep_last": 5}, [0, 3, 4, 5, 6, 7]),
    ({"keep_last": 6}, [0, 1, 2, 3, 4, 5, 6, 7]),
    ({"keep_last": 0}, [0]),
    ({"before": 2}, [0, 1, 2, 3, 4, 5, 6, 7]),
    ({"before": 6}, [0, 3, 6, 7]),
    ({"max_tokens": 3}, [0, 3, 7]),
    ({"max_tokens": 4}, [0, 3, 6, 7]),
    ({"max_tokens": 1}, [0]),
]


def test_what_a_trim_leaves_begins_with_a_user(store):
    for rule, left in LEFT_BY_TRIM:
        session = str(rule)
        store.add_entries(session, TURNS)
        counted = {"count_tokens": lambda _: 1} if "max_tokens" in rule else {}
        store.trim(session, **rule, **counted)
        assert shown(store, session) == left


def test_a_trim_that_may_begin_anywhere(store):
    store.add_entries("s", TURNS)
    store.trim("s", keep_last=1, align=None)
    assert shown(store, "s") == [0, 7]
    with pytest.raises(UsageError, match="align"):
        store.trim("s", keep_last=1, align="assistant")


def test_an_unanswered_call_keeps_the_question_before_it(store):
    store.add_entries(
        "s", [message("question"), call("a"), message("never mind"), message("new question")]
    )
    store.trim("s", keep_last=1)
    assert shown(store, "s") == [0, 1, 3]


def test_a_conversation_without_users_is_trimmed_as_asked(store):
    store.add_entries("s", [message(str(n), role="critic") for n in range(40)])
    store.trim("s", keep_last=2)
    assert shown(store, "s") == [38, 39]


def test_a_tool_result_in_a_users_message_opens_no_turn(store):
    use = [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]
    answer = [{"type": "tool_result", "tool_use_id": "a", "content": "found"}]
    store.add_entries(
        "s",
        [
            message("old"),
            message("question"),
            message(use, role="assistant"),
            message(answer),
            message("answer", role="assistant"),
        ],
    )
    store.trim("s", keep_last=1)
    assert shown(store, "s") == [1, 4]


def test_trim_takes_exactly_one_rule(store):
    for rules in ({}, {"keep_last": 1, "before": 2}, {"max_tokens": 1, "keep_last": 1}):
        with pytest.raises(UsageError):
            store.trim("s", **rules)
    for bad in (-1, 1.5, "1", True):
        for rule in ("keep_last", "max_tokens", "before"):
            with pytest.raises(UsageError):
                store.trim("s", **{rule: bad})


def test_trimming_and_clearing_a_session_that_is_not_there_does_nothing(store):
    assert store.trim("nobody", keep_last=1).dropped == ()
    assert store.clear("nobody").dropped == ()
    assert store.list_sessions().ids == []


def test_what_is_appended_after_a_trim_shows(store):
    say(store, "s", "one", "two")
    store.trim("s", keep_last=0)
    say(store, "s", "three")
    assert said(store, "s") == ["three"]


# Clearing


def test_clear_lets_go_of_everything_that_shows(store):
    store.add_entries("s", [message("be kind", role="system"), message("x", pinned=True)])
    say(store, "s", "one")
    change = store.clear("s")
    assert (change.change, change.dropped) == ("clear", (0, 1, 2))
    assert store.get_entries("s") == []
    assert (store.session("s").entries, store.session("s").logged) == (0, 3)
    assert store.clear("s").dropped == ()
    say(store, "s", "two")
    assert said(store, "s") == ["two"]


# Rolling back


def test_a_rollback_shows_exactly_what_the_snapshot_froze(store):
    say(store, "s", "one", "two")
    snapshot = store.save_snapshot("s")
    say(store, "s", "three")
    change = store.rollback_to_snapshot("s", snapshot.id)
    assert (change.change, change.dropped, change.restored) == ("rollback", (2,), ())
    assert said(store, "s") == ["one", "two"]
    say(store, "s", "four")
    assert shown(store, "s") == [0, 1, 3]


def test_a_rollback_keeps_every_snapshot(store):
    taken = []
    for text in "abcd":
        say(store, "s", text)
        taken.append(store.save_snapshot("s"))
    for snapshot in (taken[1], taken[3], taken[0], taken[2]):
        store.rollback_to_snapshot("s", snapshot.id)
        assert said(store, "s") == list("abcd")[: snapshot.entries]
        assert store.list_snapshots("s") == taken


def test_rolling_back_twice_to_one_snapshot_shows_it_twice(store):
    say(store, "s", "one")
    snapshot = store.save_snapshot("s")
    for text in ("two", "three"):
        say(store, "s", text)
        store.rollback_to_snapshot("s", snapshot.id)
        assert said(store, "s") == ["one"]
    assert store.list_snapshots("s") == [snapshot]


def test_rolling_back_and_forward_again(store):
    say(store, "s", "one")
    early = store.save_snapshot("s")
    say(store, "s", "two")
    late = store.save_snapshot("s")
    store.rollback_to_snapshot("s", early.id)
    say(store, "s", "other two")
    branch = store.save_snapshot("s")
    forward = store.rollback_to_snapshot("s", late.id)
    assert (forward.dropped, forward.restored) == ((2,), (1,))
    assert said(store, "s") == ["one", "two"]
    store.rollback_to_snapshot("s", branch.id)
    assert said(store, "s") == ["one", "other two"]
    assert store.list_snapshots("s") == [early, late, branch]


def test_a_snapshot_outlives_trim_and_clear(store):
    say(store, "s", "one", "two", "three")
    whole = store.save_snapshot("s")
    store.trim("s", keep_last=1)
    trimmed = store.save_snapshot("s")
    store.clear("s")
    assert store.rollback_to_snapshot("s", whole.id).restored == (0, 1, 2)
    assert said(store, "s") == ["one", "two", "three"]
    store.rollback_to_snapshot("s", trimmed.id)
    assert said(store, "s") == ["three"]
    assert store.list_snapshots("s") == [whole, trimmed]


def test_a_snapshot_outlives_reopening(store, reopened):
    say(store, "s", "one")
    early = store.save_snapshot("s", label="early")
    say(store, "s", "two")
    late = store.save_snapshot("s")
    store.rollback_to_snapshot("s", early.id)
    store = reopened(store)
    assert store.list_snapshots("s") == [early, late]
    assert said(store, "s") == ["one"]
    store.rollback_to_snapshot("s", late.id)
    assert said(store, "s") == ["one", "two"]
    store = reopened(store)
    assert store.undo("s").dropped == (1,)
    assert store.list_snapshots("s") == [early, late]


def test_rolling_back_to_a_snapshot_of_nothing(store):
    empty = store.save_snapshot("s")
    say(store, "s", "one")
    store.rollback_to_snapshot("s", empty.id)
    assert said(store, "s") == []
    say(store, "s", "two")
    assert shown(store, "s") == [1]


def test_a_rollback_brings_back_tool_entries_and_summaries_too(store):
    store.add_entries("s", [call("c"), result("c"), Summary(text="so far")])
    snapshot = store.save_snapshot("s")
    store.clear("s")
    store.rollback_to_snapshot("s", snapshot.id)
    assert shown(store, "s") == [0, 1, 2]


def test_a_snapshot_that_is_not_there_is_not_found(store):
    say(store, "s", "one")
    store.save_snapshot("s")
    for snapshot_id in ("\0", "nothing", "id' OR '1'='1"):
        with pytest.raises(SnapshotNotFoundError) as caught:
            store.rollback_to_snapshot("s", snapshot_id)
        assert (caught.value.session, caught.value.snapshot) == ("s", snapshot_id)
        assert said(store, "s") == ["one"]


def test_a_snapshot_belongs_to_its_session(store):
    say(store, "a", "one")
    snapshot = store.save_snapshot("a")
    say(store, "b", "one")
    with pytest.raises(SnapshotNotFoundError):
        store.rollback_to_snapshot("b", snapshot.id)


def test_a_session_that_is_not_there_cannot_be_rolled_back_or_undone(store):
    for attempt in (
        lambda: store.rollback_to_snapshot("nobody", "id"),
        lambda: store.undo("nobody"),
    ):
        with pytest.raises(SessionNotFoundError) as caught:
            attempt()
        assert caught.value.session == "nobody"
    assert store.list_sessions().ids == []


# Undoing


def test_undo_takes_back_a_trim_a_clear_and_a_rollback(store):
    say(store, "s", "one")
    snapshot = store.save_snapshot("s")
    say(store, "s", "two")
    for change in (
        lambda: store.trim("s", keep_last=1),
        lambda: store.clear("s"),
        lambda: store.rollback_to_snapshot("s", snapshot.id),
    ):
        dropped = change().dropped
        undone = store.undo("s")
        assert (undone.change, undone.dropped, undone.restored) == ("undo", (), dropped)
        assert said(store, "s") == ["one", "two"]


def test_undo_again_goes_one_further_back(store):
    say(store, "s", *"abcd")
    for keep_last in (3, 2, 1):
        store.trim("s", keep_last=keep_last)
    for showing in ("cd", "bcd", "abcd"):
        store.undo("s")
        assert said(store, "s") == list(showing)
    with pytest.raises(UsageError):
        store.undo("s")
    assert said(store, "s") == list("abcd")


def test_later_appends_stay_when_a_change_is_undone(store):
    say(store, "s", "one", "two")
    store.clear("s")
    say(store, "s", "three")
    store.trim("s", keep_last=0)
    say(store, "s", "four")
    assert store.undo("s").restored == (2,)
    assert said(store, "s") == ["three", "four"]
    assert store.undo("s").restored == (0, 1)
    assert said(store, "s") == ["one", "two", "three", "four"]


def test_an_undone_rollback_shows_both_branches_in_order(store):
    say(store, "s", "one")
    snapshot = store.save_snapshot("s")
    say(store, "s", "two")
    store.rollback_to_snapshot("s", snapshot.id)
    say(store, "s", "three")
    store.undo("s")
    assert said(store, "s") == ["one", "two", "three"]


def test_a_change_after_an_undo_can_be_undone_and_then_what_was_before(store):
    say(store, "s", "one", "two")
    store.trim("s", keep_last=1)
    store.clear("s")
    store.undo("s")
    store.trim("s", keep_last=0)
    for showing in (["two"], ["one", "two"]):
        store.undo("s")
        assert said(store, "s") == showing
    with pytest.raises(UsageError):
        store.undo("s")


def test_redo_makes_the_undone_changes_again(store):
    say(store, "s", "one", "two", "three")
    store.trim("s", keep_last=2)
    store.trim("s", keep_last=1)
    store.undo("s")
    store.undo("s")
    say(store, "s", "four")
    change = store.redo("s")
    assert (change.change, change.dropped, change.restored) == ("redo", (0,), ())
    assert said(store, "s") == ["two", "three", "four"]
    assert store.redo("s").dropped == (1,)
    assert said(store, "s") == ["three", "four"]
    with pytest.raises(UsageError, match="nothing to redo"):
        store.redo("s")
    for showing in (["two", "three", "four"], ["one", "two", "three", "four"]):
        store.undo("s")
        assert said(store, "s") == showing
    assert store.redo("s").dropped == (0,)
    assert [change.undone for change in store.timeline("s").changes if change.change == "trim"] == [
        True,
        False,
    ]


def test_there_is_no_redo_after_another_change(store):
    say(store, "s", "one", "two")
    store.clear("s")
    store.undo("s")
    store.trim("s", keep_last=1)
    with pytest.raises(UsageError, match="nothing to redo"):
        store.redo("s")
    store.undo("s")
    store.redo("s")
    assert said(store, "s") == ["two"]
    with pytest.raises(UsageError, match="nothing to redo"):
        store.redo("s")


def test_a_redo_with_a_key_happens_once(store):
    say(store, "s", "one")
    store.clear("s")
    store.undo("s")
    first = store.redo("s", key="r")
    again = store.redo("s", key="r")
    assert again.replayed
    assert again.dropped == first.dropped == (0,)
    with pytest.raises(SessionNotFoundError):
        store.redo("nobody")


def test_what_a_redo_shows_survives_a_vacuum(store):
    say(store, "s", "one")
    snapshot = store.save_snapshot("s")
    say(store, "s", "two")
    store.trim("s", keep_last=1)
    store.rollback_to_snapshot("s", snapshot.id)
    store.delete_snapshot("s", snapshot.id)
    store.undo("s")
    store.vacuum()
    assert store.verify().ok
    store.redo("s")
    assert said(store, "s") == ["one"]


def test_a_dry_run_says_what_a_change_would_do(store):
    say(store, "s", "one", "two", "three")
    snapshot = store.save_snapshot("s")
    store.trim("s", keep_last=2)
    store.clear("s")
    store.undo("s")
    version = store.session("s").version
    for change in (
        lambda **options: store.hide("s", [1], **options),
        lambda **options: store.trim("s", keep_last=1, **options),
        lambda **options: store.clear("s", **options),
        lambda **options: store.rollback_to_snapshot("s", snapshot.id, **options),
        lambda **options: store.rollback_to_snapshot("s", "latest", **options),
        lambda **options: store.redo("s", **options),
        lambda **options: store.undo("s", **options),
    ):
        preview = change(dry_run=True)
        assert (preview.dry_run, preview.key, preview.version) == (True, None, version)
        assert store.session("s").version == version
        done = change()
        assert (preview.change, preview.dropped, preview.restored) == (
            done.change,
            done.dropped,
            done.restored,
        )
        assert done.dropped or done.restored
        if done.change == "undo":
            continue
        store.undo("s")
        version = store.session("s").version


def test_a_change_that_changed_nothing_is_not_in_the_way_of_undo(store):
    say(store, "s", "one", "two")
    store.trim("s", keep_last=1)
    snapshot = store.save_snapshot("s")
    store.trim("s", keep_last=1)
    store.trim("s", keep_last=1, key="k")
    store.rollback_to_snapshot("s", snapshot.id)
    store.undo("s")
    assert said(store, "s") == ["one", "two"]


def test_a_session_without_changes_has_nothing_to_undo(store):
    say(store, "s", "one")
    store.save_snapshot("s")
    with pytest.raises(UsageError):
        store.undo("s")


def test_the_newest_changes_can_all_be_undone_one_after_the_other(store):
    for number in range(JOURNAL_MAX):
        say(store, "s", str(number))
        store.clear("s")
    for undone in range(1, JOURNAL_MAX + 1):
        store.undo("s")
        assert len(said(store, "s")) == undone


def test_changes_beyond_the_journal_cannot_be_undone(store):
    for number in range(JOURNAL_MAX + 5):
        say(store, "s", str(number))
        store.clear("s")
    undone = 0
    with pytest.raises(UsageError):  # noqa: PT012
        while undone <= JOURNAL_MAX + 5:
            store.undo("s")
            undone += 1
    assert undone <= JOURNAL_MAX
    assert len(said(store, "s")) == undone


# Keys and versions of changes


def changes(store, snapshot):
    return {
        "trim": lambda **options: store.trim("s", keep_last=1, **options),
        "clear": lambda **options: store.clear("s", **options),
        "rollback": lambda **options: store.rollback_to_snapshot("s", snapshot.id, **options),
        "undo": lambda **options: store.undo("s", **options),
    }


CHANGES = ["trim", "clear", "rollback", "undo"]


@pytest.mark.parametrize("name", CHANGES)
def test_a_retry_with_the_same_key_returns_the_first_result_and_hides_nothing(store, name):
    say(store, "s", "one")
    snapshot = store.save_snapshot("s")
    say(store, "s", "two", "three")
    store.trim("s", keep_last=2)
    change = changes(store, snapshot)[name]
    first = change(key="k")
    say(store, "s", "late")
    showing = said(store, "s")
    again = change(key="k")
    assert (again.dropped, again.restored) == (first.dropped, first.restored)
    assert (again.key, again.version, again.change) == ("k", first.version, name)
    assert (first.replayed, again.replayed) == (False, True)
    assert said(store, "s") == showing
    assert showing[-1] == "late"


def test_a_retry_of_a_change_that_changed_nothing_hides_nothing_either(store):
    say(store, "s", "one")
    assert store.trim("s", keep_last=1, key="k").dropped == ()
    say(store, "s", "two")
    assert store.trim("s", keep_last=1, key="k").dropped == ()
    assert said(store, "s") == ["one", "two"]


@pytest.mark.parametrize("name", CHANGES)
def test_a_retry_is_known_before_its_expected_version_is_looked_at(store, name, reopened):
    say(store, "s", "one")
    snapshot = store.save_snapshot("s")
    say(store, "s", "two", "three")
    store.trim("s", keep_last=2)
    version = store.session("s").version
    first = changes(store, snapshot)[name](key="k", expected=version)
    store = reopened(store)
    again = changes(store, snapshot)[name](key="k", expected=version)
    assert (again.version, again.replayed) == (first.version, True)


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_refused_if_the_session_moved(store, name):
    say(store, "s", "one")
    snapshot = store.save_snapshot("s")
    say(store, "s", "two", "three")
    store.trim("s", keep_last=2)
    version = store.session("s").version
    say(store, "s", "late")
    showing = said(store, "s")
    with pytest.raises(ConflictError) as caught:
        changes(store, snapshot)[name](expected=version)
    assert (caught.value.reason, caught.value.expected) == ("version", version)
    assert said(store, "s") == showing


def test_compaction_refuses_when_the_session_moved_under_it(store):
    say(store, "s", "one", "two", "three")
    history = store.get_history("s")
    covers = range(2)
    say(store, "s", "meanwhile")
    with pytest.raises(ConflictError):
        store.add_summary("s", "one and two", covers=covers, expected=history.version)
    history = store.get_history("s")
    receipt = store.add_summary("s", "one and two", covers=covers, expected=history.version)
    store.trim("s", before=2, expected=receipt.version)
    assert shown(store, "s") == [2, 3, 4]


def test_the_key_of_one_change_is_no_key_for_another(store):
    say(store, "s", "one")
    snapshot = store.save_snapshot("s")
    say(store, "s", "two")
    store.trim("s", keep_last=1, key="k")
    for other in (
        lambda: store.rollback_to_snapshot("s", snapshot.id, key="k"),
        lambda: store.clear("s", key="k"),
        lambda: store.undo("s", key="k"),
    ):
        with pytest.raises(ConflictError) as caught:
            other()
        assert caught.value.reason == "key"
    assert said(store, "s") == ["two"]


def test_what_is_no_key_is_refused_for_a_change_too(store):
    say(store, "s", "one")
    for key in ("", 5, "\ud800", "k" * 513):
        with pytest.raises(UsageError):
            store.clear("s", key=key)
        assert said(store, "s") == ["one"]


# Many pieces


def torn(store):
    """A session that shows every second of its entries, in nearly as many pieces as allowed."""
    for _ in range(2):
        store.add_messages("s", [message(str(n), pinned=n % 2 == 0) for n in range(EXTENTS_MAX)])
    return store.trim("s", keep_last=0)


def test_a_trim_keeps_more_rather_than_tear_the_view_into_too_many_pieces(store):
    for number in range(3):
        store.add_messages(
            "s", [message(f"{number}", pinned=n % 2 == 0) for n in range(EXTENTS_MAX)]
        )
    change = store.trim("s", keep_last=0)
    assert all(position % 2 for position in change.dropped), "pinned messages stay"
    assert EXTENTS_MAX - 10 < len(change.dropped) < EXTENTS_MAX
    assert store.session("s").entries == 3 * EXTENTS_MAX - len(change.dropped)
    store.save_snapshot("s")


def test_a_snapshot_in_too_many_pieces_is_refused_and_nothing_is_lost(store):
    torn(store)
    while True:
        say(store, "s", "shown")
        try:
            snapshot = store.save_snapshot("s")
        except LimitError as error:
            limit, actual = error.limit, error.actual
            break
        say(store, "s", "hidden")
        store.rollback_to_snapshot("s", snapshot.id)
        showing = shown(store, "s")
    assert (limit, actual) == (EXTENTS_MAX, EXTENTS_MAX + 1)
    assert shown(store, "s")[:-1] == showing
    assert store.session("s").snapshots == len(store.list_snapshots("s")) > 0
    store.fork("s", "whole")
    assert len(store.save_snapshot("whole").extents) == 1
    store.trim("s", before=showing[-1])
    store.clear("s")
    store.save_snapshot("s")
