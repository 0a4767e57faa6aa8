"""Behind the real PgBouncer in transaction mode, which knows nothing of prepared statements."""

import asyncio
import shutil
import threading

import psycopg
import pytest

import indelible
from tests.support import postgres_server
from tests.support.postgres.pgbouncer import PgBouncer
from tests.support.stores import Blocking, LoopThread
from tests.support.verbs import every_verb

THREADS = 8
TASKS = 60
# More often than the driver takes to prepare a statement.
TIMES = 8


@pytest.fixture(scope="module")
def bouncer():
    folder = postgres_server.new_folder()
    started = PgBouncer(postgres_server.server().port, folder)
    yield started
    started.close()
    shutil.rmtree(folder)


@pytest.fixture
def place(bouncer):
    postgres_server.emptied_database()
    return bouncer.url()


@pytest.fixture(params=["blocking", "async"])
def opened(request):
    """Opens stores of one flavour, behind a blocking face."""
    if request.param == "blocking":
        yield indelible.open
        return
    loop = LoopThread()
    yield lambda target: Blocking(loop, target)
    loop.stop()


def test_it_gives_transactions_other_connections(place):
    """Otherwise these tests would say nothing: a prepared statement is lost there."""
    with psycopg.connect(place, autocommit=True) as one, psycopg.connect(place) as two:
        one.execute("SELECT %s::int", [1], prepare=True)
        two.execute("SELECT 1")
        with pytest.raises(psycopg.errors.InvalidSqlStatementName):
            one.execute("SELECT %s::int", [1], prepare=True)


def test_every_verb_works(place, opened):
    store = opened(place)
    for _ in range(2):
        every_verb(store)
        for session in store.list_sessions().ids:
            store.forget(session)
    store.close()


def test_tables_are_made(bouncer):
    database = postgres_server.fresh_database().rpartition("/")[2]
    with indelible.open(bouncer.url(database)) as store:
        store.add_message("s", "user", "hi")
        assert store.verify().ok


def test_statements_that_are_sent_often_stay_unprepared(place, opened):
    store = opened(place)
    for number in range(TIMES):
        store.add_message("s", "user", str(number))
        store.rollback_to_snapshot("s", store.save_snapshot("s").id)
    assert len(store.get_history("s")) == TIMES
    store.close()
    with psycopg.connect(postgres_server.server().url()) as connection:
        sent = "SELECT count(*) FROM pg_stat_activity WHERE query ~ 'PREPARE|DEALLOCATE'"
        own = " AND pid <> pg_backend_pid()"
        assert connection.execute(sent + own).fetchone() == (0,)


def test_threads_that_append_together_each_get_their_own_answer(place):
    receipts = {}
    with indelible.open(place, timeout_s=60) as store:

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
            entries = store.get_entries(f"s{name % 3}", limit=1000)
            said = {entry.position: entry.value.content for entry in entries}
            assert [said[receipt.positions.start] for receipt in given] == [f"{name}"] * 5


async def test_tasks_that_append_together_each_get_their_own_answer(place):
    async with indelible.open_async(place, timeout_s=60) as store:
        receipts = await asyncio.gather(
            *(store.add_message(f"s{n % 3}", "user", f"{n}") for n in range(TASKS))
        )
        for number, receipt in enumerate(receipts):
            entries = await store.get_entries(f"s{number % 3}", limit=1000)
            said = {entry.position: entry.value.content for entry in entries}
            assert said[receipt.positions.start] == f"{number}"
