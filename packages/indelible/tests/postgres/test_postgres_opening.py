"""Opening: tables are made once, whoever comes first; what is not ours is left alone."""

import pickle
import threading

import psycopg
import psycopg_pool
import pytest

import indelible
from indelible import (
    FormatError,
    MemoryStoreBackendError,
    UnavailableError,
    UnsupportedError,
    UsageError,
)
from indelible.backends.postgres.schema import FORMAT
from tests.support import postgres_server
from tests.support.postgres.pg_workers import open_and_append

PASSWORD = "s3cret-pass"


def test_sixteen_processes_open_a_fresh_database_at_once(worker_pool, fresh_url):
    positions = worker_pool.run(open_and_append, fresh_url)
    assert sorted(positions) == list(range(16))
    with indelible.open(fresh_url) as store:
        assert len(store.get_history("s")) == 16
        assert store.verify().ok


def test_a_schema_of_another_program_is_refused_untouched(fresh_url):
    with psycopg.connect(fresh_url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA indelible; CREATE TABLE indelible.theirs (a int)")
        with pytest.raises(FormatError, match="another program"):
            indelible.open(fresh_url)
        tables = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'indelible'::regnamespace"
        ).fetchall()
    assert tables == [("theirs",)]


def test_an_empty_schema_is_used(fresh_url):
    with psycopg.connect(fresh_url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA indelible")
    with indelible.open(fresh_url) as store:
        store.add_message("s", "user", "hi")


@pytest.mark.parametrize(("oldest", "usable"), [(FORMAT + 1, False), (FORMAT, True)])
def test_tables_of_a_newer_version_are_refused_unless_they_say_otherwise(fresh_url, oldest, usable):
    indelible.open(fresh_url).close()
    with psycopg.connect(fresh_url, autocommit=True) as connection:
        connection.execute("UPDATE indelible.about SET value = 7 WHERE name = 'format'")
        connection.execute(
            "UPDATE indelible.about SET value = %s WHERE name = 'oldest_format'", (oldest,)
        )
    if usable:
        indelible.open(fresh_url).close()
    else:
        with pytest.raises(FormatError, match="newer"):
            indelible.open(fresh_url)


def test_a_role_that_may_not_make_tables_is_told_so(fresh_url):
    postgres_server.server().sql(
        "DO $$ BEGIN CREATE ROLE reader LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
    )
    with pytest.raises(MemoryStoreBackendError) as caught:
        indelible.open(fresh_url.replace("postgres@", "reader@"), timeout_s=2)
    assert (caught.value.code, caught.value.landed) == ("42501", "no")


def everything_about(error):
    """All that a log or a report could show of an error."""
    seen = []
    while error is not None:
        seen += [repr(error), str(error), repr(vars(error)), repr(getattr(error, "pgconn", None))]
        error = error.__cause__ or error.__context__
    return "\n".join(seen)


@pytest.fixture
def guarded():
    """Where a server asks a role for its password, with the rest of it being trusting."""
    server = postgres_server.server()
    if not server.sql("SELECT 1 FROM pg_roles WHERE rolname = 'ann'"):
        server.sql(f"CREATE ROLE ann LOGIN PASSWORD '{PASSWORD}'")
    rules = server.folder / "data" / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"host all ann all scram-sha-256\nhost all bob all reject\n{before}")
    server.sql("SELECT pg_reload_conf()")
    # A file with a mistake would show here; and it is read when it is looked at.
    server.wait_for("SELECT count(*) = 1 FROM pg_hba_file_rules WHERE 'ann' = ANY (user_name)")
    yield server
    rules.write_text(before)
    server.sql("SELECT pg_reload_conf()")


@pytest.fixture(params=["blocking", "async"])
def opening(request):
    """Opens a store, and gives what came of it."""

    async def opened(url, **options):
        if request.param == "blocking":
            indelible.open(url, **options).close()
        else:
            await (await indelible.open_async(url, **options)).close()

    return opened


