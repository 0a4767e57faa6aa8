"""Rows that were moved, swapped or changed: said when they are read, and found by verify."""

from __future__ import annotations

import io
import json

import pytest

import indelible
from indelible import CorruptEntryError, FormatError
from indelible.backends.sqlite.schema import FORMAT, build_schema
from tests.support.sqlite.seams import StillClock, beside

TEXTS = [f"message {number}" for number in range(6)]
OTHERS = [f"other {number}" for number in range(6)]
# The first session's number is 1, the second's 2; a row id is the number, and the position below.
AT = {session: number << 32 for number, session in enumerate(("s", "other"), 1)}


@pytest.fixture
def clock():
    return StillClock()


@pytest.fixture
def file(path, clock):
    """Two sessions with a past; the first can expire."""
    with indelible.open(path, clock=clock) as store:
        for session, texts in (("s", TEXTS), ("other", OTHERS)):
            for text in texts:
                store.add_message(session, "user", text, ttl=3600 if session == "s" else None)
                clock.now_s += 1
            store.save_snapshot(session, label="all")
            store.trim(session, keep_last=5)
            store.undo(session)
            store.set_metadata(session, {"language": "pt"})
    return path


@pytest.fixture
def opened(file, clock):
    with indelible.open(file, clock=clock) as store:
        yield store


def damage(path, *statements):
    with beside(path) as file:
        for statement in statements:
            file.execute(statement)
            assert file.changes() == 1, statement


def contents(store, session="s", **how):
    return [message.content for message in store.get_history(session, **how)]


def check_corrupt(store, *positions):
    """Reading raises, the neighbours can be read, verify names the place, repair hides it."""
    with pytest.raises(CorruptEntryError) as caught:
        store.get_history("s")
    assert (caught.value.session, caught.value.position) == ("s", positions[0])
    for last in ({}, {"last": 6}):
        rest = store.get_history("s", on_corrupt="quarantine", **last)
        assert [corrupt.position for corrupt in rest.corrupt] == list(positions)
        assert all(message.content in TEXTS for message in rest)
    with pytest.raises(CorruptEntryError):
        store.fork("s", "copy")
    report = store.verify()
    assert not report.ok
    found = {finding.position for finding in report.findings if finding.session_id == "s"}
    assert found == set(positions)
    assert contents(store, "other") == OTHERS
    store.repair("s")
    left = [text for number, text in enumerate(TEXTS) if number not in positions]
    assert contents(store) == left


def swap_rows(path):
    first, second = AT["s"] + 1, AT["s"] + 3
    with beside(path) as other:
        for old, new in ((first, -1), (second, first), (-1, second)):
            other.execute("UPDATE entry SET id = ? WHERE id = ?", (new, old))


def swap_payloads(path):
    first, second = AT["s"] + 1, AT["s"] + 3
    look = "SELECT payload FROM entry WHERE id IN (?, ?) ORDER BY id DESC"
    with beside(path) as other:
        payloads = other.execute(look, (first, second)).fetchall()
        for at, (payload,) in zip((first, second), payloads, strict=True):
            other.execute("UPDATE entry SET payload = ? WHERE id = ?", (payload, at))


@pytest.mark.parametrize("swap", [swap_rows, swap_payloads])
def test_entries_that_changed_places_are_said(file, opened, swap):
    swap(file)
    check_corrupt(opened, 1, 3)


def test_an_entry_of_another_session_is_said(file, opened):
    damage(
        file,
        f"DELETE FROM entry WHERE id = {AT['s'] + 2}",
        f"UPDATE entry SET id = {AT['s'] + 2} WHERE id = {AT['other'] + 2}",
        f"INSERT INTO entry SELECT {AT['other'] + 2}, kind, written_at, deadline, batch_size,"
        " generation, keep, NULL, call_ids, answer_ids, checksum, payload FROM entry"
        f" WHERE id = {AT['other'] + 3}",
    )
    with pytest.raises(CorruptEntryError) as caught:
        opened.get_history("s")
    assert caught.value.position == 2
    with pytest.raises(CorruptEntryError):
        opened.get_history("other")
    assert {f.session_id for f in opened.verify().findings} == {"s", "other"}


