"""A file is taken as a new process would see it, and is left as it is."""

import hashlib
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing, nullcontext

import apsw
import pytest

from pytest_snapshot_db import copy_live
from pytest_snapshot_db.copy_live import copy_database
from pytest_snapshot_db.errors import GoldenError
from tests.support.golden_files import make


def rows(path):
    with closing(sqlite3.connect(path)) as db:
        return [a for (a,) in db.execute("SELECT a FROM t ORDER BY rowid")]


def everything(folder):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}


@pytest.fixture
def place(tmp_path):
    (tmp_path / "theirs").mkdir()
    return tmp_path / "theirs" / "a.db"


@pytest.fixture
def copy(tmp_path):
    return tmp_path / "copy.db"


@pytest.mark.parametrize("mode", ["wal", "delete", "truncate", "persist"])
def test_what_was_committed_is_there_and_what_was_not_is_not(place, copy, mode):
    make(place, f"PRAGMA journal_mode = {mode}; CREATE TABLE t (a)", (1,))
    with closing(sqlite3.connect(place, isolation_level=None)) as db:
        db.execute("INSERT INTO t VALUES (2)")
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO t VALUES (3)")
        assert copy_database(place, copy) == ("wal" if mode == "wal" else "delete")
        assert rows(copy) == [1, 2]
        db.execute("COMMIT")
    assert rows(place) == [1, 2, 3]


def test_a_copy_stands_alone_and_the_original_keeps_its_bytes(place, copy):
    make(place, "PRAGMA journal_mode = wal; CREATE TABLE t (a)", (1,))
    before = everything(place.parent)
    copy_database(place, copy)
    assert rows(copy) == [1]
    assert everything(place.parent) == before
    assert sorted(p.name for p in copy.parent.iterdir()) == ["copy.db", "theirs"]


LEAVE = """
import os, signal, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA cache_size = 1")
for statement in sys.argv[2:]:
    db.execute(statement)
os.kill(os.getpid(), signal.SIGKILL)
"""


def leave(path, *statements):
    """What a process leaves behind that was killed after these statements."""
    subprocess.run([sys.executable, "-c", LEAVE, str(path), *statements], check=False)


def test_a_log_without_checkpoint_is_copied(place, copy):
    make(place, "PRAGMA journal_mode = wal; CREATE TABLE t (a)", (1,))
    leave(place, "INSERT INTO t VALUES (2)")
    # As somebody copies it who knows of the log, and not of the shared memory.
    place.with_name("a.db-shm").unlink()
    before = place.read_bytes(), place.with_name("a.db-wal").read_bytes()
    copy_database(place, copy)
    assert rows(copy) == [1, 2]
    assert (place.read_bytes(), place.with_name("a.db-wal").read_bytes()) == before


def test_a_hot_journal_is_rolled_back_in_the_copy_alone(place, copy):
    make(place, "CREATE TABLE t (a)", *((number,) for number in range(500)))
    spill = "UPDATE t SET a = a || hex(zeroblob(2000))"
    leave(place, "BEGIN", spill)
    assert place.with_name("a.db-journal").stat().st_size
    before = everything(place.parent)
    copy_database(place, copy)
    assert rows(copy) == list(range(500))
    assert everything(place.parent) == before


def test_copying_does_not_drop_the_locks_of_this_process(place, copy):
    make(place, "CREATE TABLE t (a)", (1,))
    with closing(sqlite3.connect(place, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO t VALUES (2)")
        copy_database(place, copy)
        code = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], timeout=0)"
        code += "; db.execute('BEGIN IMMEDIATE')"
        other = subprocess.run(
            [sys.executable, "-c", code, str(place)], capture_output=True, text=True, check=False
        )
        assert "database is locked" in other.stderr
        db.execute("COMMIT")
    assert rows(place) == [1, 2]


def test_a_file_that_nobody_has_open_here_needs_no_other_process(place, copy, monkeypatch):
    make(place, "CREATE TABLE t (a)", (1,))
    monkeypatch.setattr(subprocess, "run", None)
    copy_database(place, copy)
    assert rows(copy) == [1]


def test_a_writer_that_keeps_its_lock_is_reported(place, copy, monkeypatch):
    monkeypatch.setattr(copy_live, "BUSY_MS", 1)
    make(place, "CREATE TABLE t (a)", (1,))
    with closing(apsw.Connection(str(place))) as db:
        db.execute("BEGIN EXCLUSIVE")
        # In this process, as if it were another's: its lock is its own.
        monkeypatch.setattr(copy_live, "_is_open_here", lambda path: False)
        with pytest.raises(GoldenError, match="locked by a writer"):
            copy_database(place, copy)


def test_a_full_disk_is_reported(place, copy, monkeypatch):
    def full(*_):
        raise apsw.FullError("not an error")

    make(place, "CREATE TABLE t (a)", (1,))
    monkeypatch.setattr(copy_live, "_backup", full)
    with pytest.raises(GoldenError, match=r"a\.db cannot be read: the disk is full"):
        copy_database(place, copy)


@pytest.mark.parametrize("held", [False, True])
def test_a_file_that_is_no_database_is_refused(tmp_path, copy, held):
    path = tmp_path / "diary.txt"
    path.write_text("Dear diary,\n" * 500)
    with (
        path.open("rb") if held else nullcontext(),
        pytest.raises(GoldenError, match="not a SQLite database"),
    ):
        copy_database(path, copy)


def test_a_missing_file_is_refused(tmp_path, copy):
    with pytest.raises(GoldenError, match="there is no file"):
        copy_database(tmp_path / "missing.db", copy)
    with pytest.raises(GoldenError, match="is not a file"):
        copy_database(tmp_path, copy)


@pytest.mark.parametrize("name", ["what is this?.db", "50%.db", "file:x.db", "naïve #1&mode=rw.db"])
def test_a_file_name_may_hold_any_character(tmp_path, copy, name):
    make(tmp_path / name, "CREATE TABLE t (a)", (1,))
    copy_database(tmp_path / name, copy)
    assert rows(copy) == [1]


def test_a_copy_can_be_set_to_wal_mode_again(place, copy, tmp_path):
    make(place, "PRAGMA journal_mode = wal; CREATE TABLE t (a)", (1,))
    copy_database(place, copy)
    shutil.copy(copy, tmp_path / "again.db")
    copy_live.set_wal_mode(tmp_path / "again.db")
    with closing(sqlite3.connect(tmp_path / "again.db")) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert rows(tmp_path / "again.db") == [1]
    assert list(place.parent.iterdir()) == [place]
