"""Correct stores, small enough to be seen to be correct. The goldfish are made of them."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

from memory_contract.adapter import Conflict, Message, Reach, Refused
from memory_contract.goldfish.lives import EVERYTHING, Life, Messages, copy_messages, trim_messages
from memory_contract.goldfish.registry import right

# How long a writer waits for another before it says that it could not.
LOCK_S_MAX: Final = 2.0


class Store:
    """Every verb, on lives that somebody else keeps: all of a call happens under one lock."""

    capabilities: ClassVar[frozenset[str]] = EVERYTHING
    reach: ClassVar[Reach] = "machine"
    thread_safe: ClassVar[bool] = True
    ttl_refreshed_by: ClassVar[str] = "append"
    patience_s: ClassVar[float | None] = None

    # How lives are kept, which is what the stores differ in.

    def _locked(self) -> AbstractContextManager[Any]:
        raise NotImplementedError

    def _load(self, session: str) -> Life | None:
        raise NotImplementedError

    def _save(self, session: str, life: Life) -> None:
        raise NotImplementedError

    def _names(self) -> list[str]:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to let go of."""

    def _alive(self, session: str) -> Life:
        """The life that a session is in; a new one if there is none, or if it ended."""
        life = self._load(session)
        return Life() if life is None or life.ended else life

    @contextmanager
    def _changing(self, session: str) -> Iterator[Life]:
        with self._locked():
            life = self._alive(session)
            yield life
            self._save(session, life)

    # The verbs.

    def append(
        self,
        session: str,
        messages: Messages,
        *,
        key: str | None = None,
        expected: Any = None,
        ttl_s: float | None = None,
    ) -> None:
        batch = copy_messages(messages)
        if not batch:
            return
        with self._changing(session) as life:
            if life.admits(batch, key, expected):
                self._prolong(life, ttl_s)
                life.add(batch, key)

    def _prolong(self, life: Life, ttl_s: float | None) -> None:
        if self.ttl_refreshed_by != "nothing" or life.moves == 0:
            life.extend_life(ttl_s)

    def read(self, session: str, *, limit: int | None = None) -> Messages:
        with self._locked():
            life = self._alive(session)
            if self.ttl_refreshed_by == "read":
                life.extend_life(life.ttl_s)
            shown = life.shown
            return copy_messages(shown if limit is None else shown[max(0, len(shown) - limit) :])

    def pop(self, session: str) -> Message | None:
        with self._changing(session) as life:
            newest = life.shown[-1] if life.shown else None
            if newest is not None:
                life.change(life.shown[:-1])
            return newest

    def trim(self, session: str, keep: int) -> None:
        with self._changing(session) as life:
            life.change(trim_messages(life.shown, keep))

    def clear(self, session: str) -> None:
        with self._changing(session) as life:
            life.change([])

    def undo(self, session: str) -> None:
        with self._changing(session) as life:
            life.undo()

    def snapshot(self, session: str) -> str:
        with self._changing(session) as life:
            return life.freeze()

    def rollback(self, session: str, snapshot: str) -> None:
        with self._changing(session) as life:
            life.change(life.frozen(snapshot))

    def fork(self, session: str, target: str) -> None:
        with self._locked():
            if self._alive(target).moves:
                raise Conflict("there is such a session")
            fork = Life()
            fork.add(copy_messages(self._alive(session).shown))
            self._save(target, fork)

    def version(self, session: str) -> str:
        with self._changing(session) as life:
            return life.version

    def sessions(self) -> list[str]:
        with self._locked():
            return [name for name in self._names() if self._alive(name).moves]


@right
class ListStore(Store):
    """Lists in memory under a lock, shared by the handles of a process."""

    reach: ClassVar[Reach] = "process"
    _worlds: ClassVar[dict[Path, tuple[AbstractContextManager[Any], dict[str, Life]]]] = {}

    def __init__(self, workspace: Path) -> None:
        self._lock, self._lives = self._worlds.setdefault(workspace, (threading.RLock(), {}))

    def _locked(self) -> AbstractContextManager[Any]:
        return self._lock

    def _load(self, session: str) -> Life | None:
        return self._lives.get(session)

    def _save(self, session: str, life: Life) -> None:
        self._lives[session] = life

    def _names(self) -> list[str]:
        return list(self._lives)

    @classmethod
    def discard(cls, workspace: Path, _sessions: Iterable[str]) -> None:
        cls._worlds.pop(workspace, None)


