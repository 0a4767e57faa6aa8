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


# Rows that would be read without a complaint, if it were not for their checksums.
MISPLACED = {
    "payloads that were swapped": """
        UPDATE indelible.entry AS one SET payload = two.payload
        FROM indelible.entry AS two, indelible.session AS s WHERE s.name = 's'
            AND one.session = s.number AND two.session = s.number AND one.position = 1
            AND two.position = 2""",
    "a payload of another session": """
        UPDATE indelible.entry AS one SET payload = two.payload
        FROM indelible.entry AS two, indelible.session AS s, indelible.session AS t
        WHERE s.name = 's' AND t.name = 't' AND one.session = s.number AND two.session = t.number
            AND one.position = 1 AND two.position = 2""",
    "a row of another session": """
        UPDATE indelible.entry AS one
        SET payload = two.payload, checksum = two.checksum, written_at = two.written_at
        FROM indelible.entry AS two, indelible.session AS s, indelible.session AS t
        WHERE s.name = 's' AND t.name = 't' AND one.session = s.number AND two.session = t.number
            AND one.position = 1 AND two.position = 1""",
    "another time": f"UPDATE indelible.entry SET written_at = written_at + 1 {ENTRY}",
    "a time far away": "UPDATE indelible.entry SET written_at = written_at + (1::bigint << 48)"
    f" {ENTRY}",
    "the last time": f"UPDATE indelible.entry SET written_at = 9223372036854775807 {ENTRY}",
    "the first time": f"UPDATE indelible.entry SET written_at = -9223372036854775808 {ENTRY}",
    "another deadline": f"UPDATE indelible.entry SET deadline = 1 {ENTRY}",
    "the last deadline": f"UPDATE indelible.entry SET deadline = 9223372036854775807 {ENTRY}",
    "the largest checksum": f"UPDATE indelible.entry SET checksum = 9223372036854775807 {ENTRY}",
    "another generation": f"UPDATE indelible.entry SET generation = entry.generation + 1 {ENTRY}",
    "another batch": f"UPDATE indelible.entry SET batch = 2 {ENTRY}",
    "another checksum": f"UPDATE indelible.entry SET checksum = entry.checksum # 4 {ENTRY}",
}


@pytest.mark.parametrize("how", MISPLACED)
def test_an_entry_that_is_not_where_it_was_written_is_named(store, damage, how):
    damage(MISPLACED[how])
    for read in (store.get_history, store.get_entries, lambda s: store.get_history(s, last=2)):
        with pytest.raises(CorruptEntryError) as caught:
            read("s")
        assert (caught.value.session, caught.value.position) == ("s", 1)
    assert [message.content for message in store.get_history("t")] == ["a", "b", "c"]
    findings = store.verify().findings
    assert [(finding.session_id, finding.position) for finding in findings] == [("s", 1)]
    with pytest.raises(CorruptEntryError):
        store.fork("s", "copy")


def test_a_row_that_was_moved_to_another_position_is_found(store, damage):
    damage(f"UPDATE indelible.entry SET position = 7 {ENTRY}")
    with pytest.raises(CorruptEntryError):
        store.get_history("s")
    damage("UPDATE indelible.entry SET position = 1 WHERE position = 7")
    assert len(store.get_history("s")) == 3


# Every field of a session's row that decides something.
OF_SESSION = {
    "number": "number + 1000",
    "log_end": "log_end - 1",
    "log_end ": "9223372036854775807",
    "deadline": "1",
    "deadline ": "9223372036854775807",
    "tail ": "9223372036854775807",
    "born": "born + 1",
    "generation": "generation + 1",
    "tail": "tail + 1",
    "created_at": "created_at + 1",
    "last_activity": "last_activity + 1",
    "last_activity ": "9223372036854775807",
    "life": "life + 1",
    "vacuums": "vacuums + 1",
    "staged": "true",
    "forked_from": "'t'",
    "forked_from ": "decode('ff', 'hex')",
    "extents": "'{0,1}'",
    "extents ": "'{0}'",
    "metadata": """'{"a": 1}'""",
    "checksum": "checksum + 1",
}


