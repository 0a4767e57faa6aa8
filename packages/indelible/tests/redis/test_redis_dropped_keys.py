"""Keys that a server dropped: damage that is found, never a new session and never a shorter one."""

import io

import pytest
import redis

import indelible
from indelible import CorruptEntryError, FormatError, UnavailableError
from tests.support.redis_writers import texts
from tests.support.wait import wait_until

PARTS = "hvlksjqi"


def key_of(part, session="s"):
    return f"indelible:{{:{session}}}{part}"


def dump(client):
    """Every key of every session, as bytes."""
    return {key: client.dump(key) for key in client.keys("indelible:{*")}


def export(store):
    text = io.StringIO()
    store.export(text)
    text.seek(0)
    return text


def fill_keyed(store, client):
    store.add_message("s", "user", "one", key="k1")
    store.add_message("s", "user", "two", key="k2")


def fill_plain(store, client):
    for text in ("one", "two", "three"):
        store.add_message("s", "user", text)


def fill_snapshots(store, client):
    store.add_message("s", "user", "one", key="k1")
    snapshot = store.save_snapshot("s")
    store.add_message("s", "user", "two")
    store.rollback_to_snapshot("s", snapshot.id)
    store.add_message("s", "user", "three")


def fill_vacuumed(store, client):
    fill_snapshots(store, client)
    store.clear("s")
    store.add_message("s", "user", "four")
    store.delete_snapshot("s", store.list_snapshots("s")[0].id)
    store.save_snapshot("s")
    assert store.vacuum(undo_window=0).entries
    store.hide("s", [store.get_entries("s")[0].position])


def fill_ttl(store, client):
    store.add_message("s", "user", "one", key="k1", ttl=1000)
    store.save_snapshot("s")
    store.add_message("s", "user", "two", ttl=1000)
    store.trim("s", keep_last=1)


def fill_repaired(store, client):
    fill_keyed(store, client)
    client.zremrangebyscore(key_of("l"), 0, 0)
    store.repair("s")


def fill_forked(store, client):
    store.add_message("origin", "user", "one", key="k1")
    store.add_message("origin", "user", "two")
    store.fork("origin", "s")


def fill_imported(store, client):
    fill_snapshots(store, client)
    exported = export(store)
    store.forget("s")
    store.import_(exported)


def fill_memories(store, client):
    for text in ("tea", "coffee", "milk"):
        store.remember("s", text, id="drink", key=f"k{text}")
    store.remember("s", "bread", id="food")
    store.hide("s", [1])
    assert store.vacuum(undo_window=0).entries == 1
    store.erase_memory("s", "food")


STATES = [
    fill_memories,
    fill_keyed,
    fill_plain,
    fill_snapshots,
    fill_vacuumed,
    fill_ttl,
    fill_repaired,
    fill_forked,
    fill_imported,
]


@pytest.fixture
def store(url):
    with indelible.open(url) as opened:
        yield opened


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_a_session_that_lost_a_key_is_damaged_and_keeps_the_others(store, client, url, state):
    tried = set()
    for part in PARTS:
        client.flushall()
        state(store, client)
        if client.delete(key_of(part)):
            tried.add(part)
            hold_to_damage(store, client, url, part)
    assert tried >= set("hvl")


def hold_to_damage(store, client, url, part):
    """What every verb does with the session `s`, which has lost this part."""
    left = dump(client)
    report = store.verify()
    assert not report.ok
    assert {finding.session_id for finding in report.findings} == {"s"}
    assert not store.verify("s").ok
    # A store that knows the session and one that does not.
    with indelible.open(url) as fresh:
        for opened in (store, fresh):
            for attempt in refused(opened, part):
                with pytest.raises((FormatError, CorruptEntryError)) as caught:
                    attempt()
                assert caught.value.landed == "no"
                assert "'s'" in str(caught.value)
    assert dump(client) == left, "a damaged session was changed"
    store.vacuum()
    assert dump(client) == left
    store.forget("s")
    assert client.keys("indelible:{:s}*") == []
    assert store.verify().ok
    store.add_message("s", "user", "anew")
    assert texts(store, "s") == ["anew"]


def refused(store, part):
    """The calls that a session without this part refuses."""
    yield lambda: store.session("s")
    yield lambda: store.set_metadata("s", {"a": 1})
    yield lambda: store.save_snapshot("s")
    yield lambda: store.clear("s")
    yield lambda: store.vacuum(session_id="s")
    yield lambda: store.repair("s")
    # An append needs the head, the view and the log; with a caller's key also the known keys.
    if part in "hvl":
        yield lambda: store.add_message("s", "user", "more")
        yield lambda: store.save_context("s", "a", "b")
    if part in "hvlk":
        yield lambda: store.add_message("s", "user", "one", key="k1")
    # One that brings a memory needs the index of items, too.
    if part in "hvli":
        yield lambda: store.remember("s", "water", id="drink")
        yield lambda: store.remember("s", "water", id="drink", expected=indelible.ABSENT)
        yield lambda: store.remember("s", "water", id="drink", expected=0)
        yield lambda: store.get_memory("s", "drink")
        yield lambda: store.list_memories("s")
        yield lambda: store.erase_memory("s", "drink")
    # Its version is in the head.
    if part == "h":
        yield lambda: store.forget("s", expected="1.1.0")
    if part in "hv":
        yield lambda: store.get_history("s")
        yield lambda: store.get_entries("s")


