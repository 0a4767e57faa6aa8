"""The demo as a newcomer runs it, and as it would end if indelible did not hold."""

import io
import os
import re
import signal
import subprocess
import sys

import pytest
from rich.console import Console

import indelible
from examples.demo.acts import KILLED_AFTER, PROCESSES, TURNS_TRIED
from examples.demo.naive import NaiveStore
from examples.demo.sides import Cast
from examples.demo.story import NEXT_LINES, run_demo

PROGRAM = (
    "import sys; from rich.console import Console; "
    "from examples.demo.story import run_demo; sys.exit(run_demo(Console(width=100)))"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def demo(folder):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "TMPDIR": str(folder), "PYTHONIOENCODING": "utf-8"},
        timeout=280,
        check=False,
    )


def rows(output, title):
    """The two cells of each table row that begins with these words, as text."""
    row = rf"^ *{re.escape(title)} {{2,}}(\S.*?) {{2,}}(\S.*?) *$"
    found = re.findall(row, output, re.MULTILINE)
    assert found, f"no row {title!r} in:\n{output}"
    return found


def test_the_demo_ends_well_and_says_nothing_on_stderr(demo):
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert demo.stderr == ""
    assert "indelible held in all 3 acts." in demo.stdout
    assert "did not hold" not in demo.stdout


def test_the_demo_leaves_nothing_behind(demo, folder):
    assert list(folder.iterdir()) == []


def test_eight_processes_lose_nothing_in_indelible(demo):
    acknowledged = int(rows(demo.stdout, "turns acknowledged")[0][1])
    assert acknowledged in [PROCESSES * turns for turns in TURNS_TRIED]
    assert int(rows(demo.stdout, "turns found afterwards")[0][1]) == acknowledged
    assert rows(demo.stdout, "acknowledged turns lost")[0][1] == "0"


def test_the_naive_numbers_of_act_one_add_up(demo):
    acknowledged = int(rows(demo.stdout, "turns acknowledged")[0][0])
    refused = int(rows(demo.stdout, "turns refused with an error")[0][0])
    found = int(rows(demo.stdout, "turns found afterwards")[0][0])
    lost = int(rows(demo.stdout, "acknowledged turns lost")[0][0])
    assert acknowledged - lost <= found <= acknowledged - lost + refused


def test_the_naive_rollback_is_exact_and_takes_the_snapshots_with_it(demo):
    assert rows(demo.stdout, "B: history after the rollback") == [("exact", "exact")]
    assert rows(demo.stdout, "C: snapshots left") == [("0", "3")]
    assert rows(demo.stdout, "C: back to the first snapshot") == [("impossible", "exact")]
    assert rows(demo.stdout, "C: forward to the last snapshot") == [("impossible", "exact")]


def test_a_kill_costs_indelible_nothing_that_it_acknowledged(demo):
    kills = len(KILLED_AFTER)
    acknowledged = int(rows(demo.stdout, "turns acknowledged before a kill")[0][1])
    found = int(rows(demo.stdout, "whole turns found on reopening")[0][1])
    assert sum(KILLED_AFTER) <= acknowledged <= found <= acknowledged + kills
    assert rows(demo.stdout, "acknowledged turns lost")[1][1] == "0"
    assert rows(demo.stdout, "histories that cannot be read")[0][1] == f"0 of {kills}"
    assert rows(demo.stdout, "questions or answers torn apart")[0][1] == "0"
    assert rows(demo.stdout, "histories numbered without a gap")[0][1] == f"{kills} of {kills}"


def test_the_summary_repeats_the_acts(demo):
    [(naive, ours)] = rows(demo.stdout, "Act 2: a rollback")
    assert (naive, ours) == ("0 of 3 snapshots left", "3 of 3 snapshots left")
    lost = rows(demo.stdout, "acknowledged turns lost")
    [crowd] = rows(demo.stdout, f"Act 1: {PROCESSES} at once")
    [kills] = rows(demo.stdout, "Act 3: kill -9")
    for summary, details in ((crowd, lost[0]), (kills, lost[1])):
        assert [cell.split(" of ")[0] for cell in summary] == list(details)


def test_the_last_lines_can_be_copied_and_run(demo, tmp_path):
    shown = [line[4:].rstrip() for line in demo.stdout.splitlines() if line.startswith("    ")]
    lines = shown[shown.index("import indelible") :][:3]
    assert "\n".join(lines) == NEXT_LINES.rstrip()
    subprocess.run([sys.executable, "-c", "\n".join(lines)], cwd=tmp_path, check=True)
    with indelible.open(tmp_path / "agent.db") as memory:
        assert memory.load_memory("ada") == [
            {"human": "I moved to Lisbon.", "ai": "Noted: Lisbon."}
        ]


@pytest.mark.exhaustive
def test_the_demo_ends_with_1_where_indelible_does_not_hold():
    output = io.StringIO()
    code = run_demo(Console(file=output, width=80), cast=Cast(ours=NaiveStore))
    assert code == 1
    assert "indelible did NOT hold in act" in output.getvalue()
    assert rows(output.getvalue(), "C: snapshots left") == [("0", "0")]


def test_ctrl_c_while_the_demo_is_imported_prints_no_traceback():
    interrupted = """
import runpy
import sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == "examples.demo.story":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
runpy.run_module("examples.demo", run_name="__main__")
"""
    done = subprocess.run(
        [sys.executable, "-c", interrupted], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "")


def test_ctrl_c_ends_the_demo_without_a_word(folder):
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "examples.demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
        start_new_session=True,
    ) as demo:
        assert any("Act 1" in line for line in demo.stdout)
        # To all its processes, as a terminal does.
        os.killpg(demo.pid, signal.SIGINT)
        _, told = demo.communicate(timeout=60)
    assert (demo.returncode, told) == (130, "")
    assert list(folder.iterdir()) == []