@pytest.mark.parametrize("field", OF_SESSION)
def test_a_damaged_row_of_a_session_is_a_format_error_of_that_alone(store, damage, field):
    snapshot = store.save_snapshot("s")
    damage(f"UPDATE indelible.session SET {field} = {OF_SESSION[field]} WHERE name = 's'")
    for call in (
        lambda: store.get_history("s"),
        lambda: store.session("s"),
        lambda: store.add_message("s", "user", "d"),
        lambda: store.save_context("s", "d", "e"),
        lambda: store.add_summary("s", "d", [1.0], embedder="e"),
        lambda: store.save_snapshot("s"),
        lambda: store.rollback_to_snapshot("s", snapshot.id),
        lambda: store.clear("s"),
        lambda: store.trim("s", keep_last=1),
        lambda: store.set_metadata("s", {}),
        lambda: store.fork("s", "copy"),
        lambda: store.forget("s", expected="1.1.3.0"),
        lambda: store.vacuum(session_id="s"),
    ):
        with pytest.raises(FormatError, match=r"session 's' is damaged.*Nothing was changed"):
            call()
    assert "s" in store.list_sessions().ids
    for order in (None, "-last_activity", "created"):
        assert store.list_sessions(where={"status": "damaged"}, order=order).ids == ["s"]
    assert len(store.get_history("t")) == 3
    findings = store.verify().findings
    assert "s" in [finding.session_id for finding in findings]
    assert any("1 rows of session are damaged" in finding.what for finding in findings)


@pytest.mark.parametrize("field", [field for field in OF_SESSION if field != "number"])
def test_a_damaged_session_can_be_forgotten(store, damage, field):
    store.save_snapshot("s")
    damage(f"UPDATE indelible.session SET {field} = {OF_SESSION[field]} WHERE name = 's'")
    receipt = store.forget("s")
    assert (receipt.entries, receipt.snapshots) == (3, 1)
    assert store.session("s").status == "new"
    assert len(store.get_history("t")) == 3
    assert store.verify().ok


NUMBERS = {
    "of another session": "(SELECT number FROM indelible.session WHERE name = 't')",
    "of none": "number + 1000",
}


@pytest.mark.parametrize("of", NUMBERS)
def test_a_damaged_session_is_not_forgotten_by_a_number_that_may_not_be_its_own(store, damage, of):
    damage(f"UPDATE indelible.session SET number = {NUMBERS[of]} WHERE name = 's'")
    with pytest.raises(FormatError, match=r"session 's' is damaged.*Nothing was changed"):
        store.forget("s")
    assert len(store.get_history("t")) == 3
    assert "s" in store.list_sessions().ids


def test_a_session_whose_row_got_another_name_is_found(store, damage):
    damage("UPDATE indelible.session SET name = 'u' WHERE name = 's'")
    with pytest.raises(FormatError, match="'u' is damaged"):
        store.get_history("u")
    assert not store.verify().ok
    damage("UPDATE indelible.session SET namespace = 'other', name = 's' WHERE name = 'u'")
    assert any("session are damaged" in finding.what for finding in store.verify().findings)


def test_a_name_that_is_no_text_is_a_format_error(store, damage):
    damage("UPDATE indelible.session SET name = decode('ff', 'hex') WHERE name = 's'")
    with pytest.raises(FormatError, match="name of a session is damaged"):
        store.list_sessions()
    assert not store.verify().ok


def test_a_damaged_name_of_a_session_does_not_stop_others(store, damage):
    store.fork("s", "fork")
    damage("UPDATE indelible.session SET name = decode('ff', 'hex') WHERE name = 'fork'")
    assert store.reindex(rebuild=True).entries == 9
    assert store.forget("s").forks == ("\\xff",)
    with pytest.raises(FormatError, match="name of a session is damaged"):
        store.search("c")


OF_SNAPSHOT = {
    "extents": "'{0,1}'",
    "log_end": "log_end - 1",
    "taken_at": "taken_at + 1",
    "label": "'other'",
    "number": "number + 1000",
}