@pytest.mark.parametrize(
    "who",
    ["ann:wr0ng-pass@", "ann@", "bob@", "postgres:wr0ng-pass@nowhere"],
    ids=["wrong password", "no password", "rejected", "unknown database"],
)
async def test_what_can_never_be_right_is_refused_at_once(guarded, opening, who):
    user, _, database = who.partition("@")
    url = guarded.url(database or "postgres").replace("postgres@", f"{user}@")
    with pytest.raises(MemoryStoreBackendError) as caught:
        # Whoever tried until the deadline would not be back in time for the test.
        await opening(url, timeout_s=3600)
    assert not isinstance(caught.value, UnavailableError)
    assert (caught.value.landed, caught.value.retryable) == ("no", False)
    said = everything_about(caught.value)
    assert "refuses the connection" in said
    assert "wr0ng-pass" not in said
    assert b"wr0ng-pass" not in pickle.dumps(caught.value)


async def test_the_right_password_opens(guarded, opening, fresh_url):
    guarded.sql(f"GRANT CREATE ON DATABASE {fresh_url.rpartition('/')[2]} TO ann")
    await opening(fresh_url.replace("postgres@", f"ann:{PASSWORD}@"))


async def test_a_refusal_of_a_server_that_took_the_password_before_is_waited_out(
    guarded, fresh_url
):
    """It is full, or somebody is changing its rules: it may pass."""
    name = fresh_url.rpartition("/")[2]
    indelible.open(fresh_url).close()
    with indelible.open(fresh_url, timeout_s=60) as store:
        store.add_message("s", "user", "one")
        guarded.sql(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false")
        guarded.sql(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname='{name}'"
        )
        again = threading.Thread(target=store.add_message, args=("s", "user", "two"))
        again.start()
        guarded.sql(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true")
        again.join()
        assert [m.content for m in store.get_history("s")] == ["one", "two"]


@pytest.mark.parametrize("url", [f"postgresql://a:{PASSWORD}@[half/x", "postgresql://h/d?x=1"])
def test_what_is_no_url_is_refused_without_its_password(url):
    with pytest.raises(UsageError) as caught:
        indelible.open(url)
    assert PASSWORD not in everything_about(caught.value)


def test_a_password_is_in_no_repr(url):
    with indelible.open(url.replace("postgres@", f"postgres:{PASSWORD}@")) as store:
        backend = store._backend
        pool = backend.pool
        seen = [backend, backend._options, pool, *pool.idle]
        assert PASSWORD not in repr([*seen, *(connection.driver for connection in pool.idle)])


def test_a_level_that_the_server_does_not_keep_is_refused(url):
    with pytest.raises(UnsupportedError, match="power"):
        indelible.open(url, durability="replicated")
    with indelible.open(url, durability="process") as store:
        assert store.claims().durability == "power"


def test_a_pool_of_the_application_is_used_and_left_as_it_was(url):
    with psycopg_pool.ConnectionPool(url, min_size=1, max_size=1) as pool:
        with indelible.open(pool) as store:
            store.add_message("s", "user", "hi")
            store.trim("s", keep_last=0)
            with pool.connection() as connection:
                assert connection.autocommit is False
                assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
                assert connection.prepare_threshold == 5
                assert "wait" not in vars(connection)
                assert connection._notice_handlers == []
        with pool.connection() as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


async def test_an_async_pool_of_the_application_is_used_and_left_as_it_was(url):
    pool = psycopg_pool.AsyncConnectionPool(url, min_size=1, max_size=1, open=False)
    async with pool, indelible.open_async(pool) as store:
        await store.add_message("s", "user", "hi")
        assert len(await store.get_history("s")) == 1
        async with pool.connection() as connection:
            assert connection.autocommit is False
            assert "wait" not in vars(connection)


def test_a_closed_pool_is_an_error_that_says_so(url):
    pool = psycopg_pool.ConnectionPool(url, min_size=1, max_size=1, open=True)
    with indelible.open(pool, timeout_s=0.3) as store:
        pool.close()
        with pytest.raises(UnavailableError):
            store.add_message("s", "user", "hi")
