"""Stores whose every call to SQLite passes a place where a test can stand."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from indelible import AsyncMemoryStore, Durability, MemoryStore
from indelible.backends.sqlite import SqliteDatabase, SqliteOptions, checksums
from indelible.backends.sqlite.connection import BEGIN_READ, BEGIN_WRITE, COMMIT, ROLLBACK
from indelible.core.checksums import compute_entry_checksum
from indelible.core.clock import system_clock
from indelible.core.embedded import AsyncEmbeddedBackend, EmbeddedBackend
from indelible.core.settings import Settings

# How long a test waits for a thread before it fails; no test expects to wait that long.
PATIENCE_S = 120.0

Act = Callable[[], object]

_NAMES = {
    BEGIN_WRITE: "begin",
    BEGIN_READ: "read",
    COMMIT: "commit",
    ROLLBACK: "rollback",
    "INSERT INTO entry": "insert",
    "PRAGMA wal_checkpoint(TRUNCATE)": "checkpoint",
}


class Seam:
    """Names the calls that write, counts them, and does what a test wants done at them.

    The names are `begin`, `insert` (entries of one append), `commit`, `rollback` and `checkpoint`;
    and `read` where a reader begins. The rest has no name.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._acts: list[tuple[str, Act | None, Act | None, range]] = []
        self._seen: dict[str, int] = {}

    def at(
        self,
        name: str,
        *,
        before: Act | None = None,
        after: Act | None = None,
        skip: int = 0,
        times: int = 1,
    ) -> None:
        """Do something at the next calls of a name; an error that it raises is the call's."""
        first = self._seen.get(name, 0) + skip
        self._acts.append((name, before, after, range(first, first + times)))

    def heal(self) -> None:
        """Do nothing more."""
        self._acts.clear()

    def __call__(self, statement: str, call: Callable[[], Any]) -> Any:
        name = _NAMES.get(" ".join(statement.split()[:3]))
        if name is None:
            return call()
        self.calls.append(name)
        number = self._seen.get(name, 0)
        self._seen[name] = number + 1
        here = [act for act in self._acts if act[0] == name and number in act[3]]
        for _, before, _, _ in here:
            if before is not None:
                before()
        answer = call()
        for _, _, after, _ in here:
            if after is not None:
                after()
        return answer


def failing(code: int) -> Act:
    """An act that fails as SQLite does with this result code."""

    def fail() -> None:
        raise apsw.exception_for(code)

    return fail


class Hold:
    """An act that stands still until the test lets go."""

    def __init__(self) -> None:
        self._there = threading.Event()
        self._go = threading.Event()

    def __call__(self) -> None:
        self._there.set()
        assert self._go.wait(PATIENCE_S)

    def wait(self) -> None:
        """Wait until somebody stands there."""
        assert self._there.wait(PATIENCE_S)

    def let_go(self) -> None:
        """Let whoever stands there go on."""
        self._go.set()


def options(path: Path, **given: Any) -> SqliteOptions:
    """How a file is opened, if nothing else is said."""
    usual: dict[str, Any] = {
        "namespace": "",
        "durability": Durability.POWER,
        "busy_timeout_s": 5.0,
        "clock": system_clock,
    }
    return SqliteOptions(path=path, **{**usual, **given})


def blocking(path: Path, **given: Any) -> MemoryStore:
    """A blocking store on a file."""
    return MemoryStore(EmbeddedBackend(SqliteDatabase(options(path, **given))), Settings())


def awaited(path: Path, **given: Any) -> AsyncMemoryStore:
    """An async store on a file."""
    return AsyncMemoryStore(
        AsyncEmbeddedBackend(SqliteDatabase(options(path, **given))), Settings()
    )


def database_of(store: Any) -> SqliteDatabase:
    """What stands behind a store."""
    database: SqliteDatabase = store._backend._database
    return database


class Line(deque[Any]):
    """The queue of writes of a store; says when one joins."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__()
        self._joined = threading.Semaphore(0)
        store._backend._batcher._waiting = self  # type: ignore[attr-defined]

    def append(self, pending: Any) -> None:
        super().append(pending)
        self._joined.release()

    def forget(self) -> None:
        """Do not count who has joined by now."""
        while self._joined.acquire(blocking=False):
            pass

    def wait_for_one(self) -> None:
        """Wait until one more has joined."""
        assert self._joined.acquire(timeout=PATIENCE_S)


def group(
    store: MemoryStore,
    seam: Seam,
    calls: Sequence[Callable[[], Any]],
    *,
    arm: Act = lambda: None,
) -> list[Future[Any]]:
    """Have calls stand in line, in their order, behind a commit, so that they become one group.

    `arm` is done when all stand there. Gives what became of each.
    """
    hold = Hold()
    seam.at("commit", before=hold)
    line = Line(store)
    with ThreadPoolExecutor(len(calls) + 1) as threads:
        leader = threads.submit(store.save_context, "leader", "who", "leads")
        hold.wait()
        line.forget()
        futures: list[Future[Any]] = []
        for call in calls:
            futures.append(threads.submit(call))
            line.wait_for_one()
        seam.calls.clear()
        arm()
        hold.let_go()
        leader.result()
    return futures


@contextmanager
def beside(path: Path) -> Iterator[apsw.Connection]:
    """A connection that knows nothing of stores: another program, or somebody with an editor."""
    file = apsw.Connection(str(path))
    try:
        yield file
    finally:
        file.close()


@contextmanager
def forging(path: Path) -> Iterator[apsw.Connection]:
    """A connection that writes every checksum anew at the end: damage that none of them shows."""
    with beside(path) as file:
        checksums.register(file)
        file.create_scalar_function("entry_checksum", compute_entry_checksum)
        yield file
        for table, fields in checksums.FIELDS.items():
            file.execute(f"UPDATE {table} SET checksum = row_checksum({fields})")
        file.execute(
            "UPDATE entry SET checksum = (SELECT entry_checksum(session_salt(namespace, name),"
            " entry.payload, entry.id & 4294967295, entry.written_at, entry.deadline,"
            " entry.generation, entry.batch_size) FROM session WHERE number = entry.id >> 32)"
            " WHERE id >> 32 IN (SELECT number FROM session)"
        )


class StillClock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now_s = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now_s
