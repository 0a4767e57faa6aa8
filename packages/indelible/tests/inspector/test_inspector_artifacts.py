"""Reports and traces of memory-contract on the page of the store's health."""

import json
from importlib.resources import files
from pathlib import Path

import pytest
from typer.testing import CliRunner

from indelible import UsageError
from indelible.cli.main import app
from indelible.inspector import artifacts
from memory_contract import check
from memory_contract.report import to_json
from tests.support.inspector import running_inspector

INCIDENTS = Path(__file__).parents[4] / "examples" / "incidents"


@pytest.fixture
def report(tmp_path):
    """A report that the kit wrote."""
    path = tmp_path / "report.json"
    path.write_text(json.dumps(to_json(check("memory:", cases=["append_then_read"], seed=1))))
    return path


def test_the_fields_that_are_read_are_in_the_schema_of_reports():
    schema = json.loads(files("memory_contract.report").joinpath("report.schema.json").read_text())
    required = [
        (artifacts.Report, schema["required"]),
        (artifacts.ReportCase, schema["$defs"]["case"]["required"]),
        (artifacts.ReportAnomaly, schema["$defs"]["anomaly"]["required"]),
    ]
    for model, names in required:
        assert set(model.model_fields) <= set(names)
    verdicts = schema["$defs"]["case"]["properties"]["verdict"]["enum"]
    assert set(artifacts.BAD_VERDICTS) < set(verdicts)


def test_a_report_and_a_trace_are_shown(url, report):
    shown = [artifacts.read_report(report)]
    traces = [artifacts.read_trace(INCIDENTS / "eviction" / "trace.jsonl")]
    with running_inspector(url, reports=shown, traces=traces) as inspector:
        page = inspector.get("/health").text
    assert "PASS</span> <b>memory:</b>" in page
    assert "361 calls on 300 sessions" in page
    assert "/session?id=c-1" in page


def test_a_trace_is_counted(tmp_path):
    lines = [
        {"indelible_trace": 1, "pid": 7},
        {"op": "append", "verb": "add_message", "session": "s", "outcome": "ok"},
        {"op": "call", "session": "s", "outcome": "info"},
        {"op": "append", "session": "t", "outcome": "fail", "error": "BusyError"},
        {"dropped": 4, "changes": 1},
        {"what": "is this"},
        ["no", "object"],
        {"closed": 3},
    ]
    path = tmp_path / "trace.jsonl"
    text = "\n".join(map(json.dumps, lines))
    path.write_text(f"{text}\n{{torn\n{'[' * 100_000}\n{'x' * (3 * artifacts.LINE_BYTES_MAX)}")
    name, trace = artifacts.read_trace(path)
    assert name == "trace.jsonl"
    assert trace.calls == {"add_message": 1, "call": 1, "append": 1}
    assert trace.outcomes == {"ok": 1, "info": 1, "fail": 1}
    assert trace.sessions == {"s": 2, "t": 1}
    assert [each["error"] for each in trace.failed] == ["no answer", "BusyError"]
    assert (trace.processes, trace.closed, trace.dropped, trace.unreadable) == (1, 1, 4, 5)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"contract": 5}', "\x00"])
def test_what_is_no_report_or_trace_is_refused_by_name(tmp_path, text):
    path = tmp_path / "mine.json"
    path.write_text(text)
    for read in (artifacts.read_report, artifacts.read_trace):
        with pytest.raises(UsageError, match=r"mine\.json is no (report|trace)"):
            read(path)


@pytest.mark.usefixtures("store")
def test_a_file_that_is_not_there_is_said_before_anything_starts(url, tmp_path):
    for option in ("--report", "--trace"):
        arguments = ["inspect", url, "--no-open", option, str(tmp_path / "nowhere")]
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 4
        assert "No such file" in done.stderr


def test_a_report_of_gigabytes_is_not_read(tmp_path):
    path = tmp_path / "report.json"
    with path.open("wb") as file:
        file.truncate(artifacts.REPORT_BYTES_MAX + 1)
    with pytest.raises(UsageError, match="too long"):
        artifacts.read_report(path)
