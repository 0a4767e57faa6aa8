"""Rows that somebody else changed or deleted are loud and contained, never quietly fewer."""

import psycopg
import pytest

import indelible
from indelible import CorruptEntryError, FormatError

ENTRY = "FROM indelible.session AS s WHERE s.number = session AND s.name = 's' AND position = 1"
DAMAGE = {
    "a payload that was changed": f"UPDATE indelible.entry SET payload = 'x' || payload {ENTRY}",
    "a payload that was cut": f"UPDATE indelible.entry SET payload = substr(payload, 1, 9) {ENTRY}",
    "a payload that is gone": f"UPDATE indelible.entry SET payload = '' {ENTRY}",
    "a kind that there is not": f"UPDATE indelible.entry SET kind = 9 {ENTRY}",
    "another kind": f"UPDATE indelible.entry SET kind = 4 {ENTRY}",
    "a row that is missing": f"DELETE {ENTRY.replace('FROM', 'FROM indelible.entry USING')}",
}


@pytest.fixture
def store(url):
    with indelible.open(url) as store:
        for text in ("a", "b", "c"):
            store.add_message("s", "user", text)
            store.add_message("t", "user", text)
        yield store


@pytest.fixture
def damage(url):
    def run(statement):
        with psycopg.connect(url) as connection:
            assert connection.execute(statement).rowcount == 1

    return run


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_entry_is_named_and_its_neighbours_can_be_read(store, damage, how):
    damage(DAMAGE[how])
    for read in (store.get_history, store.get_entries, lambda s: store.get_history(s, last=2)):
        with pytest.raises(CorruptEntryError) as caught:
            read("s")
        assert (caught.value.session, caught.value.position) == ("s", 1)
    found = store.get_history("s", on_corrupt="quarantine")
    assert [message.content for message in found] == ["a", "c"]
    assert [bad.position for bad in found.corrupt] == [1]
    assert [message.content for message in store.get_history("t")] == ["a", "b", "c"]
    assert not store.verify().ok


@pytest.mark.parametrize("how", DAMAGE)
def test_a_repair_takes_a_damaged_entry_out_of_view_and_keeps_its_bytes(store, damage, how):
    damage(DAMAGE[how])
    assert store.repair().actions
    assert [message.content for message in store.get_history("s")] == ["a", "c"]
    assert store.add_message("s", "user", "d").positions == range(3, 4)
    assert store.repair().actions == ()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE indelible.session SET extents = '\\xff' WHERE name = 's'",
        "UPDATE indelible.session SET tail = 99 WHERE name = 's'",
    ],
)
def test_a_damaged_view_is_a_format_error_of_its_session_alone(store, damage, statement):
    damage(statement)
    with pytest.raises(FormatError):
        store.get_history("s")
    assert len(store.get_history("t")) == 3
    assert store.verify().findings


def test_rows_that_belong_to_no_session_are_found(store, damage):
    damage("DELETE FROM indelible.session WHERE name = 's'")
    assert any("entry" in finding.what for finding in store.verify().findings)


OUTSIDE = {
    "a view past the end": "UPDATE indelible.session SET tail = 9 WHERE name = 's'",
    "a view of an earlier life": "UPDATE indelible.session SET born = 1 WHERE name = 's'",
}


@pytest.mark.parametrize("how", OUTSIDE)
def test_a_view_outside_of_its_log_is_not_followed(store, damage, how):
    damage(OUTSIDE[how])
    for call in (store.get_history, store.get_entries, store.timeline, store.clear, store.undo):
        with pytest.raises(FormatError):
            call("s")
    with pytest.raises(FormatError):
        store.vacuum(session_id="s", undo_window=0)
    store.vacuum(undo_window=0)
    assert [message.content for message in store.get_history("t")] == ["a", "b", "c"]
    assert {finding.session_id for finding in store.verify().findings} == {"s"}
