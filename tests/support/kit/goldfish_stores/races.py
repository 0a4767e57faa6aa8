"""Goldfish that forget when many come at once."""

from __future__ import annotations

import asyncio
import fcntl
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Final

from memory_contract.adapter import Conflict, Message
from memory_contract.goldfish.lives import Life, Messages, copy_messages
from memory_contract.goldfish.registry import goldfish
from memory_contract.goldfish.stores import (
    AwaitedStore,
    FileStore,
    ListStore,
    SqliteStore,
    give_way,
)

# How long one who opens a store waits for another to do so.
LOOK_S_MAX: Final = 0.5


@goldfish("class: a cache of the process", caught_by="read_after_write_elsewhere")
class CacheOfTheProcess(FileStore):
    """Answers from a cache of its process, which its own appends clear."""

    capabilities = frozenset({"list", "fields"})
    _read: ClassVar[dict[tuple[Path, str], Messages]] = {}

    def append(self, session: str, messages: Messages) -> None:  # type: ignore[override]
        super().append(session, messages)
        self._read.pop((self._folder, session), None)

    def read(self, session: str) -> Messages:  # type: ignore[override]
        if (self._folder, session) not in self._read:
            self._read[self._folder, session] = super().read(session)
        return copy_messages(self._read[self._folder, session])


@goldfish("langchain-redis#74", caught_by="read_after_write_elsewhere")
class AcknowledgedBeforeWritten(FileStore):
    """Says yes, and writes a little later, in the background."""

    def __init__(self, workspace: Path) -> None:
        super().__init__(workspace)
        self._later = ThreadPoolExecutor(1)

    def append(self, session: str, messages: Messages, **options: Any) -> None:
        batch = copy_messages(messages)
        self._later.submit(self._write, session, batch, options)

    def _write(self, session: str, batch: Messages, options: dict[str, Any]) -> None:
        give_way(20)
        super().append(session, batch, **options)

    def read(self, session: str, **options: Any) -> Messages:
        self._later.submit(int).result()
        return super().read(session, **options)

    def close(self) -> None:
        self._later.shutdown()


@goldfish("openai-agents#4205", caught_by="pop_race")
class TwoPopsOneEntry(ListStore):
    """Looks at the newest entry first and removes it then."""

    def pop(self, session: str) -> Message | None:
        with self._locked():
            shown = self._alive(session).shown
            newest = shown[-1] if shown else None
        give_way()
        with self._changing(session) as life:
            if newest in life.shown:
                life.change(message for message in life.shown if message != newest)
        return newest


@goldfish("openai-agents#2722, SQLAlchemySession", caught_by="first_open_race")
class TablesMadeTwice(SqliteStore):
    """Looks whether its table is there, and makes it if it was not."""

    def _create(self) -> None:
        tables = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        # Slow enough for another one to look meanwhile, however busy the machine is.
        (self._workspace / f"{uuid.uuid4().hex}.looked").touch()
        deadline = time.monotonic() + LOOK_S_MAX
        while len([*self._workspace.glob("*.looked")]) < 2 and time.monotonic() < deadline:
            time.sleep(0.001)
        if tables == (0,):
            self._db.execute("CREATE TABLE session (id BLOB PRIMARY KEY, life TEXT)")


@goldfish("tomcounsell/ai#3091", caught_by="first_append_race")
class TwoBeginnings(ListStore):
    """Looks whether a session is new, and begins it if it was, over one that began meanwhile."""

    def append(self, session: str, messages: Messages, **options: Any) -> None:
        if self._load(session) is None:
            give_way()
            self._save(session, Life())
        super().append(session, messages, **options)


@goldfish("langgraph#8796", caught_by="one_expected_wins")
class ExpectedLookedAtFirst(ListStore):
    """Compares the version first and writes then, as if nobody could come between."""

    def append(self, session: str, messages: Messages, **options: Any) -> None:
        expected = options.pop("expected", None)
        if expected is not None and expected != self.version(session):
            raise Conflict("somebody wrote since")
        give_way()
        super().append(session, messages, **options)


@goldfish("mem0#6515", caught_by="same_key_from_many")
class KeyLookedAtFirst(ListStore):
    """Looks the key up first and writes then, as if nobody could come between."""

    capabilities = frozenset({"keys", "list", "fields"})

    def append(  # type: ignore[override]
        self, session: str, messages: Messages, *, key: str | None = None
    ) -> None:
        batch = copy_messages(messages)
        with self._locked():
            fresh = self._alive(session).admits(batch, key, None)
        if fresh:
            give_way()
            with self._changing(session) as life:
                life.add(batch, key)


