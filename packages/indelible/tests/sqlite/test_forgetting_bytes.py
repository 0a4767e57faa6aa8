"""What was forgotten is in no byte of the file or of its log, also when pages were rearranged."""

import random
import subprocess
import sys

import pytest

import indelible
from indelible.core.operations import Erase

MARKS = (b"SECRETTEXT", b"SECRETKEY", b"SECRETLABEL", b"SECRETMETA", b"SECRETNAME", b"SECRETCALL")
VICTIM = "victim-SECRETNAME"

READER = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN")
connection.execute("SELECT count(*) FROM entry").fetchall()
print("reading", flush=True)
sys.stdin.readline()
"""


def stored_bytes(path):
    """The file and its write-ahead log, as a thief would find them."""
    parts = (path, path.with_name(path.name + "-wal"))
    return b"".join(part.read_bytes() for part in parts if part.exists())


def hits(path):
    data = stored_bytes(path)
    return {mark: data.count(mark) for mark in MARKS if mark in data}


def live(store, rng):
    """A busy store in which the victim's rows move between pages, overflow, and are trimmed."""
    names = [VICTIM, "other-1", "other-2", "other-3"]
    for turn in range(250):
        name = rng.choice(names)
        size = rng.choice([10, 100, 500, 1500, 5000, 20_000])
        secret = name == VICTIM
        text = f"SECRETTEXT{turn} " * (size // 12 + 1) if secret else "x" * size
        key = f"SECRETKEY{turn}" if secret and rng.random() < 0.5 else None
        store.add_message(name, "user", text, key=key)
        if rng.random() < 0.05:
            store.save_snapshot(name, label="SECRETLABEL" if secret else None)
        if rng.random() < 0.03:
            store.trim(name, keep_last=5)
        if rng.random() < 0.02:
            store.vacuum(undo_window=0)
    store.save_snapshot(VICTIM, label="SECRETLABEL")
    store.set_metadata(VICTIM, {"who": "SECRETMETA"})
    store.add_tool_call(VICTIM, "SECRETCALL", "search")
    store.add_summary(VICTIM, "SECRETTEXT in short", [0.1, 0.2])


@pytest.mark.parametrize("seed", [3, 21, 34])
def test_nothing_of_a_forgotten_session_is_left_in_the_file_or_its_log(tmp_path, seed):
    path = tmp_path / "agent.db"
    with indelible.open(path, durability="process") as store:
        live(store, random.Random(seed))
        others = {name: store.get_history(name) for name in ("other-1", "other-2", "other-3")}
        assert hits(path).keys() == set(MARKS)
        receipt = store.forget(VICTIM)
        assert not receipt.pending
        assert receipt.left == ()
        assert receipt.entries > 0
        assert hits(path) == {}
        assert {name: store.get_history(name) for name in others} == others
        assert store.session(VICTIM).status == "new"
        assert store.verify().findings == ()


def test_while_another_process_reads_the_receipt_is_pending_and_says_where_bytes_are(tmp_path):
    path = tmp_path / "agent.db"
    with indelible.open(path, durability="process", busy_timeout_s=0.05) as store:
        store.add_message(VICTIM, "user", "SECRETTEXT")
        command = [sys.executable, "-c", READER, str(path)]
        with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as reader:
            assert reader.stdout.readline() == "reading\n"
            receipt = store.forget(VICTIM)
            assert receipt.pending
            assert "write-ahead log" in receipt.left[0]
            # Out of reach of every call all the same.
            assert store.session(VICTIM).status == "new"
            assert hits(path)
            reader.communicate("done\n")
        again = store.forget(VICTIM)
        assert not again.pending
        assert hits(path) == {}


def neighbours(store):
    """Three sessions that grow side by side, so that rows move between pages; a seed that shows."""
    rng = random.Random(7)
    for _ in range(60):
        for name in ("before", VICTIM, "behind"):
            text = "SECRETTEXT" * (rng.choice([500, 1500]) // 10)
            store.add_message(name, "user", text if name == VICTIM else "x" * len(text))


def test_deleting_rows_alone_leaves_copies_in_the_free_part_of_pages(tmp_path):
    """Why forgetting rewrites the file. If this fails, the rewrite may no longer be needed."""
    path = tmp_path / "agent.db"
    with indelible.open(path, durability="process") as store:
        neighbours(store)
        store._backend.perform(Erase(VICTIM))
    assert hits(path)


def test_forgetting_leaves_no_copy_in_the_free_part_of_pages(tmp_path):
    path = tmp_path / "agent.db"
    with indelible.open(path, durability="process") as store:
        neighbours(store)
        store.forget(VICTIM)
        assert hits(path) == {}


def test_a_receipt_names_the_forks_which_stay(tmp_path):
    with indelible.open(tmp_path / "agent.db") as store:
        store.add_message("origin", "user", "hello")
        store.fork("origin", "copy-b")
        store.fork("origin", "copy-a")
        receipt = store.forget("origin")
        assert receipt.forks == ("copy-a", "copy-b")
        assert [message.content for message in store.get_history("copy-a")] == ["hello"]
