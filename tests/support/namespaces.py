"""What a test may not ask of a machine that gives its users no namespaces."""

from memory_contract.cases.catalogue import all_cases
from memory_contract.faults.servers import small_disk

ASKING = {case.name for case in all_cases() if case.tier == "privileges"}


def not_to_be_had(result):
    """Whether a case was not run for want of them: true only where there really are none."""
    return result.verdict == "NOT RUN" and result.case in ASKING and bool(small_disk.missing())
