"""A replay on stores that stand on servers: replies get lost again, and clusters take part."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import indelible
from memory_contract import explain_trace, record, replay_trace
from memory_contract.faults.proxy import Proxy, ProxyFault
from memory_contract.traces.recorder import get_trace_writer
from tests.support import postgres_server, redis_server
from tests.support.server_goldfish import (
    PostgresLog,
    RedisLog,
    RetriesTheTransaction,
    RetriesWithoutKey,
    adapter_on,
)

# A goldfish, a right store, where they live, and the request that decides whether an append landed.
ENGINES = [
    pytest.param(RetriesWithoutKey, RedisLog, redis_server.emptied, "RPUSH", id="redis"),
    pytest.param(
        RetriesTheTransaction, PostgresLog, postgres_server.fresh_database, "COMMIT", id="postgres"
    ),
]


def incident(path, kind, url, decides):
    """The trace of a store whose server's replies were lost while it appended."""
    with Proxy(url) as proxy:
        opened = kind(proxy.url, "incident")
        store = record(opened, path, fresh=True)
        store.append("ana", [{"role": "user", "content": "My name is Ana."}])
        proxy.arm(ProxyFault("cut after", decides))
        try:
            store.append("ana", [{"role": "user", "content": "Book the train."}])
        except Exception:  # noqa: BLE001 -- the recorder wrote down what
            assert not kind.__name__.startswith("Retries")
        proxy.heal()
        shown = len(store.read("ana"))
        get_trace_writer(store).close()
        opened.close()
    return shown


@pytest.mark.parametrize(("goldfish", "right", "place", "decides"), ENGINES)
def test_a_reply_that_got_lost_gets_lost_again(goldfish, right, place, decides, tmp_path):
    url, path = place(), tmp_path / "trace.jsonl"
    # Nobody was told: the store asked again, by itself, and wrote it twice.
    assert incident(path, goldfish, url, decides) == 3
    assert explain_trace(path).names == {"duplicate"}
    found = replay_trace(path, adapter_on(goldfish, url), level="faults", seed=1)
    assert found.verdict == "FAILED", found.told
    assert found.replies_lost == 1
    for store in (adapter_on(right, url), url):
        found = replay_trace(path, store, level="faults", seed=1)
        assert found.verdict == "FIXED", found.told
        assert "replies of the server that got lost, as in the trace: 1" in found.notes


def test_an_error_that_leaves_it_open_is_made_again(tmp_path):
    url, path = redis_server.emptied(), tmp_path / "trace.jsonl"
    # The right store said that it does not know: its caller's trace shows nothing wrong.
    assert incident(path, RedisLog, url, "RPUSH") == 2
    assert not explain_trace(path).names
    found = replay_trace(path, adapter_on(RetriesWithoutKey, url), level="faults", seed=1)
    assert found.verdict == "CHANGED", found.told
    assert found.found == {"duplicate"}


def test_a_cluster_takes_part_in_a_replay(cluster, tmp_path):
    path = tmp_path / "trace.jsonl"
    store = record(indelible.open("memory:"), path, fresh=True)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda n: store.add_message(f"s{n % 3}", "user", f"m{n}"), range(9)))
    frozen = store.save_snapshot("s0")
    store.add_message("s0", "user", "later")
    store.rollback_to_snapshot("s0", frozen.id)
    store.get_history("s0")
    store.close()
    found = replay_trace(path, cluster.url, seed=1)
    assert found.verdict == "FIXED", found.told
    assert found.operations == 13
    assert not found.notes


def test_what_cannot_be_lost_is_said(cluster, tmp_path):
    path = tmp_path / "trace.jsonl"
    incident(path, RedisLog, redis_server.emptied(), "RPUSH")
    found = replay_trace(path, cluster.url, level="faults", seed=1)
    assert found.verdict == "UNKNOWN"
    assert found.reason == "no fault could be made here"
    (note,) = found.notes
    assert note.startswith(
        "replies of the server that could not be lost: 1 (there can be a proxy before redis://"
    )
