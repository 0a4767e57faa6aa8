"""Connections: bounded, waited for with a bound, and left without a trace for whoever is next."""

import asyncio
import threading
from collections import deque

import psycopg
import psycopg_pool

import indelible
from indelible import BusyError
from indelible.backends.postgres import AsyncPostgresBackend, PostgresBackend, PostgresOptions
from indelible.backends.postgres.connection_pool import CONNECTIONS_MAX
from indelible.core.settings import Settings
from tests.support import postgres_server
from tests.support.verbs import every_verb

TASKS = 300
# What a transaction may have set, and what a session must not keep.
SETTINGS = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")


async def test_a_pool_that_300_tasks_find_exhausted_is_an_error_that_says_so(url):
    pool = psycopg_pool.AsyncConnectionPool(url, min_size=2, max_size=2, open=False)
    async with pool, indelible.open_async(pool, timeout_s=0.5) as store:
        taken = [await pool.getconn() for _ in range(2)]
        outcomes = await asyncio.gather(
            *(store.add_message(f"s{n}", "user", "hi") for n in range(TASKS)),
            return_exceptions=True,
        )
        assert {type(error) for error in outcomes} == {BusyError}
        assert {error.landed for error in outcomes} == {"no"}
        assert any("exhausted" in str(error) for error in outcomes)
        for connection in taken:
            await pool.putconn(connection)
        assert (await store.list_sessions()).ids == [], "nothing was written behind their backs"
        await store.add_message("s", "user", "hi")


async def test_300_tasks_share_the_connections_that_there_are():
    # In a database of its own: what other tests left behind may still be leaving.
    url = postgres_server.fresh_database()
    async with indelible.open_async(url, timeout_s=60) as store:
        await store.add_message("s", "user", "hi")
        histories = await asyncio.gather(*(store.get_history("s") for _ in range(TASKS)))
        assert {len(history) for history in histories} == {1}
        await asyncio.gather(*(store.add_message("s", "user", "x") for _ in range(TASKS)))
        assert len(await store.get_history("s")) == TASKS + 1
        with psycopg.connect(url) as other:
            count = (
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE application_name = 'indelible' AND datname = current_database()"
            )
            assert other.execute(count).fetchone()[0] <= CONNECTIONS_MAX


async def test_connections_that_are_all_waiting_are_an_error_that_says_so(url):
    async with indelible.open_async(url, timeout_s=0.5) as store:
        await store.add_message("s", "user", "hi")
        with psycopg.connect(url) as other:
            other.execute("LOCK indelible.entry IN ACCESS EXCLUSIVE MODE")
            outcomes = await asyncio.gather(
                *(store.get_history("s") for _ in range(TASKS)), return_exceptions=True
            )
        said = {type(error).__name__ for error in outcomes}
        assert said == {"BusyError", "UnavailableError"}
        assert any("exhausted" in str(error) for error in outcomes)
        assert len(await store.get_history("s")) == 1


class Turns:
    """What a transaction pooler does: each call gets the next connection, and none is its own."""

    max_size = 3

    def __init__(self, connections):
        self._connections = deque(connections)
        self.lent = 0

    def _next(self):
        self._connections.rotate()
        self.lent += 1
        return self._connections[0]


class BlockingTurns(Turns):
    def getconn(self, timeout):
        return self._next()

    def putconn(self, connection):
        look_for_traces(connection.info, connection.execute)


class AsyncTurns:
    """The same for tasks; a connection is lent again when it was looked at."""

    max_size = 3

    def __init__(self, connections):
        self._free = asyncio.Queue()
        for connection in connections:
            self._free.put_nowait(connection)
        self.lent = 0
        self.left_behind = []

    async def getconn(self, timeout):  # noqa: ASYNC109 (as the driver's pool has it)
        self.lent += 1
        return await asyncio.wait_for(self._free.get(), timeout)

    async def putconn(self, connection):
        look_for_traces(connection.info)
        for query, wanted in traces():
            found = await (await connection.execute(query, prepare=False)).fetchall()
            if found != wanted:
                self.left_behind.append((query, found))
        self._free.put_nowait(connection)


def traces():
    """What a session would keep, and what it must be."""
    yield "SELECT name FROM pg_prepared_statements", []
    yield "SELECT name FROM pg_cursors", []
    yield "SELECT classid FROM pg_locks WHERE locktype = 'advisory'", []
    yield f"SELECT name FROM pg_settings WHERE name IN {SETTINGS} AND source = 'session'", []
    yield "SELECT relname FROM pg_class WHERE relpersistence = 't'", []


def look_for_traces(info, execute=None):
    assert info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    for query, wanted in traces() if execute else ():
        assert execute(query, prepare=False).fetchall() == wanted, query


def options_for(pool):
    return PostgresOptions(
        target=pool, shown="turns", namespace="", durability=None, timeout_s=30, clock=None
    )


