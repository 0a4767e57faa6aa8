"""A replay on stores that stand on servers."""

from concurrent.futures import ThreadPoolExecutor

import indelible
from memory_contract import record, replay_trace


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
