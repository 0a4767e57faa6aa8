"""Tables of older formats under today's code; the code of older formats on tables of today."""

from importlib.resources import files

import psycopg
import pytest
from pg_workers import open_and_append

import indelible
from indelible import Summary, view
from indelible.backends import postgres
from indelible.backends.postgres.schema import FORMAT
from indelible.core.checksums import compute_entry_checksum, compute_session_salt
from indelible.core.codec import encode, encode_text

# As code of format 1 wrote: an append, rows of a copy, a snapshot, a line of the journal, and a key
# whose entries a vacuum removed.
APPEND = """
    SELECT indelible.append('', 's', %s, NULL, NULL, NULL, '60000', 4::smallint, true, NULL, NULL,
        %s, 1)"""
INSERT = """
    INSERT INTO indelible.entry (session, position, written_at, deadline, generation, life, batch,
        kind, keep, key, opens, answers, payload)
    SELECT number, log_end, 0, NULL, generation, life, 1, 4, true, NULL, NULL, NULL, %s
    FROM indelible.session WHERE name = 's'"""
MANY = """
    INSERT INTO indelible.session (namespace, name, log_end, deadline, born, tail, created_at)
    VALUES (%(namespace)s, 'long', %(count)s, 4102444800000, 0, 0, 0);
    INSERT INTO indelible.entry (session, position, written_at, deadline, generation, life, batch,
        kind, keep, key, payload)
    SELECT number, nth, nth, 4102444800000, 0, 1, 1, 1, false, convert_to(nth::text, 'UTF8'),
        %(payload)s
    FROM indelible.session, generate_series(0, %(count)s - 1) AS nth WHERE name = 'long'"""
PARTS = """
    INSERT INTO indelible.snapshot (session, life, id, label, taken_at, log_end, tail, extents)
    SELECT number, 1, 'before', 'label', 0, 1, 0, '' FROM indelible.session WHERE name = 's';
    INSERT INTO indelible.journal (session, life, operation, change, changed_at, generation,
        log_end, tail_before, tail_after, extents_before, extents_after)
    SELECT number, 1, 'o', 'clear', 0, 1, 1, 0, 1, '', '' FROM indelible.session WHERE name = 's';
    UPDATE indelible.session SET tail = 1, generation = 1, vacuums = 1 WHERE name = 's';
    INSERT INTO indelible.kept_key (session, life, key, position, entries, generation, checksums)
    SELECT number, 1, 'kept', 0, 1, 0, %s FROM indelible.session WHERE name = 's'"""
# More than are given their checksums at once.
ENTRIES = 2500


def payload(text, *vector):
    return encode(Summary(text=text, vector=vector, embedder="e")).envelope


def tables_of(url, formats):
    """Make the tables of an older format."""
    folder = files(postgres).joinpath("migrations")
    with psycopg.connect(url) as connection:
        connection.execute("CREATE SCHEMA indelible")
        for version in range(1, formats + 1):
            connection.execute(folder.joinpath(f"{version:04}.sql").read_text("utf-8"))


@pytest.fixture
def url(fresh_url):
    """A database as format 1 left it, with a summary in it; its server has pgvector."""
    tables_of(fresh_url, 1)
    with psycopg.connect(fresh_url) as connection:
        connection.execute("CREATE EXTENSION vector")
        connection.execute(APPEND, (b"k", payload("first", 1.0, 0.0)))
    return fresh_url


def found(store):
    return [match.summary.text for match in store.search_summaries("s", [1, 0], 2, embedder="e")]


def test_sixteen_processes_bring_older_tables_up_to_date_at_once(worker_pool, url):
    positions = worker_pool.run(open_and_append, url)
    assert sorted(positions) == list(range(1, 17))
    with indelible.open(url) as store, psycopg.connect(url) as connection:
        assert store.verify().ok
        assert found(store) == ["first"]
        store.add_summary("s", "second", [1.0, 1.0], embedder="e")
        store.add_summary("s", "third", [0.0, 1.0], embedder="e")
        assert found(store) == ["first", "second"]
        about = dict(connection.execute("SELECT name, value FROM indelible.about").fetchall())
    assert about == {"format": FORMAT, "oldest_format": 5}


@pytest.mark.parametrize("formats", [1, 2, 3])
def test_rows_of_older_formats_get_checksums(fresh_url, formats):
    tables_of(fresh_url, formats)
    message = encode_text("user", "first").envelope
    kept = message[8:24]
    with psycopg.connect(fresh_url, cursor_factory=psycopg.ClientCursor) as older:
        older.execute(APPEND, (b"k", payload("first", 1.0, 0.0)))
        older.execute(PARTS, (kept,))
        older.execute(MANY, {"namespace": b"other", "count": ENTRIES, "payload": message})
    with indelible.open(fresh_url) as store, indelible.open(fresh_url, namespace="other") as other:
        assert store.verify().ok
        assert other.verify().ok
        assert len(other.get_history("long")) == ENTRIES
        assert [snapshot.id for snapshot in store.list_snapshots("s")] == ["before"]
        assert len(store.get_entries("s")) == 0
        store.undo("s")
        assert len(store.get_entries("s")) == 1
        assert store.add_message("s", "user", "first", key="kept").replayed
        with psycopg.connect(fresh_url) as connection:
            connection.execute("UPDATE indelible.entry SET written_at = 1 WHERE position = 2000")
        with pytest.raises(indelible.CorruptEntryError):
            other.get_history("long")


