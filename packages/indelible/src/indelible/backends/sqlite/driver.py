"""The two drivers of SQLite, blocking and async, over one engine."""

from __future__ import annotations

import asyncio
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from indelible.backends.sqlite.engine import WRITES, Engine, SqliteOptions
from indelible.backends.sqlite.readers import READERS_MAX
from indelible.backends.sqlite.writer import GROUP_MAX, Job, Writer
from indelible.core.operations import Append
from indelible.core.plan import Operation
from indelible.core.uncancellable import UncancellableFuture
from indelible.errors import ClosedError
from indelible.model import Claims

R = TypeVar("R")


class SqliteBackend:
    """Performs the waist on a SQLite file, blocking. The calling thread does the work."""

    def __init__(self, options: SqliteOptions) -> None:
        self._engine = Engine(options)

    def perform(self, op: Operation[R]) -> R:
        """Do one step, in one transaction."""
        engine = self._engine
        result: Any = None
        if type(op) is Append:
            result = engine.writer.append_alone(engine.context, op)
        if result is None:
            plan = WRITES.get(type(op))
            if plan is None:
                result = engine.read(op)
            else:
                result = engine.writer.run(Job(engine.context, op, plan))
        done: R = result
        return done

    def prepare(self) -> None:
        """The file was opened, and made ready, when this was made."""

    def claims(self) -> Claims:
        """What is promised on this file."""
        return self._engine.claims()

    def owns(self, path: Path) -> bool:
        """Whether a file is part of the store itself."""
        return self._engine.owns(path)

    def close(self) -> None:
        """Wait for what is running, then close."""
        self._engine.close()


class AsyncSqliteBackend:
    """Performs the waist on a SQLite file, awaited: one hop to a thread and back for each step."""

    def __init__(self, options: SqliteOptions) -> None:
        self._engine = Engine(options)
        self._engine.on_fork_in_child = self._forget_threads
        self._closed = False
        self._starting: threading.Lock
        self._jobs: queue.SimpleQueue[Job | None]
        self._thread: threading.Thread | None
        self._pool: ThreadPoolExecutor
        self._forget_threads()

    async def perform(self, op: Operation[R]) -> R:
        """Do one step, in one transaction; a cancelled write is waited for."""
        if self._closed:
            raise ClosedError("the store is closed")
        loop = asyncio.get_running_loop()
        plan = WRITES.get(type(op))
        if plan is None:
            return cast(R, await loop.run_in_executor(self._pool, self._engine.read, op))
        written: UncancellableFuture[R] = UncancellableFuture(loop=loop)
        job = Job(self._engine.context, op, plan, written)
        with self._starting:
            # Not behind the last word of a close that another event loop has said meanwhile.
            if self._closed:
                raise ClosedError("the store is closed")
            if self._thread is None:
                self._thread = self._new_thread()
            self._jobs.put(job)
        return await written

    async def prepare(self) -> None:
        """The file was opened, and made ready, when this was made."""

    async def claims(self) -> Claims:
        """What is promised on this file."""
        return self._engine.claims()

    def owns(self, path: Path) -> bool:
        """Whether a file is part of the store itself."""
        return self._engine.owns(path)

    async def close(self) -> None:
        """Finish what was asked before, then close."""
        with self._starting:
            self._closed = True
            thread, self._thread = self._thread, None
            if thread is not None:
                self._jobs.put(None)
        loop = asyncio.get_running_loop()
        if thread is not None:
            await loop.run_in_executor(None, thread.join)
        await loop.run_in_executor(None, self._pool.shutdown)
        await loop.run_in_executor(None, self._engine.close)

    def _forget_threads(self) -> None:
        """Begin without threads: they start when needed, after a fork once more."""
        self._starting = threading.Lock()
        self._jobs = queue.SimpleQueue()
        self._thread = None
        self._pool = ThreadPoolExecutor(READERS_MAX, thread_name_prefix="indelible-read")

    def _new_thread(self) -> threading.Thread:
        # A daemon, since what was acknowledged is committed: an interpreter may end at any time.
        thread = threading.Thread(
            target=_write,
            args=(self._engine.writer, self._jobs),
            name="indelible-write",
            daemon=True,
        )
        thread.start()
        return thread


def _write(writer: Writer, jobs: queue.SimpleQueue[Job | None]) -> None:
    """The writing thread: take all that is waiting, commit it together, tell everyone at once."""
    while True:
        group: list[Job] = []
        job = jobs.get()
        while job is not None:
            group.append(job)
            if len(group) == GROUP_MAX or jobs.empty():
                break
            job = jobs.get()
        if group:
            try:
                writer.run_group(group)
            finally:
                _tell(group)
        if job is None:
            # For a second thread, if there is one: whoever was interrupted while it started the
            # first may have started another.
            jobs.put(None)
            return


def _tell(group: list[Job]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in group:
        by_loop.setdefault(job.settle.get_loop(), []).append(job)
    for loop, jobs in by_loop.items():
        # A loop that was closed meanwhile has nobody left to tell.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, jobs)


def _settle(jobs: list[Job]) -> None:
    for job in jobs:
        if not job.settle.done():
            if job.error is not None:
                job.settle.set_exception(job.error)
            else:
                job.settle.set_result(job.result)
