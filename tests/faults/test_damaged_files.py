"""Files that were damaged are loud, or do no harm."""

import pytest

from memory_contract.cases.damage import DamagedFiles
from tests.faults.bad_disks import TIMES, expect_pass, ours, result_of
from tests.support.kit.gate_stores import FiledBesideADatabase, of_files

FLIPS = 250


def test_a_database_of_one_small_page_can_be_cut_off():
    result = result_of(of_files(FiledBesideADatabase), "damaged_file_is_loud")
    assert result.verdict == "PASS", result.reason


@pytest.mark.parametrize("seed", range(1, 1 + 2 * TIMES))
def test_whatever_bit_is_turned_over_indelible_shows_nothing_wrong(tmp_path, seed):
    looked_at = []
    result = result_of(
        ours(tmp_path),
        "damaged_file_is_loud",
        lambda room: looked_at.append(DamagedFiles(room, FLIPS).run()),
        seed=seed,
    )
    expect_pass(result)
    assert looked_at[0] > FLIPS
