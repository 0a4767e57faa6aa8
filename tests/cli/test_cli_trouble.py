"""Stores that are missing, busy or foreign, and writes whose outcome nobody knows."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

import indelible
from memory_contract.faults.servers.valkey import ValkeyServer
from tests.support.canary import CANARY
from tests.support.prepared_store import SNAPSHOT
from tests.support.transcripts import UNKNOWN, environment

READS = [
    ("sessions",),
    ("show", "ada"),
    ("history", "ada"),
    ("snapshots", "ada"),
    ("diff", "ada", SNAPSHOT),
    ("claims",),
    ("verify",),
    ("export", "all.jsonl"),
    ("rollback", "ada", SNAPSHOT, "--dry-run"),
]
WRITES = [
    ("append", "ada", "user", "hello"),
    ("snapshot", "ada"),
    ("rollback", "ada", SNAPSHOT, "--yes"),
    ("undo", "ada", "--yes"),
    ("trim", "ada", "--before", "9", "--yes"),
    ("clear", "ada", "--yes"),
    ("fork", "ada", "copy", "--yes"),
    ("repair", "--yes"),
    ("import", "zoe.jsonl", "--yes"),
    ("vacuum", "--yes"),
    ("forget", "ada", "--yes"),
]
BEGIN_A_STORE = {"append", "import"}


def test_a_file_that_is_not_there_is_not_made(command):
    lines = [each for each in READS + WRITES if each[0] not in BEGIN_A_STORE]
    for arguments, done in command.all(lines, "--url", "missing.db", code=4):
        told = done.err.startswith("Error: There is no file missing.db, and none was made.")
        assert told, (arguments, done)
        assert done.out == "", arguments
    assert [path.name for path in command.folder.iterdir()] == ["agent.db"]


def test_a_server_that_is_not_there_is_named_with_what_to_check(command):
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        url = f"redis://ann:{CANARY}@127.0.0.1:{port}"
        for arguments, done in command.all(
            [("sessions",), ("append", "ada", "user", "hello")], "--url", url, code=4
        ):
            assert done.err.startswith(
                f"Error: redis://ann:***@127.0.0.1:{port} cannot be reached: nothing listens on"
                f" port {port} of 127.0.0.1. Nothing was written. Check the host and the port, and"
                " that the server runs.\n"
            ), (arguments, done)


def test_readers_do_not_wait_for_a_writer(command, locked):
    for arguments, done in command.all(READS, "--busy-timeout", "0"):
        assert done.out, arguments


def test_a_writer_that_waited_long_enough_says_so(command, store, request):
    store.export(command.folder / "bob.jsonl", "bob")
    other = (command.folder / "bob.jsonl").read_text("utf-8").replace('"bob"', '"zoe"')
    (command.folder / "zoe.jsonl").write_text(other, "utf-8")
    before = store.timeline("ada")
    request.getfixturevalue("locked")
    for arguments, done in command.all(WRITES, "--busy-timeout", "0.02", code=4):
        assert "nother writer held" in done.err, (arguments, done)
        assert "--busy-timeout SECONDS" in done.err, (arguments, done)
        assert done.out == "", arguments
    assert store.timeline("ada") == before


def test_a_store_must_be_named_and_be_ours(command, golden):
    command("sessions", env={"INDELIBLE_URL": ""}, code=2)
    command("sessions", "--url", "redis-ish://x", code=2)
    command("sessions", "--url", ".", code=2)
    (command.folder / "notes.txt").write_text("no database, but long enough to be one\n" * 9)
    command("sessions", "--url", "notes.txt", code=1)
    command("sessions", "--url", "sqlite:///agent.db")
    golden()


def test_wrong_options_end_with_2_and_change_nothing(command):
    assert "No such option" in command("sessions", "--colour", code=2).err
    assert "No such command" in command("forgive", "ada", code=2).err
    assert "Missing argument" in command("undo", code=2).err
    assert "--undo-days" in command("vacuum", "--undo-days", "-1", code=2).err


def test_an_unknown_outcome_comes_with_the_command_that_settles_it(command, golden):
    python = ("-c", UNKNOWN)
    command("append", "ada", "user", "It's me", python=python, code=4)
    command("append", "ada", "user", "--key", "turn-7", "--", "-x", python=python, code=4)
    command("undo", "ada", "--yes", python=python, code=4)
    command("fork", "ada", "copy", "--yes", python=python, code=4)
    golden()


def test_options_may_end_before_the_command(command):
    assert "no session 'nobody'" in command("--", "history", "nobody", code=1).err
    retry = command("--", "append", "ada", "user", "hello", python=("-c", UNKNOWN), code=4).err
    assert "This lands it exactly once: indelible append --key '~5a7e' ada user hello" in retry


def test_a_command_that_holds_a_password_is_not_repeated(command):
    for text in (f"my password={CANARY}", f"see http://example.org, password={CANARY} opens it"):
        done = command("append", "ada", "user", text, python=("-c", UNKNOWN), code=4)
        assert "Run the same again with `--key" in done.err
        assert "***" not in done.err


def test_a_reader_that_has_enough_does_not_hear_of_it(command):
    line = f"{sys.executable} -m indelible show ada --json | head -1"
    env = environment()
    done = subprocess.run(
        line, shell=True, cwd=command.folder, env=env, capture_output=True, check=True
    )
    assert done.stdout == b"{\n"
    assert done.stderr == b""


def test_a_store_that_is_named_wrongly_is_not_looked_for(command):
    assert (
        "Write sqlite:///name.db, or" in command("show", "ada", "-u", "sqlite://a.db", code=2).err
    )
    for line in (("sessions",), ("append", "eve", "user", "hi"), ("import", "all.jsonl")):
        told = command(*line, "--url", "memory:", code=2).err
        assert told.startswith("Error: memory: ends with this command; name a file.")
    assert "A store is named by --url." in command("show", "ada", "agent.db", code=2).err


@pytest.mark.parametrize("url", [f"redis://ann:{CANARY}@[::1", "\udcff.db"])
def test_what_is_neither_a_url_nor_a_file_name_is_refused(command, url):
    for line in (("sessions",), ("append", "eve", "user", "hi")):
        assert "no valid URL or file name" in command(*line, "--url", url, code=2).err


def test_a_number_that_no_session_reaches_is_refused(command):
    assert "--last" in command("show", "ada", "--last", "9" * 20, code=2).err
    assert "--undo-days" in command("vacuum", "--undo-days", "inf", code=2).err


def test_a_file_with_damaged_pages_says_what_can_be_done(command):
    file = command.folder / "agent.db"
    with indelible.open(file) as store:
        for number in range(200):
            store.add_message("long", "user", f"message {number} " + "x" * 100)
    written = bytearray(file.read_bytes())
    page = written.index(b"message 100 ") // 4096 * 4096
    written[page : page + 200] = bytes(200)
    file.write_bytes(written)

    refused = command("history", "long", code=1)
    assert "it was left as it is. Restore a backup; `indelible copy` saves" in refused.err
    assert command("history", "ada").out
    assert "long: it was not copied" in command("copy", "agent.db", "new.db", "--yes", code=1).out
    assert "0 errors" in command("verify", "--url", "new.db").out
    # The check of SQLite itself ends early; the sessions are checked all the same.
    verified = command("verify", code=1).out
    assert "error: long: " in verified
    assert "Read 3 sessions, 11 entries" in verified


def test_an_empty_file_is_not_made_a_store_by_reading_it(command):
    empty = command.folder / "empty.db"
    empty.touch()
    lines = [each for each in READS + WRITES if each[0] not in BEGIN_A_STORE]
    for arguments, done in command.all(lines, "--url", "empty.db", code=4):
        told = done.err.startswith("Error: The file empty.db is empty, and was left so.")
        assert told, (arguments, done)
    assert empty.stat().st_size == 0
    command("append", "eve", "user", "hi", "--url", "empty.db")
    assert command("history", "eve", "--url", "empty.db").out == "user: hi\n"


def test_a_name_that_other_tools_use_leads_to_the_command(command):
    assert "Did you mean 'sessions'?" in command("list", code=2).err
    assert "Did you mean 'forget'?" in command("delete", "ada", code=2).err


def test_every_hint_names_the_store_that_was_named(command, golden, corrupt):
    other = "other store.db"
    (command.folder / "agent.db").rename(command.folder / other)
    here = ("--url", other)
    command("show", "ada", *here)
    command("undo", "ada", "--yes", *here)
    command("clear", "ada", "--yes", "-u", other, "--namespace", "")
    command("rollback", "ada", "unknown", *here, code=1)
    command("rollback", "ada", SNAPSHOT, "--yes", *here)
    command("history", "ada", *here, code=1)
    command("verify", "ada", *here, code=1)
    command("clear", "bob", "--yes", *here)
    command("history", "bob", *here)
    command("show", "nobody", *here, code=1)
    command("show", "ada", "--namespace", "its", *here, code=1)
    command("append", *here, "--", "-x", "user", "hi")
    command("clear", "--yes", *here, "--", "-x")
    command("undo", "ada", "--yes", *here, python=("-c", UNKNOWN), code=4)
    command("fork", "ada", "copy", "--yes", *here, python=("-c", UNKNOWN), code=4)
    command("show", "ada", code=4)
    command("show", "ada", "--url", "missing.db", code=4)
    golden()


def test_a_danger_of_the_engine_is_one_line_without_file_and_line(command, tmp_path_factory):
    server = ValkeyServer(tmp_path_factory.mktemp("valkey"), {"appendonly": "no"})
    server.start()
    try:
        done = command("append", "ada", "user", "hello", "--url", server.url)
    finally:
        server.kill()
    warned = [line for line in done.err.splitlines() if line]
    assert warned
    assert all(line.startswith("Warning: redis://") for line in warned)
    assert "RuntimeWarning" not in done.err
    assert ".py" not in done.err


def test_what_has_moved_is_named(command):
    demo = command("demo", code=2)
    assert "in a clone of the repository. Run: python -m examples.demo" in demo.err


def test_a_file_in_a_folder_that_is_not_there(command):
    told = command("append", "eve", "user", "hi", "--url", "no/such.db", code=4).err
    assert "there is no folder" in told
    assert "make it first; nothing was written" in told


def run_python(command, code, *arguments, **options):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=command.folder,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        **options,
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("arguments", [["history", "ada"], ["sessions", "--json"], ["--help"]])
def test_a_full_disk_below_stdout_is_said_in_a_sentence(command, arguments):
    with Path("/dev/full").open("w") as full:
        done = run_python(command, "from indelible.cli import run; run()", *arguments, stdout=full)
    assert done.stderr == (
        "Error: stdout cannot be written: No space left on device. What was changed before that"
        " stays changed.\n"
    )
    assert done.returncode == 4


def test_a_url_of_a_file_with_parameters_is_refused_in_sentences(command):
    told = command("sessions", "--url", "sqlite:///agent.db?mode=ro", code=2).err
    assert told.endswith(
        "nothing was opened. A file with a ? in its name is named without the scheme.\n"
    )


def test_an_error_of_a_file_is_not_said_to_be_of_stdout(command):
    failing = """
