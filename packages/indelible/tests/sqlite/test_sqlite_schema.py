"""Files whose schema is not what indelible makes: refused as they are, and found by verify."""

from __future__ import annotations

import hashlib

import apsw
import pytest

import indelible
from indelible import FormatError, MemoryStoreError
from indelible.backends.sqlite.schema import FORMAT
from tests.support.sqlite.seams import beside, database_of


@pytest.fixture
def file(path):
    """A store with two entries and a snapshot, closed."""
    with indelible.open(path) as store:
        store.add_message("s", "user", "one")
        store.add_message("s", "user", "two")
        store.save_snapshot("s")
    return path


def every_byte(directory):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()
    }


def contents(store):
    return [message.content for message in store.get_history("s")]


TRIGGER = """
    CREATE TRIGGER lose AFTER INSERT ON entry WHEN new.id & 4294967295 > 1
    BEGIN DELETE FROM entry WHERE id = new.id; END"""

HOSTILE = {
    "a trigger that deletes what is appended": TRIGGER,
    "a trigger that keeps every row as it is": """
        CREATE TRIGGER keep BEFORE UPDATE ON session BEGIN SELECT RAISE(IGNORE); END""",
    "a view": "CREATE VIEW more AS SELECT * FROM entry",
    "a view in place of a table": """
        ALTER TABLE snapshot RENAME TO hidden;
        CREATE VIEW snapshot AS SELECT * FROM hidden WHERE 0;
        CREATE TRIGGER into_it INSTEAD OF INSERT ON snapshot BEGIN SELECT 1; END""",
    "a unique index": "CREATE UNIQUE INDEX two_alone ON entry (id >> 32, id & 1)",
    "an index with an expression": "CREATE INDEX slow ON entry (hex(payload))",
    "a generated column": """
        ALTER TABLE entry ADD COLUMN more TEXT GENERATED ALWAYS AS (hex(payload)) VIRTUAL""",
    "a column with a check": """
        ALTER TABLE session ADD COLUMN more INTEGER DEFAULT 0 CHECK (more < 1)""",
    "a renamed table": "ALTER TABLE journal RENAME TO diary",
    "a table that was dropped": "DROP TABLE kept_key",
    "an index that was dropped": "DROP INDEX entry_key",
    "another table": "CREATE TABLE theirs (a)",
    "a virtual table": "CREATE VIRTUAL TABLE words USING fts5 (a)",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_schema_that_is_not_ours_is_refused_and_no_byte_changes(file, kind):
    with beside(file) as hostile:
        hostile.execute(HOSTILE[kind])
    before = every_byte(file.parent)
    with pytest.raises(FormatError, match="left as it is") as caught:
        indelible.open(file)
    assert str(file) in caught.value.message
    assert every_byte(file.parent) == before


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_schema_that_changes_while_the_file_is_open_is_found_by_verify(file, kind):
    with indelible.open(file) as store:
        assert store.verify().ok
        with beside(file) as hostile:
            hostile.execute(HOSTILE[kind])
        report = store.verify()
        assert not report.ok
        assert any("did not make" in finding.what for finding in report.findings) or any(
            "is missing" in finding.what for finding in report.findings
        )


def test_a_trigger_that_is_added_while_the_file_is_open_does_not_run(file):
    with indelible.open(file) as store:
        store.add_message("s", "user", "three")
        with beside(file) as hostile:
            hostile.execute(TRIGGER)
        store.add_message("s", "user", "four")
        store.add_messages("s", [{"role": "user", "content": "five"}], key="five")
        assert contents(store) == ["one", "two", "three", "four", "five"]


@pytest.mark.parametrize("kind", HOSTILE)
def test_an_append_is_there_or_was_refused_whatever_is_added_while_the_file_is_open(file, kind):
    with indelible.open(file) as store:
        told, landed = contents(store), set()
        with beside(file) as hostile:
            hostile.execute(HOSTILE[kind])
        for text in ("three", "four"):
            try:
                store.add_message("s", "user", text)
            except MemoryStoreError as error:
                landed.add(error.landed)
            else:
                told.append(text)
        with beside(file) as reader:
            ((stored,),) = reader.execute("SELECT count(*) FROM entry").fetchall()
        assert stored == len(told)
        assert landed <= {"no"}


def test_statistics_that_sqlite_made_are_no_reason_to_refuse(file):
    with beside(file) as operator:
        operator.execute("ANALYZE")
    with indelible.open(file) as store:
        assert contents(store) == ["one", "two"]
        assert store.verify().ok


def test_comments_and_spaces_of_the_schema_do_not_matter(file):
    with beside(file) as other:
        other.execute("PRAGMA writable_schema = ON")
        other.execute(
            "UPDATE sqlite_schema SET sql = replace(sql, 'CREATE TABLE snapshot (',"
            " 'CREATE TABLE' || char(10) || 'snapshot /* all of them */ (') WHERE name = 'snapshot'"
        )
        assert other.changes() == 1
    with indelible.open(file) as store:
        assert contents(store) == ["one", "two"]


def test_a_comment_cannot_hide_what_is_in_a_schema(file):
    with beside(file) as hostile:
        hostile.execute("PRAGMA writable_schema = ON")
        hostile.execute(
            "UPDATE sqlite_schema SET sql = replace(sql, 'label    TEXT,',"
            " 'label    TEXT DEFAULT ''--'', ') WHERE name = 'snapshot'"
        )
        assert hostile.changes() == 1
    with pytest.raises(FormatError, match="snapshot"):
        indelible.open(file)


def test_a_newer_file_may_have_further_tables_but_nothing_that_touches_ours(file):
    with beside(file) as newer:
        newer.pragma("user_version", FORMAT + 1)
        newer.execute("CREATE TABLE news (a); CREATE INDEX news_a ON news (a)")
    with indelible.open(file) as store:
        assert contents(store) == ["one", "two"]
        assert store.verify().ok
    with beside(file) as newer:
        newer.execute("CREATE UNIQUE INDEX one_kind ON entry (kind, id >> 32, payload)")
    with pytest.raises(FormatError, match="one_kind"):
        indelible.open(file)


def test_a_payload_that_is_longer_than_any_entry_may_be_is_a_format_error(file):
    with beside(file) as hostile:
        hostile.execute("UPDATE entry SET payload = zeroblob(200000000) WHERE id & 4294967295 = 1")
        assert hostile.changes() == 1
    with indelible.open(file) as store:
        with pytest.raises(FormatError, match="longer than"):
            store.get_history("s")
        store.add_message("other", "user", "one")
        assert not store.verify().ok


def test_every_connection_is_on_its_guard(file):
    with indelible.open(file) as store:
        contents(store)
        engine = database_of(store)
        readers = [reader.connection for reader in engine.readers._slots.things]
        opened = [connection for connection in readers if connection is not None]
        assert opened
        for connection in (engine.writer._connection, *opened):
            db = connection._db
            assert db.pragma("trusted_schema") == 0
            assert db.pragma("query_only") == (connection is not engine.writer._connection)
            assert db.pragma("cell_size_check") == 1
            assert db.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, -1) == 0
            assert db.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, -1) == 0
            assert db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, -1) == 1
            assert db.config(apsw.SQLITE_DBCONFIG_DQS_DML, -1) == 0
            assert db.limit(apsw.SQLITE_LIMIT_LENGTH) < 2**30


@pytest.mark.parametrize("counter", [2**31 - 2, 2**31 - 1, 2**40, 2**63 - 1])
def test_a_damaged_counter_of_sessions_loses_nothing(file, counter):
    with apsw.Connection(str(file)) as db:
        db.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'session'", (counter,))
    db.close()
    with indelible.open(file) as store:
        before = contents(store)
        with pytest.raises(indelible.MemoryStoreError):
            store.add_message("another", "user", "hello")
        assert store.session("another").status == "new"
        assert contents(store) == before
