"""Behind a transaction pooler: each transaction on another connection, and none leaves a trace."""

import asyncio
import threading

import psycopg
import pytest

import indelible
from tests.support import postgres_server
from tests.support.postgres.pooler import Pooler
from tests.support.stores import Blocking, LoopThread
from tests.support.verbs import every_verb

THREADS = 8
TASKS = 60


@pytest.fixture
def pooler():
    postgres_server.emptied_database()
    front = Pooler(postgres_server.server().port)
    yield front
    front.close()


@pytest.fixture(params=["blocking", "async"])
def opened(request):
    """Opens stores of one flavour, behind a blocking face."""
    if request.param == "blocking":
        yield indelible.open
        return
    loop = LoopThread()
    yield lambda target: Blocking(loop, target)
    loop.stop()


def texts(entries):
    """What stands at each position."""
    return {entry.position: entry.value.content for entry in entries}


def test_every_verb_works_behind_a_pooler(pooler, opened):
    store = opened(pooler.url)
    every_verb(store)
    store.close()
    assert pooler.transactions > 40
    assert pooler.leaks == []


def test_tables_are_made_through_a_pooler():
    url = postgres_server.fresh_database()
    pooler = Pooler(postgres_server.server().port, url.rpartition("/")[2])
    with indelible.open(pooler.url) as store:
        store.add_message("s", "user", "hi")
        assert store.verify().ok
    pooler.close()
    assert pooler.leaks == []


def test_threads_that_append_together_behind_a_pooler_each_get_their_own_answer(pooler):
    """More threads than connections of the store, and more of these than the pooler has."""
    receipts = {}
    with indelible.open(pooler.url, timeout_s=60) as store:

        def write(name):
            receipts[name] = [
                store.add_message(f"s{name % 3}", "user", f"{name}", key=f"{name}-{number}")
                for number in range(5)
            ]

        threads = [threading.Thread(target=write, args=(name,)) for name in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for name, given in receipts.items():
            said = texts(store.get_entries(f"s{name % 3}", limit=1000))
            assert [said[receipt.positions.start] for receipt in given] == [f"{name}"] * 5
    assert pooler.leaks == []


async def test_tasks_that_append_together_behind_a_pooler_each_get_their_own_answer(pooler):
    async with indelible.open_async(pooler.url, timeout_s=60) as store:
        receipts = await asyncio.gather(
            *(store.add_message(f"s{n % 3}", "user", f"{n}") for n in range(TASKS))
        )
        said = [texts(await store.get_entries(f"s{n}", limit=1000)) for n in range(3)]
    for number, receipt in enumerate(receipts):
        assert said[number % 3][receipt.positions.start] == f"{number}"
    assert pooler.leaks == []


@pytest.mark.parametrize(
    ("statement", "leak"),
    [
        ("SET lock_timeout = 7", "setting lock_timeout"),
        ("SELECT pg_advisory_lock(7)", "lock"),
        ("CREATE TEMPORARY TABLE t (a int)", "table t"),
        ("PREPARE p AS SELECT 1", "statement p"),
        ("LISTEN news", "channel news"),
    ],
)
def test_the_pooler_sees_what_a_client_leaves_behind(pooler, statement, leak):
    with psycopg.connect(pooler.url, autocommit=True) as connection:
        connection.execute(statement)
        connection.execute("SELECT 1")
    assert leak in pooler.leaks


def test_the_pooler_sees_a_statement_with_a_name(pooler):
    with (
        psycopg.connect(pooler.url, autocommit=True) as connection,
        pytest.raises(psycopg.errors.InvalidSqlStatementName),
    ):
        connection.execute("SELECT %s", [1], prepare=True)
    assert "a named statement" in pooler.leaks


def test_the_pooler_gives_each_transaction_another_connection(pooler):
    with psycopg.connect(pooler.url) as connection:
        pids = []
        for _ in range(3):
            with connection.transaction():
                (first,) = connection.execute("SELECT pg_backend_pid()").fetchone()
                (second,) = connection.execute("SELECT pg_backend_pid()").fetchone()
            assert first == second
            pids.append(first)
    assert len(set(pids)) == 3
