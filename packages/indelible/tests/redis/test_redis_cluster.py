"""A cluster of six servers: the same store, wherever a session lies."""

import asyncio
import threading

import pytest
import redis
import redis.asyncio

import indelible
from indelible.backends.redis import AsyncRedisBackend, RedisBackend, RedisOptions
from indelible.backends.redis.keys import build_keys
from indelible.backends.redis.requests import SendCommands
from indelible.core.deadline import Deadline
from memory_contract.faults.proxy import Proxy, ProxyFault
from tests.support.redis_writers import ProcessWriter, texts
from tests.support.valkey_cluster import ValkeyCluster
from tests.support.wait import wait_until

WRITERS = 8
# The commands by which clients read the map of slots.
MAPS = ("slots", "shards")


@pytest.fixture
def cluster(shared_cluster):
    """The shared cluster, with nothing on it."""
    for node in shared_cluster.nodes[:3]:
        with node.client() as client:
            client.flushall()
    return shared_cluster


def test_sessions_lie_on_every_server_and_are_listed_from_all(cluster):
    with indelible.open(cluster.url) as store:
        names = {f"user-{number}" for number in range(30)}
        for name in names:
            store.save_context(name, "hello", "hello")
        assert store.claims().engine == "valkey cluster"
        found, cursor = [], None
        while True:
            page = store.list_sessions(limit=4, cursor=cursor)
            found += page.ids
            cursor = page.cursor
            if cursor is None:
                break
        assert sorted(found) == sorted(names)
    for node in cluster.nodes[:3]:
        with node.client() as client:
            assert client.dbsize() > 0


def test_every_verb_works_on_a_cluster(cluster):
    with indelible.open(cluster.url) as store:
        for name in ("a", "b", "c", "d"):
            store.add_message(name, "user", "one", key="k")
            assert store.add_message(name, "user", "one", key="k").replayed
            snapshot = store.save_snapshot(name)
            store.add_summary(name, "sum", (1.0, 0.0), embedder="e")
            store.rollback_to_snapshot(name, snapshot.id)
            store.undo(name)
            store.trim(name, keep_last=0)
            store.fork(name, f"{name}-copy", at=snapshot.id)
            assert texts(store, f"{name}-copy") == ["one"]
            assert store.forget(name).forks == (f"{name}-copy",)
        store.vacuum(undo_window=0)
        assert store.verify().ok


@pytest.mark.parametrize("decode_responses", [False, True])
def test_a_cluster_client_of_the_application(cluster, decode_responses):
    client = redis.RedisCluster(
        host="127.0.0.1", port=cluster.nodes[2].port, decode_responses=decode_responses
    )
    with indelible.open(client) as store:
        for number in range(20):
            store.add_message(f"s{number}", "user", "Grüße")
        assert texts(store, "s7") == ["Grüße"]
    assert client.ping()
    client.close()


async def test_an_async_cluster_client_needs_no_care(cluster):
    # Cold, and with hundreds of tasks at once.
    client = redis.asyncio.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port)
    async with indelible.open_async(client) as store:
        receipts = await asyncio.gather(
            *(store.add_message(f"s{number % 10}", "user", str(number)) for number in range(300))
        )
        assert len({(each.session_id, each.positions.start) for each in receipts}) == 300
        histories = await asyncio.gather(*(store.get_history(f"s{n}") for n in range(10)))
        assert sum(map(len, histories)) == 300
    await client.aclose()


def test_a_primary_killed_under_load_of_processes_loses_and_doubles_nothing(tmp_path):
    cluster = ValkeyCluster(tmp_path / "cluster")
    writers = []
    try:
        cluster.start()
        key = build_keys("", "s").head
        options = {"durability": "replicated", "timeout_s": 20}
        writers += [
            ProcessWriter(cluster.url, "s", f"w{number}", tmp_path, **options)
            for number in range(WRITERS)
        ]
        get_on(writers, 3)
        victim = cluster.primary_of(key)
        victim.kill()
        cluster.until_whole()
        # The new primary has no replica left to confirm anything, until the old one is back.
        victim.start()
        get_on(writers, 3)
        for writer in writers:
            writer.end()
        with indelible.open(cluster.url, timeout_s=30) as store:
            found = texts(store, "s")
            positions = [entry.position for entry in store.get_entries("s", limit=1000)]
    finally:
        for writer in writers:
            writer.kill()
        cluster.stop()
    acknowledged = {text for writer in writers for text in writer.lines("ack")}
    assert len(found) == len(set(found)), "doubled"
    assert acknowledged <= set(found), "lost"
    assert positions == list(range(len(positions)))


