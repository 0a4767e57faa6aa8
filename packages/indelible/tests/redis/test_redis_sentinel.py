"""A sentinel names a new primary: a client that asks it goes on, and so does its store."""

import pytest
import redis.asyncio.sentinel
import redis.sentinel

import indelible
from tests.support.sentinel import NAME, SentinelGroup
from tests.support.wait import wait_until


@pytest.fixture
def watched(tmp_path):
    servers = SentinelGroup(tmp_path)
    try:
        servers.start()
        yield servers
    finally:
        servers.stop()


def has_primary(sentinel):
    try:
        return bool(sentinel.discover_master(NAME))
    except redis.ConnectionError:
        return False


def test_a_store_lives_through_a_failover_that_a_sentinel_makes(watched):
    sentinel = redis.sentinel.Sentinel([("127.0.0.1", watched.port)], socket_timeout=5)
    with (
        sentinel.master_for(NAME) as client,
        # What one server acknowledged alone, its successor may not have.
        indelible.open(client, durability="replicated", timeout_s=60) as store,
    ):
        store.add_message("s", "user", "one")
        watched.primary.kill()
        assert [message.content for message in store.get_history("s")] == ["one"]
    # A machine that stood still for a second has the sentinel doubt the new primary, too.
    wait_until(lambda: has_primary(sentinel))
    # The new primary has no replica that could confirm a write.
    with sentinel.master_for(NAME) as client, indelible.open(client, timeout_s=60) as store:
        store.add_message("s", "user", "two")
        assert [message.content for message in store.get_history("s")] == ["one", "two"]


async def test_an_async_store_writes_to_the_new_primary(watched):
    sentinel = redis.asyncio.sentinel.Sentinel([("127.0.0.1", watched.port)], socket_timeout=5)
    async with (
        sentinel.master_for(NAME) as client,
        indelible.open_async(client, timeout_s=60) as store,
    ):
        await store.add_message("s", "user", "one")
        with watched.replica.client() as other:
            wait_until(lambda: other.exists("indelible:{:s}l"), what="the replica did not get it")
        watched.primary.kill()
        receipt = await store.add_message("s", "user", "two")
        assert receipt.positions == range(1, 2)
        history = await store.get_history("s")
        assert [message.content for message in history] == ["one", "two"]
    for each in sentinel.sentinels:
        await each.aclose()
