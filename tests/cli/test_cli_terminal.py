"""What only happens before a terminal: questions and progress."""

import os
import pty
import subprocess
import sys

import pytest
import typer

import indelible
from indelible.cli.output import INTERRUPTED, confirm
from tests.support.terminal import (
    at_a_terminal,
)
from tests.support.transcripts import MODULES, environment


def shown_by(command, session):
    with indelible.open(command.folder / "agent.db") as store:
        return store.session(session).entries


def test_no_is_the_default_answer(command):
    code, out, shown = at_a_terminal(command, "clear", "bob", answer="\n")
    assert (code, out) == (2, "")
    assert "Clearing 'bob' hides 2 entries (0-1)." in shown
    assert "Go on? [y/N]" in shown
    assert "Nothing was changed." in shown
    assert shown_by(command, "bob") == 2


def test_yes_goes_on_and_keeps_the_question_out_of_the_data(command):
    code, out, shown = at_a_terminal(command, "clear", "bob", "--json", answer="y\n")
    assert code == 0
    assert out.startswith("{")
    assert "Go on?" in shown
    assert shown_by(command, "bob") == 0


def test_long_work_shows_its_progress(command):
    code, out, shown = at_a_terminal(command, "verify")
    assert code == 0
    assert out.endswith("0 errors, 1 warning.\n")
    assert "Verifying" in shown
    assert "11 entries" in shown


@pytest.mark.parametrize(("pressed", "ends_with"), [("\x03", 130), ("\x04", 2)])
def test_ctrl_c_and_ctrl_d_are_answers(command, pressed, ends_with):
    code, out, shown = at_a_terminal(command, "clear", "bob", answer=pressed)
    assert (code, out) == (ends_with, "")
    assert "Go on? [y/N] " in shown
    assert shown.endswith("\r\nNothing was changed.\r\n")
    assert shown_by(command, "bob") == 2


def on_a_screen(command, *arguments, **env):
    """Run a command with its output on a terminal; what showed there, and its code."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", MODULES[command.program], *arguments],
        cwd=command.folder,
        env={**environment(TERM="xterm-256color"), **env},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 65536)
        except OSError:
            # The other side is closed: that was all.
            break
    os.close(ours)
    _, err = process.communicate(timeout=240)
    assert err == b""
    return process.returncode, shown.decode().replace("\r\n", "\n")


def test_a_timeline_goes_through_the_pager_of_a_terminal(command):
    code, shown = on_a_screen(command, "show", "bob", PAGER="sed s/^/paged:/")
    assert code == 0
    assert shown.startswith("paged:bob: active")
    assert "paged:1  09:03:00" in shown
    for options, env in [
        (["--no-pager"], {"PAGER": "sed s/^/paged:/"}),
        (["--json"], {"PAGER": "sed s/^/paged:/"}),
        ([], {"PAGER": "sed s/^/paged:/", "TERM": "dumb"}),
        ([], {"PAGER": "cat"}),
        ([], {"PAGER": ""}),
        ([], {"PAGER": "no-such-program"}),
        ([], {"PAGER": "'"}),
    ]:
        code, shown = on_a_screen(command, "show", "bob", *options, **env)
        assert code == 0
        assert "bob" in shown
        assert "paged:" not in shown


def test_a_pager_that_is_left_early_ends_the_command(command, store):
    store.add_messages("long", [{"role": "user", "content": 100 * "word "}] * 1000)
    store.add_messages("long", [{"role": "user", "content": 100 * "word "}] * 1000)
    code, shown = on_a_screen(command, "show", "long", PAGER="head -n 1")
    assert (code, shown) == (
        0,
        "long: active, shows 2000 of 2000 entries, 0 snapshots, version 3.1.2000.0\n",
    )


def test_colors_reach_the_pager_unless_they_are_unwanted(command):
    cyan = "\x1b[36m"
    assert cyan in on_a_screen(command, "show", "ada", PAGER="sed -n p", NO_COLOR="")[1]
    assert cyan in on_a_screen(command, "show", "ada", PAGER="", NO_COLOR="")[1]
    assert cyan not in on_a_screen(command, "show", "ada", PAGER="sed -n p")[1]


class Impatient:
    """A terminal whose person presses Ctrl-C as soon as the question shows."""

    def __init__(self):
        self.shown = ""

    def isatty(self):
        return True

    def write(self, text):
        self.shown += text

    def flush(self):
        raise KeyboardInterrupt

    def readline(self):
        pytest.fail("read an answer that was never given")


def test_a_quick_ctrl_c_is_an_answer_too(monkeypatch):
    terminal = Impatient()
    monkeypatch.setattr("sys.stdin", terminal)
    monkeypatch.setattr("sys.stderr", terminal)
    with pytest.raises(typer.Exit) as ended:
        confirm("Clearing 'bob' hides 2 entries.", yes=False)
    assert ended.value.exit_code == INTERRUPTED
    assert terminal.shown.endswith("Go on? [y/N] \nNothing was changed.\n")
