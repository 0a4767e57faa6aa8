"""Right stores on the standard library's SQLite get over every bad day of their disk."""

import pytest

from memory_contract.cases.catalogue import all_cases
from memory_contract.goldfish.registry import GOLDFISH
from tests.faults.bad_disks import expect_pass, result_of
from tests.faults.correct_on_disk import CORRECT_ON_DISK

CASES = [
    "power_loss",
    "kill_at_every_step",
    "io_error_loop",
    "disk_full_loop",
    "io_error_in_recovery",
    "damaged_file_is_loud",
]


# To a kill, logs are alike, and so are journals.
ASKED = [
    pytest.param(name, case, marks=[] if name == "wal_full" else pytest.mark.exhaustive)
    for name in CORRECT_ON_DISK
    for case in CASES
    if case != "kill_at_every_step" or name in ("wal_full", "journal_extra")
]


@pytest.mark.parametrize(("name", "case"), ASKED)
def test_nobody_says_a_word_against_them(name, case):
    expect_pass(result_of(CORRECT_ON_DISK[name], case))


def test_every_case_of_the_disk_has_a_goldfish_that_it_must_catch():
    assert set(CASES) <= {fish.caught_by for fish in GOLDFISH.values()}
    assert set(CASES) <= {case.name for case in all_cases()}
