"""Goldfish that lose or damage data when their disk fails, and a correct store beside them."""

from __future__ import annotations

import contextlib
import fcntl
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from memory_contract.adapter import Refused
from memory_contract.goldfish.lives import EVERYTHING, Life, Messages, copied
from memory_contract.goldfish.registry import goldfish
from memory_contract.goldfish.stores import LOCK_S_MAX, FileStore, SqliteStore


class WalFull(SqliteStore):
    """A write-ahead log that is synced at every commit."""

    capabilities = EVERYTHING | {"checksum"}
    settings: ClassVar[tuple[str, str]] = ("WAL", "FULL")

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._connect()

    def _connect(self) -> None:
        self._db = sqlite3.connect(
            self._workspace / "store.db",
            timeout=LOCK_S_MAX,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            journal, synchronous = self.settings
            self._db.execute(f"PRAGMA synchronous = {synchronous}")
            self._db.execute(f"PRAGMA journal_mode = {journal}")
            self._create()
        except BaseException:
            self._db.close()
            raise

    @contextmanager
    def _locked(self) -> Iterator[None]:
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


@goldfish(
    "WAL and synchronous=NORMAL, the pair that every tutorial names",
    caught_by="power_loss",
    durability="power",
)
class WalNormalClaimingPower(WalFull):
    """Syncs its log at checkpoints alone, and says that every commit survives a power cut."""

    settings = ("WAL", "NORMAL")


@goldfish(
    "SQLite's default: a journal whose deletion is synced by nobody",
    caught_by="power_loss",
    durability="power",
)
class UnsyncedFolder(WalFull):
    """Deletes its journal to commit and does not sync the folder: the journal can come back."""

    settings = ("DELETE", "FULL")


@goldfish(
    "synchronous=OFF for the sake of a benchmark", caught_by="power_loss", durability="process"
)
class NeverSynced(WalFull):
    """Never syncs, so that a power cut leaves a file that nobody can read."""

    settings = ("DELETE", "OFF")


@goldfish("a yes that was sent before the commit", caught_by="kill_at_every_step")
class AcknowledgedBeforeCommit(WalFull):
    """Says yes and commits a moment later, in a thread, while everybody else waits for the lock."""

    settings = ("DELETE", "FULL")

    def __init__(self, workspace: Path) -> None:
        self._turn = threading.Lock()
        super().__init__(workspace)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # Until the commit before this one is done.
        with self._turn, super()._locked():
            yield

    def append(self, session: str, messages: Messages, **options: Any) -> None:
        batch = copied(messages)
        if not batch:
            return
        self._turn.acquire()
        try:
            self._db.execute("BEGIN EXCLUSIVE")
            life = self._alive(session)
            if life.admits(batch, options.get("key"), options.get("expected")):
                self._prolong(life, options.get("ttl_s"))
                life.add(batch, options.get("key"))
                self._save(session, life)
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            self._turn.release()
            raise
        threading.Thread(target=self._commit).start()

    def _commit(self) -> None:
        try:
            time.sleep(0.002)
            self._db.execute("COMMIT")
        finally:
            self._turn.release()

    def close(self) -> None:
        with self._turn:
            super().close()


@goldfish("LangChain's FileChatMessageHistory", caught_by="kill_at_every_step")
class WrittenInPlace(FileStore):
    """Empties its file and then fills it, instead of putting a new one in its place."""

    def _save(self, session: str, life: Life) -> None:
        self._path(session).write_text(f"{session.encode().hex()}\n{life.to_text()}", "ascii")


@goldfish("a start-up script that removes stale lock and log files", caught_by="kill_at_every_step")
class LogRemovedAtStart(WalFull):
    """Takes the log that a killed process left behind for rubbish, and deletes it."""

    def _connect(self) -> None:
        self._present = (self._workspace / "present").open("wb")
        self._tidied_up()
        super()._connect()

    def _tidied_up(self) -> None:
        with contextlib.suppress(BlockingIOError):
            # Nobody else is here: tidy up.
            fcntl.flock(self._present, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for left in self._workspace.glob("store.db-*"):
                left.unlink()
        fcntl.flock(self._present, fcntl.LOCK_SH)

    def close(self) -> None:
        super().close()
        self._present.close()


@goldfish(
    "a repair that deletes what it cannot read",
    caught_by="io_error_in_recovery",
    durability="process",
)
class LogRemovedAfterAnError(LogRemovedAtStart):
    """Blames the log that a killed process left behind for an error of its disk, and deletes it."""

    def _connect(self) -> None:
        self._present = (self._workspace / "present").open("wb")
        fcntl.flock(self._present, fcntl.LOCK_SH)
        try:
            super(LogRemovedAtStart, self)._connect()
        except sqlite3.OperationalError:
            self._tidied_up()
            super(LogRemovedAtStart, self)._connect()


@goldfish("openai-agents PR #4163 and #4202", caught_by="io_error_loop")
class LockKeptAfterAnError(WalFull):
    """Lets go of its lock when all went well and when it refuses, but not when its disk fails."""

    @contextmanager
    def _locked(self) -> Iterator[None]:
        file = (self._workspace / "writer.lock").open("wb")
        deadline = time.monotonic() + LOCK_S_MAX
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    file.close()
                    raise Refused("another writer holds the store") from None
                time.sleep(0.001)
        try:
            with super()._locked():
                yield
        except sqlite3.Error:
            self._held = file
            raise
        except BaseException:
            file.close()
            raise
        file.close()


@goldfish("an except clause that logs and goes on", caught_by="disk_full_loop")
class SwallowedDiskFull(WalFull):
    """Takes a full disk for something that will pass, and says nothing of it."""

    def append(self, session: str, messages: Messages, **options: Any) -> None:
        try:
            super().append(session, messages, **options)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                raise


@goldfish("a batch that is committed row by row", caught_by="io_error_loop")
class NothingHappenedItSays(WalFull):
    """Commits a batch message by message, and when the disk fails half-way says: not written."""

    capabilities = frozenset({"list", "fields"})

    def append(self, session: str, messages: Messages) -> None:  # type: ignore[override]
        batch = copied(messages)
        with self._alone():
            for message in batch:
                try:
                    super().append(session, [message])
                except sqlite3.OperationalError as error:
                    raise Refused(f"nothing was written: {error}") from error

    def read(self, session: str, **options: Any) -> Messages:
        with self._alone():
            return super().read(session, **options)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with (self._workspace / "batch.lock").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


@goldfish(
    "a cache library that begins anew when its file is unreadable", caught_by="damaged_file_is_loud"
)
class BegunAnew(WalFull):
    """Puts a file that it cannot read aside and begins with an empty one."""

    def _connect(self) -> None:
        try:
            super()._connect()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            for path in self._workspace.glob("store.db*"):
                path.unlink()
            super()._connect()


@goldfish("rows without a checksum", caught_by="damaged_file_is_loud")
class UncheckedText(WalFull):
    """Says that it notices changed bytes, and gives back whatever the disk gives."""

    def _load(self, session: str) -> Life | None:
        query = "SELECT life FROM session WHERE id = ?"
        row = self._db.execute(query, (session.encode("utf-8", "surrogatepass"),)).fetchone()
        return None if row is None else Life.unchecked(row[0])
