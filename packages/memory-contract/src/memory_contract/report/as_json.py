"""A report as JSON; `report.schema.json`, beside this file, is its schema."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from memory_contract.checker.verdict import Anomaly
from memory_contract.history import Operation, format_operation
from memory_contract.report.text import build_badge, describe_target
from memory_contract.results import CaseResult, Report


def to_json(report: Report) -> dict[str, Any]:
    """The whole report as a JSON object."""
    badge = build_badge(report)
    return {
        **describe_run(report),
        "badge": {"gate": badge.gate, "message": badge.message},
        "cases": [
            {
                **describe_result(result),
                "anomalies": [_anomaly(failure) for failure in result.failures],
                "faults": [asdict(fault) for fault in result.faults],
            }
            for result in report.results
        ],
    }


def describe_run(report: Report) -> dict[str, Any]:
    """The fields of a run as a whole."""
    return {
        "contract": report.contract,
        "target": describe_target(report),
        "verdict": report.verdict,
        "seed": report.seed,
        "duration_s": round(report.duration_s, 3),
        "gates": list(report.gates),
        "notes": list(report.notes),
    }


def describe_result(result: CaseResult) -> dict[str, Any]:
    """The fields of a case, without its failures."""
    names = ("gate", "case", "mode", "verdict", "reason", "schedule", "seed")
    return {
        **{name: getattr(result, name) for name in names},
        "notes": list(result.notes),
        "duration_s": round(result.duration_s, 3),
    }


def _anomaly(failure: Anomaly) -> dict[str, Any]:
    return {
        "name": failure.name,
        "session": failure.session,
        "ids": list(failure.ids),
        "proof": failure.proof,
        "witness": [operation(op) for op in failure.witness],
    }


def operation(op: Operation) -> dict[str, Any]:
    """An operation, as in a line of a history."""
    found: dict[str, Any] = json.loads(format_operation(op))
    return found


def schema() -> dict[str, Any]:
    """The JSON Schema of what `to_json` returns."""
    text = files(__package__).joinpath("report.schema.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