def test_views_that_older_formats_stored_are_kept(fresh_url):
    tables_of(fresh_url, 3)
    extents = view.encode(((0, 1), (2, 3)))
    message = encode_text("user", "text").envelope
    with psycopg.connect(fresh_url, cursor_factory=psycopg.ClientCursor) as older:
        older.execute(MANY, {"namespace": b"", "count": 5, "payload": message})
        older.execute("UPDATE indelible.session SET tail = 4, extents = %s", (extents,))
    with indelible.open(fresh_url) as store:
        assert [entry.position for entry in store.get_entries("long")] == [0, 2, 4]
        assert store.verify().ok


def test_the_code_of_older_formats_can_write_nothing_any_more(url):
    with indelible.open(url) as store, psycopg.connect(url, autocommit=True) as older:
        store.add_summary("s", "second", [1.0, 1.0], embedder="e")
        with pytest.raises(psycopg.errors.UndefinedFunction):
            older.execute(APPEND, (b"l", payload("third", 1.0, 0.1)))
        with pytest.raises(psycopg.errors.NotNullViolation):
            older.execute(INSERT, (payload("fourth", 1.0, 0.05),))
        assert found(store) == ["first", "second"]
        assert store.verify().ok


# As code of format 4 wrote.
APPEND_4 = """
    SELECT indelible.append('', %(name)s, %(key)s, NULL, NULL, NULL, '60000', 1::smallint, false,
        NULL, NULL, %(payload)s, %(checksum)s, 1)"""
SNAPSHOT_4 = "SELECT indelible.save_snapshot('', 's', NULL, '60000', %s, NULL)"
ROLL_BACK_4 = "SELECT indelible.roll_back('', 's', NULL, '60000', NULL, 'one', 'op', 'rollback')"


def append_as_format_4(connection, name, *keys):
    message = encode_text("user", "text").envelope
    checksum = compute_entry_checksum(compute_session_salt("", name), message)
    for key in keys:
        values = {"name": name.encode(), "key": key, "payload": message, "checksum": checksum}
        connection.execute(APPEND_4, values)


def positions(store):
    return [entry.position for entry in store.get_entries("s")]


def test_snapshots_and_changes_of_format_4_are_kept(fresh_url):
    tables_of(fresh_url, 4)
    with psycopg.connect(fresh_url) as older:
        append_as_format_4(older, "s", b"0", b"1", b"2")
        older.execute(SNAPSHOT_4, (b"one",))
        append_as_format_4(older, "s", b"3", b"4")
        assert older.execute(ROLL_BACK_4).fetchone()[0]
        older.execute(SNAPSHOT_4, (b"empty tail",))
        append_as_format_4(older, "s", b"5")
        older.execute(SNAPSHOT_4, (b"two",))
    with indelible.open(fresh_url) as store:
        assert store.verify().ok
        assert positions(store) == [0, 1, 2, 5]
        assert [snapshot.id for snapshot in store.list_snapshots("s")] == [
            "one",
            "empty tail",
            "two",
        ]
        for snapshot, shown in (
            ("one", [0, 1, 2]),
            ("two", [0, 1, 2, 5]),
            ("empty tail", [0, 1, 2]),
        ):
            store.rollback_to_snapshot("s", snapshot)
            assert positions(store) == shown
        assert len(store.timeline("s").changes) == 4
        for _ in range(4):
            store.undo("s")
        assert positions(store) == [0, 1, 2, 3, 4, 5]
        assert store.verify().ok


@pytest.mark.parametrize("table", ["session", "snapshot", "journal"])
def test_what_was_damaged_in_format_4_is_damaged_still(fresh_url, table):
    tables_of(fresh_url, 4)
    with psycopg.connect(fresh_url) as older:
        append_as_format_4(older, "s", b"0")
        older.execute(SNAPSHOT_4, (b"one",))
        older.execute(ROLL_BACK_4)
        append_as_format_4(older, "t", b"0")
        column = "extents_after" if table == "journal" else "extents"
        older.execute(f"UPDATE indelible.{table} SET {column} = decode('0180', 'hex')")
    with indelible.open(fresh_url) as store:
        findings = store.verify().findings
        assert any(f"rows of {table} are damaged" in finding.what for finding in findings)
