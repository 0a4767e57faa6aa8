"""A file that is moved, deleted or replaced while it is open: the next write says so."""

from __future__ import annotations

import os
import shutil

import pytest

import indelible
from indelible import UnavailableError
from indelible.backends.sqlite import database
from tests.support.sqlite.seams import blocking, database_of


def contents(store):
    return [message.content for message in store.get_history("s")]


def delete(path):
    for part in ("", "-wal", "-shm"):
        path.with_name(path.name + part).unlink()


def move(path):
    path.rename(path.with_name("elsewhere.db"))


def replace(path):
    other = path.with_name("other.db")
    with indelible.open(other) as store:
        store.add_message("s", "user", "of another file")
    other.replace(path)


def restore_a_copy(path):
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    copy.replace(path)


def move_its_folder(path):
    path.parent.rename(path.parent.with_name("elsewhere"))


WAYS = [delete, move, replace, restore_a_copy, move_its_folder]
WRITES = {
    "append": lambda store: store.add_message("s", "user", "lost"),
    "append with a key": lambda store: store.add_message("s", "user", "lost", key="k"),
    "another session": lambda store: store.add_message("t", "user", "lost"),
    "snapshot": lambda store: store.save_snapshot("s"),
    "clear": lambda store: store.clear("s"),
    "forget": lambda store: store.forget("s"),
}


@pytest.fixture(autouse=True)
def _at_every_write(request, monkeypatch):
    if "soon" not in request.node.name:
        monkeypatch.setattr(database, "MOVED_CHECK_S", 0)


@pytest.fixture
def path(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder / "agent.db"


@pytest.fixture
def store(path):
    with indelible.open(path) as store:
        store.add_message("s", "user", "one")
        assert contents(store) == ["one"]
        yield store


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("write", WRITES)
def test_no_write_is_acknowledged_into_a_file_that_is_gone(store, path, way, write):
    way(path)
    for _ in range(2):
        with pytest.raises(UnavailableError, match="moved, deleted or replaced") as caught:
            WRITES[write](store)
        assert caught.value.landed == "no"
        assert str(path) in caught.value.message
    # What is in it can still be read, and saved.
    assert contents(store) == ["one"]
    assert any("moved" in finding.what for finding in store.verify().findings)


@pytest.mark.parametrize("way", WAYS)
async def test_the_async_store_says_it_too(path, way):
    async with await indelible.open_async(path) as store:
        await store.add_message("s", "user", "one")
        way(path)
        for write in (
            lambda: store.add_message("s", "user", "lost"),
            lambda: store.save_snapshot("s"),
        ):
            with pytest.raises(UnavailableError, match="moved, deleted or replaced"):
                await write()


def test_a_store_that_writes_on_and_on_notices_it_soon(store, path):
    delete(path)
    with pytest.raises(UnavailableError, match="moved, deleted or replaced"):
        write_on(store)


def write_on(store):
    for _ in range(100_000):
        store.add_message("s", "user", "more")


def test_a_file_that_was_put_back_is_written_to_again(store, path):
    move(path)
    with pytest.raises(UnavailableError):
        store.add_message("s", "user", "lost")
    path.with_name("elsewhere.db").rename(path)
    store.add_message("s", "user", "two")
    assert contents(store) == ["one", "two"]
    assert store.verify().ok


def test_a_file_that_replaced_ours_is_not_read_in_its_place(path):
    with blocking(path) as store:
        store.add_message("s", "user", "one")
        readers = database_of(store).readers
        # No connection is left: the next one opens what is there now.
        readers.pause()
        readers.resume(in_child=False)
        held = path.with_name("held.db")
        os.link(path, held)
        replace(path)
        with pytest.raises(UnavailableError, match="moved, deleted or replaced"):
            store.get_history("s")


def test_a_link_that_leads_elsewhere_is_noticed(tmp_path):
    link = tmp_path / "agent.db"
    for name in ("first.db", "second.db"):
        with indelible.open(tmp_path / name):
            pass
    link.symlink_to(tmp_path / "first.db")
    with indelible.open(link) as store:
        store.add_message("s", "user", "one")
        link.unlink()
        link.symlink_to(tmp_path / "second.db")
        with pytest.raises(UnavailableError, match="moved, deleted or replaced"):
            store.add_message("s", "user", "lost")
