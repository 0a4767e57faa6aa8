"""`memory-contract check`, `cases` and `goldfish`, as a person calls them."""

import json
import re
import shlex
import signal
import subprocess
import sys
import time
from xml.etree import ElementTree as ET

import pytest

from memory_contract.cases.catalogue import all_cases
from memory_contract.cli.check import is_quick, parse_seconds
from memory_contract.cli.main import build_parser
from memory_contract.errors import UsageError
from memory_contract.gates import GATES
from memory_contract.goldfish import GOLDFISH
from tests.support.terminal import at_a_terminal
from tests.support.transcripts import environment

PROGRAM = "memory-contract"
STORES = """
import asyncio
import threading
from memory_contract import Adapter


class Lossy:
    def __init__(self):
        self._sessions = {}

    async def add_messages(self, session, messages):
        before = list(self._sessions.get(session, ()))
        await asyncio.sleep(0)
        self._sessions[session] = [*before, *messages]

    async def get_history(self, session):
        return list(self._sessions.get(session, ()))


class Newest:
    def __init__(self):
        self._sessions = {}

    def add_messages(self, session, messages):
        self._sessions[session] = [*self._sessions.get(session, ()), *messages][-20:]

    def get_history(self, session):
        return list(self._sessions.get(session, ()))


class Closed:
    def __init__(self):
        raise ConnectionError("nobody is there")

    def add_messages(self, session, messages): ...

    def get_history(self, session): ...


class Chatty(Lossy):
    async def add_messages(self, session, messages):
        print("saving", session)
        await super().add_messages(session, messages)


class Remote(Closed):
    def __init__(self, host, db_path, retries=3): ...


def make_remote(workspace):
    return Remote("localhost", workspace / "store.db")


class Words:
    def save_context(self, session_id, human_msg, ai_msg): ...

    def load_memory(self, session_id):
        return "no list"


class Endless:
    def __init__(self, workspace): ...

    def save_context(self, session, human_msg, ai_msg):
        threading.Event().wait()

    def load_memory(self, session):
        return []
"""


@pytest.fixture
def check(command):
    """Runs `memory-contract check` beside some stores."""
    (command.folder / "stores.py").write_text(STORES, "utf-8")
    (command.folder / "broken.py").write_text("store = (", "utf-8")
    (command.folder / "leaving.py").write_text("raise SystemExit(0)", "utf-8")

    def checked(*arguments, code=0):
        return command("check", *arguments, "--seed", "7", code=code)

    checked.folder = command.folder
    return checked


def test_a_gate_of_which_nothing_ran_is_not_passed(check):
    done = check("sqlite:///x.db", "--case", "append_then_read", "--case", "pop_race", code=3)
    assert "the store does not claim pop" in done.out
    assert "NOT RUN  no case of the gate concurrency ran" in done.out
    assert not (check.folder / "x.db").exists()


def test_progress_goes_to_stderr_and_the_summary_to_stdout(check):
    done = check("memory:", "--case", "append_then_read")
    assert re.search(r"^PASS +memory: +contract \S+ +seed 7", done.out, re.MULTILINE)
    assert "sequential/append_then_read[blocking]" in done.err
    assert "append_then_read" not in done.out


def test_a_lossy_store_fails_with_proof_and_the_command_that_repeats_it(check):
    done = check("stores:Lossy", "--case", "append_storm", code=1)
    assert "LOST APPEND" in done.out
    again = re.search(r"Reproduce with: +memory-contract (check .+)", done.out)[1].split()
    assert again[:4] == ["check", "stores:Lossy", "--case", "append_storm"]


def test_json_is_one_document_on_stdout(check):
    done = check("stores:Lossy", "--case", "append_storm", "--json", code=1)
    found = json.loads(done.out)
    assert found["verdict"] == "FAIL"
    assert found["target"] == "stores:Lossy"
    (failed,) = [each for each in found["cases"] if each["verdict"] == "FAIL"]
    assert (failed["gate"], failed["case"], failed["mode"]) == (
        "concurrency",
        "append_storm",
        "tasks",
    )
    assert failed["anomalies"][0]["name"] == "lost append"
    assert failed["anomalies"][0]["witness"]


