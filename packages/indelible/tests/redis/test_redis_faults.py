"""Servers that are killed, frozen, full or not there: nothing acknowledged is lost or doubled."""

import asyncio
import itertools
import threading
from contextlib import suppress

import pytest

import indelible
from indelible import Landed, OutcomeUnknownError, UnavailableError
from indelible.backends.redis import scripts
from indelible.backends.redis.errors import LostError
from indelible.backends.redis.schema import FORMAT
from indelible.core.operations import EraseItem
from memory_contract.faults.proxy import Proxy, ProxyFault
from memory_contract.faults.servers.ports import reserve_port
from tests.support.redis_writers import Writer, insist, texts
from tests.support.wait import wait_until


def test_a_server_killed_under_load_loses_and_doubles_nothing(start):
    server = start()
    with indelible.open(server.url, timeout_s=30) as store:
        writers = [Writer(store, "s", f"w{number}") for number in range(4)]
        for _ in range(3):
            done = [len(writer.acknowledged) for writer in writers]
            wait_until(
                lambda done=done: all(
                    len(writer.acknowledged) > before + 5
                    for writer, before in zip(writers, done, strict=True)
                ),
                what="the writers do not get on",
            )
            server.kill()
            server.start()
        for writer in writers:
            writer.stop()
        found = texts(store, "s")
    assert len(found) == len(set(found)), "doubled"
    assert {text for writer in writers for text in writer.acknowledged} <= set(found), "lost"
    for writer in writers:
        own = [text for text in found if text.startswith(writer.prefix + "-")]
        assert own == writer.acknowledged[: len(own)] or own[:-1] == writer.acknowledged
        assert writer.errors == [], "the deadline is long: retries are the store's own"


async def test_tasks_live_through_a_restart_without_keys_of_their_own(start):
    server = start()
    async with indelible.open_async(server.url, timeout_s=30) as store:
        stopping = asyncio.Event()
        receipts = []

        async def work(name):
            number = 0
            while not stopping.is_set():
                receipts.append(await store.add_message("s", "user", f"{name}-{number}"))
                number += 1

        tasks = [asyncio.create_task(work(name)) for name in range(8)]
        for _ in range(2):
            before = len(receipts)
            await asyncio.to_thread(
                wait_until, lambda before=before: len(receipts) > before + 50, what="no receipts"
            )
            await asyncio.to_thread(server.restart)
        stopping.set()
        await asyncio.gather(*tasks)
        found = [message.content for message in await store.get_history("s")]
    assert len(found) == len(set(found)) == len(receipts)
    assert len({receipt.positions.start for receipt in receipts}) == len(receipts)


def test_a_frozen_server_is_an_unknown_outcome_after_the_deadline_and_works_again(start):
    server = start()
    with insist(lambda: indelible.open(server.url, timeout_s=0.4)) as store:
        insist(lambda: store.add_message("s", "user", "before", key="before"))
        server.freeze()
        with pytest.raises(OutcomeUnknownError) as caught:
            store.add_message("s", "user", "frozen")
        error = caught.value
        assert error.landed is Landed.MAYBE
        assert error.key is not None
        with pytest.raises(UnavailableError) as read:
            store.get_history("s")
        assert read.value.landed is Landed.NO
        with pytest.raises(UnavailableError) as written:
            store.set_metadata("s", {"a": 1})
        assert written.value.landed is Landed.NO, "no connection could be made to send it on"
        server.thaw()
        insist(lambda: store.add_message("s", "user", "frozen", key=error.key))
        found = insist(lambda: texts(store, "s"))
        assert found == ["before", "frozen"]
        snapshot = insist(lambda: store.save_snapshot("s"))
        insist(lambda: store.rollback_to_snapshot("s", snapshot.id))


