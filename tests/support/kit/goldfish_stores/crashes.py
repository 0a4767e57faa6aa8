"""Goldfish that remember until a process dies, forks, sleeps, or has its clock set."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

from memory_contract.adapter import Refused
from memory_contract.goldfish.lives import Life, Messages, copy_messages
from memory_contract.goldfish.registry import goldfish
from memory_contract.goldfish.stores import LOCK_S_MAX, FileStore, SqliteStore, give_way

# How long a lease lasts: many appends, and far less than a process may sleep.
LEASE_S: Final = 0.25
# What those claim to be back in order within who never are: so that nobody waits for long.
SOON_S: Final = 1.0


@goldfish("class: a file written in place", caught_by="kill9_under_load", patience_s=SOON_S)
class EmptiedBeforeWritten(FileStore):
    """Empties a session's file and writes it anew, so that who dies between leaves nothing."""

    def _save(self, session: str, life: Life) -> None:
        self._path(session).write_text("", "ascii")
        give_way(120)
        super()._save(session, life)


@goldfish("class: acknowledged, then written", caught_by="kill9_under_load")
class AnsweredBeforeWritten(FileStore):
    """Says yes while a thread of its own still writes; it keeps the lock until that is done."""

    def append(self, session: str, messages: Messages, **options: Any) -> None:
        batch = copy_messages(messages)
        lock = self._lock_file.open("rb")
        self._wait_for(lock.fileno())
        threading.Thread(target=self._write, args=(lock, session, batch, options)).start()

    def _write(self, lock: Any, session: str, batch: Messages, options: dict[str, Any]) -> None:
        with lock:
            give_way(60)
            life = self._alive(session)
            if life.admits(batch, options.get("key"), None):
                self._prolong(life, options.get("ttl_s"))
                life.add(batch, options.get("key"))
                self._save(session, life)


@goldfish(
    "filelock#635 and its kin: a lock file that stays",
    caught_by="kill9_under_load",
    patience_s=SOON_S,
)
class LockFileThatStays(FileStore):
    """Has the lock who made the lock file; who dies with it has it for ever."""

    @contextmanager
    def _file_locked(self) -> Iterator[None]:
        mine = self._folder / "writing.lock"
        deadline = time.monotonic() + SOON_S / 2
        while True:
            try:
                os.close(os.open(mine, os.O_CREAT | os.O_EXCL))
                break
            except FileExistsError:
                if time.monotonic() > deadline:
                    raise Refused("another writer holds the store") from None
                time.sleep(0.001)
        try:
            give_way(120)
            yield
        finally:
            mine.unlink()


@goldfish("class: a marker before the tables", caught_by="kill9_in_first_open", patience_s=SOON_S)
class MarkedBeforeMade(SqliteStore):
    """Writes down that its table is made, and makes it then."""

    def __init__(self, workspace: Path) -> None:
        self._marker = workspace / "ready"
        super().__init__(workspace)

    def _create(self) -> None:
        with self._marker.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not file.tell():
                file.write(b"ready")
                file.flush()
                give_way(200)
                super()._create()


@goldfish("sqlite3-ruby PR #558, apsw#10", caught_by="fork_safety")
class LockSharedOverFork(FileStore):
    """Opens its lock once, so that a forked child has the same lock, not one of its own."""

    def __init__(self, workspace: Path) -> None:
        super().__init__(workspace)
        self._lock = self._lock_file.open("rb")
        self._threads = threading.Lock()

    @contextmanager
    def _file_locked(self) -> Iterator[None]:
        with self._threads:
            self._wait_for(self._lock.fileno())
            try:
                yield
            finally:
                fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _save(self, session: str, life: Life) -> None:
        give_way(2)
        super()._save(session, life)

    def close(self) -> None:
        self._lock.close()


@goldfish("langgraph#8796: an owner that slept", caught_by="paused_writer")
class LeaseThatRunsOut(FileStore):
    """Takes the lock from whoever had it for too long, who does not hear of it."""

    @contextmanager
    def _file_locked(self) -> Iterator[None]:
        lease = self._folder / "lease.held"
        deadline = time.monotonic() + LOCK_S_MAX
        while not self._taken(lease):
            if time.monotonic() > deadline:
                raise Refused("another writer holds the store") from None
            time.sleep(0.001)
        try:
            yield
        finally:
            lease.unlink(missing_ok=True)

    def _taken(self, lease: Path) -> bool:
        with super()._file_locked(), contextlib.suppress(FileNotFoundError):
            if time.time() - lease.stat().st_mtime < LEASE_S:
                return False
            lease.unlink()
        with contextlib.suppress(FileExistsError):
            os.close(os.open(lease, os.O_CREAT | os.O_EXCL))
            return True
        return False

    def _save(self, session: str, life: Life) -> None:
        give_way(120)
        super()._save(session, life)


@goldfish("class: time to live by the wall clock", caught_by="clock_jumps")
class SweptByTheWallClock(FileStore):
    """Throws away whatever the clock says is over, at the first look."""

    def _locked(self) -> AbstractContextManager[Any]:
        return self._swept()

    @contextmanager
    def _swept(self) -> Iterator[None]:
        with self._file_locked():
            for path in self._folder.glob("*.session"):
                if self._parsed(path)[1].ended:
                    path.unlink()
            yield
