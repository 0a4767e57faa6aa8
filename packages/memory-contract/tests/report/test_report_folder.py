"""The report folder: all forms of a report, beside whatever was there."""

import json
from xml.etree import ElementTree as ET

from memory_contract import Violated, check_history, read_history
from memory_contract.report import to_json, write_report
from tests.support.report_samples import every_verdict, hostile, lossy, whole


def test_every_form_is_written(tmp_path):
    report = lossy()
    written = write_report(report, tmp_path / "out" / "deep")
    assert json.loads(written.json.read_text("utf-8")) == to_json(report)
    assert ET.parse(written.junit).getroot().tag == "testsuites"
    assert written.page.read_text("utf-8").startswith("<!doctype html>")
    assert all(path.is_file() for path in written.paths)


def test_the_history_of_a_failure_is_judged_the_same_again(tmp_path):
    report = lossy()
    written = write_report(report, tmp_path)
    failed = {result.id: result for result in report.results if result.verdict == "FAIL"}
    assert set(written.failures) == set(failed)
    path = written.failures["concurrency/append_storm[tasks]"]
    assert path.parent == tmp_path / "failures"
    seed = failed["concurrency/append_storm[tasks]"].seed
    assert path.name == f"concurrency-append_storm-tasks-{seed}.jsonl"
    verdict = check_history(path)
    assert isinstance(verdict, Violated)
    assert verdict.anomalies[0].name == "lost append"


def test_what_else_is_in_the_folder_stays(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine", "utf-8")
    (tmp_path / "failures").mkdir()
    (tmp_path / "failures" / "old.jsonl").write_text("old", "utf-8")
    write_report(every_verdict(), tmp_path)
    write_report(every_verdict(), tmp_path)
    assert (tmp_path / "thesis.txt").read_text("utf-8") == "mine"
    assert (tmp_path / "failures" / "old.jsonl").read_text("utf-8") == "old"


def test_no_folder_for_failures_is_made_without_one(tmp_path):
    assert write_report(whole(), tmp_path).failures == {}
    assert not (tmp_path / "failures").exists()


def test_hostile_names_are_written_and_read_again(tmp_path):
    report = hostile()
    written = write_report(report, tmp_path)
    for result in report.results[:2]:
        assert tuple(read_history(written.failures[result.id])) == result.history


def test_no_form_gives_a_password_away(tmp_path):
    for path in write_report(every_verdict(), tmp_path).paths:
        assert "secret" not in path.read_text("utf-8")
