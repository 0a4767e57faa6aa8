"""The file: created for its owner alone, recognised, or refused as it is."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys

import apsw
import pytest

import indelible
from indelible import (
    BusyError,
    FormatError,
    MemoryStoreBackendError,
    UnavailableError,
    UnsupportedError,
    UsageError,
)
from indelible.backends.sqlite.schema import APPLICATION_ID, FORMAT
from tests.support.sqlite.seams import beside, blocking, database_of


def mode_of(path):
    return oct(path.stat().st_mode & 0o777)


def every_byte(directory):
    """The files of a directory, each with a digest of its bytes."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()
    }


def contents(store, session="session"):
    return [message.content for message in store.get_history(session)]


def create(path, *entries):
    with indelible.open(path) as store:
        for content in entries:
            store.add_message("session", "user", content)


def test_a_new_file_and_its_log_can_be_read_by_their_owner_alone(path):
    with indelible.open(path) as store:
        store.add_message("session", "user", "one")
        store.get_history("session")
        for part in ("", "-wal", "-shm"):
            assert mode_of(path.with_name(path.name + part)) == "0o600", part


def test_a_file_can_be_named_by_any_object_that_is_a_path(path):
    create(path, "one")
    (entry,) = (each for each in os.scandir(path.parent) if each.name == path.name)
    with indelible.open(entry) as store:
        assert contents(store) == ["one"]


def test_a_path_in_bytes_is_refused(path):
    create(path, "one")
    folder, name = os.fsencode(path.parent), os.fsencode(path.name)
    (entry,) = (each for each in os.scandir(folder) if each.name == name)
    with pytest.raises(UsageError):
        indelible.open(entry)


def test_a_file_that_is_there_keeps_its_mode(path):
    path.touch(0o644)
    path.chmod(0o644)
    create(path, "one")
    assert mode_of(path) == "0o644"


def test_a_closed_file_stands_alone(path):
    create(path, "one")
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_file_says_whose_it_is(path):
    create(path, "one")
    with beside(path) as file:
        assert file.pragma("application_id") == APPLICATION_ID
        assert APPLICATION_ID.to_bytes(4) == b"indl"
        assert file.pragma("user_version") == FORMAT
        about = file.execute("SELECT value FROM about WHERE name = 'oldest_format'").fetchall()
        assert about == [(FORMAT,)]
        assert file.pragma("journal_mode") == "wal"


def test_an_empty_file_becomes_a_store(path):
    path.touch()
    create(path, "one")
    with indelible.open(path) as store:
        assert contents(store) == ["one"]


@pytest.mark.parametrize(
    "look", ["PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_schema"]
)
def test_a_file_that_another_creates_while_we_look_at_it_is_not_taken_for_a_foreign_one(path, look):
    others = []

    def seam(statement, call):
        if statement == look and not others:
            try:
                others.append(blocking(path, busy_timeout_s=0.1))
                others[0].add_message("session", "user", "theirs")
            except BusyError:
                others.append(None)
        return call()

    with blocking(path, seam=seam) as store:
        store.add_message("session", "user", "ours")
        assert contents(store)[-1] == "ours"
    assert others, "nobody came in between"
    if others[0] is not None:
        others[0].close()


def make_foreign(path):
    with beside(path) as file:
        file.execute("CREATE TABLE theirs (a); INSERT INTO theirs VALUES (1)")


def make_foreign_in_wal(path):
    with beside(path) as file:
        file.pragma("journal_mode", "wal")
        file.execute("CREATE TABLE theirs (a); INSERT INTO theirs VALUES (1)")


def make_claimed(path):
    with beside(path) as file:
        file.pragma("application_id", 12345)


def make_versioned(path):
    with beside(path) as file:
        file.pragma("user_version", 7)


def make_text(path):
    path.write_text("Dear diary,\n" * 500)


def make_short_text(path):
    path.write_text("Dear diary")


def make_garbled(path):
    create(path, "one")
    header = b"\x00" * 100
    path.write_bytes(header + path.read_bytes()[100:])


def make_newer(path):
    create(path, "one")
    with beside(path) as file:
        file.execute(f"UPDATE about SET value = {FORMAT + 1} WHERE name = 'oldest_format'")
        file.pragma("user_version", FORMAT + 1)