class _WritesBack(ListStore):
    """Appends exclude each other, but what others change meanwhile is written over."""

    def __init__(self, workspace: Path) -> None:
        super().__init__(workspace)
        self._appending = threading.Lock()

    def append(self, session: str, messages: Messages, **options: Any) -> None:
        batch = copy_messages(messages)
        with self._appending:
            life = self._alive(session)
            before = life.shown
            shown = [*before, *batch]
            give_way(2)
            with self._changing(session) as life:
                if life.admits(batch, options.get("key"), options.get("expected")):
                    life.add(batch, options.get("key"))
                    life.shown = shown

    def clear(self, session: str) -> None:
        give_way(4)
        super().clear(session)

    def rollback(self, session: str, snapshot: str) -> None:
        give_way(4)
        super().rollback(session, snapshot)


@goldfish("class: a writer that never heard of the clear", caught_by="clear_against_append")
class ClearResurrects(_WritesBack):
    """Appends write back the list that they read, cleared or not."""


@goldfish("adk#4959: rewound events come back", caught_by="rollback_against_append")
class RollbackOverwritten(_WritesBack):
    """Appends write back the list that they read, rolled back or not."""


class _SlowBatches(ListStore):
    """A batch grows message by message, under a lock that not everybody asks for."""

    def append(self, session: str, messages: Messages, **options: Any) -> None:
        batch = copy_messages(messages)
        with self._changing(session) as life:
            if not life.admits(batch, options.get("key"), options.get("expected")):
                return
            self._save(session, life)
            for message in batch[:-1]:
                life.shown.append(message)
                give_way()
            life.shown.append(batch[-1])
            life.moves += 1


@goldfish("class: a clear that asks for no lock", caught_by="clear_against_append")
class ClearedUnderAnAppend(AwaitedStore):
    """Clears at once, while an append is about to put back what it has read."""

    capabilities = frozenset({"clear", "list", "fields"})

    def __init__(self, workspace: Path) -> None:
        super().__init__(workspace)
        self._locks: dict[str, asyncio.Lock] = {}

    async def append(self, session: str, messages: Messages) -> None:  # type: ignore[override]
        async with self._locks.setdefault(session, asyncio.Lock()):
            life = Life.from_text(self._store._alive(session).to_text())
            await asyncio.sleep(0)
            life.add(copy_messages(messages))
            await asyncio.sleep(0)
            self._store._save(session, life)

    async def clear(self, session: str) -> None:
        self._store.clear(session)


@goldfish("class: a snapshot of no moment", caught_by="snapshot_against_append")
class SnapshotOfNoMoment(_SlowBatches):
    """Takes snapshots without asking for the lock: half a batch is frozen."""

    capabilities = frozenset({"snapshot", "rollback", "list", "fields"})

    def snapshot(self, session: str) -> str:
        give_way(2)
        return self._alive(session).freeze()


@goldfish("class: a fork of no moment", caught_by="fork_against_append")
class ForkOfNoMoment(_SlowBatches):
    """Forks without asking for the lock: half a batch is copied."""

    capabilities = frozenset({"fork", "list", "fields"})

    def fork(self, session: str, target: str) -> None:
        give_way(2)
        fork = Life()
        fork.add(copy_messages(self._alive(session).shown))
        self._save(target, fork)


@goldfish("mem0#7196, crewAI PR #4804", caught_by="lock_is_bounded", patience_s=1.0)
class UnboundedLock(FileStore):
    """Waits for a lock for ever."""

    def _wait_for(self, lock: int) -> None:
        fcntl.flock(lock, fcntl.LOCK_EX)


@goldfish("openai-agents PR #1953: one lock for each call", caught_by="mixed_storm")
class LockForEachHalf(ListStore):
    """Takes its lock twice for one call: to read, and again to write."""

    def _changing(self, session: str) -> Any:
        return _Halves(self, session)


class _Halves:
    """What `_changing` would be if the lock were let go in the middle."""

    def __init__(self, store: ListStore, session: str) -> None:
        self._store = store
        self._session = session

    def __enter__(self) -> Life:
        with self._store._locked():
            self._life = Life.from_text(self._store._alive(self._session).to_text())
        give_way()
        return self._life

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            with self._store._locked():
                self._store._save(self._session, self._life)
