"""What each verdict is to pytest."""

import pytest

from memory_contract.plugin.stores import format_proof, raise_outcome
from memory_contract.results import CaseResult, build_case_failure

RESULT = {"gate": "sequential", "case": "append_then_read", "mode": "blocking", "seed": 7}


def result(verdict, **more):
    return CaseResult(**RESULT, verdict=verdict, reason="the moon was full", **more)


def test_only_a_pass_passes():
    raise_outcome(result("PASS"), "memory:")


@pytest.mark.parametrize("verdict", ["FAIL", "UNKNOWN", "VACUOUS", "NOT RUN"])
def test_nothing_passes_by_not_running(verdict):
    with pytest.raises(pytest.fail.Exception) as told:
        raise_outcome(result(verdict), "memory:")
    assert str(told.value).startswith(f"{verdict}: the moon was full")
    assert told.value.pytrace is False


def test_what_is_not_claimed_is_skipped_and_what_is_written_down_is_expected():
    with pytest.raises(pytest.skip.Exception, match="NOT CLAIMED: the moon was full"):
        raise_outcome(result("NOT CLAIMED"), "memory:")
    with pytest.raises(pytest.xfail.Exception, match="the moon was full"):
        raise_outcome(result("DEVIATION"), "memory:")


def test_the_proof_comes_first_and_the_command_last_without_a_password():
    failure = build_case_failure("lost append", "e1 is missing", session="c-1")
    first, *_, last = format_proof(
        result("FAIL", failures=(failure,)), "redis://ann:hush@there/0"
    ).splitlines()
    assert first.startswith("LOST APPEND   session c-1   seed 7")
    assert "memory-contract check 'redis://ann:***@there/0' --case" in last
    assert "--seed 7" in last
