"""A file with its writer and its readers: what the blocking and the async driver stand on."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from indelible.backends.sqlite import (
    append,
    files,
    maintenance,
    read,
    risks,
    schema,
    sessions,
    staging,
    views,
)
from indelible.backends.sqlite.connection import Connection, Seam
from indelible.backends.sqlite.readers import Readers
from indelible.backends.sqlite.sessions import Context
from indelible.backends.sqlite.writer import Job, Writer
from indelible.core import operations
from indelible.core.clock import Clock
from indelible.core.cursors import derive_key
from indelible.core.limits import BATCH_ENTRIES_MAX, ENTRY_BYTES_MAX, MOVED_CHECK_S
from indelible.core.plan import Operation, Plan
from indelible.errors import UnavailableError
from indelible.model import Claims, Durability

WRITES: dict[type, Callable[[Context, Any], Plan[Any]]] = {
    operations.Append: append.append,
    operations.ChangeView: views.change_view,
    operations.Rollback: views.rollback,
    operations.FindChange: views.find_change,
    operations.SaveSnapshot: views.save_snapshot,
    operations.DeleteSnapshot: views.delete_snapshot,
    operations.SetMetadata: sessions.set_metadata,
    operations.BeginStage: staging.begin_stage,
    operations.StageRows: staging.stage_rows,
    operations.ShowStage: staging.show_stage,
    operations.DropStage: staging.drop_stage,
    operations.Reclaim: maintenance.reclaim,
    operations.Erase: maintenance.erase,
    operations.Quarantine: maintenance.quarantine,
}
_READS: dict[type, Callable[[Context, Any], Plan[Any]]] = {
    operations.ReadHead: sessions.head,
    operations.Read: read.read,
    operations.ReadOutline: read.outline,
    operations.ReadSnapshots: views.read_snapshots,
    operations.ReadJournal: views.read_journal,
    operations.ListSessions: sessions.list_sessions,
    operations.ReadLog: read.read_log,
    operations.ReadQuarantine: maintenance.read_quarantine,
    operations.CheckEngine: maintenance.check_engine,
    operations.CheckSession: maintenance.check_session,
}
_MOVED = "was moved, deleted or replaced while it was open"


@dataclass(frozen=True, kw_only=True, slots=True)
class SqliteOptions:
    """How a file is opened."""

    path: Path
    namespace: str
    durability: Durability
    busy_timeout_s: float
    clock: Clock
    # Tests stand here: it is called around every call to SQLite.
    seam: Seam | None = None


class Engine:
    """A file, its writer and its readers; both drivers stand on it."""

    def __init__(self, options: SqliteOptions) -> None:
        self.options = options
        self.context = Context(options.namespace, options.clock)
        schema.create_file(options.path)
        self._path = str(options.path)
        # Found now: a symbolic link may lead elsewhere later, the open database does not.
        self._files = files.list_files(options.path)
        had_log = options.path.with_name(options.path.name + "-wal").exists()
        first = self._open()
        # Which file it is, whatever the path leads to later.
        self._identity = _identity_of(self._path)
        self._identified_at = 0.0
        try:
            schema.prepare(first, busy_timeout_s=options.busy_timeout_s)
        except BaseException:
            # A file that is not ours keeps the log that its own program left, and gets none of us.
            first.close(checkpoint=not had_log)
            raise
        # It stays, and writes. To close it here would copy the whole log into the file and sync it.
        self.writer = Writer(
            self._connect,
            first,
            on_rollback=self.context.tips.clear,
            refuse_if_moved=self._refuse_if_moved_lately,
        )
        self.readers = Readers(lambda: self._connect(read_only=True), wait_s=options.busy_timeout_s)
        self._cursor_key: bytes | None = None
        # Told after a fork, in the child, where no thread of the parent lives on.
        self.on_fork_in_child: Callable[[], None] | None = None
        _engines.add(self)

    def read(self, op: Operation[Any]) -> Any:
        """Do a step that does not write rows."""
        plan = _READS.get(type(op))
        if plan is not None:
            found = self.readers.run(plan(self.context, op))
            if (
                isinstance(op, operations.CheckEngine)
                and _identity_of(self._path) != self._identity
            ):
                found += (f"{self._path} {_MOVED}",)
            return found
        if isinstance(op, operations.ReadCursorKey):
            return self._read_cursor_key(op)
        if isinstance(op, operations.Scrub):
            return self.writer.run_outside(maintenance.scrub(self.context, op))
        if isinstance(op, operations.FindRisks):
            return risks.risks(self.options.path, self.options.durability)
        if isinstance(op, operations.FindNearest):
            # SQLite has nothing that compares vectors.
            return None
        assert isinstance(op, operations.Identify), op
        file = self.options.path.stat()
        return f"file {file.st_dev} {file.st_ino} {self.options.namespace}"

    def _read_cursor_key(self, op: operations.ReadCursorKey) -> bytes:
        """The key for cursors; the first one who needs it writes the file's secret."""
        if self._cursor_key is None or op.again:
            secret = self.readers.run(schema.read_secret())
            if secret is None:
                secret = self.writer.run(Job(self.context, op, schema.ensure_secret))
            self._cursor_key = derive_key(secret, self.options.namespace)
        return self._cursor_key

    def claims(self) -> Claims:
        """What is promised on this file."""
        return Claims(
            engine="sqlite",
            engine_version=apsw.sqlite_lib_version(),
            durability=self.options.durability,
            multi_process=True,
            ttl_clock="caller",
            entry_bytes_max=ENTRY_BYTES_MAX,
            batch_entries_max=BATCH_ENTRIES_MAX,
        )

    def owns(self, path: Path) -> bool:
        """Whether a path leads to the database, or to a file that SQLite keeps beside it."""
        return files.is_one_of(path, self._files)

    def close(self) -> None:
        """Wait for what is running, then close."""
        _engines.discard(self)
        self.readers.close()
        self.writer.close()

    def _connect(self, *, read_only: bool = False) -> Connection:
        self._refuse_if_moved()
        return self._open(read_only=read_only)

    def _open(self, *, read_only: bool = False) -> Connection:
        options = self.options
        return Connection(
            self._path,
            durability=options.durability,
            busy_timeout_s=options.busy_timeout_s,
            read_only=read_only,
            seam=options.seam,
        )

    def _refuse_if_moved_lately(self) -> None:
        # A look at the path takes a sixth of the time of an append that is not synced.
        now = time.monotonic()
        if now - self._identified_at >= MOVED_CHECK_S:
            self._refuse_if_moved()
            self._identified_at = now

    def _refuse_if_moved(self) -> None:
        """Raise if the path no longer leads to the file that was opened."""
        if _identity_of(self._path) != self._identity:
            raise UnavailableError(
                f"{self._path} {_MOVED}; nothing was written. What was acknowledged is in the file"
                " that was opened and in the -wal file that belongs to it. Put both back to go on,"
                " or close this store and open the file at its new place.",
                path=self._path,
                moved=True,
            )


def _identity_of(path: str) -> tuple[Any, ...]:
    """The inode and the device of a file; empty if there is none."""
    try:
        return os.stat(path)[1:3]  # noqa: PTH116
    except OSError:
        return ()


# SQLite must not be carried across a fork: not even a connection that is only opened in the child
# is safe while inherited ones are there, since they share their idea of which locks are held. So
# every engine lets go of its file before a fork and opens it again when it is next used.
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_paused: list[Engine] = []
# Two threads may fork at once; each pauses and resumes by itself.
_forking = threading.Lock()


def _before_fork() -> None:
    _forking.acquire()
    for engine in sorted(_engines, key=id):
        # First, so that an engine goes on even if its pause is interrupted.
        _paused.append(engine)
        engine.writer.pause()
        engine.readers.pause()


def _after_fork(*, in_child: bool) -> None:
    while _paused:
        engine = _paused.pop()
        engine.readers.resume(in_child=in_child)
        engine.writer.resume(in_child=in_child)
        if in_child and engine.on_fork_in_child is not None:
            engine.on_fork_in_child()
    _forking.release()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=lambda: _after_fork(in_child=False),
    after_in_child=lambda: _after_fork(in_child=True),
)
