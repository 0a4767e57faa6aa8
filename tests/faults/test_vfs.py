"""The disk below SQLite: both libraries go through it, and it does what it is told."""

import apsw
import pytest

from memory_contract import Adapter
from memory_contract.faults.vfs.faulty_disk import FaultyDisk
from memory_contract.faults.vfs.images import build_final_files, read_files
from memory_contract.workers.pool import StoreRaised, WorkerLost, WorkerPool


class ByApsw:
    """A file of apsw's SQLite."""

    def __init__(self, workspace):
        self._db = apsw.Connection(str(workspace / "a.db"))
        self._db.execute("CREATE TABLE IF NOT EXISTS word (text)")

    def append(self, session, messages):
        self._db.execute("INSERT INTO word VALUES (?)", (session,))

    def read(self, session):
        return [row[0] for row in self._db.execute("SELECT text FROM word")]


class ByStandard:
    """A file of the standard library's SQLite."""

    def __init__(self, workspace):
        import sqlite3

        self._db = sqlite3.connect(workspace / "a.db", isolation_level=None)
        self._db.execute("CREATE TABLE IF NOT EXISTS word (text)")

    append, read = ByApsw.append, ByApsw.read


@pytest.fixture(params=[ByApsw, ByStandard])
def worker_pool(request):
    worker_pool = WorkerPool(Adapter(open=f"{request.param.__module__}:{request.param.__name__}"))
    yield worker_pool
    worker_pool.close()


@pytest.fixture
def equipped(worker_pool, tmp_path):
    """A process with a disk of ours that has opened the file."""

    def install_plugin(**options):
        worker = worker_pool.start_worker()
        worker.ask("install_plugin", FaultyDisk(tmp_path, **options))
        worker.ask("open", tmp_path, "blocking")
        return worker

    return install_plugin


def append(worker, text="a word"):
    worker.ask("call", "append", (text, []), {})


def read(worker):
    return worker.ask("call", "read", ("",), {})


def test_what_was_written_can_be_put_together_again(equipped, tmp_path):
    worker = equipped(remember=True)
    for _ in range(3):
        append(worker, "x" * 3000)
    changes = worker.call_plugin("changes")
    assert {change.what for change in changes} >= {"create", "write", "sync", "delete"}
    assert build_final_files(changes, {}) == read_files(tmp_path)
    assert worker.call_plugin("missing") == ""


@pytest.mark.parametrize("kind", ["open", "write", "sync", "delete"])
def test_a_call_fails_once(equipped, kind):
    worker = equipped()
    append(worker)
    worker.call_plugin("fail", (kind,), 1, False, True)
    with pytest.raises(StoreRaised):
        append(worker, "lost")
    append(worker, "kept")
    assert len(worker.call_plugin("heal")) == 1
    assert "kept" in read(worker)


def test_a_full_disk_stays_full_until_there_is_room(equipped):
    worker = equipped()
    worker.call_plugin("fail", ("write",), 1, True, False)
    for _ in range(2):
        with pytest.raises(StoreRaised, match="full"):
            append(worker, "lost")
    assert len(worker.call_plugin("heal")) >= 2
    append(worker, "kept")
    assert read(worker) == ["kept"]


def test_a_process_ends_at_the_step_that_was_named(equipped, worker_pool, tmp_path):
    worker = equipped()
    append(worker, "kept")
    before = worker.call_plugin("steps")
    append(worker, "kept too")
    steps = worker.call_plugin("steps") - before
    worker.call_plugin("kill_at_step", steps + 1)
    append(worker, "also kept")
    with pytest.raises(WorkerLost):
        append(worker, "lost")
    reader = worker_pool.start_worker()
    reader.ask("open", tmp_path, "blocking")
    assert read(reader) == ["kept", "kept too", "also kept"]
