"""Files of every released format: opened, read, rolled back and migrated by today's code.

Each step is a process of its own; only the path travels.
"""

import hashlib
import sqlite3
from contextlib import closing

import apsw
import pytest

from indelible.backends.sqlite.schema import APPLICATION_ID, FORMAT
from indelible.errors import MemoryStoreError
from tests.support import upgrade_formats as formats
from tests.support.wait import wait_until

BUILDERS = {1: formats.format_1}
EXPECTED = {
    "sessions": ["ana", "ana-again", "edge %_*?:/'\"", "for ever", "tools", "vacuumed"],
    "status": "expired",
    "ana": ["My name is Ana.", "Nice to meet you.", "Ana it is."],
    "ana-again": ["My name is Ana.", "Nice to meet you.", "Ana it is."],
    "metadata": {"language": "pt", "nested": {"a": [1, None]}},
    "snapshots": ["first", "second"],
    "calls": [("call-1", "done"), ("call-2", "dangling")],
    "memories": ["Ana drinks tea."],
    "summaries": ["All is well."],
    "edge": "\u202enul \x00 and 🙂",
    "vacuumed": ["4", "5"],
    "found": [1],
    "audit": [("ana", "append"), ("ana", "forget")],
    "ok": True,
}


@pytest.fixture(params=range(1, FORMAT + 1), ids=lambda number: f"format_{number}")
def path(request, snapshot_db):
    """A copy of a file of each format; the newest can still be built."""
    build = BUILDERS[FORMAT] if request.param == FORMAT else None
    return snapshot_db(f"format_{request.param}", build=build)


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


def test_everything_in_it_is_read(path, run_in_process):
    assert run_in_process(formats.contents, path) == EXPECTED


def test_every_snapshot_can_be_rolled_back_to_and_stays(path, run_in_process):
    shown, same, whole = run_in_process(formats.roll_back_everything, path)
    assert shown == [("ana", "first", 2), ("ana", "second", 4), ("tools", None, 5)]
    assert same
    assert whole
    found = run_in_process(formats.contents, path)
    assert found == {**EXPECTED, "snapshots": ["first", "second", "now"]}


def test_a_retry_from_before_the_upgrade_is_known(path, run_in_process):
    assert run_in_process(formats.retry, path) is True
    assert run_in_process(formats.contents, path) == EXPECTED


def test_reading_changes_no_stored_row(path, run_in_process, snapshot_db, request):
    run_in_process(formats.contents, path)
    if f"format_{FORMAT}" in request.node.name:
        snapshot_db.assert_matches(f"format_{FORMAT}", path)


def test_the_next_format_migrates_it_and_keeps_all(path, run_in_process, tmp_path):
    script = "CREATE TABLE news (a); INSERT INTO news VALUES (1);"
    assert run_in_process(formats.migrate, path, tmp_path, script) == EXPECTED
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (FORMAT + 1,)
        assert db.execute("SELECT * FROM news").fetchall() == [(1,)]


BROKEN = [
    "CREATE TABLE news (a); INSERT INTO nowhere VALUES (1);",
    "DELETE FROM snapshot; DROP TABLE journal; ALTER TABLE entry ADD COLUMN b; SELECT nonsense();",
]


@pytest.mark.parametrize("script", BROKEN, ids=["at the end", "after deleting"])
def test_a_migration_that_fails_leaves_every_byte_as_it_was(path, run_in_process, tmp_path, script):
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(MemoryStoreError):
        run_in_process(formats.migrate, path, tmp_path, script)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert run_in_process(formats.contents, path) == EXPECTED


def test_a_migration_that_is_killed_leaves_a_file_that_works(
    path, start_in_process, run_in_process, tmp_path
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
    assert run_in_process(formats.contents, path) == EXPECTED


def test_code_that_has_the_file_open_cannot_write_past_a_migration(path, run_in_process):
    """A migration that older code must not write past renames a column of every append."""
    with formats.opened(path) as store:
        store.add_message("ana", "user", "before the migration")
        before = store.get_history("ana")
        with closing(apsw.Connection(str(path))) as newer:
            newer.execute("ALTER TABLE entry RENAME COLUMN batch_size TO entries")
        with pytest.raises(MemoryStoreError) as refused:
            store.add_message("ana", "user", "after it")
        assert refused.value.landed == "no"
        with closing(apsw.Connection(str(path))) as newer:
            newer.execute("ALTER TABLE entry RENAME COLUMN entries TO batch_size")
        assert store.get_history("ana") == before
    assert run_in_process(formats.contents, path)["ok"]


def test_reindex_completes_the_index_of_a_file(path, run_in_process):
    assert run_in_process(formats.contents, path) == EXPECTED
    added = run_in_process(formats.reindex, path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM unindexed").fetchone() == (0,)
        ((entries,),) = db.execute("SELECT count(*) FROM entry WHERE kind IN (1, 4, 5)")
        ((indexed,),) = db.execute("SELECT count(*) FROM entry_words_docsize")
        assert indexed == entries
        ((version,),) = db.execute("SELECT value FROM about WHERE name = 'oldest_format'")
        assert added in (0, entries)
        assert version == FORMAT
    assert run_in_process(formats.contents, path) == EXPECTED
