"""Keys, versions, trims and snapshots, between processes."""

from __future__ import annotations

from tests.support import store_workers
from tests.support.ledger import SESSION, all_entries, batch_of, check_real_time
from tests.support.worker_processes import in_another_process

ROUNDS = 20


def test_a_key_that_many_processes_retry_at_once_lands_exactly_once(worker_pool, path):
    answers = worker_pool.run(store_workers.retry_process, path, ROUNDS)
    for of_one_key in zip(*answers, strict=True):
        assert len({(first, version) for first, version, _ in of_one_key}) == 1
        assert [replayed for *_, replayed in of_one_key].count(False) == 1
    with store_workers.opened(path) as store:
        contents = [message.content for message in store.get_history(SESSION)]
    landed = [message["content"] for n in range(ROUNDS) for message in batch_of("anyone", n)]
    assert contents == landed


def test_of_many_that_expect_one_version_exactly_one_wins(worker_pool, path):
    answers = worker_pool.run(store_workers.racing_process, path, ROUNDS)
    winners = []
    for number, of_one_round in enumerate(zip(*answers, strict=True)):
        won = [index for index, version in enumerate(of_one_round) if version is not None]
        assert len(won) == 1, f"round {number}"
        winners += [m["content"] for m in batch_of(f"process{won[0]}", number)]
    with store_workers.opened(path) as store:
        assert [message.content for message in store.get_history(SESSION)] == winners


def test_trim_finishes_under_load_and_hides_nothing_that_came_after_it_read(worker_pool, path):
    with store_workers.opened(path) as store:
        answers = worker_pool.run(store_workers.trimming_process, path, 25)
        writes = [write for answer, _ in answers for write in answer]
        trims = [trim for _, answer in answers for trim in answer]
        visible = [entry.position for entry in all_entries(store)]
    logged = [p for write in writes for p in range(write.first, write.stop)]
    dropped = [position for positions, _ in trims for position in positions]
    assert sorted(dropped + visible) == sorted(logged) == list(range(len(logged)))
    for positions, version in trims:
        # What was the newest when a trim read, and all that came until it was done, still shows.
        end = int(version.split(".")[-2]) if positions else 0
        assert all(position < end - store_workers.KEPT_BY_TRIM for position in positions)
    assert len(visible) == store_workers.KEPT_BY_TRIM
    check_real_time(writes)


def test_a_snapshot_outlives_its_process_and_every_rollback(path):
    first = in_another_process(store_workers.save_snapshot, path, "one")
    second = in_another_process(store_workers.save_snapshot, path, "two")
    assert in_another_process(store_workers.roll_back, path, first) == (["one"], [first, second])
    assert in_another_process(store_workers.look, path) == (["one"], [first, second])
    third = in_another_process(store_workers.save_snapshot, path, "three")
    every = [first, second, third]
    assert store_workers.roll_back(path, second) == (["one", "two"], every)
    assert store_workers.roll_back(path, third) == (["one", "three"], every)
    assert store_workers.roll_back(path, first) == (["one"], every)
    assert store_workers.roll_back(path, second) == (["one", "two"], every)