def test_what_a_frozen_server_does_not_take_is_sent_until_the_deadline(start):
    """Whoever took the client's own time for it would not be back in time for the test."""
    server = start()
    client = server.client(socket_timeout=3600)
    with insist(lambda: indelible.open(client, timeout_s=2)) as store:
        insist(lambda: store.add_message("s", "user", "before", key="before"))
        server.freeze()
        # More than the buffers of both sockets hold.
        with pytest.raises(OutcomeUnknownError):
            store.add_message("s", "user", "x" * 30_000_000)
        server.thaw()
        assert insist(lambda: texts(store, "s"))[0] == "before"
    client.close()


async def test_a_frozen_server_and_tasks(start):
    server = start()
    async with indelible.open_async(server.url, timeout_s=3) as store:
        await store.add_message("s", "user", "before")
        server.freeze()
        done = await asyncio.gather(
            *(store.add_message("s", "user", f"m{number}") for number in range(50)),
            *(store.get_history("s") for _ in range(50)),
            return_exceptions=True,
        )
        assert all(isinstance(each, indelible.MemoryStoreBackendError) for each in done), done
        assert all(not isinstance(each, OutcomeUnknownError) for each in done[50:])
        server.thaw()
        for number, error in enumerate(done[:50]):
            key = error.details.get("key")
            await store.add_message("s", "user", f"m{number}", key=key)
        found = [message.content for message in await store.get_history("s")]
        assert sorted(found) == sorted(["before", *(f"m{number}" for number in range(50))])


def test_a_change_of_the_view_after_a_lost_reply_is_done_once(start):
    server = start()
    with indelible.open(server.url, timeout_s=30) as store:
        for number in range(10):
            store.add_message("s", "user", str(number))
        server.freeze()
        done = []
        changing = threading.Thread(target=lambda: done.append(store.trim("s", keep_last=3)))
        changing.start()
        server.kill()
        server.start()
        changing.join(60)
        assert [change.dropped for change in done] == [tuple(range(7))]
        assert texts(store, "s") == ["7", "8", "9"]
        store.undo("s")
        assert len(texts(store, "s")) == 10


def test_nobody_there_is_said_at_once_and_in_time():
    url = f"redis://127.0.0.1:{reserve_port()}"
    with pytest.raises(UnavailableError) as caught:
        indelible.open(url, timeout_s=0.3)
    assert caught.value.landed is Landed.NO
    assert caught.value.retryable
    assert url in str(caught.value)


async def test_nobody_there_for_async_code():
    with pytest.raises(UnavailableError):
        await indelible.open_async(f"redis://127.0.0.1:{reserve_port()}", timeout_s=0.3)


def test_a_server_that_went_away_is_unavailable_until_it_is_back(start):
    server = start()
    with indelible.open(server.url, timeout_s=3) as store:
        store.add_message("s", "user", "one")
        server.kill()
        with pytest.raises(indelible.MemoryStoreBackendError) as caught:
            store.add_message("s", "user", "two", key="two")
        assert caught.value.retryable
        with pytest.raises(UnavailableError):
            store.get_history("s")
        server.start()
        store.add_message("s", "user", "two", key="two")
        assert texts(store, "s") == ["one", "two"]


def test_a_full_server_refuses_and_loses_nothing(start):
    server = start(maxmemory="6mb", maxmemory_policy="noeviction", appendfsync="no")
    with indelible.open(server.url) as store:
        acknowledged = []
        big = "x" * 200_000

        def fill():
            for number in range(1000):
                batch = [{"role": "user", "content": f"{number} {big}"}] * 2
                store.add_messages("s", batch, key=str(number))
                acknowledged.append(number)

        with pytest.raises(UnavailableError) as caught:
            fill()
        assert caught.value.landed is Landed.NO
        assert "memory" in str(caught.value)
        assert caught.value.code == "OOM"
        assert acknowledged
        found = [int(text.split()[0]) for text in texts(store, "s")]
        assert found == sorted([*acknowledged, *acknowledged]), "a batch is whole or absent"
        with server.client() as client:
            client.config_set("maxmemory", "64mb")
        number = len(acknowledged)
        receipt = store.add_message("s", "user", "room again", key="again")
        assert receipt.positions.start == 2 * number


