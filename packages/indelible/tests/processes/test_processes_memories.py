"""Memories between processes: an expected version is lost to one writer only."""

from __future__ import annotations

import pytest

from tests.support import store_workers
from tests.support.ledger import SESSION
from tests.support.stores import PERSISTENT, empty_url
from tests.support.worker_processes import CREW_SIZE

ROUNDS = 5


@pytest.mark.parametrize("engine", [*PERSISTENT, "cluster"])
def test_no_count_is_lost_and_own_memories_never_conflict(worker_pool, engine, tmp_path):
    url = empty_url(engine, tmp_path)
    worker_pool.run(store_workers.counting_process, url, ROUNDS)
    with store_workers.opened(url, durability=None) as store:
        assert store.get_memory(SESSION, "shared").value == CREW_SIZE * ROUNDS
        values = [version.memory.value for version in store.memory_history(SESSION, "shared")]
        assert values == list(range(1, CREW_SIZE * ROUNDS + 1))
        owned = store.list_memories(SESSION, where={"id": {"$ne": "shared"}})
        assert [memory.value for memory in owned] == [ROUNDS - 1] * CREW_SIZE
        assert store.verify().ok
