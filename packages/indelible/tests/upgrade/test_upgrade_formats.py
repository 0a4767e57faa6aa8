"""Files of every released format: opened, read, rolled back and migrated by today's code.

Each step is a process of its own; only the path travels.
"""

import hashlib
import sqlite3
from contextlib import closing

import formats
import pytest

from indelible.backends.sqlite.schema import APPLICATION_ID, FORMAT
from indelible.errors import MemoryStoreError
from tests.support.wait import wait_until

BUILDERS = {6: formats.format_6}
EXPECTED = {
    "sessions": ["ana", "ana-again", "edge %_*?:/'\"", "for ever", "tools", "vacuumed"],
    "status": "expired",
    "ana": ["My name is Ana.", "Nice to meet you.", "Ana it is."],
    "ana-again": ["My name is Ana.", "Nice to meet you.", "Ana it is."],
    "metadata": {"language": "pt", "nested": {"a": [1, None]}},
    "snapshots": ["first", "second"],
    "calls": [("call-1", "done"), ("call-2", "dangling")],
    "memories": [],
    "summaries": ["All is well."],
    "edge": "\u202enul \x00 and 🙂",
    "vacuumed": ["4", "5"],
    "found": [1],
    "audit": [],
    "ok": True,
}


@pytest.fixture(params=range(1, FORMAT + 1), ids=lambda number: f"format_{number}")
def path(request, snapshot_db):
    """A copy of a file of each format; the newest can still be built."""
    build = BUILDERS[FORMAT] if request.param == FORMAT else None
    return snapshot_db(f"format_{request.param}", build=build)


@pytest.fixture
def expected(request):
    """What is in a file of each format: the first ones had no memories, and no audits."""
    number = request.node.callspec.params["path"]
    memories = {"memories": ["Ana drinks tea."]} if number >= 3 else {}
    return (
        EXPECTED
        | memories
        | ({"audit": [("ana", "append"), ("ana", "forget")]} if number >= 6 else {})
    )


def test_there_is_a_golden_for_each_format(path):
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_the_newest_format_is_what_the_code_writes(snapshot_db):
    BUILDERS[FORMAT](snapshot_db.path)
    # The clock there goes on with each look at it, and how often that is belongs to no format.
    times = {"entry.written_at", "session.created_at", "session.last_activity"}
    times |= {"session.deadline", "snapshot.taken_at", "journal.changed_at"}
    times |= {"audit.line", "audit.hash"}
    # Checksums are also of times.
    times |= {f"{table}.checksum" for table in ("entry", "session", "snapshot", "journal")}
    snapshot_db.assert_matches(f"format_{FORMAT}", ignore=times)


def test_everything_in_it_is_read(path, run_in_process, expected):
    assert run_in_process(formats.contents, path) == expected


def test_every_snapshot_can_be_rolled_back_to_and_stays(path, run_in_process, expected):
    shown, same, whole = run_in_process(formats.roll_back_everything, path)
    assert shown == [("ana", "first", 2), ("ana", "second", 4), ("tools", None, 5)]
    assert same
    assert whole
    found = run_in_process(formats.contents, path)
    assert found == {**expected, "snapshots": ["first", "second", "now"]}


def test_a_retry_from_before_the_upgrade_is_known(path, run_in_process, expected):
    assert run_in_process(formats.retry, path) is True
    assert run_in_process(formats.contents, path) == expected


def test_reading_changes_no_stored_row(path, run_in_process, snapshot_db, request):
    run_in_process(formats.contents, path)
    if f"format_{FORMAT}" in request.node.name:
        snapshot_db.assert_matches(f"format_{FORMAT}", path)


def test_the_next_format_migrates_it_and_keeps_all(path, run_in_process, tmp_path, expected):
    script = "CREATE TABLE news (a); INSERT INTO news VALUES (1);"
    assert run_in_process(formats.migrate, path, tmp_path, script) == expected
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (FORMAT + 1,)
        assert db.execute("SELECT * FROM news").fetchall() == [(1,)]


BROKEN = [
    "CREATE TABLE news (a); INSERT INTO nowhere VALUES (1);",
    "DELETE FROM snapshot; DROP TABLE journal; ALTER TABLE entry ADD COLUMN b; SELECT nonsense();",
]


@pytest.mark.parametrize("script", BROKEN, ids=["at the end", "after deleting"])
def test_a_migration_that_fails_leaves_every_byte_as_it_was(
    path, run_in_process, tmp_path, script, expected
):
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(MemoryStoreError):
        run_in_process(formats.migrate, path, tmp_path, script)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert run_in_process(formats.contents, path) == expected


