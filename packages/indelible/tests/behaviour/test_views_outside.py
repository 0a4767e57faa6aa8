"""Views that reach outside of their log, as damage or an older import may have left them."""

from contextlib import suppress
from unittest import mock

import pytest

from indelible import FormatError
from indelible.core import rules
from indelible.core.codec import encode
from indelible.core.operations import (
    BeginStage,
    JournalLine,
    LogRow,
    ShowStage,
    SnapshotRecord,
    StageRows,
)
from indelible.model import ChatMessage
from indelible.view import View
from tests.support.stores import said

BORN = 3
END = 6
# The row ids of SQLite hold the session's number above these bits.
NEXT_SESSION = 2**32
ALL = View((), BORN)
OUTSIDE = {
    "the next session": View(((BORN, NEXT_SESSION + 2),), NEXT_SESSION + 9),
    "past the end": View((), END + 1),
    "an earlier life": View((), 0),
}


def perform(store, step):
    run = getattr(store, "_loop_run", None) or store._backend.perform
    return run(step)


def row(position, batch=1):
    kind, envelope, keep, opens, answers = encode(ChatMessage(role="user", content="mine"))
    return LogRow(
        position, kind, 1_700_000_000_000, None, batch, 0, keep, None, opens, answers, envelope
    )


def put(store, *, view=ALL, snapshots=(), journal=(), batch=1):
    """Store a session as it is, past every check of an import; two neighbours beside it."""
    store.add_message("before", "user", "secret before")
    stage = perform(store, BeginStage("mine", None, None, BORN))
    rows = (*(row(position) for position in range(BORN, END - 1)), row(END - 1, batch))
    perform(store, StageRows("mine", stage.life, rows))
    store.add_message("zebra", "user", "secret behind")
    perform(
        store,
        ShowStage(
            "mine",
            stage.life,
            b"{}",
            view=view,
            generation=len(journal),
            snapshots=snapshots,
            journal=journal,
        ),
    )


def slip_in(store, stores, view):
    """Store a session with this view, although the step that shows it would refuse it."""
    if stores.engine == "postgres":
        pytest.skip("the step is rolled back; tests/postgres writes such a view by itself")
    with suppress(FormatError), mock.patch.object(rules, "is_inside", return_value=True):
        put(store, view=view)


def neighbours_are_untouched(store):
    store.vacuum(undo_window=0)
    assert said(store, "before") == ["secret before"]
    assert said(store, "zebra") == ["secret behind"]
    wrong = {finding.session_id for finding in store.verify().findings}
    assert wrong == {"mine"}


@pytest.mark.parametrize("view", OUTSIDE.values(), ids=OUTSIDE)
def test_a_view_outside_of_its_log_is_not_followed(store, stores, view):
    slip_in(store, stores, view)
    for read in (store.get_entries, store.get_history, store.timeline, store.get_summaries):
        with pytest.raises(FormatError):
            read("mine")
    with pytest.raises(FormatError):
        store.vacuum(session_id="mine", undo_window=0)
    neighbours_are_untouched(store)


def test_an_audited_store_appends_to_such_a_session_as_any_other_does(make_store, stores):
    store = make_store(audit=True, audit_key=b"a secret of the tests")
    slip_in(store, stores, OUTSIDE["past the end"])
    lines = len(store.audit_log("mine"))
    assert store.add_message("mine", "user", "more").positions == range(END, END + 1)
    assert [line.change for line in store.audit_log("mine")[lines:]] == ["append"]


@pytest.mark.parametrize("view", OUTSIDE.values(), ids=OUTSIDE)
def test_a_snapshot_outside_of_its_log_is_not_followed(store, view):
    put(store, snapshots=(SnapshotRecord("s1", None, 1_700_000_000_000, view, END),))
    with pytest.raises(FormatError):
        store.rollback_to_snapshot("mine", "s1")
    with pytest.raises(FormatError):
        store.fork("mine", "copy", at="s1")
    with pytest.raises(FormatError):
        store.diff_snapshots("mine", "s1")
    assert said(store, "mine") == ["mine"] * 3
    with pytest.raises(FormatError):
        store.vacuum(session_id="mine", undo_window=0)
    neighbours_are_untouched(store)


@pytest.mark.parametrize("view", OUTSIDE.values(), ids=OUTSIDE)
def test_a_change_outside_of_its_log_is_not_undone(store, view):
    line = JournalLine("op1", "clear", 1_700_000_000_000, "", END, view, View((), BORN))
    put(store, journal=(line,))
    with pytest.raises(FormatError):
        store.undo("mine")
    assert said(store, "mine") == ["mine"] * 3
    with pytest.raises(FormatError):
        store.vacuum(session_id="mine")
    store.vacuum(session_id="mine", undo_window=0)
    assert said(store, "mine") == ["mine"] * 3
    assert said(store, "before") == ["secret before"]
    assert said(store, "zebra") == ["secret behind"]


@pytest.mark.parametrize("batch", [4, NEXT_SESSION, 2**40])
def test_a_batch_that_reaches_past_the_log_reads_nothing_of_others(store, stores, batch):
    if stores.engine == "postgres" and batch > 2**31:
        pytest.skip("its column holds no such number")
    put(store, batch=batch)
    try:
        found = store.get_entries("mine", limit=1000, on_corrupt="quarantine")
        assert {entry.value.content for entry in found} == {"mine"}
    except FormatError:
        pass
    store.clear("mine")
    store.vacuum(undo_window=0)
    assert said(store, "before") == ["secret before"]
    assert said(store, "zebra") == ["secret behind"]


def test_one_damaged_session_does_not_stop_a_vacuum_of_all(store, stores):
    slip_in(store, stores, OUTSIDE["past the end"])
    store.clear("before")
    store.add_message("before", "user", "newest")
    assert store.vacuum(undo_window=0).entries == 1
