"""Session ids and labels are data: no shell runs them, whatever an agent called its sessions."""

import os
import pty
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import indelible
from tests.support.transcripts import environment

HOSTILE = [
    "a$(touch pwned)",
    "a`touch pwned`",
    "a;touch pwned;",
    "a\ntouch pwned\n",
    "a\\$(touch pwned)",
    "a' ; touch pwned ; '",
    'a" ; touch pwned ; "',
    "a)) ; touch pwned ; ((",
    "a|touch pwned",
    "a&touch pwned&",
    "a>pwned",
    "z$(touch pwned)",
    "a*",
    "a{b,c}",
    "a=b",
    "a\x1b[2J",
    "a\u202eb",
    "-a",
    "--url=evil.db",
    "~root",
    "!!",
    "#a",
]
PLAIN = ["alpha-1", "alpha.2", "alpha_3", "alpha/4:x@y+z"]
# Longer than any completion takes on a busy machine; the test ends as soon as the shell answers.
ANSWER_S_MAX = 120


@pytest.fixture
def folder(tmp_path):
    """A store whose sessions and labels would do harm, if a shell ran them."""
    with indelible.open(tmp_path / "agent.db") as store:
        for name in (*HOSTILE, *PLAIN):
            store.add_message(name, "user", "hello")
        for label in HOSTILE:
            store.save_snapshot("alpha-1", label=label)
        store.save_snapshot("alpha-1", label="before the refund")
    return tmp_path


def complete(folder, shell, line):
    """What is offered for a line, in the form of a shell's script."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    asked = {"_INDELIBLE_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line, **words}
    asked["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
    done = subprocess.run(
        [sys.executable, "-m", "indelible"],
        cwd=folder,
        env=environment(**asked),
        capture_output=True,
        check=False,
    )
    assert done.stderr == b""
    return done.stdout.decode()


def test_only_plain_ids_are_offered(folder):
    offered = complete(folder, "bash", "indelible history ").split()
    assert offered == sorted(PLAIN)
    assert complete(folder, "bash", "indelible history a$(").split() == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("line", ["indelible history a", "indelible rollback alpha-1 "])
def test_nothing_hostile_is_in_what_a_shell_is_given(folder, shell, line):
    given = complete(folder, shell, line)
    assert "pwned" not in given
    assert "\x1b" not in given
    assert "$" not in given


def test_labels_are_shown_where_they_are_plain(folder):
    assert "before the refund" in complete(folder, "zsh", "indelible rollback alpha-1 ")


SHELLS = {
    "bash": (
        ["bash", "--norc", "--noprofile", "-i"],
        'eval "$(_INDELIBLE_COMPLETE=source_bash indelible)"; bind "set bell-style none"',
    ),
    "zsh": (
        ["zsh", "-f", "-i"],
        'autoload -Uz compinit; compinit -u -D; eval "$(_INDELIBLE_COMPLETE=source_zsh indelible)"',
    ),
}


@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize("line", ["indelible history a", "indelible rollback alpha-1 "])
def test_a_real_shell_runs_nothing_while_it_completes(folder, name, line):
    command, setup = SHELLS[name]
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {name} here")
    with Shell(command, folder) as shell:
        shell.run(setup)
        # Twice Tab lists; Ctrl-U takes the line back. What follows is read after that.
        shell.type(f"{line}\t\t\x15")
        # The only session that begins so: it would be inserted, and run with the line.
        shell.type("indelible history z\t")
        shell.run("")
    assert not list(folder.glob("*pwned*"))
    assert sorted(path.name for path in folder.iterdir()) == ["agent.db"]


class Shell:
    """An interactive shell on a terminal of its own."""

    def __init__(self, command, folder):
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        env = environment(PATH=path, PS1="$ ", HISTFILE="", TERM="xterm")
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._asked = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        os.close(self._ours)

    def type(self, keys):
        os.write(self._ours, keys.encode())

    def run(self, line):
        """Run a line, and wait until the shell has done all that was typed."""
        self._asked += 1
        # What is typed is echoed; the sum is not in it.
        self.type(f"{line}\necho done-$(({self._asked}+1000))\n")
        seen = b""
        while f"done-{self._asked + 1000}".encode() not in seen:
            ready, _, _ = select.select([self._ours], [], [], ANSWER_S_MAX)
            assert ready, seen
            seen += os.read(self._ours, 65536)
        return seen
