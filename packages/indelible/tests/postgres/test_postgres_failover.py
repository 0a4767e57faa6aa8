"""A primary is lost and its standby takes over: nothing acknowledged is lost, nothing doubled."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import indelible
from memory_contract.faults.servers.ports import LOOPBACK
from tests.support.ledger import check
from tests.support.postgres.loads import Load
from tests.support.wait import wait_until


def url_of(*servers):
    places = ",".join(f"{LOOPBACK}:{server.port}" for server in servers)
    return f"postgresql://postgres@{places}/postgres"


def test_a_standby_that_takes_over_has_all_that_was_acknowledged(pair):
    primary, standby = pair
    url = url_of(primary, standby)
    with indelible.open(url, durability="replicated", timeout_s=60) as store:
        assert store.claims().durability == "replicated"
        with Load(store) as load:
            load.wait_for(30)
            primary.kill()
            standby.promote()
            load.wait_for(30)
        assert load.errors == []
        check(store, load.writes)
        assert store.verify().ok
        assert store.claims().durability == "power", "the last server left has no standby"


async def test_an_async_store_finds_the_server_that_took_over(pair):
    primary, standby = pair
    # The standby stands first: of several servers, the one that can be written to is meant.
    async with indelible.open_async(url_of(standby, primary), timeout_s=60) as store:
        await store.add_message("s", "user", "one")
        primary.kill()
        standby.promote()
        await store.add_message("s", "user", "two")
        assert [m.content for m in await store.get_history("s")] == ["one", "two"]


@pytest.mark.parametrize("messages", ["notice", "error"])
def test_a_commit_that_did_not_wait_for_its_standby_is_not_acknowledged_as_if_it_had(
    pair, messages
):
    primary, standby = pair
    # With `error`, the server would send no warning.
    primary.sql(f"ALTER ROLE postgres SET client_min_messages = {messages}")
    syncing = "SELECT pid, query_start FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    with (
        indelible.open(primary.url(), durability="replicated", timeout_s=60) as store,
        psycopg.connect(primary.url(), autocommit=True) as other,
        ThreadPoolExecutor(1) as thread,
    ):
        store.add_message("s", "user", "one")
        standby.freeze()
        append = thread.submit(store.add_message, "s", "user", "two")
        wait_until(lambda: other.execute(syncing).fetchone())
        first, started = other.execute(syncing).fetchone()
        # The server gives up waiting, says that it committed all the same, and warns.
        other.execute("SELECT pg_cancel_backend(%s)", (first,))
        wait_until(lambda: other.execute(f"{syncing} AND query_start > %s", (started,)).fetchone())
        assert not append.done()
        standby.thaw()
        receipt = append.result()
        assert (receipt.positions, receipt.replayed) == (range(1, 2), True)
        assert len(store.get_history("s")) == 2
