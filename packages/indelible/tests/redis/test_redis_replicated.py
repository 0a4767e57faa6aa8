"""Acknowledged after a replica has it, on its disk."""

import pytest

import indelible
from indelible import (
    ConflictError,
    Landed,
    OutcomeUnknownError,
    SnapshotNotFoundError,
    UnsupportedError,
)
from indelible.core.operations import BeginStage, ShowStage
from memory_contract.faults.proxy import Proxy, ProxyFault
from tests.support.redis_writers import insist, texts
from tests.support.wait import wait_until


@pytest.fixture
def pair(start):
    primary = start()
    replica = start(replicaof=f"127.0.0.1 {primary.port}")
    with replica.client() as client:
        wait_until(
            lambda: client.info("replication")["master_link_status"] == "up",
            what="the replica did not connect",
        )
    return primary, replica


def test_a_server_without_a_replica_cannot_promise_it(start):
    server = start()
    with pytest.raises(UnsupportedError, match="gives power"):
        indelible.open(server.url, durability="replicated")


@pytest.mark.parametrize("level", ["power", "process", "none"])
def test_less_than_a_server_gives_may_be_demanded(pair, level):
    with indelible.open(pair[0].url, durability=level) as store:
        assert store.claims().durability == "power"


def test_what_is_acknowledged_is_on_the_replica(pair):
    primary, replica = pair
    with indelible.open(primary.url, durability="replicated") as store:
        assert store.claims().durability == "replicated"
        for number in range(20):
            store.add_message("s", "user", str(number))
            with replica.client() as client:
                assert client.zcard("indelible:{:s}l") == number + 1
        snapshot = store.save_snapshot("s")
        with replica.client() as client:
            assert client.hlen("indelible:{:s}s") == 1
        primary.kill()
        with replica.client() as client:
            client.replicaof("NO", "ONE")
    with indelible.open(replica.url) as store:
        assert texts(store, "s") == [str(number) for number in range(20)]
        assert [each.id for each in store.list_snapshots("s")] == [snapshot.id]


def test_a_replica_that_does_not_answer_is_an_unknown_outcome_and_a_retry_lands_once(pair):
    primary, replica = pair
    opened = insist(lambda: indelible.open(primary.url, durability="replicated", timeout_s=2.0))
    with opened as store:
        insist(lambda: store.add_message("s", "user", "one", key="one"))
        replica.freeze()
        with pytest.raises(OutcomeUnknownError) as caught:
            store.add_message("s", "user", "two")
        assert caught.value.landed is Landed.MAYBE
        assert "replicas" in str(caught.value)
        # It did land on the primary; a retry must not say so before a replica has it.
        with pytest.raises(OutcomeUnknownError):
            store.add_message("s", "user", "two", key=caught.value.key)
        replica.thaw()

        def confirmed():
            try:
                return store.add_message("s", "user", "two", key=caught.value.key).replayed
            except OutcomeUnknownError:
                return False

        wait_until(confirmed, what="the replica did not come back")
        assert insist(lambda: texts(store, "s")) == ["one", "two"]
        with replica.client() as client:
            assert client.zcard("indelible:{:s}l") == 2


def test_a_repeated_change_is_confirmed_although_it_was_made_before(pair):
    """WAIT only concerns what its connection wrote, and the first attempt was on another."""
    primary, replica = pair
    with Proxy(primary.url) as proxy:
        opened = insist(lambda: indelible.open(proxy.url, durability="replicated", timeout_s=2.0))
        with opened as store:
            perform = store._backend.perform
            # The server learns the script.
            insist(lambda: show(perform, "first", perform(BeginStage("first", None, None))))
            stage = insist(lambda: perform(BeginStage("s", None, None)))
            replica.freeze()
            proxy.arm(ProxyFault("cut after", "EVALSHA"))
            with pytest.raises(OutcomeUnknownError, match="replicas"):
                show(perform, "s", stage)
            assert proxy.struck
            replica.thaw()


def show(perform, session, stage):
    return perform(ShowStage(session, stage.life, b"{}"))


async def test_tasks_share_one_confirmation(pair):
    import asyncio

    primary, _ = pair
    async with indelible.open_async(primary.url, durability="replicated") as store:
        with primary.client() as client:
            client.config_resetstat()
            await asyncio.gather(*(store.add_message("s", "user", str(n)) for n in range(100)))
            stats = client.info("commandstats")
        assert stats["cmdstat_evalsha"]["calls"] < 50
        assert stats["cmdstat_waitaof"]["calls"] < 50


def test_a_refused_change_is_a_conflict_although_no_replica_confirms_anything(pair):
    primary, replica = pair
    opened = insist(lambda: indelible.open(primary.url, durability="replicated", timeout_s=2.0))
    with opened as store:
        old = insist(lambda: store.add_message("s", "user", "one", key="one")).version
        snapshot = insist(lambda: store.save_snapshot("s")).id
        insist(lambda: store.add_message("s", "user", "two", key="two"))
        replica.freeze()
        # These connections have a write that is not confirmed.
        with pytest.raises(OutcomeUnknownError):
            store.add_message("s", "user", "three")
        for change in (
            lambda: store.add_message("s", "user", "no", expected=old),
            lambda: store.clear("s", expected=old),
            lambda: store.rollback_to_snapshot("s", snapshot, expected=old),
            lambda: store.save_snapshot("s", expected=old),
            lambda: store.set_metadata("s", {"a": 1}, expected=old),
            lambda: store.forget("s", expected=old),
        ):
            with pytest.raises(ConflictError):
                change()
        with pytest.raises(SnapshotNotFoundError):
            store.delete_snapshot("s", "unknown")


def test_an_erasure_that_finds_nothing_left_is_confirmed_by_a_replica(pair):
    primary, replica = pair
    opened = insist(lambda: indelible.open(primary.url, durability="replicated", timeout_s=2.0))
    with opened as store:
        insist(lambda: store.add_message("s", "user", "one", key="one"))
        insist(lambda: store.remember("memories", "two", id="m", key="two"))
        replica.freeze()
        for erase in (
            lambda: store.forget("s"),
            lambda: store.erase_memory("memories", "m"),
        ):
            with pytest.raises(OutcomeUnknownError):
                erase()
            with primary.client() as client:
                client.client_kill_filter(_type="normal")
            # The primary has erased it, and no connection has a write that is not confirmed.
            with pytest.raises(OutcomeUnknownError):
                erase()
        replica.thaw()
        assert insist(lambda: store.forget("s")).entries == 0
        assert insist(lambda: store.erase_memory("memories", "m")).entries == 0