@pytest.mark.parametrize("field", OF_SNAPSHOT)
def test_a_damaged_snapshot_is_not_rolled_back_to(store, damage, field):
    snapshot = store.save_snapshot("s", label="good")
    store.add_message("s", "user", "d")
    damage(f"UPDATE indelible.snapshot SET {field} = {OF_SNAPSHOT[field]}")
    for call in (
        lambda: store.rollback_to_snapshot("s", snapshot.id),
        lambda: store.list_snapshots("s"),
        lambda: store.diff_snapshots("s", snapshot.id),
        lambda: store.fork("s", "copy", at=snapshot.id),
        lambda: store.vacuum(session_id="s"),
    ):
        with pytest.raises(FormatError, match=f"its snapshot '{snapshot.id}'"):
            call()
    assert [message.content for message in store.get_history("s")] == ["a", "b", "c", "d"]
    assert any("1 rows of snapshot" in finding.what for finding in store.verify().findings)


OF_JOURNAL = {
    "generation": "generation + 1",
    "changed_at": "changed_at + 1",
    "log_end": "log_end - 1",
    "tail_before": "tail_before + 1",
    "tail_after": "tail_after - 1",
    "change": "'trim'",
    "undone_by": "'me'",
    "extents_before": "'{0,1}'",
    "extents_after": "'{0,1}'",
}


@pytest.mark.parametrize("field", OF_JOURNAL)
def test_a_damaged_line_of_the_journal_is_not_undone(store, damage, field):
    store.clear("s", key="k")
    damage(f"UPDATE indelible.journal SET {field} = {OF_JOURNAL[field]}")
    for call in (
        lambda: store.undo("s"),
        lambda: store.timeline("s"),
        lambda: store.clear("s", key="k"),
        lambda: store.vacuum(session_id="s"),
    ):
        with pytest.raises(FormatError, match=r"the line '\w+' in indelible\.journal"):
            call()
    assert store.get_history("s") == []
    assert any("1 rows of journal" in finding.what for finding in store.verify().findings)


OF_KEPT_KEY = {"position": "position + 1", "entries": "2", "generation": "7", "checksums": "'a'"}


@pytest.mark.parametrize("field", OF_KEPT_KEY)
def test_a_damaged_key_gives_no_receipt(store, damage, field):
    store.add_message("s", "user", "d", key="k")
    store.clear("s")
    store.add_message("s", "user", "e")
    store.vacuum(undo_window=0)
    damage(f"UPDATE indelible.kept_key SET {field} = {OF_KEPT_KEY[field]} WHERE key = 'k'")
    with pytest.raises(FormatError, match="kept_key"):
        store.add_message("s", "user", "d", key="k")
    assert [message.content for message in store.get_history("s")] == ["e"]
    assert any("1 rows of kept_key" in finding.what for finding in store.verify().findings)


@pytest.mark.parametrize("field", ["batch", "written_at", "generation"])
def test_a_damaged_entry_gives_no_receipt_for_its_key(store, damage, field):
    store.add_message("s", "user", "d", key="k")
    damage(f"UPDATE indelible.entry SET {field} = {field} + 1 WHERE key = 'k'")
    with pytest.raises(FormatError, match="entry 3"):
        store.add_message("s", "user", "d", key="k")
    assert len(store.get_history("s", on_corrupt="quarantine")) == 3


ODD_ENTRIES = {
    "a key that is no text": "key = decode('ff', 'hex')",
    "calls that are no JSON": "opens = 'x'",
    "calls that are nested too deeply": "opens = repeat('[', 100000)",
    "calls that are something else": "answers = '{}'",
}


@pytest.mark.parametrize("how", ODD_ENTRIES)
def test_an_odd_row_is_a_finding_and_no_error_of_python(store, damage, how):
    damage(f"UPDATE indelible.entry SET {ODD_ENTRIES[how]} {ENTRY}")
    findings = store.verify().findings
    assert [(finding.session_id, finding.position) for finding in findings] == [("s", 1)]
    assert store.repair().actions
    assert [message.content for message in store.get_history("s")] == ["a", "c"]


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
    findings = store.verify().findings
    assert "s" in {finding.session_id for finding in findings}
    others = [finding.what for finding in findings if finding.session_id != "s"]
    assert others == ["1 rows of session are damaged: their checksum does not match"]
