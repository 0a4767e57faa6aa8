"""One line for a README: how far a store came, which no skipping can improve."""

from __future__ import annotations

from dataclasses import dataclass

from memory_contract.cases.catalogue import all_cases
from memory_contract.gates import GATES, Gate
from memory_contract.report.text import counted
from memory_contract.results import SILENT, Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Badge:
    """The highest gate that was reached with every gate below it; None if not even the first."""

    contract: str
    gate: Gate | None
    failed: bool
    passed: int
    deviations: int
    not_claimed: int
    # What passed anywhere, and the first gate that did not as a whole.
    passed_anywhere: int = 0
    incomplete: Gate | None = None

    @property
    def message(self) -> str:
        """What stands on the badge's right side."""
        if self.gate is None:
            if self.failed:
                return "failing"
            if not self.passed_anywhere:
                return "nothing proved"
            return f"{self.passed_anywhere} passed, {self.incomplete} incomplete"
        written_down = f", {counted(self.deviations, 'deviation')}" if self.deviations else ""
        return f"{self.gate}{written_down}"

    @property
    def line(self) -> str:
        """The line for a README."""
        parts = [f"memory contract {self.contract}: {self.message}"]
        if self.gate is not None:
            parts += [f"{self.passed} passed", f"{self.not_claimed} not claimed"]
        return " · ".join(parts)


def badge_of(report: Report) -> Badge:
    """The badge that a run has earned, by all cases that there are."""
    reached: list[Gate] = []
    for gate in GATES:
        if not _passed(report, gate, {found.name for found in all_cases() if found.gate == gate}):
            break
        reached.append(gate)
    verdicts = [result.verdict for result in report.results if result.gate in reached]
    return Badge(
        contract=report.contract,
        gate=reached[-1] if reached else None,
        failed=any(result.verdict == "FAIL" for result in report.results),
        passed=verdicts.count("PASS"),
        deviations=verdicts.count("DEVIATION"),
        not_claimed=verdicts.count("NOT CLAIMED"),
        passed_anywhere=sum(result.verdict == "PASS" for result in report.results),
        incomplete=next((gate for gate in GATES if gate not in reached), None),
    )


def _passed(report: Report, gate: Gate, names: set[str]) -> bool:
    """Whether every case of the gate was asked for, none left a doubt, and one passed."""
    results = [result for result in report.results if result.gate == gate]
    verdicts = {result.verdict for result in results}
    # A gate of which one case was picked is not a gate that was passed.
    complete = names <= {result.case for result in results}
    return complete and "PASS" in verdicts and not verdicts & {"FAIL", *SILENT}
