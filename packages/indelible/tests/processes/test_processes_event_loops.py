"""One async store and more than one event loop."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import apsw

import indelible
from tests.support import store_workers
from tests.support.ledger import SESSION, Write, check

# After this long, what nobody answers is taken to wait for ever.
STUCK_S = 60.0


def writing_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("indelible-write")]


async def opened(path: str) -> indelible.AsyncMemoryStore:
    return await store_workers.opened_async(path)


def test_two_event_loops_in_two_threads_share_a_store(path):
    store = asyncio.run(opened(path))
    gate = threading.Barrier(2)

    async def write(loop: int) -> list[Write]:
        gate.wait()
        writers = [f"loop{loop}.{task}" for task in range(16)]
        writes = await store_workers.write_in_tasks(store, writers, 20)
        assert len(await store.get_history(SESSION)) >= 16 * 20
        return writes

    with ThreadPoolExecutor(2) as threads:
        done = list(threads.map(lambda loop: asyncio.run(write(loop)), range(2)))
    asyncio.run(store.close())
    with store_workers.opened(path) as reopened:
        check(reopened, [write for writes in done for write in writes])


def test_one_event_loop_after_the_other_uses_a_store(path):
    store = asyncio.run(opened(path))
    writes = []
    for loop in range(3):
        writes += asyncio.run(store_workers.write_in_tasks(store, [f"loop{loop}"], 5))
        history = asyncio.run(store.get_history(SESSION))
        assert len(history) == sum(write.stop - write.first for write in writes)
    asyncio.run(store.close())
    with store_workers.opened(path) as reopened:
        check(reopened, writes)


def test_two_event_loops_that_write_first_at_the_same_time_have_one_writing_thread(path):
    others = writing_threads()
    store = asyncio.run(opened(path))
    together = threading.Barrier(2, timeout=STUCK_S)

    async def write(loop: int) -> list[Write]:
        together.wait()
        return await store_workers.write_in_tasks(store, [f"loop{loop}"], 5)

    with ThreadPoolExecutor(2) as threads:
        done = list(threads.map(lambda loop: asyncio.run(write(loop)), range(2)))
    assert len(writing_threads()) == len(others) + 1
    asyncio.run(store.close())
    assert writing_threads() == others
    with store_workers.opened(path) as reopened:
        check(reopened, [write for writes in done for write in writes])


class LeavingLoop(asyncio.SelectorEventLoop):
    """A loop that is closed in the moment in which a writer is about to tell it something."""

    def __init__(self):
        super().__init__()
        self.told = threading.Event()
        self.left = threading.Event()

    def call_soon_threadsafe(self, *args, **more):
        if threading.current_thread() in writing_threads():
            self.told.set()
            assert self.left.wait(STUCK_S)
        return super().call_soon_threadsafe(*args, **more)


def test_a_loop_that_leaves_before_it_is_told_does_not_take_the_writing_thread_with_it(tmp_path):
    path = str(tmp_path / "agent.db")
    store = asyncio.run(opened(path))
    leaving = LeavingLoop()

    async def begin() -> asyncio.Task[Write]:
        task = asyncio.ensure_future(store_workers.write_async(store, "leaving", 0))
        await asyncio.sleep(0)
        return task

    # The write waits for another program, so that it ends when the loop has begun to wait for it.
    other = apsw.Connection(path)
    other.execute("BEGIN IMMEDIATE")
    abandoned = leaving.run_until_complete(begin())
    other.close()
    assert leaving.told.wait(STUCK_S)
    leaving.close()
    leaving.left.set()
    abandoned._log_destroy_pending = False

    async def go_on() -> tuple[set[asyncio.Task[Write]], Any]:
        return await asyncio.wait(
            {asyncio.ensure_future(store_workers.write_async(store, "staying", 0))}, timeout=STUCK_S
        )

    # A loop that does not wait for its tasks at the end: a write without an answer cannot be ended.
    staying = asyncio.new_event_loop()
    (written, stuck) = staying.run_until_complete(go_on())
    staying.close()
    assert not stuck, "nobody writes any more"
    asyncio.run(store.close())
    with store_workers.opened(path) as reopened:
        check(reopened, [task.result() for task in written], others=True)
