"""What a power cut may leave behind, and what it may not."""

from random import Random

import pytest

from memory_contract.faults.vfs.disk import Change
from memory_contract.faults.vfs.images import (
    DAMAGE_MODES,
    SECTOR_BYTES,
    build_final_files,
    build_images,
)

BASE = {"a": b"old" * 100}


def left_behind(changes, *, base=BASE, wanted=200, seed=1, stage=int):
    """The images of all power cuts that were found, by the change that they came after."""
    found = {}
    random = Random(seed)
    for image in build_images(changes, wanted=wanted, random=random, base=base, stage=stage):
        found.setdefault(image.after, []).append(image.files)
    return found


def test_what_was_synced_is_in_every_image():
    changes = [Change("write", "a", b"new", 0), Change("sync", "a"), Change("write", "a", b"x", 9)]
    for files in left_behind(changes)[3]:
        assert files["a"][:3] == b"new"


def test_what_was_not_synced_is_there_or_not():
    files = [files["a"][:3] for files in left_behind([Change("write", "a", b"new", 0)])[1]]
    assert {b"old", b"new"} <= set(files)


def test_where_nothing_is_at_stake_no_power_is_cut():
    assert left_behind([Change("write", "a", b"new", 0), Change("sync", "a")]).keys() == {1}


def test_a_later_write_may_be_kept_without_an_earlier_one():
    changes = [Change("write", "a", b"1", 0), Change("write", "a", b"2", 1)]
    heads = {files["a"][:2] for files in left_behind(changes)[2]}
    assert {b"ol", b"1l", b"o2", b"12"} <= heads


def test_rubbish_stays_inside_of_what_was_written():
    base = {"a": bytes(4 * SECTOR_BYTES)}
    write = Change("write", "a", b"n" * (2 * SECTOR_BYTES), SECTOR_BYTES)
    seen = set()
    for files in left_behind([write], base=base)[1]:
        data = files["a"]
        assert data[:SECTOR_BYTES] == data[-SECTOR_BYTES:] == bytes(SECTOR_BYTES)
        sectors = (data[SECTOR_BYTES : 2 * SECTOR_BYTES], data[2 * SECTOR_BYTES : -SECTOR_BYTES])
        seen.update(sector[:1] for sector in sectors)
    assert {b"n", b"\0"} < seen, "no sector ever held rubbish"


@pytest.mark.parametrize("synced", [False, True])
def test_a_new_file_has_a_name_for_sure_once_its_folder_is_synced(synced):
    changes = [
        Change("create", "log"),
        Change("write", "log", b"line"),
        Change("sync", "log", folder=synced),
        Change("write", "a", b"new"),
    ]
    found = left_behind(changes)[4]
    assert ({"log" in files for files in found} == {True}) is synced
    assert all(files["log"] == b"line" for files in found if "log" in files)


@pytest.mark.parametrize("synced", [False, True])
def test_a_deleted_file_may_come_back_until_its_folder_is_synced(synced):
    changes = [Change("delete", "a", folder=synced), Change("create", "b")]
    found = left_behind(changes)[2]
    assert ({"a" in files for files in found} == {False}) is synced
    assert all(files["a"] == BASE["a"] for files in found if "a" in files)


def test_a_name_may_stand_for_any_file_that_it_stood_for():
    changes = [Change("delete", "a"), Change("create", "a"), Change("write", "a", b"new")]
    contents = {files.get("a") for files in left_behind(changes)[3]}
    assert {None, BASE["a"], b"", b"new"} <= contents


def test_a_folder_can_be_synced_by_itself():
    changes = [Change("create", "log"), Change("sync", "", folder=True), Change("truncate", "a")]
    assert all("log" in files for files in left_behind(changes)[3])


def test_no_two_images_are_alike_and_a_seed_brings_them_back():
    changes = [Change("write", "a", bytes([n] * 700), 300 * n) for n in range(8)]

    def one(_):
        return 1

    found = left_behind(changes, wanted=300, stage=one)
    images_ = [tuple(files.items()) for group in found.values() for files in group]
    assert len(images_) == len(set(images_)) > 250
    assert found == left_behind(changes, wanted=300, stage=one)
    assert found != left_behind(changes, wanted=300, seed=2, stage=one)


def test_in_the_end_everything_is_there():
    changes = [
        Change("found", "a", b"whole"),
        Change("truncate", "a", at=2),
        Change("write", "a", b"!", 4),
        Change("create", "b"),
        Change("delete", "b"),
    ]
    assert build_final_files(changes, {}) == {"a": b"wh\0\0!"}
    assert set(DAMAGE_MODES) >= {"nothing", "everything", "some", "torn"}
