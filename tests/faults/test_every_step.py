"""Whoever writes is killed at a step to its files, at every one there is."""

import math

from bad_disks import expect_pass, ours, result_of

from indelible.contract.gates.killed_steps import kill_everywhere
from indelible.contract.goldfish import RIGHT

ALL = 10**6
# Fewer would say that the steps are no longer seen.
STEPS_MIN = 100


def test_indelible_survives_a_kill_at_every_step_of_every_operation(tmp_path):
    kills = []
    result = result_of(
        ours(tmp_path),
        "kill_at_every_step",
        lambda room: kills.append(kill_everywhere(room, ALL, ALL, within_s=math.inf)),
    )
    expect_pass(result)
    assert kills[0] == len(result.faults) > STEPS_MIN
    struck = {fault.name for fault in result.faults}
    assert {f"kill -9 in {verb}" for verb in ("append", "batch", "rollback", "fork")} <= struck
    assert "kill -9 while it opens" in struck


def test_the_async_store_survives_kills_too(tmp_path):
    expect_pass(result_of(ours(tmp_path, open=None), "kill_at_every_step"))


def test_a_file_that_is_put_in_its_place_as_a_whole_survives_kills_between_pythons_own_writes():
    result = result_of(RIGHT["file_store"], "kill_at_every_step")
    expect_pass(result)
