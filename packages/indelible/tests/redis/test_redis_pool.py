"""Connections are few, waits are bounded, and an exhausted pool says so."""

import asyncio
import socket
from dataclasses import replace

import pytest
import redis
import redis.asyncio

import indelible
from indelible import BusyError
from indelible.backends.redis import RedisBackend
from indelible.backends.redis.errors import LostError
from indelible.backends.redis.options import READ_CONNECTIONS, WRITE_CONNECTIONS, RedisOptions
from indelible.backends.redis.request_batch import RequestBatch
from indelible.backends.redis.requests import RedisContext, SendCommands
from indelible.core.batcher import Pending
from indelible.core.deadline import Deadline

TASKS = 300
OPTIONS = RedisOptions(
    target="redis://127.0.0.1", shown="silent", namespace="", durability=None, timeout_s=3600
)


async def test_hundreds_of_tasks_need_no_more_connections_than_there_are(url, client):
    others = len(client.client_list())
    async with indelible.open_async(url) as store:

        async def work(number):
            receipt = await store.add_message(f"s{number % 5}", "user", str(number))
            history = await store.get_history(f"s{number % 5}")
            return receipt, len(history)

        done = await asyncio.gather(*(work(number) for number in range(TASKS)))
        assert len(client.client_list()) - others <= WRITE_CONNECTIONS + READ_CONNECTIONS
        total = [len(await store.get_history(f"s{number}")) for number in range(5)]
    assert len({(each.session_id, each.positions.start) for each, _ in done}) == TASKS
    assert total == [TASKS // 5] * 5


async def test_a_pool_that_the_application_exhausted_is_an_error_that_says_so(server):
    pool = redis.asyncio.ConnectionPool(port=server.port, max_connections=3)
    client = redis.asyncio.Redis(connection_pool=pool)
    async with indelible.open_async(client) as store:
        await store.add_message("s", "user", "before")
    taken = [await pool.get_connection() for _ in range(3)]
    with pytest.raises(BusyError) as caught:
        await indelible.open_async(client, timeout_s=0.3)
    assert "pool is exhausted" in str(caught.value)
    assert caught.value.landed == "no"
    for connection in taken:
        await pool.release(connection)
    async with indelible.open_async(client) as store:
        assert [message.content for message in await store.get_history("s")] == ["before"]
    await pool.disconnect()


async def test_three_hundred_tasks_on_an_exhausted_pool_lose_nothing(server):
    pool = redis.asyncio.ConnectionPool(port=server.port, max_connections=4)
    client = redis.asyncio.Redis(connection_pool=pool)
    store = await indelible.open_async(client, timeout_s=3)
    # Opening read; nobody wrote yet, so the connection for writes is still to come.
    taken = []
    while True:
        try:
            taken.append(await pool.get_connection())
        except redis.exceptions.MaxConnectionsError:
            break
    done = await asyncio.gather(
        *(store.add_message("s", "user", str(number)) for number in range(TASKS)),
        return_exceptions=True,
    )
    assert {type(each) for each in done} == {BusyError}
    assert all(each.landed == "no" for each in done)
    for connection in taken:
        await pool.release(connection)
    receipts = await asyncio.gather(
        *(store.add_message("s", "user", str(number)) for number in range(TASKS))
    )
    assert len(await store.get_history("s")) == len(receipts) == TASKS
    await store.close()
    await pool.disconnect()


def test_one_connection_is_shared_with_the_application(server):
    pool = redis.ConnectionPool(port=server.port, max_connections=1)
    client = redis.Redis(connection_pool=pool)
    with indelible.open(client) as store:
        for number in range(5):
            store.add_message("s", "user", str(number))
            assert len(store.get_history("s")) == number + 1
            assert client.ping()
    pool.disconnect()


async def test_one_connection_is_shared_by_many_tasks(server):
    pool = redis.asyncio.ConnectionPool(port=server.port, max_connections=1)
    client = redis.asyncio.Redis(connection_pool=pool)
    async with indelible.open_async(client, timeout_s=20) as store:
        done = await asyncio.gather(
            *(store.add_message("s", "user", str(number)) for number in range(50)),
            *(store.session("s") for _ in range(50)),
        )
        assert len(done) == 100
        assert len(await store.get_history("s")) == 50
        assert await client.ping()
    await pool.disconnect()


async def test_a_cancelled_read_leaves_no_dirty_connection(url):
    async with indelible.open_async(url) as store:
        for number in range(20):
            await store.add_message("s", "user", str(number))
        for _ in range(50):
            task = asyncio.create_task(store.get_history("s"))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert [message.content for message in await store.get_history("s")] == [
            str(number) for number in range(20)
        ]


async def test_a_cancelled_write_is_waited_for_and_lands_once(url):
    async with indelible.open_async(url) as store:
        landed = 0
        for number in range(50):
            task = asyncio.create_task(store.add_message("s", "user", str(number)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            # Whatever became of it became of it before the task was released.
            now = len(await store.get_history("s"))
            assert now in (landed, landed + 1)
            landed = now


async def test_two_event_loops_share_a_store(url):
    async with indelible.open_async(url) as store:
        await store.add_message("s", "user", "one")

        def other():
            async def work():
                await store.add_message("s", "user", "two")
                await store.close()

            asyncio.run(work())

        await asyncio.to_thread(other)
    async with indelible.open_async(url) as again:
        assert [message.content for message in await again.get_history("s")] == ["one", "two"]


def test_a_forked_child_opens_connections_of_its_own(url):
    import os

    with indelible.open(url) as store:
        store.add_message("s", "user", "before")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                store.add_message("s", "user", "child")
                code = 0
            finally:
                os._exit(code)
        store.add_message("s", "user", "parent")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert sorted(message.content for message in store.get_history("s")) == [
            "before",
            "child",
            "parent",
        ]


def test_the_time_that_connecting_took_is_not_left_for_the_replies():
    context = RedisContext(OPTIONS)
    now = 0.0
    requests = [
        Pending(SendCommands(0, deadline, (("PING",),)), deadline)
        for deadline in (Deadline(seconds, now=lambda: now) for seconds in (5, 10, 1))
    ]
    batch = RequestBatch(requests, context)
    assert batch.left_s == 10, "one that is late must not fail the others"
    now = 8.0
    assert batch.left_s == 2


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_a_connection_is_made_in_the_time_that_its_call_has_left(scheme):
    """Whoever took the store's whole time for it would not be back in time for the test."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        backend = RedisBackend(
            replace(OPTIONS, target=f"{scheme}://127.0.0.1:{silent.getsockname()[1]}")
        )
        with pytest.raises(LostError) as caught:
            backend._attempt(SendCommands(0, Deadline(0.1), (("PING",),)))
        backend.close()
    assert isinstance(caught.value.error, redis.exceptions.TimeoutError)
    assert not caught.value.sent
