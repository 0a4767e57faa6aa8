"""The page is one file that asks for nothing, whatever a store named, and holds what it can."""

import base64
import hashlib
import json
import re
import subprocess
import sys

import pytest

from memory_contract import Report
from memory_contract.report import to_page
from memory_contract.report.program import build_program
from tests.support.report_samples import (
    HOSTILE,
    every_verdict,
    hostile,
    killed,
    long_run,
    lossy,
    lost,
    reordered,
    unexpected,
)


def data_of(page):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(found[1])


def case_of(report, name):
    return next(case for case in data_of(to_page(report))["cases"] if case["case"] == name)


def test_style_and_script_are_inside_and_nothing_else_may_run():
    page = to_page(every_verdict())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert "default-src 'none'" in policy
    for tag in ("style", "script"):
        text = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not re.search(r"""(src|href)=["'](?!data:,|#)""", page)
    assert not re.search(r"@import|url\(", page)
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", page)


def test_the_page_writes_no_markup_from_data():
    script = re.search(r"<script>(.*?)</script>", to_page(every_verdict()), re.DOTALL)[1]
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|eval|Function\(", script
    )


def test_hostile_names_stay_inside_the_data():
    page = to_page(hostile())
    page.encode("utf-8")
    assert "<img" not in page
    assert page.count("</script>") == 2
    assert page.count("<!--") == 0
    assert data_of(page)["cases"][0]["failures"][0]["session"] == HOSTILE


def test_it_opens_on_a_history_that_holds_the_witness():
    for case in data_of(to_page(lossy()))["cases"]:
        for failure in case["failures"]:
            assert set(failure["witness"]) <= set(failure["minimal"])
            assert len(failure["minimal"]) < case["recorded"]
            assert max(failure["minimal"]) < len(case["operations"])


def test_every_operation_of_a_short_run_is_there():
    report = lossy()
    kept = {case["slug"]: len(case["operations"]) for case in data_of(to_page(report))["cases"]}
    for result in report.results:
        assert kept[f"{result.gate}-{result.case}-{result.mode}"] == len(result.history)


def test_expiry_lies_across_the_lanes():
    case = case_of(every_verdict(), "ttl_ends_everything")
    assert [(band["kind"], band["label"]) for band in case["bands"]] == [("expiry", "c-1 expires")]


def test_faults_lie_across_the_lanes():
    case = case_of(killed(), "kill9_under_load")
    assert [(band["kind"], band["label"], band["to"]) for band in case["bands"]] == [
        ("fault", "fork", 500_000),
        ("fault", "kill -9", 21_000_000),
        ("fault", "kill -9", None),
    ]
    assert "died with its process" in case["failures"][0]["likely"]


def test_of_a_long_run_the_proof_and_its_session_are_kept(monkeypatch):
    monkeypatch.setattr("memory_contract.report.page_data.OPERATIONS_MAX", 50)
    case = case_of(long_run(200), "append_storm")
    assert len(case["operations"]) == 50
    assert case["recorded"] == 207
    assert sum(op["session"] == "c-1" for op in case["operations"]) == 6


def test_a_page_has_a_size(monkeypatch):
    monkeypatch.setattr("memory_contract.report.page_data.IDS_MAX", 200)
    case = case_of(long_run(300), "append_storm")
    assert 6 <= len(case["operations"]) <= 20


def test_without_time_to_look_for_less_the_witness_is_shown(monkeypatch):
    monkeypatch.setattr("memory_contract.report.page_data.SHRINKING_S_MAX", 0.0)
    failure = case_of(every_verdict(), "append_storm")["failures"][0]
    assert failure["minimal"] == failure["witness"]


def run(program, folder, *options):
    path = folder / "test_shown.py"
    path.write_text(program, "utf-8")
    command = [sys.executable, *options, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


@pytest.mark.parametrize("result", [lost(), reordered(), lost(HOSTILE, HOSTILE)])
def test_a_copied_test_judges_the_same_history_the_same(result, tmp_path):
    report = Report(target="m:x", seed=1, gates=("concurrency",), results=(result,))
    failure = data_of(to_page(report))["cases"][0]["failures"][0]
    done = run(failure["program"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert failure["name"].upper() in done.stdout


def test_a_copied_test_of_a_real_loss_runs(tmp_path):
    failure = case_of(lossy(), "append_storm")["failures"][0]
    done = run(failure["program"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "LOST APPEND" in done.stdout
    done = run(failure["program"], tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_what_only_the_store_can_show_is_asked_of_the_store(tmp_path):
    result = unexpected()
    report = Report(target="memory:", seed=1, gates=("concurrency",), results=(result,))
    program = build_program(report, result, result.failures[0], ())
    assert "check('memory:', cases=['lock_is_bounded'], seed=7)" in program
    compile(program, "program", "exec")
