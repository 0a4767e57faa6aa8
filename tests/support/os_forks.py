"""Processes that fork with an open store, while others write through it."""

from __future__ import annotations

import asyncio
import os
import pickle
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import indelible
from indelible.backends.sqlite.schema import _sync_directory
from indelible.backends.sqlite.writer import SqliteWriter
from indelible.core.fork import _before_fork
from tests.support import store_workers
from tests.support.ledger import Write
from tests.support.worker_processes import PATIENCE_S

FORKS = 4
WRITERS = 4
CHILDS_BATCHES = 10
# Acknowledged between two forks, so that each falls into the middle of the writing.
BETWEEN_FORKS = 3 * WRITERS
# After this long, what waits for a lock that nobody holds is taken to wait for ever.
STUCK_S = 60.0


class Child:
    """A forked process and what it answers."""

    def __init__(self, work: Callable[[], list[Write]]) -> None:
        self._answer, answer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            # Nothing of the parent's may run in the child, not even after an error.
            try:
                with os.fdopen(answer, "wb") as pipe:
                    pickle.dump(work(), pipe)
            except BaseException:  # noqa: BLE001 (the parent misses the answer, and fails)
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(answer)

    def answer(self) -> list[Write]:
        """What it gave; an error if it is stuck."""
        handle = os.pidfd_open(self._pid)
        try:
            ready, _, _ = select.select([handle], [], [], PATIENCE_S)
            if not ready:
                os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            assert ready, "the child is stuck"
        finally:
            os.close(handle)
        with os.fdopen(self._answer, "rb") as pipe:
            writes: list[Write] = pickle.load(pipe)
        return writes


class Acknowledged:
    """What the parent's writers were told, and how to wait for more of it."""

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self._more = threading.Semaphore(0)

    def add(self, write: Write) -> None:
        self.writes.append(write)
        self._more.release()

    def wait_for(self, count: int) -> None:
        for _ in range(count):
            assert self._more.acquire(timeout=PATIENCE_S), "the parent is stuck"


def fork_while_threads_write(path: str) -> list[Write]:
    """Threads of the parent and of each child write through one store."""
    store = store_workers.opened(path)
    acknowledged = Acknowledged()
    over = threading.Event()

    def keep_writing(writer: str) -> None:
        number = 0
        while not over.is_set():
            acknowledged.add(store_workers.write(store, writer, number))
            store.get_history(store_workers.SESSION, last=2)
            number += 1

    threads = [
        threading.Thread(target=keep_writing, args=(f"parent{n}",), daemon=True)
        for n in range(WRITERS)
    ]
    for thread in threads:
        thread.start()

    def work(fork: int) -> list[Write]:
        writers = [f"child{fork}.{n}" for n in range(WRITERS)]
        writes = store_workers.write_in_threads(store, writers, CHILDS_BATCHES)
        store.get_history(store_workers.SESSION, last=2)
        store.close()
        return writes

    of_children: list[Write] = []
    for fork in range(FORKS):
        acknowledged.wait_for(BETWEEN_FORKS)
        of_children += Child(lambda fork=fork: work(fork)).answer()
    acknowledged.wait_for(BETWEEN_FORKS)
    over.set()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "the parent is stuck"
    store.close()
    return acknowledged.writes + of_children


def fork_between_reads(path: str) -> list[tuple[str, int]]:
    """Parent and child read through one audited store; the kinds and counts of its lines."""
    options = {"audit": "reads", "audit_key": b"a secret of the tests"}
    store = indelible.open(path, **options)
    store.add_message("s", "user", "one")

    def read(times: int) -> None:
        for _ in range(times):
            store.get_history("s")

    def work() -> list[Write]:
        read(2)
        store.close()
        return []

    read(3)
    Child(work).answer()
    store.close()
    with indelible.open(path, **options) as again:
        assert again.verify("s").ok
        return [(line.change, line.count) for line in again.audit_log("s")]


def fork_while_tasks_write(path: str) -> list[Write]:
    """Tasks of the parent and of each child write through one async store."""
    store = asyncio.run(_opened(path))
    acknowledged = Acknowledged()
    over = threading.Event()

    async def keep_writing(writer: str) -> None:
        number = 0
        while not over.is_set():
            acknowledged.add(await store_workers.write_async(store, writer, number))
            await store.get_history(store_workers.SESSION, last=2)
            number += 1

    async def keep_all_writing() -> None:
        await asyncio.gather(*(keep_writing(f"parent{n}") for n in range(WRITERS)))
        await store.close()

    loop = threading.Thread(target=asyncio.run, args=(keep_all_writing(),), daemon=True)
    loop.start()

    async def work(fork: int) -> list[Write]:
        writers = [f"child{fork}.{n}" for n in range(WRITERS)]
        writes = await store_workers.write_in_tasks(store, writers, CHILDS_BATCHES)
        await store.get_history(store_workers.SESSION, last=2)
        await store.close()
        return writes

    of_children: list[Write] = []
    for fork in range(FORKS):
        acknowledged.wait_for(BETWEEN_FORKS)
        of_children += Child(lambda fork=fork: asyncio.run(work(fork))).answer()
    acknowledged.wait_for(BETWEEN_FORKS)
    over.set()
    loop.join(PATIENCE_S)
    assert not loop.is_alive(), "the parent is stuck"
    return acknowledged.writes + of_children