def make_silent(path):
    create(path, "one")
    with beside(path) as file:
        file.execute("DELETE FROM about")


def make_unclear(path):
    create(path, "one")
    with beside(path) as file:
        file.execute("UPDATE about SET value = 'one'")


def make_hollow(path):
    with beside(path) as file:
        file.pragma("application_id", APPLICATION_ID)


REFUSED = [
    make_foreign,
    make_foreign_in_wal,
    make_claimed,
    make_versioned,
    make_text,
    make_short_text,
    make_garbled,
    make_newer,
    make_silent,
    make_unclear,
    make_hollow,
]


@pytest.mark.parametrize("make", REFUSED)
def test_a_file_that_is_not_for_us_is_refused_and_no_byte_of_it_changes(path, make):
    make(path)
    before = every_byte(path.parent)
    with pytest.raises(FormatError) as caught:
        indelible.open(path)
    assert str(path) in str(caught.value)
    assert every_byte(path.parent) == before


@pytest.mark.parametrize("make", REFUSED)
async def test_the_async_door_refuses_the_same_files(path, make):
    make(path)
    before = every_byte(path.parent)
    with pytest.raises(FormatError):
        await indelible.open_async(path)
    assert every_byte(path.parent) == before


def test_a_file_that_is_too_new_names_both_formats(path):
    make_newer(path)
    with pytest.raises(FormatError, match="newer indelible") as caught:
        indelible.open(path)
    assert (caught.value.format, caught.value.oldest) == (FORMAT + 1, FORMAT + 1)


