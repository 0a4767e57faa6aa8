"""The disk itself fails, below SQLite: what is acknowledged is synced, and what is not is told."""

from __future__ import annotations

import apsw
import pytest

from indelible import OutcomeUnknownError, UnavailableError
from tests.support.sqlite.disk import failing_disk
from tests.support.sqlite.seams import beside, blocking


@pytest.fixture
def disk():
    with failing_disk() as disk:
        yield disk


@pytest.fixture
def store(disk, path):
    with blocking(path) as store:
        store.save_context("session", "one", "two")
        disk.done.clear()
        yield store


def contents(store):
    return [message.content for message in store.get_history("session")]


def log_is_synced(disk):
    """Whether the newest bytes of the log were synced after they were written."""
    of_log = [(what, worked) for what, where, worked in disk.done if where == "log"]
    return bool(of_log) and of_log[-1] == ("sync", True)


def test_every_acknowledged_append_is_synced_first(store, disk):
    for write in (
        lambda: store.add_message("session", "user", "three"),
        lambda: store.save_context("session", "four", "five"),
        lambda: store.save_snapshot("session"),
        lambda: store.clear("session"),
    ):
        disk.done.clear()
        write()
        assert log_is_synced(disk)


WRITES = {
    "a lone append": lambda store: store.add_message("session", "user", "three"),
    "a batch": lambda store: store.save_context("session", "three", "four"),
    "a snapshot": lambda store: store.save_snapshot("session"),
    "a view change": lambda store: store.trim("session", keep_last=0),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_what_a_retry_finds_is_synced_before_it_is_acknowledged(store, disk, write):
    disk.syncs = [apsw.SQLITE_IOERR_FSYNC]
    write(store)
    assert ("sync", "log", False) in disk.done
    assert log_is_synced(disk), "acknowledged, but a power cut would take it away"


@pytest.mark.parametrize("failures", range(1, 7))
def test_however_often_syncing_fails_a_batch_lands_exactly_once(store, disk, failures):
    disk.syncs = [apsw.SQLITE_IOERR_FSYNC] * failures
    key = None
    for _ in range(failures + 1):
        try:
            receipt = store.save_context("session", "three", "four", key=key)
            break
        except OutcomeUnknownError as unknown:
            key = unknown.key
            assert contents(store) in (["one", "two"], ["one", "two", "three", "four"])
    assert receipt.positions == range(2, 4)
    assert contents(store) == ["one", "two", "three", "four"]


@pytest.mark.parametrize("code", [apsw.SQLITE_IOERR_WRITE, apsw.SQLITE_FULL])
@pytest.mark.parametrize("write", range(4))
def test_a_log_that_cannot_be_written_loses_nothing_that_was_acknowledged(
    store, disk, path, write, code
):
    disk.writes = [apsw.SQLITE_OK] * write + [code]
    try:
        receipt = store.save_context("session", "x" * 10_000, "y")
    except UnavailableError:
        assert contents(store) == ["one", "two"]
        receipt = store.save_context("session", "x" * 10_000, "y")
    assert receipt.positions == range(2, 4)
    assert contents(store) == ["one", "two", "x" * 10_000, "y"]
    store.close()
    with beside(path) as file:
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_full_disk_at_the_commit_stores_nothing(store, disk):
    disk.writes = [apsw.SQLITE_FULL] * 3
    for _ in range(3):
        with pytest.raises(UnavailableError) as caught:
            store.save_context("session", "three", "four")
        assert caught.value.code == apsw.SQLITE_FULL
        assert caught.value.landed == "no"
        assert contents(store) == ["one", "two"]
    assert store.save_context("session", "three", "four").positions == range(2, 4)
