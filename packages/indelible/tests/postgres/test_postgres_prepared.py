"""Statements are prepared where the server process stays the same, and nothing depends on that."""

import psycopg
import psycopg_pool
import pytest

import indelible
from tests.support import postgres_server
from tests.support.postgres.pooler import Pooler

NAMES = "SELECT name FROM pg_prepared_statements WHERE statement LIKE '%%indelible%%'"
# More often than the driver takes to prepare a statement.
TIMES = 8
# The same, with another type.
OTHER_TYPE = f"""
    ALTER FUNCTION indelible.append RENAME TO append_before;
    CREATE FUNCTION indelible.append(text, bytea, bigint, bytea[], bytea[], boolean[], text[],
        bigint[], bigint[], bigint[], boolean[], text[], text[], bytea[], bytea[], text[],
        bytea[], text[], bigint[]) RETURNS varchar[] LANGUAGE sql
    RETURN indelible.append_before({", ".join(f"${nth}" for nth in range(1, 20))})"""


def use(store):
    """Use a store so often that its statements are prepared."""
    for number in range(TIMES):
        store.add_message("s", "user", str(number))
    return texts(store)


def texts(store):
    return [message.content for message in store.get_history("s")]


def driver_of(store):
    (connection,) = store._backend.pool.idle
    return connection.driver


def names(connection):
    return connection.execute(NAMES, prepare=False).fetchall()


@pytest.fixture
def store(url):
    with indelible.open(url) as store:
        yield store


def test_statements_of_a_connection_that_is_used_often_are_prepared(store):
    store.add_message("s", "user", "first")
    assert names(driver_of(store)) == []
    use(store)
    assert names(driver_of(store))


@pytest.mark.parametrize("forget", ["DEALLOCATE ALL", "DISCARD ALL"])
def test_a_statement_that_the_server_forgot_is_prepared_anew(store, forget):
    before = use(store)
    # Not through the driver's cursor, which would notice.
    driver_of(store).pgconn.exec_(forget.encode())
    assert not store.add_message("s", "user", "next").replayed
    assert texts(store) == [*before, "next"]


def test_a_statement_whose_function_was_replaced_is_prepared_anew():
    url = postgres_server.fresh_database()
    with indelible.open(url) as store, psycopg.connect(url, autocommit=True) as other:
        before = use(store)
        other.execute(OTHER_TYPE)
        assert not store.add_message("s", "user", "next").replayed
        assert texts(store) == [*before, "next"]


def test_nothing_is_prepared_on_the_connections_of_an_application(url):
    with (
        psycopg_pool.ConnectionPool(url, min_size=1, max_size=1) as pool,
        indelible.open(pool) as store,
    ):
        use(store)
        with pool.connection() as connection:
            assert names(connection) == []


def test_behind_a_pooler_that_looks_like_a_server_everything_lands_once(url, monkeypatch):
    """Each transaction goes to another process, which may know the name from another client."""
    # It tells its clients no number at all; here, every process says that this is its own.
    monkeypatch.setattr("indelible.backends.postgres.connection.PID", "SELECT 0")
    pooler = Pooler(postgres_server.server().port, connections=2)
    try:
        for writer in range(6):
            with indelible.open(pooler.url) as store:
                for number in range(8):
                    store.add_message("s", "user", f"{writer}.{number}")
    finally:
        pooler.close()
    assert "a named statement" in pooler.leaks
    with indelible.open(url) as store:
        assert texts(store) == [f"{writer}.{number}" for writer in range(6) for number in range(8)]
        assert store.verify().ok
