"""The async driver of SQLite: each operation is one hop to a thread and back."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from indelible.backends.sqlite.connection import SqliteOptions
from indelible.backends.sqlite.database import Database
from indelible.backends.sqlite.driver import BATCH_LIMITS
from indelible.backends.sqlite.readers import READERS_MAX
from indelible.backends.sqlite.writer import NEVER, Write, Writer
from indelible.core import fork
from indelible.core.batcher import AsyncBatcher
from indelible.core.handlers import WRITES
from indelible.core.plan import Operation
from indelible.core.uncancellable import UncancellableFuture
from indelible.errors import ClosedError
from indelible.model import Claims

R = TypeVar("R")


class AsyncSqliteBackend:
    """Performs operations on a SQLite file, awaited. Any number of event loops may use it."""

    def __init__(self, options: SqliteOptions) -> None:
        self._database = Database(options)
        self._closed = False
        self._lock: threading.Lock
        self._batchers: dict[asyncio.AbstractEventLoop, AsyncBatcher[Operation[Any], Any]]
        self._writing: ThreadPoolExecutor
        self._reading: ThreadPoolExecutor
        self._reset()
        fork.register(after_in_child=self._reset)

    async def perform(self, op: Operation[R]) -> R:
        """Perform one operation, in one transaction; a cancelled write is waited for."""
        if self._closed:
            raise ClosedError("the store is closed")
        loop = asyncio.get_running_loop()
        result: R
        if type(op) in WRITES:
            result = await self._get_batcher(loop).run(op, NEVER)
        else:
            result = await loop.run_in_executor(self._reading, self._database.read, op)
        return result

    async def prepare(self) -> None:
        """Do nothing: the file was opened and prepared when this was created."""

    async def claims(self) -> Claims:
        """Return what is promised on this file."""
        return self._database.claims()

    def owns(self, path: Path) -> bool:
        """Return whether a file is part of the store itself."""
        return self._database.owns(path)

    async def close(self) -> None:
        """Finish what was asked before, then close."""
        self._closed = True
        loop = asyncio.get_running_loop()
        batcher = self._batchers.get(loop)
        if batcher is not None:
            await batcher.close()
        await loop.run_in_executor(None, self._writing.shutdown)
        await loop.run_in_executor(None, self._reading.shutdown)
        await loop.run_in_executor(None, self._database.close)

    def _reset(self) -> None:
        """Begin without threads: they start when needed, after a fork once more."""
        self._lock = threading.Lock()
        self._batchers = {}
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="indelible-write")
        self._reading = ThreadPoolExecutor(READERS_MAX, thread_name_prefix="indelible-read")

    def _get_batcher(self, loop: asyncio.AbstractEventLoop) -> AsyncBatcher[Operation[Any], Any]:
        batcher = self._batchers.get(loop)
        if batcher is None:
            batcher = AsyncBatcher(self._send, **BATCH_LIMITS)
            with self._lock:
                open_ = {each: b for each, b in self._batchers.items() if not each.is_closed()}
                self._batchers = {**open_, loop: batcher}
        return batcher

    async def _send(self, batch: list[Write]) -> None:
        """Have the writing thread write a batch, and wait for it whoever is cancelled."""
        loop = asyncio.get_running_loop()
        done: UncancellableFuture[None] = UncancellableFuture(loop=loop)
        try:
            # A copy: if Ctrl-C interrupts this thread, the batcher goes on without the batch.
            self._writing.submit(_write, self._database.writer, list(batch), loop, done)
        except RuntimeError:
            # Another event loop has closed the store meanwhile.
            for pending in batch:
                pending.fail(ClosedError("the store is closed"))
            return
        await done


def _write(
    writer: Writer,
    batch: list[Write],
    loop: asyncio.AbstractEventLoop,
    done: UncancellableFuture[None],
) -> None:
    """In the writing thread: write a batch and tell the event loop that it is over."""
    try:
        writer.write(batch)
    finally:
        # A loop that was closed meanwhile has nobody left to tell.
        with suppress(RuntimeError):
            # Without Python code of ours in the event loop, where Ctrl-C could get in between.
            loop.call_soon_threadsafe(done.set_result, None)