@pytest.mark.parametrize(
    "change",
    [
        "written_at = written_at + 1",
        "deadline = deadline + 1",
        "deadline = NULL",
        "generation = generation + 1",
        "batch_size = 0",
        "checksum = checksum + 1",
        "checksum = 0",
        "checksum = 9223372036854775807",
    ],
)
def test_an_entry_of_which_any_field_changed_is_said(file, opened, change):
    damage(file, f"UPDATE entry SET {change} WHERE id = {AT['s'] + 2}")
    check_corrupt(opened, 2)


SESSION_FIELDS = {
    "life": "life + 1",
    "born": "born + 1",
    "staged": "1",
    "generation": "generation + 1",
    "tail": "tail + 1",
    "deadline": "1",
    "created_at": "created_at + 1",
    "last_activity": "last_activity + 1",
    "vacuums": "vacuums + 1",
    "forked_from": "'other'",
    "metadata": "x'7b7d'",
    "extents": "x'0001'",
    "number": "77",
    "checksum": "checksum + 1",
}
DAMAGED_ROW = r"row of session 's' is damaged.*nothing was changed"


def columns_of(table):
    tables = {thing.name: thing for thing in build_schema(FORMAT) if thing.type == "table"}
    with beside(":memory:") as empty:
        empty.execute(tables[table].sql.replace("AUTOINCREMENT", ""))
        return {row[1] for row in empty.execute(f"PRAGMA table_info({table})")}


def test_every_field_of_a_session_is_looked_at():
    assert columns_of("session") - {"namespace", "name", "touched"} == set(SESSION_FIELDS)


@pytest.mark.parametrize("field", SESSION_FIELDS)
def test_a_session_of_which_any_field_changed_is_said_and_not_touched(file, opened, field):
    damage(file, f"UPDATE session SET {field} = {SESSION_FIELDS[field]} WHERE name = 's'")
    with beside(file) as other:
        before = other.execute("SELECT * FROM session; SELECT * FROM entry").fetchall()
    for verb in (
        lambda: opened.get_history("s"),
        lambda: opened.get_entries("s"),
        lambda: opened.session("s"),
        lambda: opened.add_message("s", "user", "more"),
        lambda: opened.add_message("s", "user", "more", key="k"),
        lambda: opened.clear("s"),
        lambda: opened.undo("s"),
        lambda: opened.save_snapshot("s"),
        lambda: opened.set_metadata("s", {}),
        lambda: opened.vacuum(session_id="s", undo_window=0),
        lambda: opened.repair("s"),
        lambda: opened.fork("s", "copy"),
        lambda: opened.export(io.StringIO(), "s"),
    ):
        with pytest.raises(FormatError, match=DAMAGED_ROW) as caught:
            verb()
        assert caught.value.session == "s"
    with beside(file) as other:
        assert other.execute("SELECT * FROM session; SELECT * FROM entry").fetchall() == before
    report = opened.verify()
    assert any("row of session 's'" in finding.what for finding in report.findings)
    # The others are not kept back.
    assert opened.list_sessions().ids == ["other", "s"]
    for order in ("id", "-last_activity", "created"):
        assert sorted(opened.list_sessions(order=order).ids) == ["other", "s"]
        assert opened.list_sessions(where={"status": "damaged"}, order=order).ids == ["s"]
    assert contents(opened, "other") == OTHERS
    opened.vacuum()
    assert [action.session_id for action in opened.repair().actions] == ["s"]


def test_a_session_under_another_name_is_said(file, opened):
    damage(file, "UPDATE session SET name = 't' WHERE name = 's'")
    with pytest.raises(FormatError, match="row of session 't' is damaged"):
        opened.get_history("t")
    assert not opened.verify().ok


