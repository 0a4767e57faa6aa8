"""`pytest --contract TARGET`: the contract as items of pytest, run by real runs of pytest."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.support.kit import plugin_projects
from tests.support.kit.plugin_projects import contract, ids, outcomes, run

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[4]
STORM = "contract/concurrency/append_storm[threads]"
LOST = "contract/concurrency/append_storm[tasks]"


@pytest.fixture
def project(pytester, monkeypatch):
    plugin_projects.make(pytester, monkeypatch)
    return pytester


def test_without_paths_the_contract_alone_is_run(project):
    found = ids(contract(project, "--collect-only", "-q"))
    assert STORM in found
    assert "contract/sequential/append_then_read[blocking]" in found
    assert all(re.fullmatch(r"contract/[a-z]+/\w+\[[a-z]+\]", each) for each in found)
    assert len(found) == len(set(found))


def test_the_items_are_the_same_in_every_run(project):
    one = ids(contract(project, "--collect-only", "-q", seed=1))
    two = ids(contract(project, "--collect-only", "-q", seed=2))
    assert one == two


def test_with_paths_both_are_run(project):
    ran = contract(project, "test_own.py", "-k", "test_own or append_then_read", "-v")
    assert outcomes(ran) == {"passed": 2}
    ran.stdout.fnmatch_lines(
        ["test_own.py::test_own PASSED*", "contract/*append_then_read*PASSED*"]
    )
    ran.stdout.fnmatch_lines(["contract: stores:Steady, seed 7"])


def test_items_are_chosen_by_words_gates_and_ids(project):
    words = ids(contract(project, "--collect-only", "-q", "-k", "concurrency and append_storm"))
    assert words == [
        f"contract/concurrency/append_storm[{mode}]" for mode in ("threads", "processes")
    ]
    gate = ids(contract(project, "--collect-only", "-q", "--contract-gate", "edges"))
    assert gate
    assert all(each.startswith("contract/edges/") for each in gate)
    assert ids(contract(project, "--collect-only", "-q", STORM)) == [STORM]
    case = contract(
        project, "--collect-only", "-q", "contract/concurrency/append_storm", "test_own.py"
    )
    assert ids(case) == ["test_own.py::test_own", *words]


def test_an_id_that_does_not_exist_is_an_error(project):
    ran = contract(project, "contract/concurrency/no_such_case")
    assert ran.ret == pytest.ExitCode.INTERRUPTED
    ran.stdout.fnmatch_lines(["stores:Steady: there is no contract/concurrency/no_such_case"])


def test_a_broken_promise_fails_with_its_proof_and_no_traceback(project):
    ran = contract(project, "-k", "append_storm and tasks", store="Lossy")
    assert ran.ret == pytest.ExitCode.TESTS_FAILED
    assert outcomes(ran)["failed"] == 1
    shown = ran.stdout.str()
    assert "LOST APPEND" in shown
    assert "was acknowledged to" in shown or "were acknowledged to" in shown
    assert re.search(
        r"Reproduce with:  memory-contract check stores:Lossy --case \S+ --seed \d+", shown
    )
    assert "Traceback" not in shown
    assert "runtest" not in shown
    ran.stdout.fnmatch_lines([f"FAILED {LOST.replace('[', '[[]')} - *LOST APPEND*"])


def test_what_failed_last_is_run_again_alone(project):
    chosen = ("-k", "append_storm or append_then_read")
    first = outcomes(contract(project, *chosen, store="Lossy"))
    assert first["failed"] >= 1
    assert first["passed"] >= 1
    again = contract(project, "--lf", *chosen, store="Lossy")
    assert outcomes(again)["failed"] == first["failed"]
    assert "passed" not in outcomes(again)


def test_the_first_failure_can_end_the_run(project):
    ran = contract(project, "-x", "--contract-gate", "concurrency", store="Lossy")
    assert outcomes(ran)["failed"] == 1


def test_workers_of_xdist_share_the_items_and_the_seed(project):
    chosen = ("-k", "append_storm or append_then_read or test_own", "-v", "test_own.py")
    alone = outcomes(contract(project, *chosen, store="Lossy"))
    ran = contract(project, "-n", "2", *chosen, store="Lossy")
    assert outcomes(ran) == alone
    assert "Different tests were collected" not in ran.stdout.str()
    assert "LOST APPEND" in ran.stdout.str()
    target = ("--contract", "stores:Steady", "-k", "append_then_read or batch_in_order")
    unseeded = run(project, *target, "-n", "2", "--junitxml=o.xml")
    seeds = {each.get("value") for each in ET.parse(project.path / "o.xml").iter("property")}
    assert len(seeds) == 1
    assert outcomes(unseeded) == {"passed": 2}


def test_junit_knows_every_item(project):
    contract(project, "-k", "append_storm or append_then_read", "--junitxml=out.xml", store="Lossy")
    suite = ET.parse(project.path / "out.xml").getroot().find("testsuite")
    found = {case.get("name"): case for case in suite.iter("testcase")}
    failed = found["contract.concurrency.append_storm[tasks]"].find("failure")
    assert "LOST APPEND" in failed.text
    assert found["contract.sequential.append_then_read[async]"].find("failure") is None


def test_what_a_store_does_not_claim_is_skipped_with_the_reason(project):
    ran = contract(project, "-k", "pop_from_the_end or pop_race", "-rs")
    assert ran.ret == 0
    assert set(outcomes(ran)) == {"skipped"}
    # One line for all that share a reason.
    ran.stdout.fnmatch_lines(["SKIPPED*contract: NOT CLAIMED: the store does not claim pop"])


def test_several_stores_are_told_apart(project):
    ran = run(
        project,
        *("--contract", "stores:Steady", "--contract", "stores:Lossy"),
        *("--collect-only", "-q", "-k", "append_then_read"),
    )
    assert ids(ran) == [
        "contract/sequential/append_then_read[stores:Steady-blocking]",
        "contract/sequential/append_then_read[stores:Lossy-async]",
    ]


def test_a_password_is_not_shown(project):
    ran = run(project, "--contract", "redis://ann:hush@localhost:1/0")
    assert ran.ret != 0
    assert "hush" not in ran.stdout.str() + ran.stderr.str()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--contract", "stores:Nothing"], "cannot import 'stores:Nothing'"),
        (["--contract", "nowhere:Store"], "cannot import 'nowhere:Store'"),
        (["--contract", "memory:", "--contract-gate", "tall"], "there is no gate 'tall'"),
        (["--contract-gate", "edges"], "--contract"),
    ],
)
@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_wrong_usage_is_refused_before_anything_runs(project, arguments, words, workers):
    ran = run(project, *arguments, *workers)
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    assert words in ran.stderr.str()
    assert "Traceback" not in ran.stderr.str()


def test_a_store_that_cannot_be_reached_is_an_error(project):
    ran = contract(project, store="Closed")
    assert ran.ret == pytest.ExitCode.INTERRUPTED
    ran.stdout.fnmatch_lines(["stores:Closed: the store cannot be opened*nobody is there"])


def test_a_verdict_does_not_depend_on_how_a_project_takes_warnings(project):
    ran = contract(project, "-k", "append_then_read", store="Warning_")
    assert ran.ret == 0
    assert ran.parseoutcomes()["passed"] == 1
    assert ran.parseoutcomes()["warnings"] >= 1


def test_deviations_are_expected_failures_and_held_to_it(project):
    listed = '[concurrency.append_storm]\nreason = "until version 3"\nmodes = ["tasks"]\n'
    (project.path / "indelible-deviations.toml").write_text(listed, "utf-8")
    ran = contract(project, LOST, "-rx", store="Lossy")
    assert ran.ret == 0
    assert outcomes(ran) == {"xfailed": 1}
    ran.stdout.fnmatch_lines(["XFAIL*append_storm*until version 3*"])
    forced = contract(project, LOST, "--runxfail", store="Lossy")
    assert outcomes(forced) == {"failed": 1}


def test_a_deviation_that_passes_fails(project):
    listed = '[concurrency.append_storm]\nreason = "until version 3"\nmodes = ["threads"]\n'
    (project.path / "indelible-deviations.toml").write_text(listed, "utf-8")
    ran = contract(project, STORM)
    assert outcomes(ran) == {"failed": 1}
    assert "but it passes: remove it" in ran.stdout.str()


def test_a_wrong_list_of_deviations_is_wrong_usage(project):
    (project.path / "indelible-deviations.toml").write_text("[concurrency.nothing]\n", "utf-8")
    ran = contract(project)
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    assert "there is no case 'nothing'" in ran.stderr.str()


def test_whoever_does_not_use_it_does_not_notice_it(project, monkeypatch):
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    project.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    project.makepyfile(
        test_own="""
        import sys

        def test_own(pytestconfig):
            assert pytestconfig.pluginmanager.has_plugin("memory_contract")
            loaded = {name for name in sys.modules if name.startswith("memory_contract")}
            assert loaded == {"memory_contract", "memory_contract.pytest_plugin"}
            assert not [name for name in sys.modules if name.partition(".")[0] == "indelible"]
        """
    )
    ran = project.runpytest_subprocess("-W", "error", "--strict-config", "--strict-markers")
    assert outcomes(ran) == {"passed": 1}
    # But for the list of plugins, which pytest prints.
    lines = [line for line in ran.outlines if not line.startswith("plugins:")]
    assert not [line for line in lines if "contract" in line]


def test_it_lives_beside_the_plugins_of_others(project, monkeypatch):
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    project.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\nasyncio_mode = auto")
    target = ("--contract", "stores:Lossy", "-k", "append_then_read or test_own", "-n", "1")
    ran = project.runpytest_subprocess(*target, "-W", "error", "--timeout=500", "test_own.py")
    assert outcomes(ran) == {"passed": 2}


def test_nothing_is_left_behind(project, monkeypatch):
    place = project.mkdir("temporary")
    monkeypatch.setenv("TMPDIR", str(place))
    contract(project, "-k", "append_storm", "-p", "no:cacheprovider", store="Lossy")
    assert list(place.glob("memory-contract*")) == []


def test_the_kit_can_be_imported_without_pytest():
    code = "import sys, memory_contract; raise SystemExit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_wheel_brings_the_plugin(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    package = ROOT / "packages" / "memory-contract"
    subprocess.run(build, cwd=package, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        (points,) = (name for name in names if name.endswith("entry_points.txt"))
        plugin = "[pytest11]\nmemory_contract = memory_contract.pytest_plugin\n"
        assert plugin in packed.read(points).decode()
    assert "memory_contract/plugin/items.py" in names
    assert "memory_contract/report/report.schema.json" in names
