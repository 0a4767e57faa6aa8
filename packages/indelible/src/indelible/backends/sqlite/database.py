"""A file with its writer and its readers."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import apsw

from indelible.backends.sqlite import maintenance, risks, schema
from indelible.backends.sqlite.connection import SqliteConnection, SqliteOptions
from indelible.backends.sqlite.readers import READERS_MAX, Readers
from indelible.backends.sqlite.transaction import SqliteTransaction
from indelible.backends.sqlite.writer import SqliteWriter
from indelible.core import fork, operations
from indelible.core.cursors import derive_key
from indelible.core.handlers import READS, perform_operation
from indelible.core.limits import BATCH_ENTRIES_MAX, ENTRY_BYTES_MAX, MOVED_CHECK_S
from indelible.core.plan import Operation
from indelible.errors import FormatError, MemoryStoreBackendError, UnavailableError
from indelible.model import Claims

_MOVED = "was moved, deleted or replaced while it was open"


class SqliteDatabase:
    """A file, its writer and its readers."""

    readers_max = READERS_MAX

    def __init__(self, options: SqliteOptions) -> None:
        self._options = options
        schema.create_file(options.path)
        # SQLite keeps the log beside the file, and not beside a link to it.
        real = Path(os.path.realpath(options.path))
        had_log = real.with_name(real.name + "-wal").exists()
        first = SqliteConnection(options)
        # Identifies the file, even if the path leads to another one later.
        self._identity = _identify(options.path)
        self._identified_at = 0.0
        try:
            schema.prepare(first, busy_timeout_s=options.busy_timeout_s)
        except BaseException:
            # Leave the log of another program in place, and do not create one.
            first.close(checkpoint=not had_log)
            raise
        # It stays open and writes. Closing it would copy the whole log into the file and sync it.
        self.writer = SqliteWriter(
            self._connect, first, refuse_if_moved=self._refuse_if_moved_recently
        )
        self.readers = Readers(
            partial(self._connect, read_only=True), wait_s=options.busy_timeout_s
        )
        # Performs operations in one transaction, and answers each.
        self.write = self.writer.write
        self._cursor_key: bytes | None = None
        # SQLite must not be carried across a fork: not even a connection that is only opened in
        # the child is safe while inherited ones are there, since they share their idea of which
        # locks are held. So all are closed before a fork, and opened again when next used.
        fork.register(
            before=self._before_fork,
            after_in_parent=self._after_fork_in_parent,
            after_in_child=self._after_fork_in_child,
        )

    def read(self, op: Operation[Any]) -> Any:
        """Perform an operation that writes no rows."""
        if type(op) in READS:
            return self.readers.run(lambda db: perform_operation(SqliteTransaction(db), op))
        return self._perform_own(op)

    def _perform_own(self, op: Operation[Any]) -> Any:
        """Perform an operation that concerns no session."""
        match op:
            case operations.CheckEngine():
                problems = self.readers.run(maintenance.check_engine)
                moved = (f"{self._options.path} {_MOVED}",) if self._is_moved() else ()
                return problems + moved
            case operations.ReadCursorKey():
                return self._read_cursor_key(op)
            case operations.Scrub():
                return self._scrub()
            case operations.FindRisks():
                return risks.find_risks(self._options.path, self._options.durability)
            case _:
                assert isinstance(op, operations.Identify), op
                file = self._options.path.stat()
                return f"file {file.st_dev} {file.st_ino} {self._options.namespace}"

    def _scrub(self) -> tuple[str, ...]:
        """Rewrite the file; return what could not be removed from it."""
        try:
            return self.writer.run_outside(maintenance.scrub)
        except (MemoryStoreBackendError, FormatError) as error:
            return (f"free space inside the file, which could not be rewritten ({error.message})",)

    def _read_cursor_key(self, op: operations.ReadCursorKey) -> bytes:
        """Return the key for cursors; the first caller that needs it creates the file's secret."""
        if self._cursor_key is None or op.again:
            secret = self.readers.run(schema.read_secret)
            if secret is None:
                secret = self.writer.run_outside(schema.ensure_secret)
            self._cursor_key = derive_key(secret, self._options.namespace)
        return self._cursor_key

    def claims(self) -> Claims:
        """Return what is promised on this file."""
        return Claims(
            engine="sqlite",
            engine_version=apsw.sqlite_lib_version(),
            durability=self._options.durability,
            multi_process=True,
            ttl_clock="caller",
            entry_bytes_max=ENTRY_BYTES_MAX,
            batch_entries_max=BATCH_ENTRIES_MAX,
        )

    def close(self) -> None:
        """Wait for what is running, then close."""
        self.readers.close()
        self.writer.close()

    def _connect(self, *, read_only: bool = False) -> SqliteConnection:
        self._refuse_if_moved()
        return SqliteConnection(self._options, read_only=read_only)

    def _is_moved(self) -> bool:
        return _identify(self._options.path) != self._identity

    def _refuse_if_moved_recently(self) -> None:
        # To check the path takes a sixth of the time of an append that is not synced.
        now = time.monotonic()
        if now - self._identified_at >= MOVED_CHECK_S:
            self._refuse_if_moved()
            self._identified_at = now

    def _refuse_if_moved(self) -> None:
        """Raise if the path no longer leads to the file that was opened."""
        path = self._options.path
        if self._is_moved():
            raise UnavailableError(
                f"{path} {_MOVED}; nothing was written. What was acknowledged is in the file"
                " that was opened and in the -wal file that belongs to it. Put both back to go on,"
                " or close this store and open the file at its new place.",
                path=str(path),
                moved=True,
            )

    def _before_fork(self) -> None:
        self.writer.pause()
        self.readers.pause()

    def _after_fork_in_parent(self) -> None:
        self.readers.resume(in_child=False)
        self.writer.resume(in_child=False)

    def _after_fork_in_child(self) -> None:
        self.readers.resume(in_child=True)
        self.writer.resume(in_child=True)


def _identify(path: Path) -> tuple[Any, ...]:
    """Return the inode and the device of a file; empty if there is none."""
    try:
        return os.stat(path)[1:3]  # noqa: PTH116
    except OSError:
        return ()
