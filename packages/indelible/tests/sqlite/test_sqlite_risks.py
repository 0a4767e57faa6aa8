"""What can be lost on a SQLite file: the version, the place, the level."""

import warnings

import pytest

import indelible
from indelible import Gravity, UnsupportedError
from indelible.backends.sqlite import risks

MOUNTS = """\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 27 0:50 / {share} rw,relatime shared:1 - nfs4 server:/agents rw
"""


def severities(store):
    return [(risk.severity, risk.subject) for risk in store.risks()]


def test_a_local_file_at_power_has_no_risk(tmp_path):
    with indelible.open(tmp_path / "agent.db", strict=True) as store:
        assert store.risks() == ()


def test_a_lower_level_says_what_it_costs(tmp_path):
    with indelible.open(tmp_path / "agent.db", durability="process", strict=True) as store:
        assert severities(store) == [(Gravity.WARNING, "synchronous=NORMAL")]


@pytest.mark.parametrize(
    ("version", "dangerous"),
    [("3.6.23", False), ("3.7.0", True), ("3.40.1", True), ("3.51.2", True), ("3.51.3", False)],
)
def test_a_library_that_can_damage_the_log_is_a_danger(monkeypatch, tmp_path, version, dangerous):
    monkeypatch.setattr("apsw.sqlite_lib_version", lambda: version)
    found = risks.find_risks(tmp_path / "agent.db", indelible.Durability.POWER)
    assert [risk.subject for risk in found] == ([f"SQLite {version}"] if dangerous else [])


@pytest.fixture
def on_a_share(monkeypatch, tmp_path):
    share = tmp_path / "a share"
    share.mkdir()
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS.format(share=str(share).replace(" ", r"\040")))
    monkeypatch.setattr(risks, "MOUNTS", mounts)
    return share / "agent.db"


def test_a_network_file_system_is_warned_of_or_refused(on_a_share):
    with (
        pytest.warns(RuntimeWarning, match="file system nfs4"),
        indelible.open(on_a_share) as store,
    ):
        assert severities(store) == [(Gravity.DANGER, "file system nfs4")]
    with pytest.raises(UnsupportedError, match="strict=True"):
        indelible.open(on_a_share, strict=True)


async def test_the_async_store_minds_the_same(on_a_share):
    with pytest.warns(RuntimeWarning, match="file system nfs4"):
        store = await indelible.open_async(on_a_share)
    await store.close()
    with pytest.raises(UnsupportedError, match="strict=True"):
        await indelible.open_async(on_a_share, strict=True)


def test_a_system_that_says_nothing_of_its_mounts_is_no_risk(tmp_path):
    assert risks.find_file_system(tmp_path, tmp_path / "missing") is None


async def test_a_warning_names_the_line_that_opened_the_store(on_a_share):
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        indelible.open(on_a_share).close()
        await (await indelible.open_async(on_a_share)).close()
        async with indelible.open_async(on_a_share):
            pass
    assert [warning.filename for warning in warned] == [__file__] * 3
