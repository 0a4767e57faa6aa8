"""Appending: exactly once per key, whole batches, in order, refused if the session moved."""

import pytest

from indelible import (
    ChatMessage,
    ClosedError,
    ConflictError,
    LimitError,
    MemoryStoreError,
    Status,
    UsageError,
)
from indelible.core.limits import (
    BATCH_BYTES_MAX,
    BATCH_ENTRIES_MAX,
    ENTRY_BYTES_MAX,
    KEY_BYTES_MAX,
    ROLE_CHARS_MAX,
)
from tests.support.stores import CountedIds, call, message, result, said, say, shown

MIB = 1024 * 1024


def test_appends_stand_in_the_order_in_which_they_came(store):
    receipts = say(store, "s", "one", "two", "three")
    assert [receipt.positions for receipt in receipts] == [range(1), range(1, 2), range(2, 3)]
    assert said(store, "s") == ["one", "two", "three"]
    assert [entry.position for entry in store.get_entries("s")] == [0, 1, 2]


def test_sessions_count_their_own_positions(store):
    say(store, "a", "one", "two")
    (receipt,) = say(store, "b", "one")
    assert receipt.positions == range(1)
    assert (said(store, "a"), said(store, "b")) == (["one", "two"], ["one"])


def test_a_receipt_says_where_and_in_which_version(store):
    receipt = store.add_message("s", "user", "hi", key="k")
    assert (receipt.session_id, receipt.key) == ("s", "k")
    assert (receipt.replayed, receipt.visible) == (False, True)
    assert receipt.version == store.get_history("s").version == store.session("s").version


def test_a_receipt_has_the_version_of_the_session_after_any_change(store, clock):
    say(store, "s", "one", "two")
    snapshot = store.save_snapshot("s")
    for change in (
        lambda: store.trim("s", keep_last=1),
        lambda: store.clear("s"),
        lambda: store.undo("s"),
        lambda: store.rollback_to_snapshot("s", snapshot.id),
        lambda: (say(store, "s", "last words", ttl=1), clock.advance(1)),
        lambda: store.set_metadata("s", {"a": 1}),
    ):
        change()
        (receipt,) = say(store, "s", "more")
        assert receipt.version == store.session("s").version


def test_entries_carry_the_time_of_their_append(store, clock):
    say(store, "s", "one")
    clock.advance(2.5)
    say(store, "s", "two")
    times = [entry.written_at.timestamp() for entry in store.get_entries("s")]
    assert times == [clock.now_s - 2.5, clock.now_s]


# Keys


def test_the_same_key_again_gives_the_first_receipt_and_writes_nothing(store):
    first = store.add_message("s", "user", "hi", key="k")
    again = store.add_message("s", "user", "hi", key="k")
    assert again == first._replace(replayed=True)
    assert said(store, "s") == ["hi"]


def test_a_replay_has_the_version_of_the_first_append_whatever_came_since(store):
    first = store.add_message("s", "user", "hi", key="k")
    say(store, "s", "more")
    snapshot = store.save_snapshot("s")
    store.trim("s", keep_last=1)
    store.rollback_to_snapshot("s", snapshot.id)
    again = store.add_message("s", "user", "hi", key="k")
    assert again == first._replace(replayed=True)


def test_a_replay_between_view_changes_has_the_version_of_its_own_append(store):
    say(store, "s", "old")
    store.clear("s")
    first = store.add_message("s", "user", "hi", key="k")
    store.clear("s")
    again = store.add_message("s", "user", "hi", key="k", replay="hidden-ok")
    assert again == first._replace(replayed=True, visible=False)


def test_a_replayed_batch_has_all_its_positions(store):
    say(store, "s", "before")
    batch = [message("one"), message("two"), message("three")]
    first = store.add_messages("s", batch, key="k")
    say(store, "s", "after")
    again = store.add_messages("s", batch, key="k")
    assert again == first._replace(replayed=True)
    assert again.positions == range(1, 4)
    assert said(store, "s") == ["before", "one", "two", "three", "after"]