def test_a_damaged_session_can_be_forgotten_and_imported_again(file, opened):
    written = io.StringIO()
    opened.export(written, "s")
    version = opened.session("s").version
    damage(file, "UPDATE session SET tail = 3 WHERE name = 's'")
    with pytest.raises(FormatError):
        opened.forget("s", expected=version)
    assert opened.forget("s").entries == len(TEXTS)
    opened.import_(io.StringIO(written.getvalue()))
    assert contents(opened) == TEXTS
    assert opened.verify().ok


PARTS = {
    "snapshot": {
        "life": "life + 1",
        "id": "'other'",
        "label": "'none'",
        "taken_at": "taken_at + 1",
        '"end"': '"end" - 1',
        "tail": "tail + 1",
        "extents": "x'0001'",
        "checksum": "0",
    },
    "journal": {
        "life": "life + 1",
        "operation": "'other'",
        "change": "'clear'",
        "changed_at": "changed_at + 1",
        "generation": "generation + 1",
        '"end"': '"end" - 1',
        "undone_by": "NULL",
        "tail_before": "tail_before + 1",
        "tail_after": "tail_after + 1",
        "extents_before": "x'0001'",
        "extents_after": "x'0001'",
        "checksum": "0",
    },
    "kept_key": {
        "life": "life + 1",
        "key": "'other'",
        "position": "position + 1",
        "entries": "entries + 1",
        "generation": "generation + 1",
        "checksums": "x''",
        "checksum": "0",
    },
}


@pytest.mark.parametrize("table", PARTS)
def test_every_field_of_the_other_tables_is_looked_at(table):
    named = {field.strip('"') for field in PARTS[table]}
    assert columns_of(table) - {"number", "session"} == named


@pytest.mark.parametrize(
    ("table", "field"), [(table, field) for table, fields in PARTS.items() for field in fields]
)
def test_a_row_of_which_any_field_changed_is_found_by_verify(file, opened, table, field):
    opened.add_message("s", "user", "hidden", key="key")
    opened.trim("s", keep_last=0)
    for snapshot in opened.list_snapshots("s"):
        opened.delete_snapshot("s", snapshot.id)
    opened.add_message("s", "user", "newest")
    opened.save_snapshot("s", label="newest")
    if table == "kept_key":
        opened.vacuum(session_id="s", undo_window=0)
    assert opened.verify().ok
    damage(
        file,
        f"UPDATE {table} SET {field} = {PARTS[table][field]}"
        f" WHERE rowid = (SELECT min(rowid) FROM {table} WHERE session = 1)"
        if table != "kept_key"
        else f"UPDATE kept_key SET {field} = {PARTS[table][field]} WHERE key = 'key'",
    )
    found = [finding.what for finding in opened.verify().findings]
    assert f"1 rows of {table} are damaged: their checksum does not match" in found
    # The rows of this life that a session is read by are also named.
    assert table == "kept_key" or field == "life" or any("'s' is damaged" in what for what in found)


def test_a_damaged_snapshot_is_not_rolled_back_to(file, opened):
    (snapshot,) = opened.list_snapshots("s")
    damage(file, "UPDATE snapshot SET extents = x'0002', tail = 6 WHERE session = 1")
    with pytest.raises(FormatError, match=f"snapshot '{snapshot.id}' of session 's' is damaged"):
        opened.rollback_to_snapshot("s", snapshot.id)
    assert contents(opened) == TEXTS


def test_a_damaged_change_is_not_undone(file, opened):
    opened.trim("s", keep_last=2)
    damage(
        file,
        "UPDATE journal SET tail_before = 4 WHERE number = (SELECT max(number) FROM journal)",
    )
    with pytest.raises(FormatError, match=r"journal's line of .* of session 's' is damaged"):
        opened.undo("s")
    assert contents(opened) == TEXTS[-2:]


