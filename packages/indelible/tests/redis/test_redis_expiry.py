"""Expiry by the engine, on the server's own clock."""

import pytest

import indelible
from indelible import NEVER
from indelible.backends.redis.requests import EXPIRY_MARGIN_MS
from indelible.backends.redis.scripts import SLACK_SHARE
from indelible.core.limits import EXPIRED_KNOWN_S
from tests.support.wait import wait_until


def ends_ms(client):
    """When the engine frees each key of the session `s`, by its last letter; -1 for never."""
    return {key[-1:].decode(): client.pexpiretime(key) for key in client.keys("indelible:{*")}


# Times are kept in whole milliseconds, of a script's start or of its middle.
ROUNDING_MS = 1000


def fill(store, ttl):
    store.remember("s", "tea", id="drink")
    store.add_message("s", "user", "hi", key="k", ttl=ttl)
    store.save_snapshot("s")
    store.add_message("s", "user", "there", ttl=ttl)
    store.trim("s", keep_last=1)
    store.set_metadata("s", {"name": "Ann"})


def test_all_keys_of_a_session_run_out_together_and_its_head_later(url, client):
    with indelible.open(url, ttl=100) as store:
        fill(store, None)
        ends = ends_ms(client)
        deadline_ms = store.session("s").expires_at.timestamp() * 1000
    assert set(ends) == set("hvlksji")
    latest_ms = deadline_ms + 100_000 / SLACK_SHARE + EXPIRY_MARGIN_MS + ROUNDING_MS
    for part in "vlksji":
        assert deadline_ms <= ends[part] <= latest_ms
    assert ends["h"] >= deadline_ms + EXPIRED_KNOWN_S * 1000


def test_an_append_without_an_end_takes_the_end_away_from_every_key(url, client):
    with indelible.open(url) as store:
        fill(store, 100)
        store.add_message("s", "user", "stay", ttl=NEVER)
        assert set(ends_ms(client).values()) == {-1}
        store.add_message("s", "user", "go", ttl=50)
        assert -1 not in ends_ms(client).values()


def test_what_is_written_after_the_last_append_runs_out_with_the_rest(url, client):
    with indelible.open(url) as store:
        store.add_message("s", "user", "hi", ttl=100)
        store.save_snapshot("s")
        store.clear("s")
        store.undo("s")
    with indelible.open(url, ttl=50) as store:
        store.remember("s", "tea", id="drink")
        assert ends_ms(client).keys() >= set("hvlsji")
    assert -1 not in ends_ms(client).values()


def test_a_shorter_time_to_live_brings_the_end_of_every_key_forward(url, client):
    with indelible.open(url) as store:
        fill(store, 100_000)
        store.add_message("s", "user", "soon", ttl=1000)
        deadline_ms = store.session("s").expires_at.timestamp() * 1000
        latest_ms = deadline_ms + 1_000_000 / SLACK_SHARE + EXPIRY_MARGIN_MS + ROUNDING_MS
        assert all(ends <= latest_ms for part, ends in ends_ms(client).items() if part != "h")


def test_the_engine_frees_what_expired_and_the_session_says_expired(url, client):
    with indelible.open(url) as store:
        store.set_metadata("s", {"name": "Ann"})
        fill(store, 1000)
        store.add_message("s", "user", "last words", ttl=0.1)
        wait_until(lambda: store.session("s").status == "expired", what="it did not expire")
        assert store.get_history("s") == []
        assert store.list_sessions().ids == []
        # The keys go by themselves, without anybody asking for them.
        wait_until(lambda: set(ends_ms(client)) == {"h"}, what="the engine kept what expired")
        assert store.session("s").status == "expired"
        assert store.session("s").metadata == {}
        head = client.hgetall("indelible:{:s}h")
        assert b"Ann" not in b"".join([*head, *head.values()])
        receipt = store.add_message("s", "user", "back", ttl=60)
        assert receipt.positions == range(4, 5), "positions go on in the next life"
        assert [message.content for message in store.get_history("s")] == ["back"]
        assert store.list_memories("s") == []
        assert "i" not in ends_ms(client)


def test_a_session_is_over_at_its_deadline_before_the_engine_frees_it(url, client):
    with indelible.open(url) as store:
        store.add_message("s", "user", "hi", ttl=0.001)
        wait_until(lambda: store.session("s").status == "expired", what="it did not expire")
        if "l" in ends_ms(client):
            assert store.get_history("s") == []
        with pytest.raises(indelible.SessionNotFoundError):
            store.undo("s")


def test_the_clock_is_the_servers(url, client):
    with indelible.open(url) as store:
        seconds, micros = client.time()
        store.add_message("s", "user", "hi", ttl=1000)
        (entry,) = store.get_entries("s")
        assert store.claims().ttl_clock == "server"
        info = store.session("s")
    before = seconds + micros / 1e6
    assert entry.written_at.timestamp() >= before - 0.001
    assert info.expires_at.timestamp() == pytest.approx(entry.written_at.timestamp() + 1000)


def test_a_store_with_a_clock_of_its_own_says_so(url):
    with indelible.open(url, clock=lambda: 1_000_000_000.0) as store:
        assert store.claims().ttl_clock == "caller"
