"""Texts that all reports share. Names from a store are escaped: they may contain anything."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from typing import Final, get_args

from memory_contract.cases.catalogue import all_cases
from memory_contract.checker.explain import explain
from memory_contract.checker.verdict import Anomaly, Scope, Violated, format_count
from memory_contract.gates import GATES, Gate
from memory_contract.printable import escape_unseen
from memory_contract.redaction import redact_url
from memory_contract.results import CaseResult, CaseVerdict, Report

VERDICTS: Final[tuple[CaseVerdict, ...]] = get_args(CaseVerdict)


def describe_target(report: Report) -> str:
    """The target without the password of a URL."""
    return redact_url(report.target)


def check_again(report: Report) -> str:
    """The command that checks this target again."""
    target = shlex.quote(escape_unseen(describe_target(report))) if report.target else "TARGET"
    kept = "" if report.keeps_last is None else f" --keeps-last {report.keeps_last}"
    return f"memory-contract check {target}{kept}"


def reproduce(report: Report, result: CaseResult) -> str:
    """The command that runs this case again as it was run."""
    if result.command:
        return result.command
    # A failing schedule is the first of its seed.
    explored = " --explore 1" if result.schedule else ""
    return f"{check_again(report)} --case {result.case} --seed {result.seed}{explored}"


def slug(result: CaseResult) -> str:
    """A name for files and links: `concurrency-append_storm-processes`."""
    return re.sub(r"[^\w-]+", "_", f"{result.gate}-{result.case}-{result.mode}", flags=re.ASCII)


def describe_scope(result: CaseResult) -> Scope:
    """How much the deciding run of a case did."""
    operations = result.history
    began = min((op.invoke_ns for op in operations), default=0)
    return Scope(len(operations), len({op.session for op in operations}), began)


def proof_lines(result: CaseResult, failure: Anomaly) -> list[str]:
    """The proof of one failure, below its headline: at most five operations, and why they do."""
    if not failure.witness:
        return [f"  {escape_unseen(failure.proof).rstrip('.')}."]
    others = (other for other in result.failures if other is not failure)
    # On one line each, whatever a proof quotes.
    anomalies = tuple(replace(each, proof=escape_unseen(each.proof)) for each in (failure, *others))
    text = explain(Violated(anomalies, describe_scope(result)), result.faults)
    return [escape_unseen(line) for line in text.splitlines()[1:]]


def failure_lines(report: Report, result: CaseResult) -> list[str]:
    """What failed and how, the proof of the first failure, and the command that repeats it."""
    if result.failures:
        first = result.failures[0]
        session = f"session {escape_unseen(first.session)}" if first.session else ""
        strength = "proved" if first.proved else "seen by the case"
        parts = [
            result.id,
            escape_unseen(first.name).upper(),
            session,
            f"seed {result.seed}",
            strength,
        ]
        lines = ["   ".join(part for part in parts if part), *proof_lines(result, first)]
    else:
        lines = [f"{result.id}   seed {result.seed}", f"  {escape_unseen(result.reason)}"]
    lines += [f"  {escape_unseen(line)}" for line in result.schedule.splitlines()]
    return [*lines, f"  Reproduce with:  {reproduce(report, result)}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Badge:
    """The highest gate that was reached with every gate below it; None if not even the first.

    The numbers are those of all gates.
    """

    contract: str
    gate: Gate | None
    failed: bool
    passed: int
    deviations: int
    not_claimed: int
    # The first gate that did not pass as a whole.
    incomplete: Gate | None = None

    @property
    def message(self) -> str:
        """The right side of the badge."""
        if self.gate is None:
            if self.failed:
                return "failing"
            if not self.passed:
                return "nothing proved"
            return f"{self.passed} passed, {self.incomplete} incomplete"
        written_down = f", {format_count(self.deviations, 'deviation')}" if self.deviations else ""
        return f"{self.gate}{written_down}"

    @property
    def line(self) -> str:
        """The line for a README."""
        parts = [f"memory contract {self.contract}: {self.message}"]
        if self.gate is not None:
            parts += [f"{self.passed} passed", f"{self.not_claimed} not claimed"]
        return " · ".join(parts)


def build_badge(report: Report) -> Badge:
    """The badge that a run has earned, by all cases that there are."""
    reached: list[Gate] = []
    for gate in GATES:
        if not _passed(report, gate, {found.name for found in all_cases() if found.gate == gate}):
            break
        reached.append(gate)
    verdicts = [result.verdict for result in report.results]
    return Badge(
        contract=report.contract,
        gate=reached[-1] if reached else None,
        failed="FAIL" in verdicts,
        passed=verdicts.count("PASS"),
        deviations=verdicts.count("DEVIATION"),
        not_claimed=verdicts.count("NOT CLAIMED"),
        incomplete=next((gate for gate in GATES if gate not in reached), None),
    )


def _passed(report: Report, gate: Gate, names: set[str]) -> bool:
    """Whether every case of the gate was selected, the gate passed, and so did one of its cases."""
    complete = names <= {result.case for result in report.results if result.gate == gate}
    return complete and report.judge_gate(gate) == "PASS" and report.count(gate)["PASS"] > 0
