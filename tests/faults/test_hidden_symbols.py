"""Where the standard library's SQLite cannot be reached, its bad days are not made, and said so."""

import _ctypes
import _sqlite3

import pytest

from memory_contract.faults.tiers import list_fault_tools
from tests.faults import hidden_symbols
from tests.faults.bad_disks import result_of

CASES = ["power_loss", "io_error_loop", "disk_full_loop", "io_error_in_recovery"]


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_made_to_fail_is_not_run(case):
    result = result_of(hidden_symbols.store, case)
    assert result.verdict == "NOT RUN", result.reason
    assert result.reason.endswith("its symbols are not reachable")


def test_doctor_says_so(monkeypatch):
    monkeypatch.setattr(_sqlite3, "__file__", _ctypes.__file__)
    (found,) = [each for each in list_fault_tools() if each.name == "SQLite of Python"]
    assert "not reachable" in found.missing
