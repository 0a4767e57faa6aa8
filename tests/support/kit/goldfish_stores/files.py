"""Further goldfish that lose or damage data when their disk fails."""

from __future__ import annotations

import contextlib
import fcntl
import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memory_contract.adapter import Refused
from memory_contract.goldfish.lives import Life, Messages, copy_messages
from memory_contract.goldfish.registry import goldfish
from tests.support.disk_goldfish import WalFull


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
        batch = copy_messages(messages)
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


@goldfish("a batch that is committed row by row", caught_by="io_error_loop")
class NothingHappenedItSays(WalFull):
    """Commits a batch message by message, and when the disk fails half-way says: not written."""

    capabilities = frozenset({"list", "fields"})

    def append(self, session: str, messages: Messages) -> None:  # type: ignore[override]
        batch = copy_messages(messages)
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


@goldfish("rows without a checksum", caught_by="damaged_file_is_loud")
class UncheckedText(WalFull):
    """Says that it notices changed bytes, and gives back whatever the disk gives."""

    def _load(self, session: str) -> Life | None:
        query = "SELECT life FROM session WHERE id = ?"
        row = self._db.execute(query, (session.encode("utf-8", "surrogatepass"),)).fetchone()
        return None if row is None else Life(**json.loads(row[0].partition(" ")[2]))
