"""Goldfish that lose or damage data when their disk fails, and a correct store beside them."""

from __future__ import annotations

import contextlib
import fcntl
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from memory_contract.goldfish.lives import EVERYTHING, Life, Messages
from memory_contract.goldfish.registry import goldfish
from memory_contract.goldfish.stores import FileStore, SqliteStore, take_lock


class WalFull(SqliteStore):
    """A write-ahead log that is synced at every commit."""

    capabilities = EVERYTHING | {"checksum"}
    settings: ClassVar[tuple[str, str]] = ("WAL", "FULL")


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
        try:
            take_lock(file.fileno())
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
