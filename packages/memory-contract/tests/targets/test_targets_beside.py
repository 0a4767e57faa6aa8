"""The kit pointed at real stores of the frameworks that have an environment of their own.

They bring many packages, so `make frameworks` installs each beside the others. The command runs
there, on the factories of the scoreboard and of this folder. `make test-exhaustive` installs some
of them; those that search are large, and `make test-frameworks` has them all.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).parents[4]
SEARCHING = ("mem0", "crewai")
SEQUENTIAL = (
    *("append_then_read", "batch_in_order", "capabilities_are_true", "reads_are_copies"),
    *("clear_only_this_session", "sessions_are_listed", "limit_gives_the_newest"),
    *("message_fields_survive", "refused_append_leaves_nothing", "short_programs"),
)


def run(framework, *arguments):
    """A run of Python in the environment of a framework."""
    python = ROOT / ".venv-frameworks" / framework / "bin" / "python"
    if framework in SEARCHING and not python.exists():
        pytest.skip("make test-frameworks")
    assert python.exists(), f"make .venv-frameworks/{framework}/.ready"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PY")}
    return subprocess.run(
        [python, *arguments],
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def checked(framework, factory, *cases, target=""):
    """The verdicts of cases by mode, without those that are not claimed; and the report's notes."""
    chosen = [word for case in cases for word in ("--case", case)]
    target = target or f"{framework}:{factory}"
    command = ("check", target, *chosen, "--seed=3", "--budget=1", "--json")
    done = run(framework, "-m", "memory_contract", *command)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    found = [each for each in report["cases"] if each["verdict"] != "NOT CLAIMED"]
    verdicts = {f"{each['case']}[{each['mode']}]": each["verdict"] for each in found}
    return verdicts, report["notes"]


@pytest.mark.parametrize(
    ("framework", "factory", "mode", "lacks"),
    [
        ("adk", "scoreboard.factories.adk:in_memory", "async", set()),
        ("adk", "scoreboard.factories.adk:sqlite", "async", set()),
        (
            "strands",
            "scoreboard.factories.strands:file",
            "blocking",
            {"clear_only_this_session", "sessions_are_listed", "limit_gives_the_newest"},
        ),
        (
            "agno",
            "scoreboard.factories.agno:in_memory",
            "blocking",
            {"limit_gives_the_newest"},
        ),
        (
            "agno",
            "scoreboard.factories.agno:sqlite",
            "blocking",
            {"limit_gives_the_newest"},
        ),
        (
            "agno",
            "tests.support.kit.beside_agno:awaited",
            "async",
            {"limit_gives_the_newest"},
        ),
    ],
)
def test_a_store_keeps_what_its_interface_offers(framework, factory, mode, lacks):
    verdicts, _ = checked(framework, factory, *SEQUENTIAL)
    claimed = [case for case in SEQUENTIAL if case not in lacks]
    assert verdicts == {f"{case}[{mode}]": "PASS" for case in claimed}


@pytest.mark.parametrize("framework", ["adk", "strands", "agno"])
def test_a_store_that_forgets_is_caught(framework):
    verdicts, _ = checked(
        framework, f"tests.support.kit.beside_{framework}:forgetful", "short_programs"
    )
    assert set(verdicts.values()) == {"FAIL"}


def test_a_store_on_files_is_tried_by_several_processes():
    verdicts, notes = checked("strands", "scoreboard.factories.strands:file", "append_storm")
    assert set(verdicts) == {"append_storm[threads]", "append_storm[processes]"}
    assert any("one session is written by one agent at a time" in note for note in notes)


def test_a_database_without_runs_of_their_own_keeps_them_in_the_session():
    verdicts, _ = checked("agno", "tests.support.kit.beside_agno:without_runs", "append_then_read")
    assert verdicts == {"append_then_read[blocking]": "PASS"}


STALE = """
import asyncio, sys
from pathlib import Path
from memory_contract.targets import resolve

async def append():
    adapter = resolve("adk:tests.support.kit.beside_adk:overtaken")
    handle = await adapter.open_async(Path(sys.argv[1]))
    for _ in range(2):
        await handle.append("s", [{"role": "user", "content": "hello"}])

asyncio.run(append())
"""


def test_a_session_that_somebody_else_wrote_to_is_a_refusal(tmp_path):
    done = run("adk", "-c", STALE, str(tmp_path))
    assert "memory_contract.adapter.Conflict: " in done.stderr


# Memory that is searched


def test_memories_of_mem0_are_found_and_taken_back():
    recall = (
        *("what_was_put_is_found", "newest_version_is_found", "retracted_is_not_found"),
        *("cleared_is_not_found", "filter_comes_before_the_limit", "collections_do_not_leak"),
        "same_query_same_order",
    )
    cases = ("append_then_read", "clear_only_this_session", *recall)
    verdicts, notes = checked("mem0", "", *cases, target="scoreboard.factories.mem0:qdrant")
    assert verdicts == {f"{case}[blocking]": "PASS" for case in cases}
    assert any("two who put a new item at once" in note for note in notes)


def test_a_memory_that_keeps_what_was_deleted_is_caught():
    cases = ("append_then_read", "retracted_is_not_found")
    verdicts, _ = checked("mem0", "tests.support.kit.beside_mem0:forgetful", *cases)
    assert verdicts == {
        "append_then_read[blocking]": "PASS",
        "retracted_is_not_found[blocking]": "FAIL",
    }


def test_storage_of_crewai_is_driven():
    cases = ("append_then_read", "collections_do_not_leak")
    verdicts, _ = checked("crewai", "scoreboard.factories.crewai:lancedb", *cases)
    # A scope shows what is in others whose names begin like its own.
    assert verdicts == {
        "append_then_read[blocking]": "PASS",
        "collections_do_not_leak[blocking]": "FAIL",
    }
