"""Statements get a name where the server process stays the same, and nothing hangs on that name."""

import psycopg
import psycopg_pool
import pytest
from pooler import Pooler

import indelible
from indelible.backends.postgres import calls
from indelible.backends.postgres.named import APPEND, ROLL_BACK
from tests.support import postgres_server

NAMES = "SELECT name FROM pg_prepared_statements WHERE name LIKE 'indelible%'"
# The same, said with another type.
OTHER_TYPE = """
    ALTER FUNCTION indelible.append RENAME TO append_before;
    CREATE FUNCTION indelible.append(bytea, bytea, bytea, text, bigint, bigint, text, smallint,
        boolean, text, text, bytea, bigint, integer) RETURNS varchar LANGUAGE sql AS
    $$ SELECT indelible.append_before($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
    $$"""


def used(store):
    """A store whose connection has been used often enough."""
    for number in range(calls.CALLS_BEFORE_NAMES + 2):
        store.add_message("s", "user", str(number))
    return texts(store)


def texts(store):
    return [message.content for message in store.get_history("s")]


def names(connection):
    return {name for (name,) in connection.execute(NAMES, prepare=False).fetchall()}


def connection_of(store):
    (link,) = store._backend._pool.idle
    return link.connection


@pytest.fixture
def store(url):
    with indelible.open(url) as store:
        yield store


def test_a_connection_that_is_used_often_has_names_for_its_statements(store):
    store.add_message("s", "user", "first")
    assert names(connection_of(store)) == set()
    used(store)
    assert APPEND.name.decode() in names(connection_of(store))
    store.rollback_to_snapshot("s", store.save_snapshot("s").id)
    assert ROLL_BACK.name.decode() in names(connection_of(store))


@pytest.mark.parametrize("forget", ["DEALLOCATE ALL", "DISCARD ALL"])
def test_a_name_that_the_server_forgot_is_done_without(store, forget):
    before = used(store)
    connection_of(store).execute(forget)
    assert not store.add_message("s", "user", "next").replayed
    assert not store.add_message("s", "user", "last").replayed
    assert texts(store) == [*before, "next", "last"]
    assert names(connection_of(store)) == set()


async def test_an_async_store_does_without_a_forgotten_name(url):
    async with indelible.open_async(url) as store:
        for number in range(calls.CALLS_BEFORE_NAMES + 2):
            await store.add_message("s", "user", str(number))
        (link,) = store._backend._room().pool.idle
        found = await (await link.connection.execute(NAMES, prepare=False)).fetchall()
        assert found == [(APPEND.name.decode(),)]
        await link.connection.execute("DEALLOCATE ALL")
        assert not (await store.add_message("s", "user", "next")).replayed
        assert len(await store.get_history("s")) == calls.CALLS_BEFORE_NAMES + 3


def test_a_name_whose_function_became_another_is_done_without():
    url = postgres_server.fresh_database()
    with indelible.open(url) as store, psycopg.connect(url, autocommit=True) as other:
        before = used(store)
        other.execute(OTHER_TYPE)
        assert not store.add_message("s", "user", "next").replayed
        assert texts(store) == [*before, "next"]


def test_the_connections_of_an_application_get_no_names(url):
    with (
        psycopg_pool.ConnectionPool(url, min_size=1, max_size=1) as pool,
        indelible.open(pool) as store,
    ):
        used(store)
        with pool.connection() as connection:
            assert names(connection) == set()


def test_behind_a_pooler_that_looks_like_a_server_everything_lands_once(url, monkeypatch):
    """Each transaction goes to another process, which may know the name from another client."""
    # It tells its clients no number at all; here, every process says that this is its own.
    monkeypatch.setattr(calls, "_PID", b"SELECT '0'")
    pooler = Pooler(postgres_server.server().port, connections=2)
    try:
        for writer in range(6):
            with indelible.open(pooler.url) as store:
                for number in range(8):
                    assert not store.add_message("s", "user", f"{writer}.{number}").replayed
    finally:
        pooler.close()
    assert "a named statement" in pooler.leaks
    with indelible.open(url) as store:
        assert texts(store) == [f"{writer}.{number}" for writer in range(6) for number in range(8)]
        assert store.verify().ok
