"""No command prints a password or writes one to a file, and what it proposes can be pasted."""

import json
import re
import shlex
import stat
from pathlib import Path

import pytest

import indelible
from memory_contract.faults.servers.valkey import ValkeyServer
from tests.support import postgres_server
from tests.support.canary import AWKWARD, CANARY, files_with_canary
from tests.support.transcripts import UNKNOWN

INCIDENTS = Path(__file__).parents[2] / "examples" / "incidents"
TRACE = INCIDENTS / "compression_raced" / "test_compression_raced.jsonl"


@pytest.fixture
def postgres():
    """A database whose URL names a user and holds a password."""
    return postgres_server.fresh_database().replace("postgres@", f"postgres:{CANARY}@")


@pytest.fixture(scope="module")
def redis(tmp_path_factory):
    """A server that lets nobody in without the password."""
    server = ValkeyServer(tmp_path_factory.mktemp("valkey"), {"requirepass": CANARY})
    server.start()
    yield server.url.replace("redis://", f"redis://default:{CANARY}@")
    server.kill()


@pytest.fixture(params=["postgres", "redis"])
def url(request):
    """The URL of a server, with a password."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def exported(command):
    command("export", "all.jsonl")
    return "all.jsonl"


def test_import_asks_without_the_password(command, exported, url):
    asked = command("import", exported, "--url", url, code=2)
    assert "into " in asked.err
    assert ":***@" in asked.err


def test_import_langchain_asks_without_the_password(command, url):
    (command.folder / "ada.json").write_text("[]", "utf-8")
    asked = command("import-langchain", "ada.json", "--url", url, code=2)
    assert ":***@" in asked.err


def test_import_langchain_reads_from_a_server_without_showing_its_password(command, url):
    done = command("import-langchain", url, "--url", "new.db", "--yes", code=None)
    assert done.code in (0, 4)


@pytest.mark.parametrize("password", AWKWARD)
@pytest.mark.parametrize("scheme", ["postgresql", "redis"])
def test_no_command_shows_a_password_of_a_server_that_is_not_there(command, scheme, password):
    url = f"{scheme}://ann:{password}@127.0.0.1:1/0"
    lines = [
        ["sessions", "--url", url, "--timeout", "0.1"],
        ["sessions", f"--url={url}", "--timeout", "0.1"],
        ["copy", url, "other.db", "--timeout", "0.1"],
        ["import-langchain", url, "--url", "new.db", "--yes"],
    ]
    for line in lines:
        assert command(*line, code=None).code in (2, 4), line
    assert command("proxy", url, code=None, program="memory-contract").code in (2, 4)
    command("proxy", url, code=2)


@pytest.mark.parametrize(
    "line", [["check"], ["replay", str(TRACE), "--store"]], ids=["check", "replay"]
)
def test_the_kit_shows_no_password_of_a_server_that_is_not_there(command, line):
    url = f"postgresql://ann:x#{CANARY}@127.0.0.1:1/0"
    command(*line, url, code=4, program="memory-contract")


def test_every_look_at_a_server_hides_its_password(command, exported, url):
    command("import", exported, "--url", url, "--yes")
    for line in (
        ["sessions"],
        ["claims"],
        ["doctor"],
        ["doctor", "--json"],
        ["verify"],
        ["history", "nobody"],
        ["show", "ada"],
        ["rollback", "ada", "0000000000000000"],
        ["import", exported],
        ["undo", "ada"],
    ):
        command(*line, "--url", url, code=None)


def test_a_proposed_command_has_stars_in_place_of_the_password(command, url):
    with indelible.open(url) as store:
        store.add_message("ada", "user", "different")
    done = command("copy", "agent.db", url, "--session", "ada", "--yes", code=1)
    proposed = re.search(r"`(indelible forget .*)`", done.err)[1]
    assert url.replace(CANARY, "***") in proposed
    command(*shlex.split(proposed.replace("***", CANARY))[1:], "--yes")
    with indelible.open(url) as store:
        assert store.get_history("ada") == []


def test_a_retry_does_not_repeat_the_password_of_a_url(command, redis):
    python = ("-c", UNKNOWN)
    line = ("append", "ada", "user", "hello", "--url", redis)
    assert "Run the same again with `--key" in command(*line, python=python, code=4).err
    line = ("fork", "ada", "copy", f"--url={redis}", "--yes")
    assert "redis://default:***@" in command(*line, python=python, code=4).err


@pytest.mark.parametrize("dsn", [f"host=db password={CANARY}", f"dbname=x password='{CANARY}'"])
@pytest.mark.parametrize(
    "line",
    [
        ["sessions", "--url", "{}"],
        ["append", "ada", "user", "hello", "--url", "{}"],
        ["import", "all.jsonl", "--url", "{}", "--yes"],
        ["copy", "agent.db", "{}", "--yes"],
        ["copy", "{}", "agent.db", "--yes"],
        ["import-langchain", "{}", "--yes"],
        ["check", "{}"],
        ["doctor", "{}"],
        ["replay", str(TRACE), "--store", "{}"],
    ],
)
def test_a_keyword_dsn_is_refused_and_makes_no_file(command, exported, line, dsn):
    before = sorted(command.folder.iterdir())
    program = "memory-contract" if line[0] in ("check", "replay") else "indelible"
    refused = command(*(word.format(dsn) for word in line), code=2, program=program)
    assert "postgresql://" in refused.err
    assert sorted(command.folder.iterdir()) == before


@pytest.mark.parametrize("form", ["{}", "{}&password="], ids=["userinfo", "parameter"])
def test_a_check_and_its_report_hide_the_password(command, postgres, form):
    url = postgres if form == "{}" else f"{postgres.replace(CANARY, 'x')}?password={CANARY}"
    line = ("check", url, "--case", "fresh_store_is_empty")
    done = command(*line, "--report", "out", code=None, program="memory-contract")
    assert done.code == 0, done
    command(*line, "--json", code=None, program="memory-contract")
    assert files_with_canary(command.folder) == []


def test_written_tests_and_traces_hold_no_password(command, url):
    done = command(
        "replay",
        str(TRACE),
        "--store",
        url,
        "--times",
        "1",
        "--write-test",
        "test_it.py",
        code=None,
        program="memory-contract",
    )
    assert "Wrote" in done.out, done
    text = (command.folder / "test_it.py").read_text("utf-8")
    assert 'STORE = os.environ["STORE_URL"]' in text
    compile(text, "test_it.py", "exec")
    trace = command.folder / "test_it.jsonl"
    assert json.loads(trace.read_text("ascii").splitlines()[0]).get("store", "") == ""
    assert stat.S_IMODE(trace.stat().st_mode) == 0o600
    assert files_with_canary(command.folder) == []


def test_a_shrunk_trace_is_for_its_owner_alone(tmp_path):
    from memory_contract.traces.replay import load_trace
    from memory_contract.traces.shrink import write_small_trace

    path = tmp_path / "small.jsonl"
    write_small_trace(path, load_trace(TRACE))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "line",
    [
        ["sessions", "{}"],
        ["sessions", "--limit", "{}"],
        ["sessions", "--ur={}"],
        ["{}"],
        ["--ur={}", "sessions"],
        ["history", "ada", "{}", "{}"],
        ["golden", "{}"],
        ["golden", "list", ".", "{}"],
        ["doctor", "{}", "{}"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_told_without_the_password(command, line):
    command(*(word.format(f"postgresql://ann:{CANARY}@db/x") for word in line), code=2)


@pytest.mark.parametrize(
    "line",
    [
        ["check"],
        ["check", "{}", "{}"],
        ["check", "--sed={}", "x"],
        ["{}"],
        ["replay", "{}", "{}", "{}"],
    ],
    ids=" ".join,
)
def test_wrong_usage_of_the_kit_is_told_without_the_password(command, line):
    words = [word.format(f"postgresql://ann:{CANARY}@db/x") for word in line]
    command(*words, code=2, program="memory-contract")