def test_no_call_leaves_anything_behind_on_its_connection(url):
    with (
        psycopg.connect(url, autocommit=True) as one,
        psycopg.connect(url, autocommit=True) as two,
        psycopg.connect(url, autocommit=True) as three,
    ):
        turns = BlockingTurns([one, two, three])
        backend = PostgresBackend(options_for(turns))
        backend.prepare()
        with indelible.MemoryStore(backend, Settings()) as store:
            every_verb(store)
    assert turns.lent > 40


async def test_no_awaited_call_leaves_anything_behind_on_its_connection(url):
    connect = psycopg.AsyncConnection.connect
    async with (
        await connect(url, autocommit=True) as one,
        await connect(url, autocommit=True) as two,
    ):
        turns = AsyncTurns([one, two])
        backend = AsyncPostgresBackend(options_for(turns))
        await backend.prepare()
        store = indelible.AsyncMemoryStore(backend, Settings())
        await asyncio.gather(*(store.add_message("s", "user", f"{n}") for n in range(5)))
        snapshot = await store.save_snapshot("s")
        await store.clear("s")
        await store.rollback_to_snapshot("s", snapshot.id)
        assert len(await store.get_history("s")) == 5
        assert (await store.verify()).ok
        await store.close()
        for _ in (one, two):
            await turns.getconn(60)
    assert turns.left_behind == []
    assert turns.lent > 8


class Stops:
    """Holds up a method of a store's client in a thread, and says when it has ended."""

    def __init__(self, pool, name):
        self._method = getattr(pool, name)
        self.reached, self.open, self.ended = (threading.Event() for _ in range(3))
        setattr(pool, name, self)

    def __call__(self, *arguments, **options):
        self.reached.set()
        assert self.open.wait(60)
        try:
            return self._method(*arguments, **options)
        finally:
            self.ended.set()

    async def until_reached(self):
        await asyncio.to_thread(self.reached.wait, 60)


async def open_over_pool(url, **options):
    pool = psycopg_pool.AsyncConnectionPool(url, min_size=2, max_size=2, open=False)
    await pool.open(wait=True)
    store = await indelible.open_async(pool, **options)
    await store.add_message("s", "user", "first")
    return store, pool


async def close_over_pool(store, pool):
    """Close both; the pool has all its connections."""
    await store.close()
    for connection in [await pool.getconn(timeout=60) for _ in range(2)]:
        await pool.putconn(connection)
    await pool.close()


def test_a_write_that_landed_is_told_although_the_loop_stopped_meanwhile(url):
    with asyncio.Runner() as runner:
        store, pool = runner.run(open_over_pool(url))
        stops = Stops(store._backend._client.pool, "give_back")

        async def begin():
            task = asyncio.create_task(store.add_message("s", "user", "second"))
            await stops.until_reached()
            return task

        async def finish(task):
            assert not (await task).replayed
            return [message.content for message in await store.get_history("s")]

        task = runner.run(begin())
        stops.open.set()
        assert stops.ended.wait(60)
        assert runner.run(finish(task)) == ["first", "second"]
        runner.run(close_over_pool(store, pool))


def test_a_connection_that_comes_after_its_call_gave_up_goes_back_to_the_pool(url):
    with asyncio.Runner() as runner:
        store, pool = runner.run(open_over_pool(url))
        stops = Stops(store._backend._client.pool, "borrow")

        async def begin():
            task = asyncio.create_task(store.get_history("s"))
            await stops.until_reached()
            task.cancel()

        async def hand_out():
            # What was asked for while the loop stood still.
            await asyncio.sleep(0)
            lending = [t for t in asyncio.all_tasks() if t.get_coro().__name__ == "_lend"]
            await asyncio.gather(*lending)

        runner.run(begin())
        stops.open.set()
        assert stops.ended.wait(60)
        runner.run(hand_out())
        assert pool.get_stats()["pool_available"] == 2
        runner.run(close_over_pool(store, pool))


def test_a_store_whose_pool_was_closed_first_has_told_what_landed(url):
    with asyncio.Runner() as runner:
        store, pool = runner.run(open_over_pool(url))
        stops = Stops(store._backend._client.pool, "give_back")

        async def finish():
            task = asyncio.create_task(store.add_message("s", "user", "second"))
            await stops.until_reached()
            await pool.close()
            stops.open.set()
            assert not (await task).replayed
            await store.close()

        runner.run(finish())
    with indelible.open(url) as store:
        assert [message.content for message in store.get_history("s")] == ["first", "second"]


def test_a_read_that_waits_for_a_pool_when_it_is_closed_leaves_no_noise(url, caplog):
    async def close_while_a_read_waits():
        pool = psycopg_pool.AsyncConnectionPool(url, min_size=1, max_size=1, open=False)
        await pool.open()
        store = await indelible.open_async(pool)
        taken = await pool.getconn()
        read = asyncio.create_task(store.get_history("s"))
        while not pool.get_stats()["requests_waiting"]:  # noqa: ASYNC110 (nothing says when it is)
            await asyncio.sleep(0)
        read.cancel()
        await asyncio.wait([read])
        await store.close()
        await taken.close()
        await pool.close()

    asyncio.run(close_while_a_read_waits())
    assert [record.getMessage() for record in caplog.records] == []
