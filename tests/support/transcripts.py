"""Runs commands as real processes, and writes down what they print in a form that repeats."""

import base64
import json
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import apsw

import indelible
from tests.support.canary import CANARY

GOLDEN = Path(__file__).parents[1] / "cli" / "golden"
UPDATE = os.environ.get("INDELIBLE_UPDATE_GOLDEN") == "1"


# Most of a command's time goes into importing the package: here it is imported once, and each
# command runs in a fork of that process, in its folder and on files of its own.
LAUNCHER = """
import base64, json, os, sys, tempfile, traceback
from indelible.cli.main import run as run_indelible
from memory_contract.cli.main import run as run_memory_contract
from pytest_snapshot_db.cli import run as run_snapshot_db

PROGRAMS = {
    "indelible": run_indelible,
    "memory-contract": run_memory_contract,
    "snapshot-db": run_snapshot_db,
}

def run_in_child(program, arguments, folder, files):
    os.chdir(folder)
    for place, file in enumerate(files):
        os.dup2(file.fileno(), place)
    sys.argv = [program, *arguments]
    code = 70
    try:
        PROGRAMS[program]()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)

def made(data=b""):
    file = tempfile.TemporaryFile()
    file.write(data)
    file.seek(0)
    return file

# What it says goes back by another way than a command's.
answers = os.fdopen(os.dup(1), "w")
for line in os.fdopen(os.dup(0)):
    program, arguments, folder, stdin = json.loads(line)
    files = made(base64.b64decode(stdin)), made(), made()
    child = os.fork()
    if child == 0:
        run_in_child(program, arguments, folder, files)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    for file in files:
        file.seek(0)
    said = [base64.b64encode(file.read()).decode() for file in files[1:]]
    print(json.dumps([code, *said]), file=answers, flush=True)
    for file in files:
        file.close()
"""


# The command line, with writes that lose their answer.
UNKNOWN = """
import sys
from indelible import MemoryStore, OutcomeUnknownError
from indelible.cli.main import run

def lost(*arguments, **options):
    raise OutcomeUnknownError("the commit failed half-way: it may have landed", key="~5a7e")

MemoryStore.add_message = MemoryStore.undo = MemoryStore.fork = lost
run()
"""


class Done(NamedTuple):
    code: int
    out: str
    err: str


def environment(**more):
    """The same words and widths on every machine."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    fixed = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "LC_ALL": "C.UTF-8"}
    return {**kept, **fixed, "INDELIBLE_URL": "agent.db", **more}


class Launcher:
    """A process that has imported the command line, and runs commands in forks of itself."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, program, arguments, folder, stdin):
        """What came of one command."""
        request = [program, arguments, str(folder), base64.b64encode(stdin).decode()]
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        code, *said = json.loads(self._process.stdout.readline())
        return Done(code, *(base64.b64decode(words).decode() for words in said))


@cache
def launcher():
    """One for the whole run: it ends when nobody can ask it for anything any more."""
    return Launcher()


MODULES = {
    "indelible": "indelible",
    "memory-contract": "memory_contract",
    "snapshot-db": "pytest_snapshot_db",
}


class Command:
    """Runs commands of one program in a folder, and keeps a transcript."""

    program = "indelible"

    def __init__(self, folder):
        self.folder = folder
        self.lines = []

    def __call__(self, *arguments, stdin="", code=0, python=None, env=None, program=None):
        """Run it; it must end with this code (None: any), and never with a traceback."""
        program = program or self.program
        given = stdin if isinstance(stdin, bytes) else stdin.encode()
        if python is None and env is None:
            done = launcher().run(program, arguments, self.folder, given)
        else:
            done = self._started(arguments, given, python or ("-m", MODULES[program]), env or {})
        assert "Traceback" not in done.err, done.err
        assert CANARY not in done.out + done.err
        assert code is None or done.code == code, (arguments, done)
        self.lines += [f"$ {program} {shlex.join(arguments)}", *self._written(done), ""]
        return done

    def _started(self, arguments, stdin, python, env):
        ran = subprocess.run(
            [sys.executable, *python, *arguments],
            cwd=self.folder,
            env=environment(**env),
            input=stdin,
            capture_output=True,
            timeout=240,
            check=False,
        )
        return Done(ran.returncode, ran.stdout.decode(), ran.stderr.decode())

    def all(self, lines, *more, code=0):
        """Run many, each in a process of its own; gives each with what it did."""
        done = [
            launcher().run(self.program, [*arguments, *more], self.folder, b"")
            for arguments in lines
        ]
        for arguments, each in zip(lines, done, strict=True):
            assert "Traceback" not in each.err, (arguments, each)
            assert CANARY not in each.out + each.err
            assert each.code == code, (arguments, each)
        return list(zip(lines, done, strict=True))

    def _written(self, done):
        yield from self._repeatable(done.out)
        yield from (f"! {line}".rstrip() for line in self._repeatable(done.err))
        if done.code:
            yield f"[{done.code}]"

    def _repeatable(self, text):
        text = text.replace(str(self.folder), "/folder")
        text = re.sub(r"\b[0-9a-f]{16}\b", "<id>", text)
        # Signed with a secret of the store.
        text = re.sub(r"(--cursor=|\"cursor\": \")[\w=-]+", r"\1<cursor>", text)
        # What the prepared store holds is of 2001; every other time is of this run.
        text = re.sub(r"\b20(?!01)\d\d-\d\d-\d\d[ T][\d:.]+Z?", "<time>", text)
        text = text.replace(apsw.sqlite_lib_version(), "<version>")
        text = text.replace(indelible.__version__, "<version>")
        return [line.rstrip() for line in text.splitlines()]
