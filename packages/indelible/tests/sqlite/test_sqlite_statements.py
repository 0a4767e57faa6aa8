"""How little is asked of SQLite: what each verb runs, and what an open leaves alone."""

from __future__ import annotations

import shutil

import pytest

from indelible import MemoryStore
from tests.support.sqlite.seams import blocking


class Heard:
    """A seam that writes down how every statement begins."""

    def __init__(self):
        self.words = []

    def __call__(self, statement, call):
        self.words.append(statement.split()[0])
        return call()


@pytest.fixture
def heard():
    return Heard()


@pytest.fixture
def store(path, heard):
    with blocking(path, seam=heard) as store:
        store.add_message("s", "user", "one")
        yield store


def asked(heard, verb):
    heard.words.clear()
    verb()
    return heard.words


def test_an_append_and_a_snapshot_look_once(store: MemoryStore, heard):
    once = ["BEGIN", "SELECT", "INSERT", "COMMIT"]
    # The entry, how many wait to be indexed, and that it waits too.
    written = ["BEGIN", "SELECT", "INSERT", "SELECT", "INSERT", "COMMIT"]
    assert asked(heard, lambda: store.add_message("s", "user", "two")) == written
    assert asked(heard, lambda: store.save_snapshot("s")) == once


def test_an_append_looks_for_an_earlier_attempt_only_with_a_callers_key(store: MemoryStore, heard):
    keyed = asked(heard, lambda: store.add_message("s", "user", "two", key="mine"))
    assert keyed == ["BEGIN", "SELECT", "SELECT", "SELECT", "INSERT", "SELECT", "INSERT", "COMMIT"]


def test_a_rollback_looks_for_an_earlier_attempt_only_with_a_callers_key(store: MemoryStore, heard):
    taken = store.save_snapshot("s").id
    plain = ["BEGIN", "SELECT", "SELECT", "UPDATE", "INSERT", "COMMIT"]
    assert asked(heard, lambda: store.rollback_to_snapshot("s", taken)) == plain
    keyed = asked(heard, lambda: store.rollback_to_snapshot("s", taken, key="mine"))
    assert keyed.count("SELECT") > plain.count("SELECT")
    assert store.rollback_to_snapshot("s", taken, key="mine").replayed


def test_the_last_messages_are_two_looks_in_one_state(store: MemoryStore, heard):
    store.get_history("s", last=20)
    read = ["BEGIN", "SELECT", "SELECT", "END"]
    assert asked(heard, lambda: store.get_history("s", last=20)) == read


def test_an_open_after_a_crash_copies_nothing_into_the_file(store: MemoryStore, path, tmp_path):
    left = tmp_path / "left"
    left.mkdir()
    # What a killed writer leaves: a file, and a log that nobody has copied into it.
    for end in ("", "-wal"):
        shutil.copy(path.with_name(path.name + end), left / (path.name + end))
    file, log = left / path.name, left / (path.name + "-wal")
    before = [(each.stat().st_size, each.stat().st_mtime_ns) for each in (file, log)]
    assert before[1][0] > 0
    with blocking(file) as again:
        assert [(each.stat().st_size, each.stat().st_mtime_ns) for each in (file, log)] == before
        assert [message.content for message in again.get_history("s")] == ["one"]
    assert not log.exists()
