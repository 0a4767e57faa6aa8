"""What a run of the kit leaves behind: for a person, a program, a CI server, or a README."""

from memory_contract.report.as_json import schema, to_json
from memory_contract.report.badge import Badge, badge_of
from memory_contract.report.folder import ReportFiles, write_report
from memory_contract.report.junit import to_junit
from memory_contract.report.page import to_page

__all__ = [
    "Badge",
    "ReportFiles",
    "badge_of",
    "schema",
    "to_json",
    "to_junit",
    "to_page",
    "write_report",
]
