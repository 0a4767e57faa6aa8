"""Expiry by the engine, on the server's own clock."""

import time

import pytest
from redis_writers import until

import indelible
from indelible import NEVER
from indelible.backends.redis.calls import EXPIRY_MARGIN_MS
from indelible.backends.redis.scripts import SLACK_SHARE
from indelible.core.limits import EXPIRED_KNOWN_S


def left_ms(client):
    """How long each key of the session `s` has to live, by its last letter."""
    return {key[-1:].decode(): client.pttl(key) for key in client.keys("indelible:{*")}


def fill(store, ttl):
    store.add_message("s", "user", "hi", key="k", ttl=ttl)
    store.save_snapshot("s")
    store.add_message("s", "user", "there", ttl=ttl)
    store.trim("s", keep_last=1)
    store.set_metadata("s", {"name": "Ann"})


def test_all_keys_of_a_session_run_out_together_and_its_head_later(url, client):
    with indelible.open(url, ttl=100) as store:
        fill(store, None)
        left = left_ms(client)
    assert set(left) == set("hvlksj")
    data = [ms for part, ms in left.items() if part != "h"]
    assert max(data) - min(data) < 5000
    assert 90_000 < min(data) <= max(data) <= 100_000 * (1 + 1 / SLACK_SHARE) + EXPIRY_MARGIN_MS
    assert left["h"] > EXPIRED_KNOWN_S * 1000


def test_an_append_without_an_end_takes_the_end_away_from_every_key(url, client):
    with indelible.open(url) as store:
        fill(store, 100)
        store.add_message("s", "user", "stay", ttl=NEVER)
        assert set(left_ms(client).values()) == {-1}
        store.add_message("s", "user", "go", ttl=50)
        assert -1 not in left_ms(client).values()


def test_what_is_written_after_the_last_append_runs_out_with_the_rest(url, client):
    with indelible.open(url) as store:
        store.add_message("s", "user", "hi", ttl=100)
        store.save_snapshot("s")
        store.clear("s")
        store.undo("s")
    assert -1 not in left_ms(client).values()


def test_the_engine_frees_what_expired_and_the_session_says_expired(url, client):
    with indelible.open(url, ttl=0.5) as store:
        store.set_metadata("s", {"name": "Ann"})
        fill(store, None)
        until(lambda: store.session("s").status == "expired", what="it did not expire")
        assert store.get_history("s") == []
        assert list(store.list_sessions()) == []
        # The keys go by themselves, without anybody asking for them.
        until(lambda: set(left_ms(client)) == {"h"}, what="the engine kept what expired")
        assert store.session("s").status == "expired"
        assert store.session("s").metadata == {}
        head = client.hgetall("indelible:{:s}h")
        assert b"Ann" not in b"".join([*head, *head.values()])
        receipt = store.add_message("s", "user", "back", ttl=60)
        assert receipt.positions == range(2, 3), "positions go on in the next life"
        assert [message.content for message in store.get_history("s")] == ["back"]


def test_a_session_is_over_at_its_deadline_before_the_engine_frees_it(url, client):
    with indelible.open(url) as store:
        store.add_message("s", "user", "hi", ttl=0.001)
        until(lambda: store.session("s").status == "expired", what="it did not expire")
        if "l" in left_ms(client):
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
    assert before - 0.001 <= entry.written_at.timestamp() <= before + 60
    assert info.expires_at.timestamp() == pytest.approx(entry.written_at.timestamp() + 1000)
    assert time.time() > 0


def test_a_store_with_a_clock_of_its_own_says_so(url):
    with indelible.open(url, clock=lambda: 1_000_000_000.0) as store:
        assert store.claims().ttl_clock == "caller"
