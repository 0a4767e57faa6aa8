"""A file with its writer and its readers: what the blocking and the async driver stand on."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from indelible.backends.sqlite import (
    appending,
    diagnosing,
    maintaining,
    reading,
    schema,
    sessions,
    staging,
    views,
)
from indelible.backends.sqlite.connection import Connection, Seam
from indelible.backends.sqlite.readers import Readers
from indelible.backends.sqlite.sessions import Context
from indelible.backends.sqlite.writer import Job, Writer
from indelible.core import waist
from indelible.core.cursors import derive_key
from indelible.core.limits import BATCH_ENTRIES_MAX, ENTRY_BYTES_MAX
from indelible.core.plan import Plan, Step
from indelible.core.sources import Clock
from indelible.model import Claims, Durability

WRITES: dict[type, Callable[[Context, Any], Plan[Any]]] = {
    waist.Append: appending.append,
    waist.ChangeView: views.change_view,
    waist.SaveSnapshot: views.save_snapshot,
    waist.DeleteSnapshot: views.delete_snapshot,
    waist.SetMetadata: sessions.set_metadata,
    waist.BeginStage: staging.begin_stage,
    waist.StageRows: staging.stage_rows,
    waist.ShowStage: staging.show_stage,
    waist.DropStage: staging.drop_stage,
    waist.Reclaim: maintaining.reclaim,
    waist.Erase: maintaining.erase,
    waist.Quarantine: maintaining.quarantine,
}
_READS: dict[type, Callable[[Context, Any], Plan[Any]]] = {
    waist.ReadHead: sessions.head,
    waist.Read: reading.read,
    waist.ReadOutline: reading.outline,
    waist.ReadSnapshots: views.read_snapshots,
    waist.ReadJournal: views.read_journal,
    waist.ListSessions: sessions.list_sessions,
    waist.ReadLog: reading.read_log,
    waist.ReadQuarantine: maintaining.read_quarantine,
    waist.CheckEngine: maintaining.check_engine,
}


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
        had_log = options.path.with_name(options.path.name + "-wal").exists()
        first = self._connect()
        try:
            schema.prepare(first, busy_timeout_s=options.busy_timeout_s)
        except BaseException:
            # A file that is not ours keeps the log that its own program left, and gets none of us.
            first.close(checkpoint=not had_log)
            raise
        # It stays, and writes. To close it here would copy the whole log into the file and sync it.
        self.writer = Writer(self._connect, first, on_rollback=self.context.tips.clear)
        self.readers = Readers(lambda: self._connect(read_only=True), wait_s=options.busy_timeout_s)
        self._cursor_key: bytes | None = None
        # Told after a fork, in the child, where no thread of the parent lives on.
        self.on_fork_in_child: Callable[[], None] | None = None
        _engines.add(self)

    def read(self, step: Step[Any]) -> Any:
        """Do a step that does not write rows."""
        plan = _READS.get(type(step))
        if plan is not None:
            return self.readers.run(plan(self.context, step))
        if isinstance(step, waist.ReadCursorKey):
            return self._read_cursor_key(step)
        if isinstance(step, waist.Scrub):
            return self.writer.run_outside(maintaining.scrub(self.context, step))
        if isinstance(step, waist.Diagnose):
            return diagnosing.risks(self.options.path, self.options.durability)
        if isinstance(step, waist.Nearest):
            # SQLite has nothing that compares vectors.
            return None
        assert isinstance(step, waist.Identify), step
        file = self.options.path.stat()
        return f"file {file.st_dev} {file.st_ino} {self.options.namespace}"

    def _read_cursor_key(self, step: waist.ReadCursorKey) -> bytes:
        """The key for cursors; the first one who needs it writes the file's secret."""
        if self._cursor_key is None or step.again:
            secret = self.readers.run(schema.read_secret())
            if secret is None:
                secret = self.writer.run(Job(self.context, step, schema.ensure_secret))
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
        """Whether a file is the database, or one that SQLite keeps beside it."""
        mine = self.options.path
        parts = (mine, *(mine.with_name(mine.name + end) for end in ("-wal", "-shm")))
        return path.absolute() in parts or any(
            part.exists() and path.exists() and path.samefile(part) for part in parts
        )

    def close(self) -> None:
        """Wait for what is running, then close."""
        _engines.discard(self)
        self.readers.close()
        self.writer.close()

    def _connect(self, *, read_only: bool = False) -> Connection:
        options = self.options
        return Connection(
            str(options.path),
            durability=options.durability,
            busy_timeout_s=options.busy_timeout_s,
            read_only=read_only,
            seam=options.seam,
        )


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
        engine.writer.pause()
        engine.readers.pause()
        _paused.append(engine)


def _after_fork(*, in_child: bool) -> None:
    while _paused:
        engine = _paused.pop()
        engine.readers.resume()
        engine.writer.resume(in_child=in_child)
        if in_child and engine.on_fork_in_child is not None:
            engine.on_fork_in_child()
    _forking.release()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=lambda: _after_fork(in_child=False),
    after_in_child=lambda: _after_fork(in_child=True),
)
