"""Runs commands as real processes, and writes down what they print in a form that repeats."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import apsw

import indelible

GOLDEN = Path(__file__).parent / "golden"
UPDATE = os.environ.get("INDELIBLE_UPDATE_GOLDEN") == "1"


# Most of a command's time goes into importing the package: here it is imported once, and each line
# runs in a fork of that process.
LAUNCHER = """
import json, os, sys, tempfile, traceback
from indelible.cli.main import run

def run_in_child(arguments, out, err):
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    sys.argv = ["indelible", *arguments]
    code = 70
    try:
        run()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)

done = []
for arguments in json.load(sys.stdin):
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if child == 0:
            run_in_child(arguments, out, err)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        err.seek(0)
        done.append([code, out.read(), err.read()])
print(json.dumps(done))
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


class Command:
    """Runs `indelible` in a folder, and keeps a transcript."""

    def __init__(self, folder):
        self.folder = folder
        self.lines = []

    def __call__(self, *arguments, stdin="", code=0, python=("-m", "indelible"), env=None):
        """Run it; it must end with this code, and never with a traceback."""
        ran = subprocess.run(
            [sys.executable, *python, *arguments],
            cwd=self.folder,
            env=environment(**(env or {})),
            input=stdin if isinstance(stdin, bytes) else stdin.encode(),
            capture_output=True,
            timeout=240,
            check=False,
        )
        done = Done(ran.returncode, ran.stdout.decode(), ran.stderr.decode())
        assert "Traceback" not in done.err, done.err
        assert done.code == code, (arguments, done)
        self.lines += [f"$ indelible {shlex.join(arguments)}", *self._written(done), ""]
        return done

    def all(self, lines, *more, code=0):
        """Run many, each in a process of its own; gives each with what it did."""
        ran = subprocess.run(
            [sys.executable, "-c", LAUNCHER],
            cwd=self.folder,
            env=environment(),
            input=json.dumps([[*arguments, *more] for arguments in lines]),
            capture_output=True,
            text=True,
            timeout=240,
            check=True,
        )
        done = [Done(*each) for each in json.loads(ran.stdout)]
        for arguments, each in zip(lines, done, strict=True):
            assert "Traceback" not in each.err, (arguments, each)
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
        # What the prepared store holds is of 2001; every other time is of this run.
        text = re.sub(r"\b20(?!01)\d\d-\d\d-\d\d[ T][\d:.]+Z?", "<time>", text)
        text = text.replace(apsw.sqlite_lib_version(), "<version>")
        text = text.replace(indelible.__version__, "<version>")
        return [line.rstrip() for line in text.splitlines()]
