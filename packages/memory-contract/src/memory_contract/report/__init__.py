"""The reports of a run: terminal, JSON, HTML, JUnit, and a badge for a README."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from memory_contract.history import write_history
from memory_contract.report.as_json import schema, to_json
from memory_contract.report.junit import to_junit
from memory_contract.report.page import to_page
from memory_contract.report.text import Badge, build_badge, slug
from memory_contract.results import CaseResult, Report

__all__ = [
    "Badge",
    "ReportFiles",
    "build_badge",
    "schema",
    "to_json",
    "to_junit",
    "to_page",
    "write_report",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFiles:
    """The files of a report."""

    json: Path
    page: Path
    junit: Path
    # The histories of the cases that failed, by the case's id.
    failures: dict[str, Path]

    @property
    def paths(self) -> list[Path]:
        """All of them."""
        return [self.json, self.page, self.junit, *self.failures.values()]


def write_report(report: Report, folder: str | Path) -> ReportFiles:
    """Write the report in every form to a folder; other files in it are not touched."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    written = ReportFiles(
        json=place / "report.json",
        page=place / "report.html",
        junit=place / "junit.xml",
        failures=_write_failures(report, place / "failures"),
    )
    # ASCII: a session's id may hold what UTF-8 cannot.
    written.json.write_text(json.dumps(to_json(report), indent=2) + "\n", "utf-8")
    written.page.write_text(to_page(report), "utf-8")
    declaration = '<?xml version="1.0" encoding="utf-8"?>\n'
    written.junit.write_text(declaration + to_junit(report), "utf-8")
    return written


def history_name(result: CaseResult) -> str:
    """`concurrency-append_storm-processes-7041.jsonl`."""
    return f"{slug(result)}-{result.seed}.jsonl"


def _write_failures(report: Report, folder: Path) -> dict[str, Path]:
    failed = [r for r in report.results if r.verdict == "FAIL" and r.history]
    found = {result.id: folder / history_name(result) for result in failed}
    if found:
        folder.mkdir(exist_ok=True)
    for result in failed:
        write_history(found[result.id], result.history)
    return found