def test_what_a_store_prints_does_not_get_into_the_document(check):
    done = check("stores:Chatty", "--case", "append_then_read", "--json")
    assert json.loads(done.out)["verdict"] == "PASS"
    assert "saving c-1" in done.err


def test_a_run_that_is_ended_from_outside_leaves_nothing_behind(check, tmp_path):
    place = tmp_path / "temporary"
    place.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "memory_contract", "check", "stores:Endless"],
        cwd=check.folder,
        env=environment(TMPDIR=str(place)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for(lambda: list(place.glob("memory-contract-check-*/*/*")), "the first case")
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM
    assert list(place.glob("memory-contract-check-*")) == []


def wait_for(condition, what):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, f"{what} never came"
        time.sleep(0.01)


def test_a_report_folder_has_all_forms(check):
    done = check("stores:Lossy", "--case", "append_storm", "--report", "out/deep", code=1)
    folder = check.folder / "out" / "deep"
    assert json.loads((folder / "report.json").read_text("utf-8"))["verdict"] == "FAIL"
    assert "<html" in (folder / "report.html").read_text("utf-8")
    assert ET.parse(folder / "junit.xml").getroot().iter("failure")
    assert "report.html" in done.out
    assert "Wrote report.html, report.json, junit.xml to out/deep." in done.err


def test_a_small_budget_leaves_no_case_out(check):
    done = check("memory:", "--case", "append_storm", "--budget", "0.001s")
    assert len(re.findall(r"^(PASS|NOT CLAIMED) ", done.err, re.MULTILINE)) == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["memory:", "--budget", "soon"], "--budget takes a time such as 90, 90s or 2m"),
        (["memory:", "--budget", "0"], "--budget takes a time"),
        (["memory:", "--seed", "x"], "Argument --seed: 'x' is not a whole number from 0 up"),
        (["memory:", "--rounds", "0"], "Argument --rounds: '0' is not a whole number from 1 up"),
        (["memory:", "--gate", "tall"], "There is no gate 'tall'"),
        (["memory:", "--case", "nothing"], "There is no case 'nothing'"),
        (["stores:Nothing"], "Cannot import 'stores:Nothing'"),
        (["nowhere:Store"], "Cannot import 'nowhere:Store'"),
        (["broken:store"], "Cannot import 'broken:store'"),
        (["leaving:store"], "Cannot import 'leaving:store'"),
        (["odd://store"], "Cannot open 'odd://store'"),
        (["memory:", "--deviations", "none.toml"], "Cannot read none.toml"),
        (["stores:Lossy", "--explore", "5", "--gate", "edges"], "There is no race between tasks"),
    ],
)
def test_wrong_usage_is_refused_and_nothing_is_run(check, arguments, words):
    done = check(*arguments, code=2)
    assert done.out == ""
    assert done.err.startswith(f"Error: {words}")
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("target", ["stores:Closed", "sqlite:///nowhere/x.db"])
def test_a_store_that_cannot_be_reached_has_a_code_of_its_own(check, target):
    done = check(target, "--json", code=4)
    assert done.out == ""
    assert done.err.startswith("Error: ")


def test_deviations_in_the_folder_are_known(check):
    listed = check.folder / "indelible-deviations.toml"
    listed.write_text(
        '[concurrency.append_storm]\nreason = "until 3"\nmodes = ["tasks"]\n', "utf-8"
    )
    done = check("stores:Lossy", "--case", "append_storm")
    assert "DEVIATION (1)  until 3" in done.out
    listed.rename(check.folder / "other.toml")
    check("stores:Lossy", "--case", "append_storm", code=1)
    named = ("--deviations", "other.toml")
    assert "DEVIATION" in check("stores:Lossy", "--case", "append_storm", *named).out
    stale = check("stores:Lossy", "--case", "append_then_read", *named)
    assert "DEVIATION" not in stale.out


def test_exploring_finds_the_race_by_its_schedule(check):
    done = check("stores:Lossy", "--case", "append_storm", "--explore", "5", "--json", code=1)
    (found,) = json.loads(done.out)["cases"]
    assert (found["verdict"], found["mode"]) == ("FAIL", "tasks")
    assert found["schedule"]


def test_a_terminal_shows_a_bar(check, command):
    code, out, shown = at_a_terminal(command, "check", "memory:", "--case", "append_then_read")
    assert code == 0
    assert "append_then_read" in shown
    assert "PASS" in out


