"""The examples in the help of every command run, as they stand there, in a prepared folder."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
import redis
import typer.main
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver
from typer.testing import CliRunner

import indelible
from indelible.cli.main import app
from memory_contract.cli.main import build_parser as build_kit_parser
from pytest_snapshot_db.cli import build_parser as build_snapshot_parser
from scripts.command_reference import list_parser_commands
from tests.support import postgres_server, redis_server
from tests.support.transcripts import environment

INCIDENT = Path(__file__).parents[2] / "examples" / "incidents" / "key_overwritten" / "trace.jsonl"

# The store of the examples forgets, its trace proves it, and two files differ in a column: these
# say so by their exit codes. Every other example ends with 0.
EXITS_WITH_1 = (
    "memory-contract check",
    "memory-contract explain",
    "memory-contract replay trace.jsonl --store mystore",
    "snapshot-db diff before.db after.db",
)
# The one that leaves this column out.
EXITS_WITH_0 = "--ignore note.created_at"
# They run until they are ended: by the end of their input, and by Ctrl-C.
ENDED_BY_EOF = "indelible mcp"
ENDED_BY_CTRL_C = ("memory-contract proxy", "indelible inspect")
# Places that examples name; servers of the tests listen elsewhere.
REDIS, POSTGRES, LISTEN = "redis://localhost", "postgresql://localhost/agent", "127.0.0.1:6432"
PORT = "--port 8123"


def helps():
    """The help of every command, on a terminal of the usual width."""
    yield CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).output
    for name in typer.main.get_command(app).commands:
        yield CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "80"}).output
    for parser in (build_kit_parser(), build_snapshot_parser()):
        yield parser.format_help()
        yield from (each.format_help() for each in list_parser_commands(parser).values())


def examples_of(text):
    """The examples that a help ends with; lines that a help formatter joined or broke are none."""
    end = text[text.index("Example: ") :].rstrip().splitlines()
    lines = [line.strip() for line in end if line.strip()]
    assert all(line.startswith("Example: ") for line in lines), lines
    return [line.removeprefix("Example: ") for line in lines]


EXAMPLES = list(dict.fromkeys(each for text in helps() for each in examples_of(text)))


@pytest.fixture(scope="session")
def prepared_folder(tmp_path_factory):
    """A folder with what the examples name."""
    folder = tmp_path_factory.mktemp("examples")
    prepare_stores(folder)
    (folder / "answer.txt").write_text("It was shipped.\n")
    message = {"type": "human", "data": {"content": "Where is my order?", "type": "human"}}
    (folder / "chats").mkdir()
    (folder / "chats" / "old.json").write_text(json.dumps([message]))
    with SqliteSaver.from_conn_string(str(folder / "checkpoints.db")) as saver:
        config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        saver.put(config, empty_checkpoint(), {}, {})
    trace = INCIDENT.read_text("utf-8").replace('"c-2"', '"user-42"')
    (folder / "trace.jsonl").write_text(trace)
    (folder / "traces").mkdir()
    (folder / "traces" / "trace.jsonl").write_text(trace)
    (folder / "mystore").mkdir()
    (folder / "mystore" / "__init__.py").write_text(STORE)
    (folder / "mystore" / "contract.py").write_text(ADAPTER)
    for name in ("before.db", "after.db"):
        with apsw.Connection(str(folder / name)) as database:
            database.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, body, created_at)")
            database.execute("INSERT INTO note VALUES (1, 'milk', ?)", (name,))
        database.close()
    (folder / "tests" / "__snapshot_dbs__").mkdir(parents=True)
    return folder


def prepare_stores(folder):
    """A session with two snapshots, a change to undo and one to redo; and an export of it."""
    with indelible.open(folder / "agent.db") as store:
        for number in range(30):
            store.save_context("user-42", f"question {number}", "answer")
        store.set_metadata("user-42", {"team": "support"})
        store.save_snapshot("user-42", label="before-booking")
        store.save_snapshot("user-42")
        store.trim("user-42", keep_last=50)
        store.trim("user-42", keep_last=40)
        store.undo("user-42")
        store.remember(("ana", "facts"), "She drinks coffee", id="drink")
        store.export(folder / "backup.jsonl")


STORE = '''
import json


class Store:
    """One file for each session: read it, add the turn, write it back."""

    def __init__(self, workspace):
        self.folder = workspace

    def save_context(self, session_id, human_msg, ai_msg):
        turns = self.load_memory(session_id)
        turns.append({"human": human_msg, "ai": ai_msg})
        (self.folder / session_id).write_text(json.dumps(turns))

    def load_memory(self, session_id):
        try:
            return json.loads((self.folder / session_id).read_text())
        except FileNotFoundError:
            return []


def make_store(workspace):
    return Store(workspace)
'''
ADAPTER = """
import memory_contract.goldfish
from memory_contract.goldfish.registry import GOLDFISH