def test_a_replica_takes_no_writes_and_says_so(start):
    primary = start(appendfsync="no")
    replica = start(appendfsync="no", replicaof=f"127.0.0.1 {primary.port}")
    with indelible.open(primary.url) as store:
        store.add_message("s", "user", "hi")
    with pytest.raises(UnavailableError) as caught:
        indelible.open(replica.url, timeout_s=0.3)
    assert caught.value.landed is Landed.NO


def test_a_primary_that_became_a_replica_is_looked_for_anew(start):
    server = start(appendfsync="no")
    with indelible.open(server.url, timeout_s=30) as store, server.client() as client:
        store.add_message("s", "user", "one")
        store.add_message("s", "user", "two")
        client.replicaof("127.0.0.1", str(reserve_port()))
        before = client.info("stats")["total_connections_received"]
        done = threading.Thread(target=store.add_message, args=("s", "user", "three"))
        done.start()
        # It comes back on new connections, where a name would lead to the new primary.
        wait_until(
            lambda: client.info("stats")["total_connections_received"] > before,
            what="nobody connected anew",
        )
        client.replicaof("NO", "ONE")
        done.join(60)
        assert texts(store, "s") == ["one", "two", "three"]


def test_keys_that_hold_something_else_are_left_alone(url, client):
    client.set("indelible:{:s}h", "somebody else's")
    with indelible.open(url) as store:
        for attempt in (lambda: store.add_message("s", "user", "hi"), lambda: store.session("s")):
            with pytest.raises(indelible.FormatError):
                attempt()
    assert client.get("indelible:{:s}h") == b"somebody else's"


def test_a_part_that_the_server_dropped_is_loud(url, client):
    with indelible.open(url) as store:
        store.add_message("s", "user", "hi")
        store.add_message("t", "user", "hi")
        client.delete("indelible:{:s}l")
        client.delete("indelible:{:t}v")
        with pytest.raises(indelible.FormatError, match="its log is missing"):
            store.get_history("s")
        with pytest.raises(indelible.FormatError, match="its view is missing"):
            store.get_history("t")
        assert not store.verify().ok


def test_a_server_of_a_newer_format_is_left_alone(url, client):
    client.set("indelible:format", FORMAT + 1)
    with pytest.raises(indelible.FormatError, match="newer"):
        indelible.open(url)


def test_a_full_server_keeps_what_it_knows_of_a_session_that_expired(start):
    server = start(maxmemory_policy="noeviction", appendfsync="no")
    with indelible.open(server.url) as store:
        store.add_message("s", "user", "hi", ttl=0.001)
        wait_until(lambda: store.session("s").status == "expired", what="it did not expire")
        with server.client() as client:
            client.config_set("maxmemory", "1")
            for begin in (
                lambda: store.add_message("s", "user", "back"),
                lambda: store.set_metadata("s", {"a": 1}),
                lambda: store.save_snapshot("s"),
            ):
                with pytest.raises(indelible.MemoryStoreBackendError) as caught:
                    begin()
                assert caught.value.landed is Landed.NO
                assert store.session("s").status == "expired"
            client.config_set("maxmemory", "0")
        assert store.add_message("s", "user", "back").positions == range(1, 2)


def test_a_lost_write_of_a_store_that_was_closed_may_have_landed(url, monkeypatch):
    store = indelible.open(url)
    store.add_message("s", "user", "first")
    backend = store._backend
    attempt = backend._attempt

    def lose_reply(request):
        attempt(request)
        store.close()
        monkeypatch.setattr(backend, "_attempt", attempt)
        raise LostError(ConnectionError("the reply"), sent=True)

    monkeypatch.setattr(backend, "_attempt", lose_reply)
    with pytest.raises(OutcomeUnknownError):
        store.add_message("s", "user", "hi")
    with indelible.open(url) as again:
        assert len(again.get_history("s")) == 2


