"""Damage of every kind in a file: verify names it, repair contains it, bytes are kept."""

import io

import apsw
import pytest

import indelible
from indelible import CorruptEntryError
from tests.support.sqlite.seams import forging

TEXTS = [f"message {number}" for number in range(6)]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "agent.db"
    with indelible.open(path) as store:
        for text in TEXTS:
            store.add_message("s", "user", text)
        store.save_snapshot("s", label="before the damage")
        store.add_message("healthy", "user", "hello")
    return path


def damage(path, sql, *params):
    connection = apsw.Connection(str(path))
    connection.execute(sql, params)
    changed = connection.changes()
    connection.close()
    return changed


def findings(store):
    return [(f.severity.value, f.session_id, f.position, f.what) for f in store.verify().findings]


DAMAGES = {
    "a changed byte": "UPDATE entry SET payload = CAST(replace(payload, 'message 3', 'massage 3')"
    " AS BLOB) WHERE id = (1 << 32) + 3",
    "an emptied payload": "UPDATE entry SET payload = x'' WHERE id = (1 << 32) + 3",
    "an unknown kind": "UPDATE entry SET kind = 77 WHERE id = (1 << 32) + 3",
    "a wrong kind": "UPDATE entry SET kind = 2 WHERE id = (1 << 32) + 3",
    "a missing row": "DELETE FROM entry WHERE id = (1 << 32) + 3",
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_entry_is_found_contained_and_kept(path, kind):
    assert damage(path, DAMAGES[kind]) == 1
    with indelible.open(path) as store:
        with pytest.raises(CorruptEntryError) as caught:
            store.get_history("s")
        assert (caught.value.session, caught.value.position) == ("s", 3)
        (found,) = findings(store)
        assert found[:3] == ("error", "s", 3)
        assert not store.verify().ok

        assert [action.positions for action in store.repair(dry_run=True).actions] == [(3,)]
        with pytest.raises(CorruptEntryError):
            store.get_history("s")

        assert [action.positions for action in store.repair().actions] == [(3,)]
        left = [text for number, text in enumerate(TEXTS) if number != 3]
        assert [message.content for message in store.get_history("s")] == left
        (kept,) = store.quarantined("s")
        assert kept.position == 3
        assert (kept.raw == b"") == (kind in {"an emptied payload", "a missing row"})
        assert [message.content for message in store.get_history("healthy")] == ["hello"]

        # A second repair finds nothing new to do, and undo shows the damage in its place again.
        assert store.repair().actions == ()
        store.undo("s")
        with pytest.raises(CorruptEntryError):
            store.get_history("s")


# Of the entry at position 3; no store writes such values.
DAMAGED_COLUMNS = [
    "generation = 99",
    "written_at = -5",
    "written_at = 1 << 60",
    "deadline = -7",
    "deadline = 1 << 60",
    "deadline = 253402300800000",
    "batch_size = -1",
    "batch_size = 0",
    "batch_size = 2",
    "batch_size = 99",
]


@pytest.mark.parametrize("column", DAMAGED_COLUMNS)
def test_an_entry_with_a_damaged_column_does_not_keep_its_session_from_being_moved(path, column):
    assert damage(path, f"UPDATE entry SET {column} WHERE id = (1 << 32) + 3") == 1
    written = io.StringIO()
    with indelible.open(path) as store, indelible.open("memory:") as target:
        store.export(written)
        report = indelible.copy_sessions(store, target)
        assert report.ok
        assert [finding.session_id for finding in report.findings] == ["s"]
    written.seek(0)
    with indelible.open("memory:") as restored:
        restored.import_(written)
        found = restored.get_history("s", on_corrupt="quarantine")
        assert [message.content for message in found] == [*TEXTS[:3], *TEXTS[4:]]
        assert [entry.position for entry in found.corrupt] == [3]


def test_bytes_in_quarantine_outlive_a_vacuum(path):
    damage(path, DAMAGES["a changed byte"])
    with indelible.open(path) as store:
        for snapshot in store.list_snapshots("s"):
            store.delete_snapshot("s", snapshot.id)
        store.repair()
        assert store.vacuum(undo_window=0).entries == 1
        (kept,) = store.quarantined("s")
        assert b"massage 3" in kept.raw
        assert store.verify().findings == ()


def test_a_snapshot_that_holds_the_damage_stays_loud_when_it_is_rolled_back_to(path):
    damage(path, DAMAGES["a changed byte"])
    with indelible.open(path) as store:
        store.repair()
        (snapshot,) = store.list_snapshots("s")
        store.rollback_to_snapshot("s", snapshot.id)
        with pytest.raises(CorruptEntryError):
            store.get_history("s")
        quarantined = store.get_history("s", on_corrupt="quarantine")
        assert len(quarantined) == len(TEXTS) - 1
        assert b"massage 3" in quarantined.corrupt[0].raw


OTHER_DAMAGES = {
    "a view out of its log": (
        "UPDATE session SET tail = 99 WHERE name = 's'",
        "outside of its log",
    ),
    "a damaged view": (
        "UPDATE session SET extents = x'ff' WHERE name = 's'",
        "row of session 's' is damaged",
    ),
    "a snapshot out of its log": ('UPDATE snapshot SET "end" = 999', "outside of its log"),
    "entries of no session": ("DELETE FROM session WHERE name = 'healthy'", "belong to no session"),
}


@pytest.mark.parametrize("kind", OTHER_DAMAGES)
def test_damage_beside_the_entries_that_no_checksum_shows_is_found(path, kind):
    sql, words = OTHER_DAMAGES[kind]
    with forging(path) as file:
        file.execute(sql)
        assert file.changes() == 1
    with indelible.open(path) as store:
        report = store.verify()
        assert not report.ok
        assert any(words in finding.what for finding in report.findings), report.findings


def test_a_view_that_does_not_follow_from_its_journal_is_found(path):
    with indelible.open(path) as store:
        store.trim("s", keep_last=2)
        assert store.verify().ok
    with forging(path) as file:
        file.execute("UPDATE session SET tail = 2 WHERE name = 's'")
    with indelible.open(path) as store:
        assert "newest change" in store.verify("s").findings[0].what


def test_the_engines_own_check_is_part_of_verify(path):
    damage(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    connection = apsw.Connection(str(path))
    ((root,),) = connection.execute(
        "SELECT rootpage FROM sqlite_schema WHERE name = 'snapshot_id'"
    ).fetchall()
    connection.close()
    data = bytearray(path.read_bytes())
    # The page's cells, not its header: the index can be opened, and does not match its table.
    data[root * 4096 - 12 : root * 4096 - 4] = b"\xee" * 8
    path.write_bytes(bytes(data))
    with indelible.open(path) as store:
        report = store.verify()
    assert not report.ok
    assert any(finding.session_id is None for finding in report.findings)


def test_a_vacuum_keeps_the_keys_of_the_newest_appends_however_long_they_are(tmp_path):
    with indelible.open(tmp_path / "agent.db", durability="process") as store:
        batch = [{"role": "user", "content": "x"}] * 1000
        for number in range(12):
            store.add_messages("s", batch, key=f"batch-{number}")
        store.clear("s")
        store.vacuum(undo_window=0)
        again = store.add_messages("s", batch, key="batch-0", replay="hidden-ok")
        assert again.replayed