adapter = GOLDFISH["read_modify_write_in_a_file"].adapter
"""


def on_our_servers(example):
    """The example with servers that are there."""
    if REDIS in example:
        url = redis_server.emptied()
        with redis.Redis.from_url(url) as client:
            message = {"type": "human", "data": {"content": "hi", "type": "human"}}
            client.lpush("message_store:old", json.dumps(message))
        example = re.sub(rf"{REDIS}(:6379)?(?=\s|$)", url, example)
    if POSTGRES in example:
        example = example.replace(POSTGRES, postgres_server.emptied_database())
    return example.replace(LISTEN, "127.0.0.1:0").replace(PORT, "--port 0")


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(example, prepared_folder, tmp_path):
    folder = tmp_path / "folder"
    shutil.copytree(prepared_folder, folder)
    line = on_our_servers(example)
    if example.startswith(ENDED_BY_CTRL_C):
        assert until_ctrl_c(line, folder) == 0
        return
    code, said = run(line, folder, eof=example.startswith(ENDED_BY_EOF))
    expected = 1 if example.startswith(EXITS_WITH_1) and EXITS_WITH_0 not in example else 0
    assert code == expected, said
    assert "Traceback" not in said


def in_folder():
    """The environment of a person who named no store, with the commands in reach."""
    given = environment()
    del given["INDELIBLE_URL"]
    # A browser that opens nothing.
    given["BROWSER"] = "true"
    return {**given, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{given['PATH']}"}


def run(line, folder, *, eof):
    """Run a line of a shell, at a terminal on which every question is answered with yes."""
    ours, theirs = pty.openpty()
    os.write(ours, b"y\n")
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=folder,
        env=in_folder(),
        stdin=subprocess.DEVNULL if eof else theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=600,
        check=False,
    )
    os.close(ours)
    os.close(theirs)
    return done.returncode, done.stdout.decode()


# A background job of a script starts with SIGINT ignored, and its children inherit that.
HEED_CTRL_C = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execvp("sh", ["sh", "-c", sys.argv[1]])
"""


def until_ctrl_c(line, folder):
    """Run it until it says that it is ready, then press Ctrl-C; the exit code."""
    running = subprocess.Popen(
        [sys.executable, "-c", HEED_CTRL_C, f"exec {line}"],
        cwd=folder,
        env=in_folder(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert "Ctrl-C ends it." in running.stdout.readline()
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=60)
    finally:
        running.kill()
        running.communicate()
    return running.returncode


def test_every_command_has_an_example():
    commands = {f"indelible {name}" for name in typer.main.get_command(app).commands}
    commands |= {f"memory-contract {name}" for name in list_parser_commands(build_kit_parser())}
    commands |= {f"snapshot-db {name}" for name in list_parser_commands(build_snapshot_parser())}
    assert commands == {" ".join(example.split()[:2]) for example in EXAMPLES}
