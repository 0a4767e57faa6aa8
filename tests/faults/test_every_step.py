"""Whoever writes is killed at a step to its files, at every one there is."""

import pytest

from memory_contract.cases.crashes import Kills
from memory_contract.cases.workload import VERBS
from memory_contract.goldfish import GOLDFISH, RIGHT
from tests.faults.bad_disks import expect_pass, ours, result_of
from tests.support import disk_goldfish  # noqa: F401 -- registers them

ALL = 10**6
# In parts, which can be done side by side; each with the steps that there are at least. Fewer
# would say that steps are no longer seen.
PARTS = [(["append", "batch", "trim", "clear"], 25), (["undo", "snapshot", "rollback", "fork"], 25)]


@pytest.mark.parametrize(("verbs", "least"), PARTS)
def test_indelible_survives_a_kill_at_every_step_of_every_operation(tmp_path, verbs, least):
    kills = []
    result = result_of(
        ours(tmp_path),
        "kill_at_every_step",
        lambda room: kills.append(Kills(room, verbs, ALL, 0).run()),
    )
    expect_pass(result)
    assert kills[0] == len(result.faults) > least
    assert {fault.name for fault in result.faults} == {f"kill -9 in {verb}" for verb in verbs}


def test_indelible_survives_a_kill_at_every_step_of_its_first_opening(tmp_path):
    result = result_of(
        ours(tmp_path),
        "kill_at_every_step",
        lambda room: Kills(room, ["append"], 1, ALL).run(),
    )
    expect_pass(result)
    at_first = [fault for fault in result.faults if fault.name == "kill -9 while it opens"]
    assert len(at_first) > 50


def test_no_operation_is_left_out():
    named = {verb for verbs, _ in PARTS for verb in verbs}
    assert named == set(VERBS) - {"pop", "read"}, "pop is not offered, and a read changes nothing"


def test_the_async_store_survives_kills_too(tmp_path):
    expect_pass(result_of(ours(tmp_path, open=None), "kill_at_every_step"))


def test_a_file_that_is_put_in_its_place_as_a_whole_survives_kills_between_pythons_own_writes():
    result = result_of(RIGHT["file_store"], "kill_at_every_step")
    expect_pass(result)


def test_a_store_that_lost_something_is_not_killed_again():
    result = result_of(
        GOLDFISH["log_removed_at_start"].adapter,
        "kill_at_every_step",
        lambda room: Kills(room, ["append", "batch"], ALL, 0).run(),
    )
    last = max(result.history, key=lambda op: op.invoke_ns)
    assert {failure.session for failure in result.failures} == {last.session}
