"""Vacuum, verify, repair, forget and the timeline, on every engine."""

import sys

import pytest

import indelible
from indelible import (
    ChatMessage,
    ConflictError,
    SnapshotNotFoundError,
    UsageError,
)
from indelible.core.limits import BATCH_ENTRIES_MAX, JOURNAL_LINES_MAX
from indelible.core.operations import Append, ReadLog
from tests.support.stores import START_S, Clock

WEEK_S = 7 * 24 * 3600


def contents(store, session="s"):
    return [message.content for message in store.get_history(session)]


def fill(store, count, session="s"):
    for number in range(count):
        store.add_message(session, "user", f"m{number}")


def test_a_vacuum_removes_only_what_nothing_can_reach(store):
    fill(store, 10)
    kept = store.save_snapshot("s")
    fill(store, 10)
    store.trim("s", keep_last=3)
    report = store.vacuum(undo_window=0)
    assert report.entries == 7
    assert report.bytes > 0
    assert report.journal_lines == 1
    assert contents(store) == ["m7", "m8", "m9"]
    store.rollback_to_snapshot("s", kept.id)
    assert contents(store) == [f"m{number}" for number in range(10)]
    assert store.verify().findings == ()


def test_what_can_still_be_undone_is_not_vacuumed(store, clock):
    fill(store, 5)
    store.clear("s")
    clock.advance(3600)
    assert store.vacuum(undo_window=WEEK_S).entries == 0
    store.undo("s")
    assert len(contents(store)) == 5
    store.clear("s")
    clock.advance(WEEK_S + 1)
    # The newest entry stays: it carries the end of the log.
    assert store.vacuum(undo_window=WEEK_S).entries == 4
    with pytest.raises(UsageError):
        store.undo("s")
    assert store.add_message("s", "user", "next").positions == range(5, 6)


