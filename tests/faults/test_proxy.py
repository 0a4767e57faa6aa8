"""The proxy before real servers: it strikes where it says, and harms nothing else."""

import threading
import time

import psycopg
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from memory_contract.faults.proxy import Proxy, ProxyError, ProxyFault
from tests.support import postgres_server, redis_server
from tests.support.wait import wait_until


@pytest.fixture
def server():
    return redis_server.emptied()


@pytest.fixture
def proxy(server):
    with Proxy(server) as started:
        yield started


@pytest.fixture
def real(server):
    with redis.Redis.from_url(server) as client:
        yield client


@pytest.fixture(params=[2, 3])
def client(proxy, request):
    """A client that never asks twice."""
    retry = Retry(NoBackoff(), 0)
    with redis.Redis.from_url(proxy.url, protocol=request.param, retry=retry) as opened:
        opened.ping()
        yield opened


@pytest.fixture(scope="module")
def database():
    url = postgres_server.fresh_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (n int PRIMARY KEY)")
    return url


@pytest.fixture
def postgres(database):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DELETE FROM t")
    with Proxy(database) as started:
        yield started


def rows(database):
    with psycopg.connect(database) as connection:
        return [row[0] for row in connection.execute("SELECT n FROM t ORDER BY n")]


LOST = (redis.ConnectionError, redis.TimeoutError)


def test_a_proxy_without_troubles_is_not_noticed(proxy, client, real):
    client.set("text", "x" * 300_000)
    assert client.get("text") == b"x" * 300_000
    with client.pipeline() as pipe:
        for n in range(100):
            pipe.rpush("list", n)
        pipe.execute()
    assert real.llen("list") == 100
    assert proxy.struck == []
    assert proxy.passed >= 104


@pytest.mark.parametrize(("what", "landed"), [("cut before", 0), ("cut after", 1)])
def test_a_cut_is_before_or_after_the_deed(proxy, client, real, what, landed):
    trouble = ProxyFault(what, "RPUSH", 2)
    proxy.arm(trouble)
    client.rpush("list", "one")
    with pytest.raises(LOST):
        client.rpush("list", "two")
    assert real.llen("list") == 1 + landed
    (struck,) = proxy.struck
    assert (struck.fault, struck.name) == (trouble, "RPUSH")
    assert struck.began_ns <= struck.ended_ns
    client.rpush("list", "three")
    assert real.llen("list") == 2 + landed


def test_half_a_reply_is_no_reply(proxy, client):
    client.set("text", "x" * 1000)
    proxy.arm(ProxyFault("cut midway", "GET"))
    with pytest.raises(LOST):
        client.get("text")
    assert client.get("text") == b"x" * 1000


def test_a_sliced_reply_is_whole(proxy, client):
    client.rpush("list", *range(20))
    proxy.arm(ProxyFault("slice", times=0))
    assert client.lrange("list", 0, -1) == [b"%d" % n for n in range(20)]
    assert proxy.struck


def test_a_refusal_comes_in_the_servers_place_and_order(proxy, client, real):
    proxy.arm(ProxyFault("answer", "SET", 2, reply="OOM"))
    with client.pipeline(transaction=False) as pipe:
        pipe.set("a", 1).set("b", 2).set("c", 3)
        found = pipe.execute(raise_on_error=False)
    assert found[0]
    assert isinstance(found[1], redis.OutOfMemoryError)
    assert found[2]
    assert (real.get("a"), real.get("b"), real.get("c")) == (b"1", None, b"3")


@pytest.mark.parametrize("name", ["SET", "EXEC"])
def test_a_refused_command_takes_its_transaction_with_it(proxy, client, real, name):
    proxy.arm(ProxyFault("answer", name, reply="OOM"))
    with client.pipeline(transaction=True) as pipe, pytest.raises(redis.ResponseError):
        pipe.set("a", 1).incr("n").execute()
    assert (real.get("a"), real.get("n")) == (None, None)
    with client.pipeline(transaction=True) as pipe:
        assert pipe.set("a", 1).incr("n").execute() == [True, 1]


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ("READONLY", redis.exceptions.ReadOnlyError),
        ("LOADING", redis.BusyLoadingError),
        ("MOVED", redis.exceptions.MovedError),
        ("NOSCRIPT", redis.exceptions.NoScriptError),
        ("WHATEVER it says", redis.ResponseError),
    ],
)
def test_refusals_are_what_servers_really_say(proxy, client, reply, error):
    proxy.arm(ProxyFault("answer", "GET", reply=reply))
    with pytest.raises(error):
        client.get("a")


def test_a_late_reply_comes(proxy, client):
    client.set("a", 1)
    proxy.arm(ProxyFault("delay", "GET", seconds=0.2))
    began = time.monotonic()
    assert client.get("a") == b"1"
    assert time.monotonic() - began >= 0.2


def test_what_was_frozen_goes_on(proxy, client, real):
    proxy.arm(ProxyFault("freeze", "SET"))
    setting = threading.Thread(target=client.set, args=("a", 1))
    setting.start()
    wait_until(lambda: not proxy._flowing.is_set())
    assert real.get("a") is None
    proxy.heal()
    setting.join(60)
    assert real.get("a") == b"1"


def test_nobody_there_is_a_refused_connection_and_then_the_old_place(proxy, client):
    url = proxy.url
    proxy.down()
    for _ in range(3):
        with pytest.raises(redis.ConnectionError, match="refused"):
            client.get("a")
    proxy.up()
    assert (client.get("a"), proxy.url) == (None, url)