def test_a_damaged_key_is_not_taken_for_a_retry(file, opened):
    opened.add_message("s", "user", "hidden", key="key")
    opened.trim("s", keep_last=0)
    for snapshot in opened.list_snapshots("s"):
        opened.delete_snapshot("s", snapshot.id)
    opened.add_message("s", "user", "newest")
    opened.vacuum(session_id="s", undo_window=0)
    damage(file, "UPDATE kept_key SET position = 0 WHERE key = 'key'")
    with pytest.raises(FormatError, match="key 'key' of session 's' is damaged"):
        opened.add_message("s", "user", "hidden", key="key")


def test_a_damaged_deadline_does_not_end_a_session_in_silence(file, opened):
    damage(file, f"UPDATE entry SET deadline = 1 WHERE id = {AT['s'] + 5}")
    for verb in (
        lambda: opened.get_history("s"),
        lambda: opened.session("s"),
        lambda: opened.add_message("s", "user", "a new life"),
        lambda: opened.vacuum(session_id="s", undo_window=0),
    ):
        with pytest.raises(FormatError, match=r"entry 5.*is damaged"):
            verb()
    assert any("'s'" in finding.what for finding in opened.verify().findings)
    opened.vacuum()
    damage(file, f"UPDATE entry SET deadline = {deadline_of(file)} WHERE id = {AT['s'] + 5}")
    assert contents(opened) == TEXTS


def deadline_of(file):
    """The deadline of the newest entry, from that of the one before it."""
    with beside(file) as other:
        ((deadline,),) = other.execute(f"SELECT deadline FROM entry WHERE id = {AT['s'] + 4}")
    return deadline + 1000


def test_a_damaged_deadline_revives_no_session_in_silence(file, opened, clock):
    clock.now_s += 10_000
    assert opened.session("s").status == "expired"
    damage(file, f"UPDATE entry SET deadline = NULL WHERE id = {AT['s'] + 5}")
    with pytest.raises(CorruptEntryError):
        opened.get_history("s")
    assert not opened.verify().ok


def test_verify_finds_damaged_rows_of_other_namespaces_and_of_sessions_that_ended(path, clock):
    with indelible.open(path, clock=clock, namespace="theirs") as store:
        store.add_message("gone", "user", "one", ttl=1)
        clock.now_s += 10
    damage(path, "UPDATE session SET metadata = x'00' WHERE name = 'gone'")
    with indelible.open(path, clock=clock) as store:
        (finding,) = store.verify().findings
    assert finding.what == "1 rows of session are damaged: their checksum does not match"


def test_an_entry_at_a_wrong_place_does_not_become_right_by_export_and_import(file, opened, clock):
    swap_payloads(file)
    written = io.StringIO()
    opened.export(written, "s")
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    assert [line["entry"]["position"] for line in lines if "raw" in line.get("entry", {})] == [1, 3]
    for target in (file.with_name("copy.db"), "memory:"):
        with indelible.open(target, clock=clock) as copy:
            copy.import_(io.StringIO(written.getvalue()))
            check_corrupt_copy(copy)


def check_corrupt_copy(copy):
    with pytest.raises(CorruptEntryError):
        copy.get_history("s")
    rest = copy.get_history("s", on_corrupt="quarantine")
    assert [corrupt.position for corrupt in rest.corrupt] == [1, 3]
    again = io.StringIO()
    copy.export(again, "s")
    assert again.getvalue().count('"raw"') == 2


def test_two_namespaces_with_one_session_id_are_told_apart(path):
    for namespace in ("a", "b"):
        with indelible.open(path, namespace=namespace) as store:
            store.add_message("s", "user", namespace)
    damage(
        path,
        f"UPDATE entry SET payload = (SELECT payload FROM entry WHERE id = {2 << 32}),"
        f" written_at = (SELECT written_at FROM entry WHERE id = {2 << 32}),"
        f" checksum = (SELECT checksum FROM entry WHERE id = {2 << 32}) WHERE id = {1 << 32}",
    )
    with indelible.open(path, namespace="a") as store, pytest.raises(CorruptEntryError):
        store.get_history("s")
