"""The command that carries sessions from one store into another."""

import json
import subprocess
import sys

import apsw
import pytest

import indelible
from tests.support.prepared_store import NINE_O_CLOCK
from tests.support.terminal import at_a_terminal
from tests.support.transcripts import environment


def exported(path):
    """All that a store holds, as text."""
    with indelible.open(path) as store:
        store.export(path.with_suffix(".jsonl"))
    return path.with_suffix(".jsonl").read_text("utf-8")


def test_sessions_are_copied_compared_and_never_overwritten(command, golden):
    command("copy", "agent.db", "copy.db", "--dry-run")
    command("copy", "agent.db", "copy.db", code=2)
    assert not (command.folder / "copy.db").exists()
    command("copy", "agent.db", "copy.db", "--session", "bob", "--yes")
    command("copy", "agent.db", "copy.db", "--dry-run")
    command("copy", "agent.db", "copy.db", "--yes")
    assert exported(command.folder / "copy.db") == exported(command.folder / "agent.db")
    command("copy", "agent.db", "sqlite:///copy.db", "--yes", "--json")
    command("append", "bob", "user", "And this?", "--key", "k", "--url", "copy.db")
    before = exported(command.folder / "copy.db")
    command("copy", "agent.db", "copy.db", "--yes", code=1)
    command("copy", "agent.db", "copy.db", "--dry-run", "--json", code=1)
    golden()
    assert exported(command.folder / "copy.db") == before


def test_a_copy_that_cannot_be_is_refused_and_makes_no_file(command, golden):
    (command.folder / "notes.txt").write_text("buy milk, and bread, and something to read\n" * 9)
    (command.folder / "same.db").symlink_to("agent.db")
    before = sorted(command.folder.iterdir())
    command("copy", "agent.db", "sqlite:///agent.db", "--yes", code=2)
    command("copy", "agent.db", "./same.db", "--yes", code=2)
    command("copy", "agent.db", "memory:", "--yes", code=2)
    command("copy", "", "copy.db", "--yes", code=2)
    command("copy", "agent.db", "copy.db", "--session", "ada", "--prefix", "a", "--yes", code=2)
    command("copy", "agent.db", "copy.db", "--session", "nobody", "--yes", code=1)
    command("copy", "agent.db", "notes.txt", "--yes", code=1)
    command("copy", "missing.db", "copy.db", "--yes", code=4)
    command("copy", "agent.db", "", "--yes", code=2)
    command("copy", "agent.db", "copy.db", "--url", "other.db", "--yes", code=2)
    command("copy", "agent.db", "no/such/copy.db", "--yes", code=4)
    command("copy", "agent.db", "copy.db", "--prefix", "z", "--yes")
    golden()
    assert sorted(command.folder.iterdir()) == before


def test_namespaces_are_of_both_stores_unless_one_is_named_apart(command, golden):
    command("copy", "agent.db", "agent.db", "--to-namespace", "b", "--yes")
    command("copy", "agent.db", "copy.db", "--namespace", "b", "--prefix", "a", "--yes")
    command("copy", "agent.db", "copy.db", "--namespace", "b", "--to-namespace", "", "--yes")
    command("sessions", "--url", "copy.db", "--namespace", "b")
    command("sessions", "--url", "copy.db")
    command("append", "ada", "user", "Wait.", "--key", "k", "--url", "copy.db", "--namespace", "b")
    command("copy", "agent.db", "copy.db", "--namespace", "b", "--yes", code=1)
    command("copy", "agent.db", "agent.db", "--namespace", "b", "--to-namespace", "b", code=2)
    golden()


def test_damage_goes_along_or_is_named_and_keeps_no_other_session_back(command, corrupt, golden):
    with indelible.open(command.folder / "agent.db") as store:
        store.add_message("cid", "user", "hello")
    with indelible.open(command.folder / "agent.db", clock=lambda: NINE_O_CLOCK) as store:
        store.add_message("dan", "user", "hello", ttl=60)
    with apsw.Connection(str(command.folder / "agent.db")) as connection:
        connection.execute("UPDATE session SET metadata = x'00' WHERE name = 'cid'")
    connection.close()
    command("copy", "agent.db", "copy.db", "--yes", code=1)
    command("verify", "--url", "copy.db", code=1)
    command("copy", "agent.db", "copy.db", "--session", "dan", "--yes", code=1)
    command("repair", "ada", "--yes")
    command("copy", "agent.db", "mended.db", "--prefix", "a", "--yes")
    golden()
    with indelible.open(command.folder / "copy.db") as copy:
        assert copy.list_sessions().ids == ["ada", "bob"]


# The command itself, in a process that is killed at a given step of its progress.
KILLED = """
import contextlib, itertools, os, signal, sys
from indelible.cli import main, transfer_commands
left = itertools.count(int(sys.argv.pop(1)), -1)

@contextlib.contextmanager
def shown(doing):
    yield lambda session, entries: next(left) or os.kill(os.getpid(), signal.SIGKILL)

transfer_commands.show_progress = shown
main.run()
"""


@pytest.mark.parametrize("told", range(6))
def test_a_copy_that_was_killed_is_finished_by_running_it_again(command, store, told):
    store.fork("ada", "cid")
    line = ("copy", "agent.db", "copy.db", "--yes")
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(told), *line],
        cwd=command.folder,
        env=environment(),
        check=False,
        timeout=240,
    )
    assert killed.returncode == -9
    # Of each session it is told when it is there, and when it was read back.
    there = min(told + 1, 3)
    done = json.loads(command(*line, "--json").out)
    assert (done["ok"], done["sessions"], done["equal"]) == (True, 3 - there, there)
    assert exported(command.folder / "copy.db") == exported(command.folder / "agent.db")


# The command itself, with a target that is lost after some imports.
LOST = """
import indelible
from indelible.cli.main import run
imported, import_ = [], indelible.MemoryStore.import_

def lost(store, source):
    if imported:
        raise indelible.UnavailableError("copy.db cannot be reached; nothing was written")
    imported.append(True)
    return import_(store, source)

indelible.MemoryStore.import_ = lost
run()
"""


def test_a_store_that_is_lost_under_way_ends_the_command_with_what_is_there(command):
    line = ("copy", "agent.db", "copy.db", "--yes")
    lost = command(*line, python=("-c", LOST), code=4)
    assert lost.err.startswith("Error: copy.db cannot be reached; nothing was written. 1 session ")
    assert "run it again" in lost.err
    assert "1 session was there already, and equal." in command(*line).out


def test_a_folder_for_temporary_files_that_is_full_is_told_of(command):
    full = """
import tempfile
from indelible.cli.main import run

def full(*args, **options):
    raise OSError(28, "No space left on device")

tempfile.TemporaryFile = full
run()
"""
    done = command("copy", "agent.db", "copy.db", "--yes", python=("-c", full), code=4)
    assert "A temporary file cannot be used: No space left on device." in done.err


def test_a_copy_asks_and_shows_its_progress(command):
    code, out, shown = at_a_terminal(command, "copy", "agent.db", "copy.db", answer="y\n")
    assert code == 0
    assert out == "Copied 2 sessions, 11 entries and 1 snapshot, and read them back.\n"
    assert "This copies sessions from agent.db into copy.db." in shown
    assert "Copying" in shown
    assert "22 entries" in shown


def test_the_shell_completes_ids_of_the_source(command):
    line = "indelible copy agent.db copy.db --session a"
    words = {"_INDELIBLE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": "5"}
    assert command(env=words).out.split() == ["ada"]
    assert not (command.folder / "copy.db").exists()