def test_a_replay_says_whether_its_entries_still_show(store):
    def visible():
        batch = [message("one"), message("two")]
        return store.add_messages("s", batch, key="k", replay="hidden-ok").visible

    assert visible()
    store.trim("s", keep_last=1)
    assert not visible(), "half of it does not show"
    store.undo("s")
    assert visible()
    store.clear("s")
    assert not visible()
    store.undo("s")
    assert visible()


@pytest.mark.parametrize("change", ["trim", "clear", "rollback", "undo"])
def test_no_change_of_the_view_forgets_a_key(store, change):
    empty = store.save_snapshot("s")
    store.add_message("s", "user", "hi", key="k")
    if change == "trim":
        store.trim("s", keep_last=0)
    elif change == "rollback":
        store.rollback_to_snapshot("s", empty.id)
    else:
        store.clear("s")
        if change == "undo":
            store.undo("s")
    assert store.add_message("s", "user", "hi", key="k", replay="hidden-ok").replayed
    assert store.session("s").logged == 1


def test_the_same_key_for_other_content_is_a_conflict(store):
    store.add_message("s", "user", "hi", key="k")
    for other in (
        [message("bye")],
        [message("hi", role="assistant")],
        [message("hi", pinned=True)],
        [message("hi", metadata={"a": 1})],
        [message("hi"), message("hi")],
        [message("hi", future=1)],
    ):
        with pytest.raises(ConflictError) as caught:
            store.add_messages("s", other, key="k")
        error = caught.value
        assert (error.reason, error.key, error.session, error.position) == ("key", "k", "s", 0)
    assert said(store, "s") == ["hi"]
    assert store.session("s").logged == 1


def test_the_same_key_for_a_shorter_batch_or_another_order_is_a_conflict(store):
    one, two = message("one"), message("two")
    store.add_messages("s", [one, two], key="k")
    for other in ([one], [two, one], [two]):
        with pytest.raises(ConflictError, match="key"):
            store.add_messages("s", other, key="k")
    assert said(store, "s") == ["one", "two"]


def test_another_kind_of_entry_under_the_same_key_is_a_conflict(store):
    store.add_entries("s", [call("c")], key="k")
    with pytest.raises(ConflictError):
        store.add_entries("s", [result("c")], key="k")


def test_a_message_is_the_same_however_it_was_handed_in(store):
    store.add_message("s", "user", "hi", key="k")
    assert store.add_messages("s", [{"role": "user", "content": "hi"}], key="k").replayed
    assert store.add_entries("s", [message("hi", metadata={})], key="k").replayed


def test_the_same_content_with_a_new_key_is_said_twice(store):
    store.add_message("s", "user", "yes", key="k1")
    store.add_message("s", "user", "yes", key="k2")
    assert said(store, "s") == ["yes", "yes"]


def test_the_same_content_without_a_key_is_said_twice(store):
    say(store, "s", "yes", "yes")
    assert said(store, "s") == ["yes", "yes"]


def test_a_key_belongs_to_its_session(store):
    store.add_message("a", "user", "hi", key="k")
    assert not store.add_message("b", "user", "other", key="k").replayed
    assert store.add_message("a", "user", "hi", key="k").replayed


def test_the_key_that_the_store_made_is_good_for_a_retry(store):
    first, _ = say(store, "s", "hi", "there")
    assert store.add_message("s", "user", "hi", key=first.key) == first._replace(replayed=True)
    assert said(store, "s") == ["hi", "there"]


def test_made_keys_differ(store):
    receipts = say(store, "s", *"abcdefgh")
    assert len({receipt.key for receipt in receipts}) == len(receipts)


def test_the_key_is_looked_at_before_the_expected_version(store):
    version = store.get_history("s").version
    first = store.add_message("s", "user", "hi", key="k", expected=version)
    say(store, "s", "more")
    again = store.add_message("s", "user", "hi", key="k", expected=version)
    assert again == first._replace(replayed=True)


def test_other_content_is_found_out_before_the_expected_version(store):
    version = store.add_message("s", "user", "hi", key="k").version
    say(store, "s", "more")
    with pytest.raises(ConflictError) as caught:
        store.add_message("s", "user", "bye", key="k", expected=version)
    assert caught.value.reason == "key"