def test_a_connection_may_be_taken_and_dropped(proxy, client):
    proxy.arm(ProxyFault("cut before", "CONNECT"))
    client.connection_pool.disconnect()
    with pytest.raises(LOST):
        client.get("a")
    assert client.get("a") is None


def test_it_can_lead_to_another_server(proxy, client, tmp_path):
    from memory_contract.faults.servers.valkey import ValkeyServer

    other = ValkeyServer(tmp_path / "other", {"appendonly": "no"})
    other.start()
    try:
        client.set("a", 1)
        proxy.lead_to(other.url)
        assert client.get("a") == b"1"
        # The client sees that its idle connection was cut, and makes a new one.
        proxy.cut()
        assert client.get("a") is None
    finally:
        other.kill()


@pytest.mark.parametrize(("what", "landed"), [("cut before", []), ("cut after", [1])])
def test_a_cut_around_a_statement(postgres, database, what, landed):
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        postgres.arm(ProxyFault(what, "INSERT"))
        with pytest.raises(psycopg.OperationalError):
            connection.execute("INSERT INTO t VALUES (%s)", (1,))
    assert rows(database) == landed


@pytest.mark.parametrize(("what", "landed"), [("cut before", []), ("cut after", [1])])
def test_a_cut_around_a_commit(postgres, database, what, landed):
    with psycopg.connect(postgres.url) as connection:
        connection.execute("INSERT INTO t VALUES (1)")
        postgres.arm(ProxyFault(what, "COMMIT"))
        with pytest.raises(psycopg.OperationalError):
            connection.commit()
    wait_until(lambda: rows(database) == landed)


@pytest.mark.parametrize("prepare", [True, False])
@pytest.mark.parametrize("parameters", [None, (2,)])
def test_a_refused_statement_takes_its_transaction_with_it(postgres, database, prepare, parameters):
    statement = "INSERT INTO t VALUES (2)" if parameters is None else "INSERT INTO t VALUES (%s)"
    with psycopg.connect(postgres.url) as connection:
        connection.execute("INSERT INTO t VALUES (1)")
        postgres.arm(ProxyFault("answer", "INSERT", reply="40001"))
        with pytest.raises(psycopg.errors.SerializationFailure):
            connection.execute(statement, parameters, prepare=prepare)
        assert connection.info.transaction_status is psycopg.pq.TransactionStatus.INERROR
        connection.rollback()
        connection.execute("INSERT INTO t VALUES (3)")
    assert rows(database) == [3]


@pytest.mark.parametrize("prepare", [True, False])
def test_a_refused_commit_ends_its_transaction(postgres, database, prepare):
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("BEGIN")
        connection.execute("INSERT INTO t VALUES (1)")
        postgres.arm(ProxyFault("answer", "COMMIT", reply="40001"))
        with pytest.raises(psycopg.errors.SerializationFailure):
            connection.execute("COMMIT", prepare=prepare)
        assert connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
        connection.execute("INSERT INTO t VALUES (3)")
    assert rows(database) == [3]


def test_a_refused_statement_of_a_pipeline_takes_all_of_it(postgres, database):
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        postgres.arm(ProxyFault("answer", "INSERT", 2, reply="53100"))

        def insert():
            with connection.pipeline():
                for n in range(3):
                    connection.execute("INSERT INTO t VALUES (%s)", (n,))

        with pytest.raises(psycopg.errors.DiskFull):
            insert()
        assert rows(database) == []
        connection.execute("INSERT INTO t VALUES (9)")
    assert rows(database) == [9]


def test_last_words_end_the_connection(postgres, database):
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        postgres.arm(ProxyFault("answer", "INSERT", reply="57P01"))
        with pytest.raises(psycopg.errors.AdminShutdown):
            connection.execute("INSERT INTO t VALUES (1)")
        assert connection.broken
    assert rows(database) == []


def test_a_server_may_have_too_many_clients(postgres):
    postgres.arm(ProxyFault("answer", "STARTUP", reply="53300"))
    with pytest.raises(psycopg.OperationalError, match="too many clients"):
        psycopg.connect(postgres.url)
    with psycopg.connect(postgres.url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_half_a_row_and_sliced_rows(postgres):
    query = "SELECT repeat('x', 1000) FROM generate_series(1, 20)"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        postgres.arm(ProxyFault("slice", "SELECT"))
        assert len(connection.execute(query).fetchall()) == 20
        postgres.arm(ProxyFault("cut midway", "SELECT", 2))
        connection.execute(query)
        with pytest.raises(psycopg.OperationalError):
            connection.execute(query)


@pytest.mark.parametrize(
    "url",
    [
        "rediss://127.0.0.1:1",
        "redis+cluster://127.0.0.1:1",
        "redis://127.0.0.1:1,127.0.0.1:2",
        "redis://127.0.0.1:x",
        "agent.db",
    ],
)
def test_it_says_where_it_cannot_stand(url):
    with pytest.raises(ProxyError):
        Proxy(url)


def test_a_password_stays_in_the_url_that_it_gives():
    with Proxy("postgresql://me:secret@127.0.0.1:1/db?application_name=x") as proxy:
        assert proxy.url == f"postgresql://me:secret@127.0.0.1:{proxy.port}/db?application_name=x"
        assert "secret" not in repr(proxy)
