"""Operators and functions that another role made in `public` never run as the application."""

import asyncio
import io

import psycopg
import pytest
from psycopg_pool import ConnectionPool

import indelible
from tests.support import postgres_server
from tests.support.postgres.hostile_schema import RAN, make_hostile_schema
from tests.support.verbs import every_verb

FUNCTIONS = """
    SELECT proname FROM pg_catalog.pg_proc
    WHERE pronamespace = 'indelible'::regnamespace AND prosqlbody IS NULL
        AND coalesce(NOT 'search_path=pg_catalog, pg_temp' = ANY (proconfig), true)"""


@pytest.fixture(scope="module", params=["public", "public,pg_catalog"])
def hostile_url(request):
    """A database with better-fitting operators in `public`, and no tables yet."""
    url = make_hostile_schema(postgres_server.fresh_database())
    return f"{url}?options=-c%20search_path%3D{request.param}"


@pytest.fixture
def store(hostile_url):
    with indelible.open(hostile_url) as store:
        yield store
        forget_all(store)


def forget_all(store):
    for session in store.list_sessions().ids:
        store.forget(session)


def every_other_verb(store):
    """What `every_verb` does not come to: other paths of the same verbs."""
    store.add_message("s", "user", "a", key="k", ttl=3600)
    version = store.save_context("s", "b", "c").version
    store.add_message("s", "user", "d", expected=version)
    store.add_summary("s", "sum", [1.0, 0.0], embedder="e", covers=range(2))
    store.add_summary("s", "other", [0.0, 1.0], embedder="e")
    snapshot = store.save_snapshot("s")
    store.trim("s", keep_last=2)
    store.add_message("s", "user", "e")
    store.rollback_to_snapshot("s", snapshot.id, key="r")
    store.rollback_to_snapshot("s", snapshot.id, key="r")
    store.add_message("s", "user", "f")
    # Two extents, and other kinds between what is asked for.
    assert [message.content for message in store.get_history("s")] == ["a", "b", "c", "d", "f"]
    assert [message.content for message in store.get_history("s", last=2)] == ["d", "f"]
    assert len(store.get_entries("s", limit=2)) == 2
    assert len(store.search_summaries("s", [1.0, 0.0], 1, embedder="e")) == 1
    store.trim("s", max_tokens=3)
    store.clear("s", key="c")
    store.vacuum(session_id="s", undo_window=0)
    store.set_metadata("s", {"a": 1}, expected=store.session("s").version)
    store.repair()
    store.quarantined("s")
    exported = io.StringIO()
    store.export(exported, "s")
    store.forget("s")
    exported.seek(0)
    store.import_(exported)
    assert store.verify().ok


def test_nothing_hostile_runs_in_any_verb(store, hostile_url):
    with psycopg.connect(hostile_url) as connection, pytest.raises(psycopg.Error, match=RAN):
        connection.execute("SELECT 1::bigint || 'text'::text")
    every_verb(store)
    every_other_verb(store)


def test_nothing_hostile_runs_in_a_pool_of_the_application(hostile_url):
    with ConnectionPool(hostile_url, min_size=1, max_size=2) as pool, indelible.open(pool) as store:
        every_other_verb(store)
        forget_all(store)
        with pool.connection() as connection:
            (path,) = connection.execute("SHOW search_path").fetchone()
        assert path.startswith("public")


def test_nothing_hostile_runs_in_async_verbs(hostile_url):
    async def work():
        async with indelible.open_async(hostile_url) as store:
            writes = [store.add_message("s", "user", str(n)) for n in range(20)]
            await asyncio.gather(*writes)
            snapshot = await store.save_snapshot("s")
            await store.trim("s", keep_last=2)
            await store.rollback_to_snapshot("s", snapshot.id)
            assert len(await store.get_history("s")) == 20
            await store.clear("s")
            await store.undo("s")
            await store.fork("s", "t")
            await store.vacuum(undo_window=0)
            await store.risks()
            assert (await store.verify()).ok
            await store.forget("s")
            await store.forget("t")

    asyncio.run(work())


@pytest.mark.usefixtures("store")
def test_every_function_has_a_fixed_search_path(hostile_url):
    with psycopg.connect(hostile_url) as connection:
        connection.execute("SET search_path = pg_catalog")
        assert connection.execute(FUNCTIONS).fetchall() == []