def test_a_migration_that_is_killed_leaves_a_file_that_works(
    path, start_in_process, run_in_process, tmp_path, expected
):
    endless = (
        "DELETE FROM snapshot; CREATE TABLE news AS WITH RECURSIVE n (i) AS"
        " (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000000) SELECT i FROM n;"
    )
    migrating = start_in_process(formats.migrate, path, tmp_path, endless)
    # The transaction has begun when its first pages are in the log.
    log = path.with_name(f"{path.name}-wal")
    wait_until(lambda: log.exists() and log.stat().st_size > 100_000)
    assert migrating.kill() == -9
    assert run_in_process(formats.contents, path) == expected


# What code of format 1 does first to find a session, to append to one that it knows, and to one
# that it has just looked at.
STATEMENTS_OF_FORMAT_1 = [
    """SELECT number, (SELECT id + batch FROM entry WHERE id >= number << 32
        AND id < (number + 1) << 32 AND batch > 0 ORDER BY id DESC LIMIT 1)
    FROM session WHERE namespace = '' AND name = 'ana'""",
    """INSERT OR IGNORE INTO entry (id, kind, written_at, deadline, batch, generation, keep, key,
        opens, answers, payload)
    SELECT (number << 32) + 100, 1, 0, NULL, 1, generation, 0, NULL, NULL, NULL, x'00'
    FROM session WHERE name = 'ana'""",
    """INSERT INTO entry (id, kind, written_at, deadline, batch, generation, keep, key, opens,
        answers, payload) VALUES (1, 1, 0, NULL, 1, 0, 0, NULL, NULL, NULL, x'00')""",
]


def test_code_of_format_1_that_has_the_file_open_cannot_write_past_the_checksums(
    snapshot_db, run_in_process
):
    path = snapshot_db("format_1")
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        for statement in STATEMENTS_OF_FORMAT_1:
            old.execute("BEGIN")
            old.execute(statement)
            old.execute("ROLLBACK")
        assert run_in_process(formats.contents, path) == EXPECTED
        for statement in STATEMENTS_OF_FORMAT_1:
            with pytest.raises(sqlite3.OperationalError, match="batch"):
                old.execute(statement)
    assert run_in_process(formats.contents, path) == EXPECTED


# Every append of the code of formats 3 and 4.
APPENDS = {
    number: f"""
    INSERT INTO entry (id, kind, written_at, deadline, batch_size, generation, keep, key, opens,
        {answers}, payload, checksum) VALUES (1, 1, 0, NULL, 1, 0, 0, NULL, NULL, NULL, x'00', 0)"""
    for number, answers in ((3, "answers"), (4, "answer_ids"))
}


@pytest.mark.parametrize("number", APPENDS)
def test_older_code_that_has_the_file_open_cannot_write_past_the_indexes(
    snapshot_db, run_in_process, number
):
    path = snapshot_db(f"format_{number}")
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        old.execute("BEGIN")
        old.execute(APPENDS[number])
        old.execute("ROLLBACK")
        run_in_process(formats.contents, path)
        with pytest.raises(sqlite3.OperationalError, match="no column named opens"):
            old.execute(APPENDS[number])


def test_reindex_completes_the_index_of_an_upgraded_file(path, run_in_process, expected):
    assert run_in_process(formats.contents, path) == expected
    added = run_in_process(formats.reindex, path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM unindexed").fetchone() == (0,)
        ((entries,),) = db.execute("SELECT count(*) FROM entry WHERE kind IN (1, 4, 5)")
        ((indexed,),) = db.execute("SELECT count(*) FROM entry_text_docsize")
        assert indexed == entries
        ((version,),) = db.execute("SELECT value FROM about WHERE name = 'oldest_format'")
        assert added in (0, entries)
        assert version == FORMAT
    assert run_in_process(formats.contents, path) == expected


def test_a_file_of_format_1_has_every_checksum_once_it_was_opened(snapshot_db, run_in_process):
    path = snapshot_db("format_1")
    with closing(sqlite3.connect(path)) as db, db:
        # This is the only table without a row there.
        db.execute(
            "INSERT INTO journal (session, life, operation, change, changed_at, generation, 'end',"
            " tail_before, tail_after, extents_before, extents_after)"
            " SELECT number, life, 'none', 'trim', 1, generation, tail, tail, tail, extents,"
            " extents FROM session WHERE name = 'ana'"
        )
    assert run_in_process(formats.contents, path) == EXPECTED
    with closing(sqlite3.connect(path)) as db:
        for table in ("entry", "session", "snapshot", "journal", "kept_key"):
            ((rows, without),) = db.execute(f"SELECT count(*), sum(checksum = 0) FROM {table}")
            assert rows > 0
            assert without == 0
        assert db.execute("SELECT value FROM about").fetchall() == [(FORMAT,)]
