"""The index of items: what another program changed in it is found."""

import pytest

import indelible
from indelible import ConflictError, FormatError, StoredMemory
from indelible.backends.redis.read import format_member
from indelible.backends.redis.scripts import READ_LOOKED, REMOVE_ENTRIES
from indelible.core.codec import encode
from indelible.core.limits import BATCH_ENTRIES_MAX
from indelible.core.operations import Append, ItemPlace

INDEX, LOG = ("indelible:{:s}" + part for part in "il")


@pytest.fixture
def store(url):
    with indelible.open(url) as opened:
        yield opened


def test_a_member_that_was_lost_is_noticed(store, client):
    store.remember("s", "tea", id="drink")
    store.remember("s", "bread", id="food")
    client.zrem(INDEX, format_member(ItemPlace("drink", 0)))
    for attempt in (
        lambda: store.get_memory("s", "drink"),
        lambda: store.list_memories("s"),
        lambda: store.erase_memory("s", "drink"),
        lambda: store.remember("s", "milk", id="drink", expected=indelible.ABSENT),
        lambda: store.remember("s", "milk", id="drink"),
    ):
        with pytest.raises(FormatError, match="index of items"):
            attempt()
    # What needs no index goes on.
    store.add_message("s", "user", "hello")
    assert [entry.position for entry in store.get_entries("s")] == [0, 1, 2]


def test_a_foreign_value_in_place_of_the_index_is_refused(store, client):
    store.add_message("s", "user", "hello")
    client.set(INDEX, "something else")
    with pytest.raises(FormatError, match="holds something else"):
        store.remember("s", "tea", id="drink")
    # Nothing was written: the log does not reach beyond the head.
    assert client.zcard(LOG) == 1
    store.add_message("s", "user", "more")
    assert [entry.position for entry in store.get_entries("s")] == [0, 1]


def test_an_index_that_disagrees_with_the_log_is_found(store, client):
    for n in range(3):
        store.remember("s", f"version {n}", id="drink")
    assert store.verify().ok
    client.zrem(INDEX, format_member(ItemPlace("drink", 1)))
    client.zadd(INDEX, {format_member(ItemPlace("food", 2)): 0})
    assert sorted(finding.what for finding in store.verify("s").findings) == [
        "an item at position 1 that is not in the index",
        "an item at position 2 without its entry",
    ]
    with pytest.raises(FormatError, match="index of items"):
        store.erase_memory("s", "food")
    assert store.erase_memory("s", "drink").entries == 2


@pytest.mark.parametrize("member", [b"x", b"drink\0", b"drink\0xxxxxxxxxx", b"\xff\x004294967295"])
def test_a_member_that_was_changed_is_damage(store, client, member):
    store.remember("s", "tea", id="drink")
    client.delete(INDEX)
    client.zadd(INDEX, {member: 0})
    with pytest.raises(FormatError, match="index of items"):
        store.list_memories("s")
    findings = {finding.what for finding in store.verify("s").findings}
    assert "an item at position 0 that is not in the index" in findings
    assert any("without its entry" in finding for finding in findings)


@pytest.mark.parametrize("digits", [b"429496729", b"429496728x", b"4294967290x"])
def test_a_member_without_a_position_is_damage(store, client, digits):
    # Each is found between the first and the last position of the log.
    store.add_messages("s", [{"role": "user", "content": "hello"}] * 20)
    store.remember("s", "tea", id="drink")
    for attempt in (
        lambda: store.remember("s", "milk", id="drink", expected=20),
        lambda: store.erase_memory("s", "drink"),
    ):
        client.delete(INDEX)
        client.zadd(INDEX, {b"drink\0" + digits: 0})
        with pytest.raises(FormatError, match="index of items"):
            attempt()


def test_many_versions_are_checked_and_erased_in_portions(store, client):
    batches = max(READ_LOOKED, 2 * REMOVE_ENTRIES) // BATCH_ENTRIES_MAX + 1
    versions = batches * BATCH_ENTRIES_MAX
    drafts = (encode(StoredMemory(id="drink")),) * BATCH_ENTRIES_MAX
    appends = [Append("s", drafts, f"k{n}", False, None, None) for n in range(batches)]
    for append in appends:
        store._backend.perform(append)
    assert store.verify("s").ok
    assert store.erase_memory("s", "drink").entries == versions
    with pytest.raises(ConflictError, match="other content"):
        store._backend.perform(appends[1])
    assert client.exists(INDEX) == 0
    assert client.zcard(LOG) == versions
    assert store.verify("s").ok