LEAVE_A_LOG = """
import os, signal, sys
import apsw
file = apsw.Connection(sys.argv[1])
file.pragma("journal_mode", "wal")
file.execute(sys.argv[2])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize(
    ("make", "change"),
    [
        (make_newer, "INSERT INTO about VALUES ('more', 1)"),
        (make_foreign, "INSERT INTO theirs VALUES (2)"),
    ],
)
def test_a_refused_file_keeps_the_log_that_its_own_program_left(
    path, tmp_path, make, change, linked
):
    make(path)
    opened = path
    if linked:
        opened = tmp_path / "link.db"
        opened.symlink_to(path)
    crashed = subprocess.run([sys.executable, "-c", LEAVE_A_LOG, str(path), change], check=False)
    assert crashed.returncode == -signal.SIGKILL
    log = path.with_name(path.name + "-wal")
    before = path.read_bytes(), log.read_bytes()
    assert before[1]
    with pytest.raises(FormatError):
        indelible.open(opened)
    assert (path.read_bytes(), log.read_bytes()) == before


def test_a_newer_file_that_says_that_we_can_use_it_works(path):
    create(path, "one")
    with beside(path) as file:
        file.pragma("user_version", FORMAT + 1)
        file.execute("CREATE TABLE news (a)")
    create(path, "two")
    with indelible.open(path) as store:
        assert contents(store) == ["one", "two"]
    with beside(path) as file:
        assert file.pragma("user_version") == FORMAT + 1


def test_a_copy_in_another_journal_mode_opens_and_works(path, tmp_path):
    create(path, "one")
    copy = tmp_path / "copy.db"
    with beside(path) as file:
        file.execute("VACUUM INTO ?", (str(copy),))
    with beside(copy) as file:
        assert file.pragma("journal_mode") == "delete"
    create(copy, "two")
    with indelible.open(copy) as store:
        assert contents(store) == ["one", "two"]
    with indelible.open(path) as store:
        assert contents(store) == ["one"]


def test_a_file_without_its_log_and_one_with_it_are_each_a_whole_state(path, tmp_path):
    with indelible.open(path) as store:
        store.add_message("session", "user", "one")
        both = tmp_path / "both.db"
        shutil.copy(path, both)
        shutil.copy(f"{path}-wal", f"{both}-wal")
    with indelible.open(both) as copied:
        assert contents(copied) == ["one"]


def test_a_directory_is_a_mistake(tmp_path):
    for folder in (tmp_path, "/", "sqlite:////"):
        with pytest.raises(UsageError, match="is a directory"):
            indelible.open(folder)


def test_a_missing_directory_is_no_error_to_retry_and_is_not_created(tmp_path):
    with pytest.raises(MemoryStoreBackendError, match=r"there is no folder .*missing") as caught:
        indelible.open(tmp_path / "missing" / "agent.db")
    assert not caught.value.retryable
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    assert list(tmp_path.iterdir()) == []


def test_a_link_to_nowhere_is_unavailable(tmp_path, path):
    path.symlink_to(tmp_path / "missing" / "agent.db")
    with pytest.raises(UnavailableError):
        indelible.open(path)


def test_a_link_opens_the_file_that_it_leads_to(tmp_path, path):
    create(tmp_path / "real.db", "one")
    path.symlink_to(tmp_path / "real.db")
    create(path, "two")
    with indelible.open(tmp_path / "real.db") as store:
        assert contents(store) == ["one", "two"]


def test_a_relative_path_survives_a_change_of_directory(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with indelible.open("agent.db") as store:
        store.add_message("session", "user", "one")
        monkeypatch.chdir(tmp_path / "elsewhere")
        store.add_message("session", "user", "two")
        assert contents(store) == ["one", "two"]
    assert list((tmp_path / "elsewhere").iterdir()) == []
    with indelible.open(tmp_path / "agent.db") as store:
        assert contents(store) == ["one", "two"]


def test_the_urls_of_a_file_name_the_same_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["sqlite:///agent.db", f"sqlite:///{tmp_path}/agent.db", "agent.db", "./agent.db"]
    for number, name in enumerate(names):
        with indelible.open(name) as store:
            store.add_message("session", "user", name)
            assert contents(store) == names[: number + 1]
    assert [file.name for file in tmp_path.iterdir()] == ["agent.db"]


@pytest.mark.parametrize("name", ["what is this?.db", "50%.db", "file:x.db", "naïve #1&mode=ro.db"])
def test_a_name_is_a_name_whatever_stands_in_it(tmp_path, name):
    create(tmp_path / name, "one")
    assert [file.name for file in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("durability", "level"), [(None, 2), ("power", 2), ("process", 1), ("none", 1)]
)
def test_the_file_is_synced_as_the_durability_demands(path, durability, level):
    with indelible.open(path, durability=durability) as store:
        store.add_message("session", "user", "one")
        file = database_of(store).writer._connection._db
        assert file.pragma("synchronous") == level
        assert file.pragma("journal_mode") == "wal"
        assert file.pragma("secure_delete") == 1
        claimed = store.claims().durability
        assert claimed == ("power" if level == 2 else "process")


def test_no_file_can_be_replicated(path):
    with pytest.raises(UnsupportedError):
        indelible.open(path, durability="replicated")
    assert not path.exists()


@pytest.mark.parametrize("system", ["memdb", "unix-dotfile", "unix-none"])
def test_a_file_system_on_which_files_cannot_be_shared_is_refused(path, system):
    usual = apsw.vfs_names()[0]
    apsw.set_default_vfs(system)
    try:
        with pytest.raises(UnsupportedError, match="shared memory"):
            indelible.open(path)
    finally:
        apsw.set_default_vfs(usual)
    create(path, "one")


def test_namespaces_do_not_meet(path):
    names = ["", "a", "b", "a b"]
    stores = {name: indelible.open(path, namespace=name) for name in names}
    for name, store in stores.items():
        for number in range(2):
            receipt = store.add_message("session", "user", f"{name}{number}", key=f"key{number}")
            assert receipt.positions.start == number
        store.save_snapshot("session")
    stores["a"].clear("session")
    assert contents(stores["a"]) == []
    for name in ("", "b", "a b"):
        assert contents(stores[name]) == [f"{name}0", f"{name}1"]
        assert stores[name].list_sessions().ids == ["session"]
    stores["b"].add_message("only here", "user", "one")
    assert stores[""].session("only here").status == "new"
    assert stores["b"].clear_all() == 2
    assert contents(stores[""]) == ["0", "1"]
    for store in stores.values():
        store.close()


def test_long_ids_are_told_apart_by_their_last_letter(path):
    with indelible.open(path) as store:
        ids = ["x" * 511 + last for last in "abc"] + ["é" * 255 + last for last in "ab"]
        for session in ids:
            store.add_message(session, "user", session[-1])
            store.add_message(session, "user", "again")
        assert [contents(store, session)[0] for session in ids] == list("abcab")
        assert sorted(store.list_sessions().ids) == sorted(ids)