@pytest.mark.parametrize(
    ("text", "time_s"), [("90", 90), ("90s", 90), ("2m", 120), ("1.5m", 90), ("1h", 3600)]
)
def test_times_are_written_as_people_write_them(text, time_s):
    assert parse_seconds(text) == time_s


@pytest.mark.parametrize("text", ["", "s", "-1", "2 days", "1e3", "nan", "0s", "٣"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(UsageError):
        parse_seconds(text)


def test_cases_lists_the_book(command):
    listed = json.loads(command("cases", "--json").out)
    assert [(each["gate"], each["case"]) for each in listed] == [
        (each.gate, each.name) for each in all_cases()
    ]
    assert all(each["does"] and each["catches"] for each in listed)
    assert {each["gate"] for each in listed} <= set(GATES)


def test_cases_of_one_gate(command):
    shown = command("cases", "--gate", "concurrency").out
    assert "append_storm" in shown
    assert "append_then_read" not in shown
    assert command("cases", "--gate", "tall", code=2).err.startswith("Error: There is no gate")


def test_a_command_or_a_choice_that_is_misspelled_is_guessed(command):
    assert command("expain", "t.jsonl", code=2).err.endswith("; did you mean explain?\n")
    refused = command("replay", "t.jsonl", "--store", "x", "--level", "concurent", code=2)
    assert refused.err.endswith("; did you mean concurrent?\n")


SURVEY = """
from memory_contract.cli.main import build_parser
from memory_contract.errors import UsageError
from memory_contract.goldfish import GOLDFISH
for name in list(GOLDFISH):
    if name not in {kept}:
        del GOLDFISH[name]
{more}
from memory_contract.cli.main import run
run()
"""
FEW = ["reversed_list", "read_modify_write_in_memory"]


def test_goldfish_says_of_each_what_caught_it(command):
    assert set(FEW) <= set(GOLDFISH)
    few = ("-c", SURVEY.format(kept=FEW, more=""))
    done = command("goldfish", "--seed", "7", python=few)
    assert re.search(
        r"^caught +reversed_list +order_of_single_appends\[\w+", done.out, re.MULTILINE
    )
    assert done.out.endswith("2 of 2 goldfish caught, seed 7.\n")
    found = json.loads(command("goldfish", "--seed", "7", "--json", python=few).out)
    assert (found["seed"], found["caught"]) == (7, 2)
    assert {each["name"] for each in found["goldfish"]} == set(FEW)
    assert all(each["caught"] and each["anomaly"] for each in found["goldfish"])


def test_a_goldfish_that_gets_away_is_a_failure(command):
    # A right store in a goldfish's clothes.
    swap = (
        "from dataclasses import replace\n"
        "from memory_contract.goldfish import RIGHT\n"
        "fish = GOLDFISH['reversed_list']\n"
        "GOLDFISH['reversed_list'] = replace(fish, adapter=next(iter(RIGHT.values())))\n"
    )
    one = ("-c", SURVEY.format(kept=["reversed_list"], more=swap))
    done = command("goldfish", "--seed", "7", python=one, code=1)
    assert re.search(
        r"^NOT CAUGHT +reversed_list +order_of_single_appends: ", done.out, re.MULTILINE
    )
    assert done.out.endswith("0 of 1 goldfish caught, seed 7.\n")


def test_the_factory_to_write_is_shown_for_the_class(check):
    done = check("stores:Remote", code=2)
    assert done.err == (
        "Error: stores:Remote takes host, db_path, and the kit does not know what to pass. Nothing"
        " was run.\n\nWrite a factory, for example in contract_store.py:\n\n"
        "    from stores import Remote\n\n\n"
        "    def make_store(workspace):\n"
        "        return Remote(...)  # with its data in the folder `workspace`\n\n"
        "Then:  memory-contract check contract_store:make_store\n"
    )


def test_a_quick_check_ends_early_and_says_what_it_left_out(check):
    done = check("stores:Lossy", "--quick", code=1)
    assert done.err.count("Reproduce with:") == 1, "the first proof, as soon as there is one"
    assert "LOST APPEND" in done.out
    assert re.search(r"^Quick: \d+ cases left out; --full runs them.$", done.out, re.MULTILINE)
    assert "Next: memory-contract check stores:Lossy --case " in done.out


@pytest.mark.parametrize(
    ("line", "at_terminal", "quick"),
    [
        (["check", "m:x"], True, True),
        (["check", "m:x"], False, False),
        (["check", "m:x", "--quick"], False, True),
        (["check", "m:x", "--full"], True, False),
        (["check", "m:x", "--case", "append_storm"], True, False),
        (["check", "m:x", "--json"], True, False),
        (["check", "m:x", "--quick", "--gate", "edges"], False, True),
    ],
)
def test_a_check_is_quick_at_a_terminal_or_if_asked(line, at_terminal, quick, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: at_terminal, raising=False)
    assert is_quick(build_parser().parse_args(line)) is quick


def test_quick_and_full_exclude_one_another(check):
    assert "not allowed with" in check("memory:", "--quick", "--full", code=2).err


def test_a_window_is_claimed_on_the_command_line(check):
    done = check("stores:Newest", "--case", "order_of_single_appends", "--keeps-last", "20")
    assert "Next: memory-contract init stores:Newest" in done.out
    done = check("stores:Newest", "--case", "order_of_single_appends", "--keeps-last", "30", code=1)
    again = "memory-contract check stores:Newest --keeps-last 30 --case"
    assert f"Next: {again}" in done.out
    assert f"Reproduce with:  {again}" in done.out
    assert "1 is less than a turn" in check("memory:", "--keeps-last", "1", code=2).err


LAUNCHER = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("memory_contract", run_name="__main__", alter_sys=True)
"""


def test_an_interrupted_check_shows_what_had_ended(check):
    command = [sys.executable, "-c", LAUNCHER, "check", "stores:Lossy", "--full"]
    running = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=check.folder,
        env=environment(),
    )
    try:
        # Told before it is kept: the first is kept when the second is told.
        for _ in range(2):
            assert running.stderr.readline().startswith("PASS         sequential/")
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 128 + signal.SIGINT
    table, last = out.rsplit("\n", 2)[:2]
    assert re.match(r"gate +PASS .*\nsequential( +[\d·]+)+(\n|$)", table)
    assert re.fullmatch(r"\d+ cases? had ended, \d+ PASS(, \d+ [A-Z ]+)*: no verdict\.", last)
    assert err.endswith("Interrupted.\n")


def test_init_writes_a_factory_a_test_and_a_ci_step_and_overwrites_nothing(check, command):
    done = command("init", "stores:Remote")
    assert done.out.endswith(
        "Fill in make_store in contract_store.py first.\n"
        "Name your copy of memory-contract in .github/workflows/memory-contract.yml.\n"
        "Next: memory-contract check contract_store:make_store\n"
    )
    factory = (command.folder / "contract_store.py").read_text("utf-8")
    assert "def make_store(workspace):\n    return Remote(...)  #" in factory
    test = (command.folder / "test_memory_contract.py").read_text("utf-8")
    assert 'adapter = "contract_store:make_store"' in test
    workflow = command.folder / ".github" / "workflows" / "memory-contract.yml"
    assert "memory-contract check contract_store:make_store --full" in workflow.read_text("utf-8")
    workflow.unlink()
    (command.folder / "contract_store.py").write_text("mine", "utf-8")
    again = command("init", "stores:Remote")
    assert "contract_store.py is there already: left as it is." in again.err
    assert (command.folder / "contract_store.py").read_text("utf-8") == "mine"
    assert "are there already: nothing was written" in command("init", code=2).err


@pytest.mark.parametrize(
    ("file", "installed"),
    [
        ("pyproject.toml", ". ./memory-contract"),
        ("requirements.txt", "-r requirements.txt ./memory-contract"),
        (None, "./memory-contract"),
    ],
)
def test_init_installs_a_project_only_if_it_can_be(command, file, installed):
    folder = command.folder / "project"
    folder.mkdir()
    if file is not None:
        (folder / file).touch()
    command("init", "--into", "project")
    workflow = (folder / ".github" / "workflows" / "memory-contract.yml").read_text("utf-8")
    # Not on PyPI yet: the name alone would install what anybody uploads there.
    assert f"      - run: pip install {installed}\n" in workflow


def test_a_place_where_nothing_can_be_written_ends_with_4(check, command):
    (command.folder / "taken").touch()
    told = command("init", "--into", "taken", code=4)
    assert "annot write taken/" in told.err
    assert "is there already" not in told.err
    (command.folder / "out" / "report.html").mkdir(parents=True)
    told = check("memory:", "--case", "append_then_read", "--report", "out", code=4).err
    assert "Error: Cannot write a report to out: Is a directory.\n" in told
    done = check("stores:Lossy", "--report", "taken", code=4)
    assert done.out == ""
    assert done.err == "Error: Cannot write a report to taken: File exists. Nothing was run.\n"


def test_init_writes_no_password(command):
    done = command("init", "redis://user:hunter2@host/0")
    workflow = command.folder / ".github" / "workflows" / "memory-contract.yml"
    test = (command.folder / "test_memory_contract.py").read_text("utf-8")
    for text in (done.out, done.err, test, workflow.read_text("utf-8")):
        assert "hunter2" not in text
    assert 'adapter = os.environ["STORE_URL"]  # redis://user:***@host/0\n' in test
    assert 'memory-contract check "$STORE_URL" --full' in workflow.read_text("utf-8")
    assert "          STORE_URL: ${{ secrets.STORE_URL }}\n" in workflow.read_text("utf-8")
    assert done.out.endswith('Next: memory-contract check "$STORE_URL"\n')


@pytest.mark.parametrize("target", ["sqlite:///a & b.db", "memory:", "stores:adapter"])
def test_a_test_that_init_wrote_runs(check, command, target):
    stores = command.folder / "stores.py"
    stores.write_text(STORES + "\n\nadapter = Adapter(open=Newest)\n", "utf-8")
    done = command("init", target)
    assert done.out.endswith(f"Next: memory-contract check {shlex.quote(target)}\n")
    workflow = command.folder / ".github" / "workflows" / "memory-contract.yml"
    step = f"      - run: |\n          memory-contract check {shlex.quote(target)} --full "
    assert step in workflow.read_text("utf-8")
    program = [sys.executable, "-m", "pytest", "-q", "-k", "append_then_read"]
    subprocess.run(program, cwd=command.folder, check=True, env=environment())


@pytest.mark.parametrize("target", ["stores:make_remote", "stores:Newest"])
def test_init_takes_what_can_be_checked_as_it_is(check, command, target):
    done = command("init", target, "--into", "project")
    assert "Fill in" not in done.out
    assert f"Next: memory-contract check {target}" in done.out
    assert not (command.folder / "project" / "contract_store.py").exists()


def test_a_misspelled_name_is_a_question_and_the_next_sentence_begins_after_it(check):
    assert "did you mean Newest? Nothing was run." in check("stores:Nevest", code=2).err


def test_a_method_that_begins_a_sentence_keeps_its_name(check):
    assert check("stores:Words", code=2).err.startswith("Error: load_memory returned one text")


def test_ctrl_c_while_the_commands_are_imported_prints_no_traceback():
    interrupted = """
import sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == "memory_contract.cli.check":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
from memory_contract.cli import run
run()
"""
    done = subprocess.run(
        [sys.executable, "-c", interrupted], stderr=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "Interrupted.\n")


def test_a_target_is_named_as_it_was_typed(check):
    said = check("stores:asyncio", code=2)
    assert "stores:asyncio is neither an Adapter nor a factory" in said.err


def test_the_faults_that_can_be_made_here_are_listed(command):
    said = command("faults").out
    for line in ("nothing: ", "  processes, ", "server: ", "  PostgreSQL, "):
        assert line in said
    named = command("faults", "--json", env={"MEMORY_CONTRACT_REDIS_SERVER": "/no/such"})
    found = {each["name"]: each for each in json.loads(named.out)["means"]}
    assert found["processes"] == {
        "tier": "nothing",
        "name": "processes",
        "makes": "kill -9, forks, pauses, clocks",
        "missing": "",
    }
    assert "/no/such" in found["Valkey or Redis"]["missing"]
    said = command("faults", env={"MEMORY_CONTRACT_REDIS_SERVER": "/no/such"}).out
    assert "NOT HERE: " in said
    assert said.endswith("NOT RUN, which is not PASS.\n")
