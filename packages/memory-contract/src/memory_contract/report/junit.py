"""A report for CI servers: one test case for each case and mode."""

from __future__ import annotations

import re
from typing import Final
from xml.etree import ElementTree as ET

from memory_contract.printable import escape_unseen
from memory_contract.report.text import build_badge, describe_target, failure_lines
from memory_contract.results import SILENT, CaseResult, Report

# Characters that XML cannot hold, not even as a number.
_NOT_IN_XML: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(report: Report) -> str:
    """The report as JUnit's XML."""
    results = report.results
    # A gate in which no case ran fails the run, so it must not look green here.
    idle = [
        gate
        for gate in report.gates
        if report.count(gate).keys() <= {"NOT CLAIMED"}
        and (report.judge_gate(gate) == "NOT RUN" or report.verdict == "NOT RUN")
    ]
    suites = ET.Element("testsuites")
    suite = ET.SubElement(
        suites,
        "testsuite",
        name=_xml(f"contract {describe_target(report)}"),
        tests=str(len(results) + len(idle)),
        failures=str(sum(result.verdict == "FAIL" for result in results)),
        errors=str(sum(result.verdict in SILENT for result in results) + len(idle)),
        skipped=str(sum(result.verdict in ("NOT CLAIMED", "DEVIATION") for result in results)),
        time=f"{report.duration_s:.3f}",
    )
    _properties(suite, report)
    for result in results:
        _testcase(suite, report, result)
    for gate in idle:
        case = ET.SubElement(suite, "testcase", classname=f"contract.{gate}", name="ran", time="0")
        ET.SubElement(case, "error", type="NOT RUN", message="no case of this gate ran")
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=False) + "\n"


def _properties(suite: ET.Element, report: Report) -> None:
    found = {
        "contract": report.contract,
        "target": describe_target(report),
        "seed": str(report.seed),
        "verdict": report.verdict,
        "badge": build_badge(report).message,
    }
    properties = ET.SubElement(suite, "properties")
    for name, value in [*found.items(), *(("note", note) for note in report.notes)]:
        ET.SubElement(properties, "property", name=name, value=_xml(value))


def _testcase(suite: ET.Element, report: Report, result: CaseResult) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        classname=f"contract.{result.gate}",
        name=f"{result.case}[{result.mode}]",
        time=f"{result.duration_s:.3f}",
    )
    reason = _xml(result.reason)
    if result.verdict == "FAIL":
        _failed(case, report, result)
    elif result.verdict in SILENT:
        ET.SubElement(case, "error", type=result.verdict, message=reason)
    elif result.verdict != "PASS":
        ET.SubElement(case, "skipped", type=result.verdict, message=f"{result.verdict}: {reason}")
    if result.notes:
        ET.SubElement(case, "system-out").text = _xml("\n".join(result.notes))


def _failed(case: ET.Element, report: Report, result: CaseResult) -> None:
    name, message = "FAIL", result.reason
    if result.failures:
        first = result.failures[0]
        name, message = first.name, f"{escape_unseen(first.name)}: {escape_unseen(first.proof)}"
    failure = ET.SubElement(case, "failure", type=_xml(name), message=_xml(message))
    failure.text = _xml("\n".join(failure_lines(report, result)))


def _xml(text: str) -> str:
    return _NOT_IN_XML.sub(lambda found: escape_unseen(found[0]), text)
