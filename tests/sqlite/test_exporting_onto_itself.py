"""An export must not replace the store that it reads."""

import os

import pytest

import indelible
from indelible import UsageError


@pytest.mark.parametrize("name", ["agent.db", "agent.db-wal", "agent.db-shm", "link.db"])
def test_an_export_onto_the_store_itself_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with indelible.open("agent.db") as store:
        store.add_message("s", "user", "hello")
        os.link("agent.db", "link.db")
        with pytest.raises(UsageError, match="the store itself"):
            store.export(name)
        assert [message.content for message in store.get_history("s")] == ["hello"]
    with indelible.open("agent.db") as store:
        assert [message.content for message in store.get_history("s")] == ["hello"]


async def test_an_async_store_refuses_too(tmp_path):
    path = tmp_path / "agent.db"
    async with indelible.open_async(path) as store:
        await store.add_message("s", "user", "hello")
        with pytest.raises(UsageError):
            await store.export(path)
        assert len(await store.get_history("s")) == 1


def test_another_file_beside_it_is_fine(tmp_path):
    with indelible.open(tmp_path / "agent.db") as store:
        store.add_message("s", "user", "hello")
        assert store.export(tmp_path / "agent.jsonl").entries == 1


def test_a_snapshot_handed_in_whole_is_told_so(tmp_path):
    with indelible.open(tmp_path / "agent.db") as store:
        snapshot = store.save_snapshot("s")
        with pytest.raises(UsageError, match=r"snapshot\.id"):
            store.rollback_to_snapshot("s", snapshot)
