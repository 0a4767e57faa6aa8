"""An export must not replace the store that it reads, nor leave half a file behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import indelible
from indelible import UsageError
from indelible.core.plans import transfer

SIDE_FILES = ("-wal", "-shm", "-journal")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a real database, reached also by other names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real").mkdir()
    (tmp_path / "sub").mkdir()
    Path("linked").symlink_to("real")
    indelible.open("real/agent.db").close()
    Path("opened.db").symlink_to("real/agent.db")
    return tmp_path


def refuse_export(target):
    """An export to the target is refused, and what was stored stays."""
    with indelible.open("real/agent.db") as store:
        store.add_message("s", "user", "hello")
        with pytest.raises(UsageError, match="is a SQLite database that is in use"):
            store.export(target)
        assert store.verify().ok
        assert [message.content for message in store.get_history("s")] == ["hello"]


@pytest.mark.parametrize("end", ["", *SIDE_FILES])
@pytest.mark.parametrize("parent", ["real", "linked", "sub/../real", "./real/."])
def test_no_spelling_of_a_name_reaches_the_store(folder, end, parent):
    refuse_export(f"{parent}/agent.db{end}")


def test_a_link_to_a_store_is_refused(folder):
    refuse_export("opened.db")


def test_the_second_name_of_a_store_is_replaced_and_the_store_stays(folder):
    os.link("real/agent.db", "out.jsonl")
    with indelible.open("real/agent.db") as store:
        store.add_message("s", "user", "hello")
        assert store.export("out.jsonl").entries == 1
    with indelible.open("real/agent.db") as store:
        assert [message.content for message in store.get_history("s")] == ["hello"]


def test_a_store_in_which_nothing_was_done_yet_is_refused(folder):
    with (
        indelible.open("real/agent.db") as store,
        pytest.raises(UsageError, match="is in use"),
    ):
        store.export("real/agent.db")


def test_a_refused_export_leaves_the_locks_of_the_store(folder):
    """Whoever opens the file of a database and closes it drops the locks of its process."""
    change = (
        "import sqlite3; file = sqlite3.connect('real/agent.db', timeout=0);"
        " print(file.execute('PRAGMA journal_mode=delete').fetchone())"
    )
    with indelible.open("real/agent.db") as store:
        store.add_message("s", "user", "hello")
        for end in ("", *SIDE_FILES):
            with pytest.raises(UsageError):
                store.export(f"real/agent.db{end}")
        done = subprocess.run(
            [sys.executable, "-c", change], capture_output=True, text=True, check=False
        )
        assert "locked" in done.stderr


@pytest.mark.parametrize("end", SIDE_FILES)
def test_a_link_to_a_side_file_is_refused(folder, end):
    Path("out.jsonl").symlink_to(f"real/agent.db{end}")
    refuse_export("out.jsonl")


@pytest.mark.parametrize("end", ["-wal", "-shm"])
def test_the_second_name_of_a_side_file_is_replaced_and_the_file_stays(folder, end):
    with indelible.open("real/agent.db") as store:
        store.add_message("s", "user", "hello")
        before = Path(f"real/agent.db{end}").stat().st_ino
        os.link(folder / f"real/agent.db{end}", "out.jsonl")
        assert store.export("out.jsonl").entries == 1
        assert Path(f"real/agent.db{end}").stat().st_ino == before
        assert store.verify().ok
        assert [message.content for message in store.get_history("s")] == ["hello"]


def test_another_database_is_not_replaced_while_it_is_open(folder):
    with indelible.open("memory:") as store:
        store.add_message("s", "user", "hello")
        with indelible.open("real/agent.db") as other:
            other.add_message("s", "user", "hello")
            with pytest.raises(UsageError, match="is a SQLite database"):
                store.export("real/agent.db")
        with pytest.raises(UsageError, match="belongs to one"):
            store.export("real/agent.db-wal")
        assert store.export("alone-journal").entries == 1
        Path("user").mkdir()
        assert store.export("user-journal").entries == 1


async def test_an_async_store_refuses_too(tmp_path):
    path = tmp_path / "agent.db"
    async with indelible.open_async(path) as store:
        await store.add_message("s", "user", "hello")
        with pytest.raises(UsageError):
            await store.export(path)
        assert len(await store.get_history("s")) == 1


@pytest.mark.parametrize("end", SIDE_FILES)
def test_no_store_is_begun_in_a_file_that_belongs_to_another(folder, end):
    with indelible.open("real/agent.db") as store:
        store.add_message("s", "user", "hello")
    with pytest.raises(UsageError, match="belongs to the database"):
        indelible.open(f"linked/agent.db{end}")
    assert not (folder / f"real/agent.db{end}").exists()
    with indelible.open(f"alone.db{end}") as store:
        assert store.get_history("s") == []


def test_another_file_beside_it_is_fine(tmp_path):
    with indelible.open(tmp_path / "agent.db") as store:
        store.add_message("s", "user", "hello")
        assert store.export(tmp_path / "agent.jsonl").entries == 1


def test_a_symbolic_link_is_replaced_and_its_file_stays(tmp_path):
    (tmp_path / "old.jsonl").write_text("old", "utf-8")
    (tmp_path / "out.jsonl").symlink_to("old.jsonl")
    with indelible.open(tmp_path / "agent.db") as store:
        store.add_message("s", "user", "hello")
        store.export(tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").is_symlink()
    assert (tmp_path / "old.jsonl").read_text("utf-8") == "old"


KILLED = """
import os, signal, sys
import indelible