def test_a_key_is_remembered_after_reopening(store, reopened):
    first = store.add_message("s", "user", "hi", key="k")
    store = reopened(store)
    assert store.add_message("s", "user", "hi", key="k") == first._replace(replayed=True)


def test_any_text_within_the_limit_is_a_key(store):
    for key in ("k" * KEY_BYTES_MAX, "é" * (KEY_BYTES_MAX // 2), "~mine", "\0", "%"):
        first = store.add_message("s", "user", "hi", key=key)
        assert first.key == key
        assert store.add_message("s", "user", "hi", key=key).replayed


def test_what_is_no_text_is_no_key(store):
    for key in ("", 5, b"k", "\ud800"):
        with pytest.raises(UsageError):
            store.add_message("s", "user", "hi", key=key)
        assert store.get_history("s").status is Status.NEW


@pytest.mark.parametrize("key", ["k" * (KEY_BYTES_MAX + 1), "é" * (KEY_BYTES_MAX // 2 + 1)])
def test_a_key_over_the_limit_is_refused(store, key):
    with pytest.raises(LimitError) as caught:
        store.add_message("s", "user", "hi", key=key)
    assert caught.value.limit == KEY_BYTES_MAX
    assert store.get_history("s").status is Status.NEW


def test_keys_that_differ_in_one_letter_are_different_keys(store):
    for key in ("k", "K", "k ", "k\0", "kk", "é", "e\N{COMBINING ACUTE ACCENT}"):
        assert not store.add_message("s", "user", "hi", key=key).replayed
    assert len(said(store, "s")) == 7


# Versions


def test_an_append_lands_if_nobody_moved_the_session(store):
    version = store.add_message("s", "user", "hi").version
    version = store.add_message("s", "assistant", "hello", expected=version).version
    store.add_message("s", "user", "how are you?", expected=version)
    assert said(store, "s") == ["hi", "hello", "how are you?"]


def test_an_append_is_refused_if_somebody_appended_since(store):
    version = store.add_message("s", "user", "hi").version
    (other,) = say(store, "s", "wait")
    with pytest.raises(ConflictError) as caught:
        store.add_message("s", "assistant", "hello", expected=version)
    error = caught.value
    assert (error.reason, error.expected, error.actual) == ("version", version, other.version)
    assert said(store, "s") == ["hi", "wait"]


@pytest.mark.parametrize("change", ["trim", "clear", "rollback", "undo"])
def test_an_append_is_refused_if_somebody_moved_the_view_since(store, change):
    say(store, "s", "one", "two")
    snapshot = store.save_snapshot("s")
    store.clear("s")
    store.undo("s")
    store.trim("s", keep_last=1)
    version = store.get_history("s").version
    if change == "trim":
        store.trim("s", keep_last=0)
    elif change == "clear":
        store.clear("s")
    elif change == "rollback":
        store.rollback_to_snapshot("s", snapshot.id)
    else:
        store.undo("s")
    with pytest.raises(ConflictError) as caught:
        store.add_message("s", "user", "late", expected=version)
    assert caught.value.reason == "version"


def test_what_changes_neither_log_nor_view_does_not_move_the_version(store):
    version = store.add_message("s", "user", "hi").version
    store.save_snapshot("s")
    store.set_metadata("s", {"a": 1})
    store.trim("s", keep_last=5)
    store.add_messages("s", [])
    store.get_history("s")
    assert store.session("s").version == version
    store.add_message("s", "user", "more", expected=version)


def test_only_the_first_of_two_who_saw_a_new_session_begins_it(store):
    version = store.get_history("s").version
    store.add_message("s", "user", "first", expected=version)
    with pytest.raises(ConflictError):
        store.add_message("s", "user", "second", expected=version)
    assert said(store, "s") == ["first"]


def test_a_version_of_one_session_is_none_of_another(store):
    (a,), _ = say(store, "a", "hi"), say(store, "b", "hi")
    with pytest.raises(ConflictError):
        store.add_message("b", "user", "more", expected=a.version)


def test_a_version_holds_after_reopening(store, reopened):
    version = store.add_message("s", "user", "hi").version
    store = reopened(store)
    store.add_message("s", "user", "more", expected=version)
    with pytest.raises(ConflictError):
        store.add_message("s", "user", "even more", expected=version)


# Batches


def test_a_batch_stands_together(store):
    say(store, "s", "before")
    receipt = store.add_entries("s", [message("look"), call("c"), result("c")])
    assert receipt.positions == range(1, 4)
    kinds = [str(entry.kind) for entry in store.get_entries("s")]
    assert kinds == ["message", "message", "tool_call", "tool_result"]


def test_an_empty_batch_writes_nothing(store):
    receipt = store.add_messages("s", [])
    assert len(receipt.positions) == 0
    assert store.session("s").status is Status.NEW
    (first,) = say(store, "s", "hi")
    receipt = store.add_messages("s", [], expected=first.version)
    assert (receipt.positions, receipt.version) == (range(1, 1), first.version)
    assert said(store, "s") == ["hi"]


def test_an_empty_batch_minds_the_expected_version(store):
    version = store.add_message("s", "user", "hi").version
    say(store, "s", "more")
    with pytest.raises(ConflictError):
        store.add_messages("s", [], expected=version)


@pytest.mark.parametrize("options", [{"key": 7}, {"key": ""}, {"ttl": -1}, {"ttl": "5"}], ids=str)
def test_an_empty_batch_minds_its_arguments(store, options):
    with pytest.raises(UsageError):
        store.add_messages("s", [], **options)


def test_an_empty_batch_takes_no_key(store):
    store.add_messages("s", [], key="k")
    assert not store.add_message("s", "user", "hi", key="k").replayed


def test_one_bad_message_keeps_the_whole_batch_out(store):
    for bad in ({"role": "", "content": "x"}, {"content": "x"}, "text", None, {"role": 5}, {1: 2}):
        with pytest.raises(UsageError):
            store.add_messages("s", [message("good"), bad])
    assert store.session("s").status is Status.NEW


def test_a_batch_as_long_as_allowed_is_whole(store):
    batch = [message(str(number)) for number in range(BATCH_ENTRIES_MAX)]
    assert store.add_messages("s", batch).positions == range(BATCH_ENTRIES_MAX)
    assert said(store, "s") == [str(number) for number in range(BATCH_ENTRIES_MAX)]


def test_a_batch_that_is_too_long_is_refused(store):
    with pytest.raises(LimitError) as caught:
        store.add_messages("s", [message("x")] * (BATCH_ENTRIES_MAX + 1))
    error = caught.value
    assert (error.limit, error.actual) == (BATCH_ENTRIES_MAX, BATCH_ENTRIES_MAX + 1)
    assert store.session("s").status is Status.NEW


def test_an_entry_or_a_batch_with_too_many_bytes_is_refused(store):
    with pytest.raises(LimitError) as caught:
        store.add_message("s", "user", "x" * ENTRY_BYTES_MAX)
    assert caught.value.limit == ENTRY_BYTES_MAX
    third = message("x" * (BATCH_BYTES_MAX // 3))
    with pytest.raises(LimitError) as caught:
        store.add_messages("s", [third, third, third])
    assert caught.value.limit == BATCH_BYTES_MAX
    assert store.session("s").status is Status.NEW


def test_sixteen_mebibytes_are_stored_and_read(store):
    text = "é" * (8 * MIB)
    store.add_message("s", "user", text)
    assert said(store, "s") == [text]


def test_what_is_no_list_of_messages_is_refused(store):
    for batch in ("text", b"bytes", {"role": "user", "content": "x"}, message("x"), None, 5):
        with pytest.raises(UsageError):
            store.add_messages("s", batch)
        with pytest.raises(UsageError):
            store.add_entries("s", batch)
        assert store.session("s").status is Status.NEW


def test_a_turn_is_one_append(store):
    receipt = store.save_context("s", "hi", "hello", key="k")
    assert receipt.positions == range(2)
    assert [(m.role, m.content) for m in store.get_history("s")] == [
        ("user", "hi"),
        ("assistant", "hello"),
    ]
    assert store.save_context("s", "hi", "hello", key="k") == receipt._replace(replayed=True)


# Messages


def test_a_message_reads_back_as_it_was_added(store):
    added = [
        ("x", {"pinned": True}),
        ("x", {"name": "bob"}),
        ("x", {"name": ""}),
        ("x", {"metadata": {"a": [1, None]}}),
        ("x", {"metadata": {}, "pinned": False}),
        ([{"type": "text", "text": "x"}], {}),
        ([], {}),
        (None, {}),
        ("", {}),
    ]
    for content, fields in added:
        store.add_message("s", "user", content, **fields)
    assert store.get_history("s") == [
        ChatMessage(role="user", content=content, **fields) for content, fields in added
    ]


def test_a_mapping_may_have_any_field(store):
    fields = {"role": "assistant", "content": "x", "model": "m-1", "self": 1, "items": [1]}
    store.add_messages("s", [fields])
    (stored,) = store.get_history("s")
    assert stored.model_extra == {"model": "m-1", "self": 1, "items": [1]}


def test_what_is_no_role_is_refused(store):
    for role in ("", "x" * (ROLE_CHARS_MAX + 1), None, 5, b"user", "\ud800"):
        with pytest.raises(UsageError):
            store.add_message("s", role, "x")
        assert store.session("s").status is Status.NEW


@pytest.mark.parametrize("metadata", [5, [], [1], "x", {1: 2}])
def test_what_is_no_mapping_is_no_metadata(store, metadata):
    for add in (
        lambda: store.add_message("s", "user", "x", metadata=metadata),
        lambda: store.add_tool_call("s", "c", "f", metadata=metadata),
        lambda: store.add_tool_result("s", "c", 1, metadata=metadata),
        lambda: store.add_summary("s", "x", metadata=metadata),
    ):
        with pytest.raises(UsageError):
            add()
    assert store.session("s").status is Status.NEW


def test_what_a_caller_does_to_its_message_later_does_not_reach_the_store(store):
    given = message("x", metadata={"list": [1]})
    store.add_messages("s", [given])
    given.metadata["list"].append(2)
    store.get_history("s")[0].metadata["list"].append(3)
    assert store.get_history("s")[0].metadata == {"list": [1]}


# Closing


def test_a_closed_store_takes_nothing_and_says_so(store):
    say(store, "s", "hi")
    store.close()
    store.close()
    for late in (
        lambda: store.add_message("s", "user", "late"),
        lambda: store.get_history("s"),
        lambda: store.clear("s"),
        store.list_sessions,
    ):
        with pytest.raises(ClosedError):
            late()


class ClockStoppedError(Exception):
    """Nothing that a store could know of."""


def test_a_failure_in_one_append_does_not_stop_the_next(make_store, stores):
    broken = False

    def clock():
        if broken:
            raise ClockStoppedError
        return stores.clock()

    store = make_store(clock=clock)
    say(store, "s", "one")
    broken = True
    with pytest.raises((ClockStoppedError, MemoryStoreError)):
        say(store, "s", "two")
    broken = False
    say(store, "s", "three")
    assert said(store, "s") == ["one", "three"]


def test_what_was_appended_is_there_after_reopening(store, reopened):
    say(store, "s", "one", "two")
    store = reopened(store)
    (receipt,) = say(store, "s", "three")
    assert receipt.positions == range(2, 3)
    assert said(store, "s") == ["one", "two", "three"]
    assert shown(store, "s") == [0, 1, 2]


def test_namespaces_never_meet(make_store):
    one, two = make_store(namespace="one"), make_store(namespace="")
    one.add_message("s", "user", "mine", key="k")
    assert two.get_history("s").status is Status.NEW
    assert two.add_message("s", "user", "yours", key="k").positions == range(1)
    two.clear_all()
    assert (said(one, "s"), said(two, "s")) == (["mine"], [])
    assert one.list_sessions().ids == ["s"]


def test_ids_come_from_where_the_store_was_told(make_store):
    store = make_store(ids=CountedIds())
    first, second = say(store, "s", "one", "two")
    assert [first.key, second.key] == ["~id1", "~id2"]
    assert store.save_snapshot("s").id == "id3"
    assert store.clear("s").key == "id4"
