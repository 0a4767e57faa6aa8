"""The report for programs keeps to the form that is written down."""

import json
import re
from typing import get_args

import pytest

from memory_contract import Report
from memory_contract.gates import MANY_WORKERS, ONE_CALLER, Gate
from memory_contract.history import parse_operation
from memory_contract.report import schema, to_json
from memory_contract.report.text import VERDICTS
from tests.support.report_samples import (
    every_verdict,
    hostile,
    killed,
    long_run,
    lossy,
    result,
    whole,
)

KINDS = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def problems(value, form, where="report"):
    """What does not fit the schema; a field that it does not name does not fit either."""
    if "$ref" in form:
        form = schema()["$defs"][form["$ref"].removeprefix("#/$defs/")]
    if "oneOf" in form:
        fitting = [each for each in form["oneOf"] if not list(problems(value, each, where))]
        if len(fitting) != 1:
            yield f"{where} fits {len(fitting)} of what it may be"
    elif wrong := list(problems_of_value(value, form, where)):
        yield from wrong
    elif isinstance(value, dict):
        yield from (f"{where}.{name} is missing" for name in form["required"] if name not in value)
        for name, each in value.items():
            if name in form["properties"]:
                yield from problems(each, form["properties"][name], f"{where}.{name}")
            else:
                yield f"{where}.{name} is not written down"
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from problems(each, form["items"], f"{where}[{place}]")


def problems_of_value(value, form, where):
    kinds = form.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and (
        isinstance(value, bool) or not any(isinstance(value, KINDS[kind]) for kind in kinds)
    ):
        yield f"{where} is no {kinds}"
    elif "enum" in form and value not in form["enum"]:
        yield f"{where} is {value!r}"
    elif "minimum" in form and value < form["minimum"]:
        yield f"{where} is below {form['minimum']}"
    elif "pattern" in form and not re.search(form["pattern"], value):
        yield f"{where} is {value!r}"


@pytest.mark.parametrize(
    "make", [lossy, every_verdict, hostile, killed, whole, lambda: long_run(100)]
)
def test_a_report_fits_the_schema(make):
    report = json.loads(json.dumps(to_json(make())))
    assert list(problems(report, schema())) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"verdict": "FINE"}, "report.verdict is 'FINE'"),
        ({"seed": "7"}, "report.seed is no ['integer']"),
        ({"more": 1}, "report.more is not written down"),
        ({"contract": "one"}, "report.contract is 'one'"),
        ({"badge": {"gate": 1, "message": ""}}, "report.badge.gate fits 0 of what it may be"),
    ],
)
def test_what_does_not_fit_is_noticed(change, problem):
    assert list(problems({**to_json(every_verdict()), **change}, schema())) == [problem]


def test_the_schema_knows_the_words_of_the_kit():
    defs = schema()["$defs"]
    case = defs["case"]["properties"]
    assert defs["gate"]["enum"] == list(get_args(Gate))
    assert case["verdict"]["enum"] == list(VERDICTS)
    assert case["mode"]["enum"] == [*ONE_CALLER, *MANY_WORKERS]


def test_a_loss_is_told_with_its_witness():
    case = next(c for c in to_json(lossy())["cases"] if c["case"] == "append_storm")
    assert case["verdict"] == "FAIL"
    anomaly = case["anomalies"][0]
    assert anomaly["name"] == "lost append"
    operations = [parse_operation(json.dumps(line)) for line in anomaly["witness"]]
    assert {op.op for op in operations} == {"append", "read"}
    assert set(anomaly["ids"]) <= set(operations[0].ids)


def test_a_password_is_left_out():
    text = json.dumps(to_json(every_verdict()))
    assert "secret" not in text
    assert "postgresql://user:***@db/memory" in text


def of(*results):
    gates = tuple(dict.fromkeys(each.gate for each in results))
    return Report(target="m:x", seed=1, gates=gates, results=results)


def test_a_store_without_bad_days_passes_by_its_others_alone():
    passed = result("sequential", "append_then_read", "PASS")
    unclaimed = result("crash", "fork_safety", "NOT CLAIMED", "it ends with its process")
    missing = result("crash", "paused_writer", "NOT RUN", "there is nothing to do it with")
    assert of(passed, unclaimed).verdict == "PASS"
    assert of(passed, unclaimed).judge_gate("crash") == "NOT CLAIMED"
    # Nothing passes by not running.
    assert of(unclaimed).verdict == "NOT RUN"
    assert of(passed, missing).verdict == "NOT RUN"
    assert of(passed, unclaimed, missing).verdict == "NOT RUN"
    other = result("lifecycle", "ttl_is_never_early", "NOT CLAIMED", "no ttl")
    assert of(passed, other).verdict == "NOT RUN"