def get_on(writers, count):
    """Wait until every writer had this many more acknowledged."""
    before = [len(writer.lines("ack")) for writer in writers]

    def is_done():
        for writer in writers:
            writer.refuse_death()
        return all(
            len(writer.lines("ack")) >= done + count
            for writer, done in zip(writers, before, strict=True)
        )

    wait_until(is_done, what="the writers do not get on")


def test_a_store_lives_through_a_failover_without_being_reopened(tmp_path):
    cluster = ValkeyCluster(tmp_path / "cluster", {"appendfsync": "no"})
    try:
        cluster.start()
        with indelible.open(cluster.url, timeout_s=30) as store:
            names = [f"s{number}" for number in range(12)]
            for name in names:
                store.add_message(name, "user", "before")
            victim = cluster.primary_of(build_keys("", "s0").head)
            victim.kill()
            for name in names:
                store.add_message(name, "user", "after", key=f"after-{name}")
            assert all(texts(store, name)[-1] == "after" for name in names)
            assert sorted(store.list_sessions().ids) == sorted(names)
            # The old primary comes back as a replica; nobody takes it for more.
            victim.start()
            cluster.until_whole()
            for name in names:
                store.add_message(name, "user", "later")
    finally:
        cluster.stop()


async def test_a_redirect_to_a_server_that_the_map_does_not_have_is_followed(tmp_path):
    cluster = ValkeyCluster(tmp_path / "cluster", {"appendfsync": "no"})
    try:
        cluster.start()
        primary = cluster.primary_of(build_keys("", "s").head)
        replica = cluster.nodes[cluster.nodes.index(primary) + 3]
        replica.kill()
        wait_until(lambda: not cluster.lists(replica), what="a failed replica is not listed")
        with indelible.open(cluster.url, timeout_s=20) as blocking:
            async with indelible.open_async(cluster.url, timeout_s=20) as awaiting:
                blocking.add_message("s", "user", "one")
                await awaiting.add_message("s", "user", "two")
                replica.start()
                wait_until(lambda: cluster.lists(replica), what="the replica is back")
                with replica.client() as client:
                    wait_until(lambda: client.info("replication")["master_link_status"] == "up")
                    client.execute_command("CLUSTER FAILOVER")
                    wait_until(lambda: client.role()[0] == b"master", what="it took over")
                blocking.add_message("s", "user", "three")
                await awaiting.add_message("s", "user", "four")
                assert texts(blocking, "s") == ["one", "two", "three", "four"]
    finally:
        cluster.stop()


async def test_a_server_that_left_and_came_back_has_no_connection_after_its_client_is_closed(
    tmp_path,
):
    cluster = ValkeyCluster(tmp_path / "cluster", {"appendfsync": "no"})

    def is_primary():
        return looking.role()[0] == b"master"

    try:
        cluster.start()
        primary = cluster.primary_of(build_keys("", "s").head)
        other = next(node for node in cluster.nodes if node is not primary)
        client = redis.asyncio.RedisCluster(host="127.0.0.1", port=other.port)
        async with indelible.open_async(client, timeout_s=20) as store:
            await store.add_message("s", "user", "one")
            primary.kill()
            await asyncio.to_thread(wait_until, lambda: not cluster.lists(primary))
            await client.nodes_manager.initialize()
            await store.add_message("s", "user", "two")
            primary.start()
            await asyncio.to_thread(cluster.until_whole)
            with primary.client() as looking:
                wait_until(lambda: looking.info("replication")["master_link_status"] == "up")
                looking.execute_command("CLUSTER FAILOVER")
                wait_until(is_primary, what="it took over")
            await store.add_message("s", "user", "three")
        await client.aclose()
        with primary.client() as looking:
            wait_until(lambda: len(looking.client_list(_type="normal")) == 1)
    finally:
        cluster.stop()


@pytest.fixture
def proxy(cluster):
    """A proxy before the server that is asked for the map of slots."""
    with Proxy(cluster.nodes[0].url) as started:
        yield started