import indelible.cli.main

indelible.cli.main.app = lambda **_: open("missing")
indelible.cli.main.run()
"""
    done = run_python(command, failing, stdout=subprocess.DEVNULL)
    assert done.returncode == 4
    assert done.stderr == "Error: [Errno 2] No such file or directory: 'missing'.\n"


CLOSED = "import sys; sys.stdin = sys.stdout = None; from indelible.cli import run; run()"


def test_closed_streams_are_empty_ones(command):
    done = run_python(command, CLOSED, "show", "ada", stdout=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_export_to_a_closed_stdout_is_refused(command):
    done = run_python(command, CLOSED, "export", "-", stdout=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (2, "Error: Stdout is closed. Nothing was exported.\n")


def test_an_export_to_a_full_disk_does_not_say_that_it_was_exported(command, store):
    store.add_message("ada", "user", "longer than the buffer of stdout " * 1000)
    with Path("/dev/full").open("w") as full:
        done = run_python(
            command, "from indelible.cli import run; run()", "export", "-", stdout=full
        )
    assert done.stderr.startswith("Error: stdout cannot be written: No space left on device.")
    assert done.returncode == 4


@pytest.mark.parametrize("line", [["history", "eve"], ["show", "eve"], ["snapshots", "eve"]])
def test_a_terminal_without_utf_8_shows_other_characters_escaped(command, store, line):
    store.add_message("eve", "user", "日本")
    store.save_snapshot("eve", label="日本")
    done = command(*line, python=("-m", "indelible"), env={"PYTHONIOENCODING": "ascii"})
    assert "\\u65e5\\u672c" in done.out


def test_a_width_of_nothing_is_no_width(command):
    done = command("sessions", python=("-m", "indelible"), env={"COLUMNS": "0"})
    assert done.out.startswith("session  status")


@pytest.mark.parametrize("words", [["append", "ada", "user", "-"], ["remember", "ada", "-"]])
def test_a_text_is_not_read_from_a_closed_stdin(command, store, words):
    before = store.session("ada").logged
    done = run_python(command, CLOSED, *words, stdout=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (2, "Error: Stdin is closed. Nothing was written.\n")
    assert store.session("ada").logged == before


def test_ctrl_c_before_a_command_has_begun_prints_no_traceback(command):
    interrupted = """
import indelible.cli
import indelible.cli.main

def run():
    raise KeyboardInterrupt

indelible.cli.main.run = run
indelible.cli.run()
"""
    done = run_python(command, interrupted, stdout=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (130, "")


def test_ctrl_c_while_json_is_written_prints_no_traceback(command):
    interrupted = """
import pydantic_core
import indelible.cli.main

def interrupt():
    raise KeyboardInterrupt
    yield

indelible.cli.main.app = lambda **_: pydantic_core.to_json(interrupt())
indelible.cli.main.run()
"""
    done = run_python(command, interrupted, stdout=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (130, "")
