"""Reads: one script, in portions where a session is long, and loud where an entry is damaged."""

import pytest

import indelible
from indelible.backends.redis.scripts import READ_BYTES

LOG = "indelible:{:s}l"


def count_scripts(client):
    stats = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))


def test_the_newest_messages_are_one_call(url, client):
    with indelible.open(url) as store:
        store.add_messages("s", [{"role": "user", "content": "hi"}] * 300)
        store.get_history("s", last=20)
        client.config_resetstat()
        assert len(store.get_history("s", last=20)) == 20
        assert count_scripts(client) == 1


def test_long_entries_are_read_a_few_at_a_time(url, client):
    with indelible.open(url) as store:
        for _ in range(6):
            store.add_message("s", "user", "x" * (READ_BYTES // 2))
        client.config_resetstat()
        assert len(store.get_history("s")) == 6
        # No call holds the server, or its memory, for all of them.
        assert count_scripts(client) >= 3


def test_a_damaged_entry_is_loud(url, client):
    with indelible.open(url) as store:
        store.add_message("s", "user", "hi")
        store.add_message("s", "user", "there")
        client.zremrangebyscore(LOG, 1, 1)
        client.zadd(LOG, {"x nonsense {}": 1})
        with pytest.raises(indelible.CorruptEntryError) as caught:
            store.get_history("s")
    assert caught.value.details["position"] == 1
