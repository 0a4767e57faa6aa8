"""`memory-contract explain`, `replay` and `shrink`, as a person calls them."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from memory_contract.cli.main import main
from memory_contract.errors import KitError, UnavailableError, UsageError

INCIDENTS = Path(__file__).parents[2] / "examples" / "incidents"
OVERWRITTEN = INCIDENTS / "compression_raced" / "test_compression_raced.jsonl"
FISH = "from memory_contract.goldfish import GOLDFISH\n"

PROGRAM = "memory-contract"


class Done(NamedTuple):
    exit_code: int
    output: str
    exception: BaseException | None


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a command in a folder of its own, in which `fish:adapter` forgets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "fish.py").write_text(f"{FISH}adapter = GOLDFISH['trim_of_an_old_list'].adapter\n")

    def call(*arguments):
        capsys.readouterr()
        try:
            code, error = main([str(each) for each in arguments]), None
        except KitError as refused:
            code, error = refused.exit_code, refused
        shown = capsys.readouterr()
        return Done(code, shown.out + shown.err, error)

    return call


def test_explain_names_the_entry_and_draws_who_did_what(run):
    said = run("explain", OVERWRITTEN)
    assert said.exit_code == 1
    assert "LOST APPEND" in said.output
    assert "was acknowledged to" in said.output
    assert "Timeline:" in said.output
    assert "├" in said.output


def test_explain_writes_a_page_and_speaks_json(run, tmp_path):
    said = run("explain", OVERWRITTEN, "--report", tmp_path / "pages" / "page.html", "--json")
    found = json.loads(said.output)
    assert found["verdict"] == "VIOLATED"
    assert found["anomalies"] == {"lost append": 1}
    assert len(found["stories"][0]["operations"]) <= 4
    assert "<html" in (tmp_path / "pages" / "page.html").read_text("utf-8")


def test_a_report_replaces_a_page_and_nothing_else(run, tmp_path):
    trace = tmp_path / "trace.jsonl"
    trace.write_bytes(OVERWRITTEN.read_bytes())
    said = run("explain", trace, "--report", trace)
    assert isinstance(said.exception, UsageError)
    assert trace.read_bytes() == OVERWRITTEN.read_bytes()
    page = tmp_path / "page.html"
    for _ in range(2):
        assert run("explain", trace, "--report", page).exit_code == 1
    assert "<html" in page.read_text("utf-8")


def test_explain_of_a_right_store_ends_with_0(run, tmp_path):
    import indelible
    from memory_contract import record

    with record(indelible.open("memory:"), tmp_path / "trace.jsonl") as store:
        store.add_message("s", "user", "hello")
        store.get_history("s")
    said = run("explain", "trace.jsonl")
    assert (said.exit_code, said.output.split()[0]) == (0, "OK")


def test_replay_says_what_the_store_does_and_ends_with_its_code(run):
    again = run("replay", OVERWRITTEN, "--store", "fish:adapter", "--seed", "1", "--times", "100")
    assert again.exit_code == 1
    assert again.output.startswith("FAILED   the store does the same again")
    fixed = run("replay", OVERWRITTEN, "--store", "memory:", "--seed", "1", "--json")
    assert fixed.exit_code == 0
    found = json.loads(fixed.output)
    assert (found["verdict"], found["seed"], found["found"]) == ("FIXED", 1, [])


def test_replay_writes_a_test(run, tmp_path):
    place = tmp_path / "incidents" / "test_2026_05_amnesia.py"
    said = run("replay", OVERWRITTEN, "--store", "memory:", "--write-test", place)
    assert said.exit_code == 0
    assert "Wrote" in said.output
    assert "def test_2026_05_amnesia():" in place.read_text("utf-8")
    assert place.with_suffix(".jsonl").exists()


def test_shrink_writes_the_small_trace(run, tmp_path):
    trace = INCIDENTS / "window_of_one" / "trace.jsonl"
    (tmp_path / "narrow.py").write_text(f"{FISH}adapter = GOLDFISH['window_of_one'].adapter\n")
    said = run("shrink", trace, "--store", "narrow:adapter", "--output", "small.jsonl", "--json")
    assert said.exit_code == 0, said.output
    found = json.loads(said.output)
    assert found["operations"] < found["operations_before"]
    assert Path(found["trace"]).exists()
    again = run("shrink", trace, "--store", "narrow:adapter", "--output", "small.jsonl")
    assert isinstance(again.exception, Exception)
    assert "is there already" in str(again.exception)


@pytest.mark.parametrize("command", ["replay", "shrink"])
def test_a_test_that_is_there_is_refused_before_anything_runs(run, tmp_path, command):
    (tmp_path / "test_x.py").write_text("# kept")
    (tmp_path / "fish.py").write_text("raise AssertionError('the store was imported')")
    options = ["--write-test", "test_x.py", *(["--output", "small.jsonl"] * (command == "shrink"))]
    said = run(command, OVERWRITTEN, "--store", "fish:adapter", *options)
    assert isinstance(said.exception, UsageError)
    assert "test_x.py is there already" in str(said.exception)
    assert (tmp_path / "test_x.py").read_text() == "# kept"
    assert not (tmp_path / "small.jsonl").exists()


def test_a_small_trace_may_go_to_a_folder_that_is_not_there_yet(run, tmp_path):
    trace = INCIDENTS / "window_of_one" / "test_window_of_one.jsonl"
    (tmp_path / "narrow.py").write_text(f"{FISH}adapter = GOLDFISH['window_of_one'].adapter\n")
    place = tmp_path / "small" / "trace.jsonl"
    said = run("shrink", trace, "--store", "narrow:adapter", "--output", place)
    assert said.exit_code == 0, said.output
    assert place.exists()


def test_a_small_trace_that_cannot_be_written_is_said_before_anything_runs(run, tmp_path):
    (tmp_path / "file").write_text("")
    said = run("shrink", OVERWRITTEN, "--store", "fish:adapter", "--output", "file/small.jsonl")
    assert isinstance(said.exception, UnavailableError)
    assert "Nothing was run" in str(said.exception)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "UNKNOWN   the trace holds no operation   0 ops in 0 sessions\n"),
        ('{"indelible_trace": 1, "ver', "missing from the trace: 1 line."),
    ],
)
def test_explain_of_an_empty_trace_ends_with_3(run, tmp_path, text, words):
    (tmp_path / "trace.jsonl").write_text(text)
    said = run("explain", "trace.jsonl")
    assert said.exit_code == 3
    assert words in said.output


def test_shrink_has_nothing_to_do_where_the_store_does_not_fail(run, tmp_path):
    trace = INCIDENTS / "window_of_one" / "test_window_of_one.jsonl"
    said = run("shrink", trace, "--store", "memory:", "--output", tmp_path / "small.jsonl")
    assert said.exit_code == 3
    assert "nothing to shrink" in said.output
    assert not (tmp_path / "small.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("replay", OVERWRITTEN, "--store", "nothing:here"), "cannot import"),
        (
            ("replay", OVERWRITTEN, "--store", "memory:", "--session", "x"),
            "no operation of session",
        ),
        (
            ("replay", OVERWRITTEN, "--store", "memory:", "--write-test", "x.txt"),
            "no name of a test",
        ),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_run(run, arguments, words):
    said = run(*arguments)
    assert isinstance(said.exception, UsageError)
    assert words in str(said.exception)


@pytest.mark.parametrize(
    "arguments",
    [
        ("explain",),
        ("replay", "--store", "memory:"),
        ("shrink", "--store", "memory:"),
    ],
)
def test_a_trace_that_is_not_there_ends_with_4(run, arguments):
    said = run(*arguments, "nowhere.jsonl")
    assert isinstance(said.exception, UnavailableError)
    assert "there is no trace nowhere.jsonl" in str(said.exception)


def test_explain_ends_with_3_when_most_was_not_judged(run, tmp_path):
    import indelible
    from memory_contract import record

    inner = indelible.open("memory:")
    inner.add_message("s", "user", "older than the trace")
    with record(inner, tmp_path / "trace.jsonl") as store:
        store.get_history("s", last=3)
        store.get_history("s", last=2)
    said = run("explain", "trace.jsonl")
    assert said.exit_code == 3
    assert "2 of 2 operations were not judged" in said.output
    assert json.loads(run("explain", "trace.jsonl", "--json").output)["not_judged"] == 2


def test_explain_finds_a_loss_in_a_trace_that_does_not_say_that_the_store_was_empty(run, tmp_path):
    from memory_contract import record
    from memory_contract.traces.recorder import get_trace_writer

    class Last:
        def __init__(self):
            self.held = []

        def add_messages(self, session, messages):
            self.held += messages

        def get_history(self, session):
            return self.held[-1:]

    store = record(Last(), tmp_path / "trace.jsonl")
    for number in range(3):
        store.add_messages("ana", [{"role": "user", "content": f"My number is {number}."}])
    store.get_history("ana")
    get_trace_writer(store).close()
    said = run("explain", "trace.jsonl")
    assert said.exit_code == 1
    assert "lost append (2)" in said.output