with indelible.open("memory:") as store:
    for number in range(3):
        store.add_message(f"s{number}", "user", "hello" * 10_000)
    kill = lambda session, entries: os.kill(os.getpid(), signal.SIGKILL)
    store.export(sys.argv[1], progress=kill)
"""


def test_a_killed_export_leaves_nothing_under_its_name(tmp_path):
    (tmp_path / "out.jsonl").write_text("older", "utf-8")
    for name in ("out.jsonl", "new.jsonl"):
        done = subprocess.run([sys.executable, "-c", KILLED, tmp_path / name], check=False)
        assert done.returncode == -signal.SIGKILL
    left = {path.name for path in tmp_path.iterdir()}
    assert {name for name in left if not name.startswith(transfer.PARTIAL_PREFIX)} == {"out.jsonl"}
    assert (tmp_path / "out.jsonl").read_text("utf-8") == "older"


def test_an_export_that_fails_leaves_nothing_behind(tmp_path):
    def fail(session, entries):
        raise KeyboardInterrupt

    with indelible.open("memory:") as store:
        store.add_message("s", "user", "hello")
        with pytest.raises(KeyboardInterrupt):
            store.export(tmp_path / "out.jsonl", progress=fail)
        assert list(tmp_path.iterdir()) == []
        store.export(tmp_path / "out.jsonl")
        assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]
        assert (tmp_path / "out.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_snapshot_handed_in_whole_is_told_so(tmp_path):
    with indelible.open(tmp_path / "agent.db") as store:
        snapshot = store.save_snapshot("s")
        with pytest.raises(UsageError, match=r"snapshot\.id"):
            store.rollback_to_snapshot("s", snapshot)


@pytest.mark.parametrize("end", ["", "-wal"])
def test_an_open_file_of_the_store_is_refused(folder, end):
    with indelible.open("real/agent.db") as store:
        store.add_message("s", "user", "hello")
        with (
            Path(f"real/agent.db{end}").open("r+", encoding="latin-1") as file,
            pytest.raises(UsageError, match="is a SQLite database that is in use"),
        ):
            store.export(file)
        assert store.verify().ok
        assert [message.content for message in store.get_history("s")] == ["hello"]


@pytest.mark.parametrize("mode", ["a", "r+"])
def test_a_stream_without_a_name_is_refused_if_it_writes_to_the_store(folder, mode):
    with indelible.open("real/agent.db") as store:
        store.add_message("s", "user", "hello")
        descriptor = os.open("real/agent.db", os.O_RDWR | os.O_APPEND)
        with (
            os.fdopen(descriptor, mode, encoding="latin-1") as file,
            pytest.raises(UsageError, match="is in use"),
        ):
            store.export(file)


@pytest.mark.parametrize("target", ["pipe", "sub", ""])
def test_what_is_no_file_is_not_replaced(folder, target):
    os.mkfifo("pipe")
    with indelible.open("real/agent.db") as store:
        store.add_message("s", "user", "hello")
        with pytest.raises(UsageError, match="not a regular file"):
            store.export(target)
    assert Path("pipe").is_fifo()


def test_an_export_to_bytes_is_wrong_usage(folder):
    with indelible.open("real/agent.db") as store, pytest.raises(UsageError, match="not a bytes"):
        store.export(b"out.jsonl")
