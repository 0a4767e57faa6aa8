"""What a run of the kit leaves behind: for a person, for a program, for a CI server, for a README.

What is drawn on a terminal stands in `terminal` and `progress`, which need rich; the rest does not.
"""

from indelible.contract.report.as_json import schema, to_json
from indelible.contract.report.badge import Badge, badge_of
from indelible.contract.report.folder import Written, write_report
from indelible.contract.report.junit import to_junit
from indelible.contract.report.page import to_page

__all__ = [
    "Badge",
    "Written",
    "badge_of",
    "schema",
    "to_json",
    "to_junit",
    "to_page",
    "write_report",
]