async def _opened(path: str) -> indelible.AsyncMemoryStore:
    return await store_workers.opened_async(path)


def fork_in_two_threads_at_once(path: str) -> list[Write]:
    """Two threads fork at the same moment, with several stores open."""
    stores = [store_workers.opened(path) for _ in range(4)]
    # Libraries that make themselves ready in the first call may not be forked in the middle of it.
    writes = [store_workers.write(stores[0], "parent", 0)]
    gate = threading.Barrier(2, timeout=PATIENCE_S)

    def fork_often(thread: int) -> None:
        for fork in range(FORKS):
            gate.wait()
            writer = f"child{thread}.{fork}"
            child = Child(lambda writer=writer: store_workers.write_all(stores[0], writer, 2))
            for number, store in enumerate(stores):
                writes.append(store_workers.write(store, f"parent{thread}.{fork}", number))
            writes.extend(child.answer())

    _run_to_the_end(partial(fork_often, 0), partial(fork_often, 1))
    return writes


def fork_while_another_thread_is_about_to(path: str) -> list[Write]:
    """A second thread makes ready to fork in the very moment in which the first lets go."""
    store = store_workers.opened(path)
    writes = [store_workers.write(store, "parent", 0)]
    letting_go, ready, done = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        def let_go() -> None:
            letting_go.set()
            # Where forks wait for one another, the second will not be ready yet.
            ready.wait(1.0)

        with _called_after(SqliteWriter.resume, let_go):
            child = Child(lambda: store_workers.write_all(store, "child1", 2))
        done.set()
        writes.extend(child.answer())

    def second() -> None:
        def be_ready() -> None:
            ready.set()
            assert done.wait(PATIENCE_S)

        assert letting_go.wait(PATIENCE_S)
        with _called_after(_before_fork, be_ready):
            child = Child(lambda: store_workers.write_all(store, "child2", 2))
        writes.extend(child.answer())

    _run_to_the_end(first, second)
    _run_to_the_end(lambda: writes.append(store_workers.write(store, "parent", 1)))
    return writes


def fork_while_another_thread_creates_a_file(path: str) -> list[Write]:
    """A child opens a store while a thread of its parent is in the middle of creating a file."""
    writes: list[Write] = []
    creating, forked = threading.Event(), threading.Event()

    def create() -> None:
        def wait() -> None:
            creating.set()
            assert forked.wait(PATIENCE_S)

        with _called_after(_sync_directory, wait):
            store = store_workers.opened(path)
        writes.append(store_workers.write(store, "parent", 0))

    def fork() -> None:
        assert creating.wait(PATIENCE_S)
        child = Child(lambda: store_workers.write_all(store_workers.opened(path), "child", 2))
        forked.set()
        writes.extend(child.answer())

    _run_to_the_end(create, fork)
    return writes


@contextmanager
def _called_after(function: Callable[..., Any], then: Callable[[], None]) -> Iterator[None]:
    """Call `then` whenever this thread comes back from a function; not in a forked child."""
    parent = os.getpid()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code is not function.__code__ or os.getpid() != parent:
            return None
        if event == "return":
            then()
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(None)


def _run_to_the_end(*works: Callable[[], None]) -> None:
    """Run each in a thread of its own; an error if one is stuck."""
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(STUCK_S)
        assert not thread.is_alive(), "the parent is stuck"


def fork_while_a_thread_uses_memory(_path: str) -> list[Any]:
    """Fork while another thread is inside of a store in memory; return what the child wrote."""
    inside, go_on, parent = threading.Event(), threading.Event(), os.getpid()

    def clock() -> float:
        if threading.current_thread() is not threading.main_thread() and os.getpid() == parent:
            inside.set()
            go_on.wait(STUCK_S)
        return 1_700_000_000.0

    with indelible.open("memory:", clock=clock) as store:
        thread = threading.Thread(target=store.add_message, args=("s", "user", "one"))
        thread.start()
        assert inside.wait(STUCK_S)
        try:
            return Child(lambda: [store.add_message("c", "user", "two").positions.start]).answer()
        finally:
            go_on.set()
            thread.join()
