"""A disk that fails, or is full: once and from then on, at every call there is."""

import pytest

from memory_contract.cases.disk_errors import DiskErrors, RecoveryErrors
from memory_contract.faults.vfs.disk import ERRORS
from memory_contract.goldfish.registry import build_adapter
from tests.faults.bad_disks import TIMES, expect_pass, ours, result_of
from tests.faults.gives_up import GivesUp

ALL = 10**6
LOOPS = {
    "io_error_loop": (tuple(ERRORS), False, 250),
    "disk_full_loop": (("write",), True, 60),
}


@pytest.mark.parametrize("case", LOOPS)
def test_indelible_gets_over_every_failure_of_its_disk_with_the_same_handle(tmp_path, case):
    kinds, full, least = LOOPS[case]
    failures = []
    result = result_of(
        ours(tmp_path),
        case,
        lambda room: failures.append(DiskErrors(room, kinds, full=full, most=ALL).run()),
    )
    expect_pass(result)
    assert failures[0] > least, "the disk no longer fails where it should"
    assert result.notes == (), "a handle was lost"


def test_indelible_comes_back_from_a_kill_on_a_disk_that_fails(tmp_path):
    failures = []
    result = result_of(
        ours(tmp_path),
        "io_error_in_recovery",
        lambda room: failures.append(RecoveryErrors(room, kills=TIMES, most=12).run()),
    )
    expect_pass(result)
    assert failures[0] > 30, "the disk no longer fails where it should"
    assert result.notes == (), "a process was lost"


@pytest.mark.parametrize("case", LOOPS)
def test_so_does_the_async_store(tmp_path, case):
    expect_pass(result_of(ours(tmp_path, open=None), case))


def test_a_handle_that_is_lost_and_says_so_is_reported_and_not_accused():
    result = result_of(
        build_adapter(GivesUp, "gives_up"),
        "io_error_loop",
        lambda room: DiskErrors(room, ("read",), full=False, most=1).run(),
    )
    assert result.verdict == "PASS", result.reason
    assert any("the same handle could not be used" in note for note in result.notes)