def test_every_combination_of_two_lost_keys_is_found(store, client):
    for first in PARTS:
        for second in PARTS:
            fill_snapshots(store, client)
            store.remember("s", "tea", id="drink", key="k2")
            client.delete(key_of(first), key_of(second))
            if first == second == "q":
                assert store.verify().ok
            else:
                assert not store.verify().ok, (first, second)
                with pytest.raises((FormatError, CorruptEntryError)):
                    store.session("s")
            store.forget("s")


def test_a_retry_is_refused_when_the_keys_are_lost(store, client):
    store.add_message("s", "user", "pay", key="payment")
    client.delete(key_of("k"))
    with pytest.raises(FormatError, match="nothing was changed"):
        store.add_message("s", "user", "pay", key="payment")
    with pytest.raises(FormatError):
        store.add_message("s", "user", "new", key="another")
    assert texts(store, "s") == ["pay"]


def test_one_key_of_a_caller_that_is_lost_is_found(store, client):
    fill_keyed(store, client)
    client.hdel(key_of("k"), "k1")
    assert not store.verify().ok
    with pytest.raises(FormatError):
        store.add_message("s", "user", "one", key="k1")
    assert texts(store, "s") == ["one", "two"]


def test_a_copy_onto_what_is_left_of_a_session_is_refused(store, client):
    fill_keyed(store, client)
    exported = export(store)
    client.delete(key_of("h"))
    left = dump(client)
    with pytest.raises(FormatError):
        store.import_(exported)
    assert dump(client) == left
    store.add_message("origin", "user", "hi")
    with pytest.raises(FormatError):
        store.fork("origin", "s")
    assert client.exists(key_of("l"))


def test_a_head_that_is_older_than_its_log_loses_nothing(store, client):
    store.add_message("s", "user", "one")
    old = client.dump(key_of("h"))
    store.add_message("s", "user", "two")
    client.restore(key_of("h"), 0, old, replace=True)
    left = dump(client)
    for key in (None, "k"):
        with pytest.raises(FormatError):
            store.add_message("s", "user", "three", key=key)
    assert dump(client) == left
    assert not store.verify().ok


def test_damage_of_one_session_does_not_stop_the_vacuum_of_others(store, client):
    fill_keyed(store, client)
    store.add_message("t", "user", "gone")
    store.clear("t")
    store.add_message("t", "user", "kept")
    client.delete(key_of("v"))
    assert store.vacuum(undo_window=0).entries == 1
    assert texts(store, "t") == ["kept"]


def test_what_is_left_of_sessions_of_other_namespaces_is_not_reported(url, client):
    with indelible.open(url, namespace="a") as one, indelible.open(url, namespace="b") as two:
        one.add_message("s", "user", "hi")
        two.add_message("s", "user", "hi")
        client.delete("indelible:{a:s}h")
        assert not one.verify().ok
        assert two.verify().ok


def test_a_session_that_expired_is_not_damaged_when_its_keys_are_freed(store, client):
    store.add_message("s", "user", "hi", key="k", ttl=0.001)
    wait_until(lambda: store.session("s").status == "expired", what="it did not expire")
    client.delete(*(key_of(part) for part in "vlk"))
    assert store.session("s").status == "expired"
    assert store.verify().ok
    store.add_message("s", "user", "back", key="k")
    assert texts(store, "s") == ["back"]


def test_no_session_is_taken_for_new_when_a_full_server_evicts(start):
    server = start(appendfsync="no", save="")
    with server.client() as client, indelible.open(server.url) as store:
        client.config_set("maxmemory-policy", "allkeys-random")
        sessions = [f"s{number}" for number in range(40)]
        for session in sessions:
            for number in range(3):
                store.add_message(session, "user", "x" * 1000, key=f"k{number}")
        before = set(client.keys("indelible:{*"))
        client.config_set("maxmemory", str(client.info("memory")["used_memory"] - 60_000))
        for number in range(200):
            client.set(f"other{number}", "y" * 500)
        client.config_set("maxmemory", "0")
        left = set(client.keys("indelible:{*"))
        assert left < before
        broken = {finding.session_id for finding in store.verify().findings}
        for session in sessions:
            parts = {key for key in left if f":{session}}}".encode() in key}
            whole = {key for key in before if f":{session}}}".encode() in key}
            assert (session in broken) == (bool(parts) and parts != whole)
            if session in broken:
                with pytest.raises((FormatError, CorruptEntryError, UnavailableError)):
                    store.add_message(session, "user", "x" * 1000, key="k0")


def test_a_cluster_finds_lost_keys_too(shared_cluster):
    for node in shared_cluster.nodes[:3]:
        with node.client() as client:
            client.flushall()
    client = redis.RedisCluster(host="127.0.0.1", port=shared_cluster.nodes[0].port)
    with indelible.open(shared_cluster.url) as store:
        for part in "hvlk":
            session = f"lost-{part}"
            store.add_message(session, "user", "one", key="k")
            store.add_message(session, "user", "two")
            client.delete(key_of(part, session))
            with pytest.raises((FormatError, CorruptEntryError)):
                store.session(session)
            with pytest.raises((FormatError, CorruptEntryError)):
                store.add_message(session, "user", "one", key="k")
        found = {finding.session_id for finding in store.verify().findings}
        assert found == {f"lost-{part}" for part in "hvlk"}
        for part in "hvlk":
            store.forget(f"lost-{part}")
        assert store.verify().ok
    client.close()