@right
class FileStore(Store):
    """A JSON file for each session, written anew and put in place as a whole, under a file lock."""

    patience_s: ClassVar[float | None] = 5 * LOCK_S_MAX

    def __init__(self, workspace: Path) -> None:
        self._folder = workspace
        self._lock_file = workspace / "store.lock"
        self._lock_file.touch()

    def _locked(self) -> AbstractContextManager[Any]:
        return self._file_locked()

    @contextmanager
    def _file_locked(self) -> Iterator[None]:
        # Opened each time: a lock belongs to what was opened, so threads exclude each other too.
        with self._lock_file.open("rb") as file:
            self._wait_for(file.fileno())
            yield

    def _wait_for(self, lock: int) -> None:
        take_lock(lock)

    def _path(self, session: str) -> Path:
        return self._folder / f"{hashlib.sha256(_bytes(session)).hexdigest()}.session"

    def _load(self, session: str) -> Life | None:
        path = self._path(session)
        return self._parsed(path)[1] if path.exists() else None

    def _parsed(self, path: Path) -> tuple[str, Life]:
        name, _, text = path.read_text("ascii").partition("\n")
        return bytes.fromhex(name).decode("utf-8", "surrogatepass"), Life.from_text(text)

    def _save(self, session: str, life: Life) -> None:
        fresh = self._folder / f"{uuid.uuid4().hex}.tmp"
        fresh.write_text(f"{_bytes(session).hex()}\n{life.to_text()}", "ascii")
        fresh.replace(self._path(session))

    def _names(self) -> list[str]:
        return [self._parsed(path)[0] for path in self._folder.glob("*.session")]


def take_lock(lock: int) -> None:
    """Lock a file; refused if another holds it for too long."""
    deadline = time.monotonic() + LOCK_S_MAX
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Refused("another writer holds the store") from None
            time.sleep(0.001)


def _bytes(session: str) -> bytes:
    return session.encode("utf-8", "surrogatepass")


@right
class SqliteStore(Store):
    """One SQLite file, one row for each session, one transaction for each call."""

    thread_safe: ClassVar[bool] = False
    patience_s: ClassVar[float | None] = 5 * LOCK_S_MAX
    # How its journal is kept, if not by default, and when it is synced.
    settings: ClassVar[tuple[str, str]] = ("", "OFF")

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._inherited: list[sqlite3.Connection] = []
        self._connect()

    def _connect(self) -> None:
        self._owner = os.getpid()
        self._db = sqlite3.connect(
            self._workspace / "store.db",
            timeout=LOCK_S_MAX,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            journal, synchronous = self.settings
            self._db.execute(f"PRAGMA synchronous = {synchronous}")
            if journal:
                self._db.execute(f"PRAGMA journal_mode = {journal}")
            self._create()
        except BaseException:
            self._db.close()
            raise

    def _create(self) -> None:
        with self._locked():
            self._db.execute("CREATE TABLE IF NOT EXISTS session (id BLOB PRIMARY KEY, life TEXT)")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if os.getpid() != self._owner:
            # A connection must not be used, nor closed, on both sides of a fork.
            self._inherited.append(self._db)
            self._connect()
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            raise Refused(str(error)) from error
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise

    def _load(self, session: str) -> Life | None:
        query = "SELECT life FROM session WHERE id = ?"
        row = self._db.execute(query, (_bytes(session),)).fetchone()
        return None if row is None else Life.from_text(row[0])

    def _save(self, session: str, life: Life) -> None:
        row = (_bytes(session), life.to_text())
        self._db.execute("INSERT OR REPLACE INTO session VALUES (?, ?)", row)

    def _names(self) -> list[str]:
        rows = self._db.execute("SELECT id FROM session")
        return [id_.decode("utf-8", "surrogatepass") for (id_,) in rows]

    def close(self) -> None:
        self._db.close()


_VERBS: Final = (
    *("append", "read", "pop", "trim", "clear", "undo", "snapshot", "rollback", "fork"),
    *("version", "sessions"),
)


@right
class AwaitedStore:
    """A store whose calls are awaited, and give way to other tasks before they do anything."""

    made_of: ClassVar[Callable[[Path], Store]] = ListStore
    capabilities = EVERYTHING
    reach: ClassVar[Reach] = "process"
    thread_safe = False

    def __init__(self, workspace: Path) -> None:
        self._store = type(self).made_of(workspace)

    async def append(self, session: str, messages: Messages, **options: Any) -> None:
        await asyncio.sleep(0)
        self._store.append(session, messages, **options)

    async def read(self, session: str, **options: Any) -> Messages:
        await asyncio.sleep(0)
        return self._store.read(session, **options)

    def __getattr__(self, name: str) -> Any:
        if name not in _VERBS:
            raise AttributeError(name)

        async def verb(*arguments: Any) -> Any:
            await asyncio.sleep(0)
            return getattr(self._store, name)(*arguments)

        return verb

    async def close(self) -> None:
        self._store.close()


def give_way(times: int = 1) -> None:
    """Let others run in the middle of something: the slowness of a store that holds no lock."""
    time.sleep(0.0005 * times)
