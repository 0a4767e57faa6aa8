"""The power goes at any moment, and what was acknowledged is there when it comes back."""

import pytest

from memory_contract.cases.crashes import PowerCuts
from memory_contract.goldfish.registry import RIGHT, build_adapter
from tests.faults.bad_disks import TIMES, expect_pass, opened_at_process, ours, result_of
from tests.faults.correct_on_disk import WalNormal
from tests.support.disk_goldfish import UnsyncedFolder, WalFull

# Two thousand power cuts in all; twenty thousand in a soak.
PARTS = range(1, 1 + 4 * TIMES)
EACH = 500


def cut(adapter, power_cuts, *, seed=1):
    """The result, and how many power cuts it rests on."""
    looked_at = []
    result = result_of(
        adapter,
        "power_loss",
        lambda room: looked_at.append(PowerCuts(room, power_cuts).run()),
        seed=seed,
    )
    return result, sum(looked_at)


@pytest.mark.parametrize("seed", PARTS)
def test_indelible_keeps_every_acknowledged_change_whenever_the_power_goes(tmp_path, seed):
    result, count = cut(ours(tmp_path), EACH, seed=seed)
    expect_pass(result)
    assert result.notes == ()
    # Those that would be like others are left out.
    assert count > 0.95 * EACH


def test_so_does_the_async_store(tmp_path):
    expect_pass(cut(ours(tmp_path, open=None), 60)[0])


def test_at_process_the_last_changes_may_go_and_nothing_is_damaged(tmp_path):
    adapter = ours(tmp_path, open=opened_at_process, open_async=None, durability="process")
    result, count = cut(adapter, 200)
    expect_pass(result)
    (note,) = result.notes
    assert note.startswith(f"of {count} power cuts, ")
    assert not note.startswith(f"of {count} power cuts, 0 ")


def test_a_claim_that_is_not_kept_is_a_failure_that_says_where_the_power_went():
    adapter = build_adapter(WalNormal, "wal_normal", durability="power")
    result = result_of(adapter, "power_loss")
    assert result.verdict == "FAIL"
    assert result.failures[0].name == "lost append"
    assert "after a power cut" in result.failures[-1].proof
    assert result.history, "the report shows what led to it"


UNCLAIMED = {
    "wal_full": (WalFull, True),
    "wal_normal": (WalNormal, False),
    "journal_full": (UnsyncedFolder, False),
}


@pytest.mark.parametrize("name", UNCLAIMED)
def test_who_claims_nothing_is_not_accused_but_told_what_a_power_cut_takes(name):
    store, keeps_all = UNCLAIMED[name]
    result = result_of(build_adapter(store, name, durability="none"), "power_loss")
    assert result.verdict == "NOT CLAIMED"
    assert "power cuts" in result.reason
    assert ("cuts, 0 took" in result.reason) is keeps_all


def test_a_store_that_writes_beside_sqlite_is_not_judged_by_half_of_its_files():
    result = result_of(build_adapter(WrittenTwice, "written_twice"), "power_loss")
    assert result.verdict == "NOT CLAIMED"
    assert "notes.txt in ways that the kit cannot see" in result.reason


class WrittenTwice(WalFull):
    """Keeps a file of its own beside the database."""

    def append(self, session, messages, **options):
        super().append(session, messages, **options)
        with (self._workspace / "notes.txt").open("a") as notes:
            notes.write("one more\n")


def test_a_store_without_sqlite_is_not_asked():
    result = result_of(RIGHT["file_store"], "power_loss")
    assert result.verdict == "NOT CLAIMED"
    assert "no SQLite file" in result.reason