def test_a_change_inside_the_undo_window_is_kept_however_many_followed(store):
    fill(store, 3)
    store.hide("s", [0])
    snapshot = store.save_snapshot("s")
    for _ in range(JOURNAL_LINES_MAX // 2 + 5):
        store.clear("s")
        store.rollback_to_snapshot("s", snapshot.id)
    assert store.vacuum(undo_window=WEEK_S).entries == 0
    assert [entry.position for entry in store.get_entries("s")] == [1, 2]
    assert len(store.timeline("s").entries) == 3
    assert store.verify().ok
    assert store.vacuum(undo_window=0).entries == 1


def test_a_vacuum_counts_changes_and_not_the_lines_of_keys_that_changed_nothing(store, clock):
    fill(store, 3)
    store.trim("s", keep_last=3, key="nothing to trim")
    store.trim("s", keep_last=2, key="one")
    store.trim("s", keep_last=2, key="nothing again")
    would = store.vacuum(undo_window=0, dry_run=True)
    did = store.vacuum(undo_window=0)
    assert would.journal_lines == did.journal_lines == 1
    assert store.vacuum(undo_window=0).journal_lines == 0


def test_the_key_of_a_change_that_changed_nothing_is_known_within_the_undo_window(store):
    fill(store, 2)
    store.trim("s", keep_last=2, key="k")
    store.vacuum()
    fill(store, 2)
    again = store.trim("s", keep_last=2, key="k")
    assert (again.replayed, again.dropped) == (True, ())
    assert len(contents(store)) == 4


def test_a_dry_run_says_the_same_and_removes_nothing(store):
    fill(store, 10)
    store.trim("s", keep_last=2)
    would = store.vacuum(undo_window=0, dry_run=True)
    assert would.dry_run
    assert len(store.timeline("s").entries) == 10
    did = store.vacuum(undo_window=0)
    assert (did.entries, did.bytes, did.journal_lines) == (
        would.entries,
        would.bytes,
        would.journal_lines,
    )
    assert len(store.timeline("s").entries) == 2


def test_a_key_is_known_after_its_entries_were_vacuumed(store):
    first = store.add_messages(
        "s",
        [ChatMessage(role="system", content="stays"), ChatMessage(role="user", content="goes")],
        key="k",
    )
    fill(store, 5)
    store.trim("s", keep_last=1)
    assert store.vacuum(undo_window=0).entries == 5
    again = store.add_messages(
        "s",
        [ChatMessage(role="system", content="stays"), ChatMessage(role="user", content="goes")],
        key="k",
        replay="hidden-ok",
    )
    assert again.replayed
    assert not again.visible
    assert again.positions == first.positions
    assert again.version == first.version
    with pytest.raises(ConflictError):
        store.add_message("s", "user", "other", key="k")


def test_vacuums_keep_a_bounded_number_of_keys(store, monkeypatch):
    for module in ("indelible.core.handlers", "indelible.backends.redis.maintenance"):
        # Redis is an extra, which the quick tier lacks.
        if module in sys.modules:
            monkeypatch.setattr(f"{module}.KEYS_KEPT", 4)
    for number in range(8):
        store.add_message("s", "user", "text", key=f"k{number}")
        fill(store, 1)
        store.trim("s", keep_last=1)
        assert store.vacuum(undo_window=0).entries > 0
    assert store.verify("s").ok
    # Every other append had no key.
    for number in (6, 7):
        again = store.add_message("s", "user", "text", key=f"k{number}", replay="hidden-ok")
        assert again.replayed
    for number in range(6):
        assert not store.add_message("s", "user", "text", key=f"k{number}").replayed


def test_a_page_that_was_vacuumed_away_is_an_error_not_a_shorter_list(store):
    fill(store, 10)
    page = store.get_entries("s", limit=3)
    store.trim("s", keep_last=2)
    store.vacuum(undo_window=0)
    with pytest.raises(ConflictError) as caught:
        store.get_entries("s", limit=3, cursor=page.cursor)
    assert caught.value.reason == "gone"


def test_a_page_that_a_vacuum_did_not_touch_is_still_there(store):
    fill(store, 10)
    store.trim("s", keep_last=4)
    page = store.get_entries("s", limit=2)
    store.vacuum(undo_window=0)
    rest = store.get_entries("s", limit=2, cursor=page.cursor)
    assert [entry.position for entry in rest] == [8, 9]


def test_an_expired_life_is_reclaimed_and_still_says_expired(make_store, clock):
    store = make_store(ttl=60)
    fill(store, 3)
    snapshot = store.save_snapshot("s")
    clock.advance(61)
    assert store.vacuum().entries == 3
    assert store.session("s").status == "expired"
    assert store.get_history("s").status == "expired"
    receipt = store.add_message("s", "user", "back")
    assert receipt.positions == range(3, 4)
    with pytest.raises(SnapshotNotFoundError):
        store.rollback_to_snapshot("s", snapshot.id)
    assert store.verify().findings == ()


def test_a_vacuum_of_one_session_leaves_the_others(store):
    for name in ("one", "two"):
        fill(store, 5, name)
        store.clear(name)
    store.vacuum(undo_window=0, session_id="one")
    assert len(store.timeline("one").entries) == 1
    assert len(store.timeline("two").entries) == 5


def test_a_window_that_is_no_time_is_refused(store):
    for window in (-1, float("nan"), "a week"):
        with pytest.raises(UsageError):
            store.vacuum(undo_window=window)


def test_verify_warns_of_a_dangling_call_and_changes_nothing(store):
    store.add_tool_call("s", "c1", "search")
    version = store.session("s").version
    report = store.verify("s")
    assert report.ok
    (finding,) = report.findings
    assert (finding.severity, finding.position, finding.session_id) == ("warning", 0, "s")
    assert "c1" in finding.what
    assert store.session("s").version == version


CALLS = {
    "an entry": lambda store: store.add_tool_call("s", "c1", "search", {"q": 1}),
    "message fields": lambda store: store.add_messages(
        "s",
        [
            ChatMessage(
                role="assistant",
                tool_calls=[
                    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                ],
            )
        ],
    ),
    "a content block": lambda store: store.add_messages(
        "s",
        [
            ChatMessage(
                role="assistant",
                content=[{"type": "tool_use", "id": "c1", "name": "f", "input": {}}],
            )
        ],
    ),
}


@pytest.mark.parametrize("made_in", CALLS)
def test_repair_closes_a_dangling_call_once_and_for_good(store, reopened, made_in):
    CALLS[made_in](store)
    would = store.repair(dry_run=True)
    assert [action.positions for action in would.actions] == [(0,)]
    assert store.get_tool_calls("s")[0].status == "dangling"
    assert store.repair().actions == would.actions
    (call,) = store.get_tool_calls("s")
    assert call.status in {"done", "failed"}
    assert call.result_position == 1
    assert "repair" in str(call.result)
    store = reopened(store)
    assert store.repair().actions == ()
    assert store.verify().findings == ()


def test_a_timeline_shows_what_is_hidden_and_what_undo_would_bring_back(store):
    fill(store, 3)
    snapshot = store.save_snapshot("s", label="good")
    fill(store, 2)
    store.rollback_to_snapshot("s", snapshot.id)
    store.add_message("s", "user", "after")
    timeline = store.timeline("s")
    assert [item.visible for item in timeline.entries] == [True, True, True, False, False, True]
    assert [taken.label for taken in timeline.snapshots] == ["good"]
    assert timeline.undo is not None
    assert (timeline.undo.change, timeline.undo.dropped) == ("rollback", (3, 4))
    store.undo("s")
    assert store.timeline("s").undo is None
    assert [change.change for change in store.timeline("s").changes] == ["undo", "rollback"]
    assert [change.undone for change in store.timeline("s").changes] == [False, True]
    undo, rollback = store.timeline("s").changes
    assert (undo.before, undo.after) == (((0, 3), (5, 6)), ((0, 6),))
    assert (rollback.before, rollback.after) == (((0, 5),), ((0, 3),))


def test_a_timeline_of_the_newest_entries(store):
    fill(store, 6)
    store.trim("s", keep_last=1)
    assert store.timeline("s").hidden == ((0, 5),)
    assert positions(store.timeline("s", last=2)) == [4, 5]
    assert positions(store.timeline("s", last=0)) == []
    assert positions(store.timeline("s", last=10)) == [0, 1, 2, 3, 4, 5]
    assert positions(store.timeline("s", last=10**20)) == [0, 1, 2, 3, 4, 5]
    assert positions(store.timeline("s", last=2, before=4)) == [2, 3]
    assert positions(store.timeline("s", before=2)) == [0, 1]
    assert positions(store.timeline("s", last=2, before=99)) == [4, 5]
    assert positions(store.timeline("s", last=2, before=0)) == []
    # A vacuum leaves gaps, also among the newest.
    kept = store.save_snapshot("s")
    fill(store, 10)
    store.rollback_to_snapshot("s", kept.id)
    store.vacuum(undo_window=0)
    assert positions(store.timeline("s", last=2)) == [5, 15]
    assert positions(store.timeline("s", last=9)) == [5, 15]
    assert positions(store.timeline("s", last=1, before=15)) == [5]
    for wrong in ({"last": -1}, {"before": -1}):
        with pytest.raises(UsageError):
            store.timeline("s", **wrong)


def test_a_timeline_comes_in_pages_of_one_state(store):
    message = ChatMessage(role="user", content="m")
    for _ in range(3):
        store.add_messages("s", [message] * 700)
    store.trim("s", keep_last=600)
    pages = []
    whole = store.timeline("s")
    result = store.timeline("s", on_page=pages.append)
    assert result.entries == ()
    assert [len(page.entries) for page in pages] == [1000, 1000, 100]
    assert tuple(each for page in pages for each in page.entries) == whole.entries
    assert all(page.info.entries == 600 for page in (result, *pages))
    pages.clear()
    store.timeline("other", on_page=pages.append)
    assert [page.entries for page in pages] == [()]


def positions(timeline):
    return [each.entry.position for each in timeline.entries]


def test_forget_erases_a_session_and_says_what_it_was(store):
    fill(store, 3)
    store.save_snapshot("s")
    store.set_metadata("s", {"a": 1})
    store.add_message("other", "user", "stays")
    receipt = store.forget("s")
    assert (receipt.entries, receipt.snapshots, receipt.pending) == (3, 1, False)
    assert receipt.bytes > 0
    info = store.session("s")
    assert (info.status, info.metadata, info.snapshots) == ("new", {}, 0)
    assert contents(store, "other") == ["stays"]
    assert store.list_sessions().ids == ["other"]


def test_a_version_from_before_forgetting_does_not_fit_the_new_session(store):
    old = store.add_message("s", "user", "one")
    store.forget("s")
    new = store.add_message("s", "user", "one")
    assert new.version != old.version
    with pytest.raises(ConflictError):
        store.add_message("s", "user", "two", expected=old.version)


def test_forgetting_what_was_never_there_is_fine(store):
    assert store.forget("nobody").entries == 0


def test_a_call_id_that_is_used_again_is_a_call_of_its_own(store):
    for turn in range(3):
        store.add_tool_call("s", "call_0", "search", turn)
        store.add_tool_result("s", "call_0", f"r{turn}")
    calls = store.get_tool_calls("s")
    assert [(call.status, call.result) for call in calls] == [
        ("done", "r0"),
        ("done", "r1"),
        ("done", "r2"),
    ]
    assert store.repair().actions == ()
    store.add_tool_call("s", "call_0", "search", 3)
    store.trim("s", keep_last=0)
    assert [call.status for call in store.get_tool_calls("s")] == ["dangling"]


def test_repair_closes_a_call_again_that_a_rollback_opened(store):
    store.add_tool_call("s", "c1" * 300, "search")
    snapshot = store.save_snapshot("s")
    store.repair()
    store.rollback_to_snapshot("s", snapshot.id)
    store.repair()
    assert [call.status for call in store.get_tool_calls("s")] == ["failed"]
    assert store.repair().actions == ()


def test_a_vacuum_between_a_look_and_its_change_makes_it_look_again(stores):
    """An undo that was computed before a vacuum must not show what the vacuum removed."""
    from indelible.core.operations import ChangeView, ReadJournal, Reclaim

    store = stores.open()
    backend = getattr(store, "_store", store)._backend
    perform = backend.perform if stores.flavour == "blocking" else store._loop_run
    fill(store, 5)
    store.clear("s")
    store.add_message("s", "user", "after")
    journal = perform(ReadJournal("s", 10))
    line, head = journal.lines[0], journal.head
    perform(Reclaim("s", head.now_ms, False))
    with pytest.raises(ConflictError) as caught:
        perform(
            ChangeView(
                "s",
                head.life,
                head.generation,
                head.vacuums,
                "undo",
                "op",
                line.before.extents,
                line.before.tail,
                undoes=line.key,
            )
        )
    assert caught.value.reason == "view"
    assert contents(store) == ["after"]


def test_changes_that_changed_nothing_do_not_push_others_out_of_undo(store):
    fill(store, 3)
    store.clear("s")
    for number in range(250):
        store.trim("s", keep_last=100, key=f"trim-{number}")
    store.undo("s")
    assert len(contents(store)) == 3


def test_repair_keeps_the_deadline_of_a_session(store, clock):
    store.add_tool_call("s", "c1", "search", ttl=10)
    store.add_tool_call("forever", "c1", "search")
    clock.advance(4)
    assert len(store.repair().actions) == 2
    assert store.session("s").ttl_s == 6
    assert store.session("forever").ttl_s is None


def before_each_append(store, monkeypatch, act):
    """Call a function before each append that the backend performs."""
    perform = store._backend.perform

    def perform_later(op):
        if isinstance(op, Append):
            act()
        return perform(op)

    monkeypatch.setattr(store._backend, "perform", perform_later)


def test_repair_of_many_calls_moves_a_deadline_by_no_more_than_one_append(monkeypatch):
    clock = Clock()
    with indelible.open("memory:", clock=clock) as store:
        for number in range(5):
            store.add_tool_call("s", f"c{number}", "search", ttl=100)
        before_each_append(store, monkeypatch, lambda: clock.advance(1))
        assert len(store.repair("s").actions) == 5
        assert clock() + store.session("s").ttl_s <= START_S + 100 + 1


def test_repair_closes_no_call_that_is_answered_meanwhile(monkeypatch):
    with indelible.open("memory:") as store, indelible.open("memory:") as other:
        store.add_tool_call("s", "c1", "search")
        store.add_tool_call("s", "c2", "search")
        other._backend = store._backend
        late = [("s", "c1", "found")]

        def answer():
            while late:
                other.add_tool_result(*late.pop())

        before_each_append(store, monkeypatch, answer)
        assert [action.positions for action in store.repair("s").actions] == [(1,)]
        calls = store.get_tool_calls("s")
        assert [(call.status, call.result_position) for call in calls] == [
            ("done", 2),
            ("failed", 3),
        ]


def test_repair_closes_more_calls_than_a_batch_has():
    names = [f"c{number}" for number in range(BATCH_ENTRIES_MAX + 100)]
    calls = [{"id": name, "function": {"name": "f", "arguments": "{}"}} for name in names]
    with indelible.open("memory:") as store:
        store.add_messages("s", [ChatMessage(role="assistant", tool_calls=calls)])
        assert len(store.repair().actions) == len(calls)
        assert [call.status for call in store.get_tool_calls("s")] == ["done"] * len(calls)
        assert store.repair().actions == ()


@pytest.mark.parametrize("jump", range(1, 12))
def test_repair_begins_no_life_of_a_session_that_expires_meanwhile(jump):
    clock = Clock()
    left = None

    def expire():
        nonlocal left
        if left is not None:
            left -= 1
            if left == 0:
                clock.advance(20)
        return clock()

    with indelible.open("memory:", clock=expire) as store:
        store.add_tool_call("s", "c1", "search", ttl=10)
        store.add_tool_call("s", "c2", "search", ttl=10)
        left = jump
        store.repair("s")
        left = None
        if clock() == START_S:
            clock.advance(20)
        assert store.session("s").status == "expired"


def test_repair_gives_no_deadline_to_a_session_that_has_none(make_store):
    store = make_store(ttl=10)
    store.add_tool_call("s", "c1", "search", ttl=indelible.NEVER)
    assert len(store.repair("s").actions) == 1
    assert store.session("s").ttl_s is None


@pytest.mark.parametrize("call", range(1, 9))
def test_repair_does_not_take_what_is_vacuumed_meanwhile_for_missing(monkeypatch, call):
    with indelible.open("memory:") as store:
        fill(store, 3)
        snapshot = store.save_snapshot("s")
        fill(store, 3)
        perform, calls = store._backend.perform, iter(range(1, 100))

        def vacuum_first(op):
            if next(calls) == call:
                store.rollback_to_snapshot("s", snapshot.id)
                store.vacuum(undo_window=0)
            return perform(op)

        monkeypatch.setattr(store._backend, "perform", vacuum_first)
        assert store.repair("s").actions == ()
        assert store.quarantined("s") == []


def test_repair_does_not_take_the_entries_of_an_earlier_life_for_missing(monkeypatch):
    clock = Clock()
    with indelible.open("memory:", clock=clock) as store:
        store.add_message("s", "user", "old", ttl=10)
        perform = store._backend.perform

        def begin_anew(op):
            if isinstance(op, ReadLog) and clock() == START_S:
                clock.advance(11)
                store.add_message("s", "user", "new")
            return perform(op)

        monkeypatch.setattr(store._backend, "perform", begin_anew)
        assert store.repair().actions == ()
        assert store.quarantined("s") == []
        assert contents(store) == ["new"]
