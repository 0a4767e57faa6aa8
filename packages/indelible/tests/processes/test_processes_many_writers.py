"""Many writers, one session: every acknowledged batch once, whole, and in order."""

from __future__ import annotations

from tests.support import store_workers
from tests.support.ledger import check

PROCESS_BATCHES = 25


def test_sixteen_processes_append_to_one_session(worker_pool, path):
    with store_workers.opened(path) as store:
        with worker_pool.watched(store_workers.watch, path):
            answers = worker_pool.run(store_workers.writer_process, path, PROCESS_BATCHES)
        writes = [write for answer in answers for write in answer]
        assert len(writes) == 16 * PROCESS_BATCHES
        check(store, writes)
    assert store_workers.is_intact(path)


def test_sixteen_threads_append_to_one_session(worker_pool, path):
    with store_workers.opened(path) as store:
        writers = [f"thread{n}" for n in range(16)]
        with worker_pool.watched(store_workers.watch, path):
            writes = store_workers.write_in_threads(store, writers, 30)
        check(store, writes)
    assert store_workers.is_intact(path)


async def test_sixty_four_tasks_append_to_one_session(worker_pool, path):
    writers = [f"task{n}" for n in range(64)]
    with worker_pool.watched(store_workers.watch, path):
        async with store_workers.opened_async(path) as store:
            writes = await store_workers.write_in_tasks(store, writers, 20)
    with store_workers.opened(path) as store:
        check(store, writes)
    assert store_workers.is_intact(path)


def test_threads_and_tasks_of_sixteen_processes_append_to_one_session(worker_pool, path):
    with store_workers.opened(path) as store:
        with worker_pool.watched(store_workers.watch, path):
            answers = worker_pool.run(store_workers.mixed_process, path, 12)
        check(store, [write for answer in answers for write in answer])
    assert store_workers.is_intact(path)


def test_sixteen_processes_open_a_fresh_file_at_the_same_time(worker_pool, tmp_path):
    for attempt in range(4):
        path = str(tmp_path / f"fresh{attempt}.db")
        answers = worker_pool.run(store_workers.opening_process, path)
        with store_workers.opened(path) as store:
            check(store, [write for answer in answers for write in answer])
        assert store_workers.is_intact(path)