@pytest.mark.parametrize("kind", [RedisBackend, AsyncRedisBackend])
async def test_a_map_that_is_read_while_the_store_is_closed_leaves_no_connection(
    cluster, proxy, kind
):
    proxy.arm(ProxyFault("freeze", "CLUSTER"))
    backend = kind(build_options(proxy.url.replace("redis://", "redis+cluster://")))
    with cluster.nodes[0].client() as client:
        others = len(client.client_list())
        opening = asyncio.ensure_future(call(backend.prepare))
        await asyncio.to_thread(wait_until, lambda: proxy.struck, what="the map is not read")
        closing = asyncio.ensure_future(call(backend.close))
        await asyncio.to_thread(wait_until, lambda: backend._closed)
        proxy.heal()
        with pytest.raises(indelible.ClosedError):
            await opening
        await closing
        await asyncio.to_thread(
            wait_until,
            lambda: len(client.client_list()) == others,
            what="a connection is still open",
        )


def test_requests_that_fail_together_have_the_map_read_once(cluster):
    backend = RedisBackend(build_options(cluster.url))
    servers = backend.find_servers()
    requests = [SendCommands("key", Deadline(20), (("PING",),)) for _ in range(10)]
    for request in requests:
        servers.find_channel(request)
        request.failed = ConnectionError()
    before = count_maps(cluster)
    for request in requests:
        servers.find_channel(request)
    assert count_maps(cluster) == before + 1
    # What fails with the new map is a reason to read it again.
    servers.find_channel(requests[0])
    assert count_maps(cluster) == before + 2
    backend.close()


def count_maps(cluster):
    """Count how often clients read the map of slots."""
    total = 0
    for node in cluster.nodes:
        with node.client() as client:
            found = client.info("commandstats")
            total += sum(found.get(f"cmdstat_cluster|{name}", {}).get("calls", 0) for name in MAPS)
    return total


async def call(function):
    """Await a coroutine function, or call another in a thread."""
    if asyncio.iscoroutinefunction(function):
        return await function()
    return await asyncio.to_thread(function)


def build_options(target):
    return RedisOptions(target=target, shown="cluster", namespace="", durability=None, timeout_s=20)


def test_a_server_of_a_cluster_that_is_opened_alone_says_what_to_do(cluster):
    def open_each():
        for node in cluster.nodes[:3]:
            indelible.open(node.url, timeout_s=5).close()

    # The key that says the format lies on one of the three.
    with pytest.raises(indelible.UnsupportedError, match=r"redis\+cluster"):
        open_each()


def test_a_slot_that_is_moved_while_a_store_is_open_is_found_again(cluster):
    with indelible.open(cluster.url, timeout_s=30) as store:
        store.add_message("moving", "user", "one", key="one")
        key = build_keys("", "moving").head
        source = cluster.primary_of(key)
        target = next(node for node in cluster.nodes[:3] if node.port != source.port)
        with source.client() as old, target.client() as new:
            slot = old.execute_command("CLUSTER KEYSLOT", key)
            ids = [each.execute_command("CLUSTER MYID").decode() for each in (old, new)]
            new.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[0])
            old.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[1])
            keys = old.execute_command("CLUSTER GETKEYSINSLOT", slot, 100)
            old.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 10000, "KEYS", *keys)
            # Half-way, no server takes a call on several keys: it waits, and is not lost.
            waiting = threading.Thread(target=store.add_message, args=("moving", "user", "two"))
            waiting.start()
            for each in (new, old):
                each.execute_command("CLUSTER SETSLOT", slot, "NODE", ids[1])
            waiting.join(60)
            assert texts(store, "moving") == ["one", "two"]
            store.add_message("moving", "user", "three")
            assert store.add_message("moving", "user", "one", key="one").replayed
            assert texts(store, "moving") == ["one", "two", "three"]
            # And back, for the tests that follow.
            new.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[0])
            old.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[1])
            keys = new.execute_command("CLUSTER GETKEYSINSLOT", slot, 100)
            new.execute_command("MIGRATE", "127.0.0.1", source.port, "", 0, 10000, "KEYS", *keys)
            for each in (old, new):
                each.execute_command("CLUSTER SETSLOT", slot, "NODE", ids[0])
        assert len(texts(store, "moving")) == 3