@pytest.mark.parametrize(
    "erase", [lambda store: store.erase_memory("c", "id"), lambda store: store.forget("c")]
)
def test_an_erase_that_cannot_look_for_copies_erases_nothing(url, erase):
    """What it says of copies is looked up first, so that its error is right about the data."""
    with Proxy(url) as proxy, indelible.open(proxy.url) as store:
        store.remember("c", "Ana drinks tea.", id="id")
        for command in ("SCAN", "CONFIG"):
            proxy.arm(ProxyFault("answer", command, 1, times=0, reply="NOPERM not allowed"))
        with pytest.raises(indelible.MemoryStoreError) as refused:
            erase(store)
        proxy.heal()
        assert refused.value.landed == Landed.NO
        assert store.get_memory("c", "id").text == "Ana drinks tea."


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_forget_that_cannot_look_for_forks_erases_nothing(url, nth):
    with Proxy(url) as proxy, indelible.open(proxy.url) as store:
        store.add_message("s", "user", "one")
        store.fork("s", "fork")
        store.fork("s", "another")
        proxy.arm(ProxyFault("answer", "HGET", nth, reply="NOPERM not allowed"))
        with pytest.raises(indelible.MemoryStoreBackendError) as refused:
            store.forget("s")
        assert refused.value.landed == Landed.NO
        assert sorted(store.forget("s").forks) == ["another", "fork"]


def _prepare_vacuum(store):
    for number in range(6):
        store.add_message("s", "user", str(number))
    store.trim("s", keep_last=1)


def _prepare_erase(store):
    for number in range(6):
        store.remember("s", str(number), id="id")


@pytest.fixture
def small_portions(monkeypatch):
    """Scripts that remove and overwrite two entries in a call."""
    monkeypatch.setattr(scripts, "REMOVE_ENTRIES", 2)
    scripts.load_script.cache_clear()
    yield
    scripts.load_script.cache_clear()


@pytest.mark.usefixtures("small_portions")
@pytest.mark.parametrize(
    ("prepare", "change"),
    [
        (_prepare_vacuum, lambda store: store.vacuum(session_id="s", undo_window=0)),
        (_prepare_erase, lambda store: store._backend.perform(EraseItem("s", "id", b"{}"))),
    ],
)
def test_an_error_halfway_does_not_say_that_nothing_was_written(url, client, prepare, change):
    """These take several calls of scripts; each call is refused in turn, and all that follow."""
    outcomes = set()
    for nth in itertools.count(1):
        client.flushall()
        with Proxy(url) as proxy, indelible.open(proxy.url) as store:
            prepare(store)
            before = dump(client)
            proxy.arm(ProxyFault("answer", "EVALSHA", nth, times=0, reply="OOM no memory"))
            landed = find_landed(change, store)
            if not proxy.struck:
                break
        assert (landed == Landed.NO) == (dump(client) == before), f"call {nth}"
        outcomes.add(landed)
    assert outcomes == {Landed.NO, Landed.MAYBE}


@pytest.mark.usefixtures("small_portions")
def test_a_vacuum_counts_what_was_removed_by_a_call_whose_reply_was_lost(url, client):
    counts = set()
    for nth in itertools.count(1):
        client.flushall()
        with Proxy(url) as proxy, indelible.open(proxy.url) as store:
            _prepare_vacuum(store)
            proxy.arm(ProxyFault("cut after", "EVALSHA", nth))
            with suppress(OutcomeUnknownError):
                counts.add(store.vacuum(session_id="s", undo_window=0).entries)
            if not proxy.struck:
                break
    assert counts == {5}


def find_landed(change, store):
    """Return what the error of a change says about the data; None if there is no error."""
    try:
        change(store)
    except indelible.MemoryStoreError as error:
        return error.landed


def dump(client):
    return {key: client.dump(key) for key in client.keys("indelible:{*")}
