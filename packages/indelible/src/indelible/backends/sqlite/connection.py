"""One connection to the file; every statement passes through `execute` or `execute_many`."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import apsw

from indelible.backends.sqlite import checksums
from indelible.backends.sqlite.errors import translate_error
from indelible.core.clock import Clock, read_clock_ms
from indelible.core.limits import ROW_BYTES_MAX
from indelible.model import Durability

# SQLite's own busy timeout starves writers: it backs off to 100 ms while others slip in. Short
# random waits let everyone through.
WAIT_S_MAX = 0.002

BEGIN_WRITE = "BEGIN IMMEDIATE"
BEGIN_READ = "BEGIN"
COMMIT = "COMMIT"
# Ends a transaction that only read; if it fails, nothing is lost.
END_READ = "END"
ROLLBACK = "ROLLBACK"

# A file may come from somewhere else: no trigger or view of its own runs, double quotes never
# make a string, and its pages and schema are written in no way but by SQL.
_CONFIG = {
    apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER: 0,
    apsw.SQLITE_DBCONFIG_ENABLE_VIEW: 0,
    apsw.SQLITE_DBCONFIG_DEFENSIVE: 1,
    apsw.SQLITE_DBCONFIG_DQS_DDL: 0,
    apsw.SQLITE_DBCONFIG_DQS_DML: 0,
    # Otherwise SQLite plans a statement again for each new bound of a range, which takes longer
    # than reading twenty entries. Our plans do not depend on the bound values.
    apsw.SQLITE_DBCONFIG_ENABLE_QPSG: 1,
}
# Well above what our own statements need. VACUUM attaches one database.
_LIMITS = {
    apsw.SQLITE_LIMIT_LENGTH: ROW_BYTES_MAX,
    apsw.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    apsw.SQLITE_LIMIT_EXPR_DEPTH: 100,
    apsw.SQLITE_LIMIT_ATTACHED: 1,
    apsw.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
}

Rows = list[tuple[Any, ...]]
Params = tuple[Any, ...] | dict[str, Any]
# Called around every statement with its text: crash and fault tests use it, and nothing else does.
Seam = Callable[[str, Callable[[], Any]], Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class SqliteOptions:
    """How a file is opened."""

    path: Path
    namespace: str
    durability: Durability
    busy_timeout_s: float
    clock: Clock
    # Whether entries are added to the index of words.
    search: bool = True
    seam: Seam | None = None


class SqliteConnection:
    """A connection with its waits, its durability, and its errors translated."""

    def __init__(self, options: SqliteOptions, *, read_only: bool = False) -> None:
        self.path = str(options.path)
        self.namespace = options.namespace
        self.indexes_text = options.search
        self._clock = options.clock
        self._busy_timeout_s = options.busy_timeout_s
        self._waiting_since = 0.0
        self._seam = options.seam
        self._has_sqlite_vec: bool | None = None
        try:
            self._db = apsw.Connection(self.path, flags=apsw.SQLITE_OPEN_READWRITE)
        except apsw.Error as error:
            raise translate_error(error, path=self.path) from error
        try:
            # One cursor for all statements: each has all its rows before the next begins.
            self._cursor = self._db.cursor()
            self._db.set_busy_handler(self._wait)
            checksums.register(self._db)
            for option, value in _CONFIG.items():
                self._db.config(option, value)
            for limit, value in _LIMITS.items():
                self._db.limit(limit, value)
            level = "FULL" if options.durability.covers(Durability.POWER) else "NORMAL"
            self._db.execute(
                # On macOS, a sync does not reach the platter unless it is asked to.
                f"PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON;"
                f"PRAGMA synchronous = {level}; PRAGMA secure_delete = ON;"
                f" PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;"
                f" PRAGMA query_only = {int(read_only)}"
            ).fetchall()  # A statement only runs when the rows of the one before it were read.
        except apsw.Error as error:
            self._db.close(True)
            raise translate_error(error, path=self.path) from error

    def execute(self, text: str, params: Params = ()) -> Rows:
        """Run one statement and return its rows."""
        try:
            if self._seam is None:
                return self._cursor.execute(text, params).fetchall()
            rows: Rows = self._seam(text, lambda: self._cursor.execute(text, params).fetchall())
            return rows
        except (apsw.Error, UnicodeDecodeError) as error:
            raise translate_error(error, path=self.path, committing=text == COMMIT) from error

    def execute_many(self, text: str, rows: list[tuple[Any, ...]]) -> None:
        """Run one statement for many rows of parameters."""
        try:
            if self._seam is None:
                self._cursor.executemany(text, rows)
            else:
                self._seam(text, lambda: self._cursor.executemany(text, rows))
        except (apsw.Error, UnicodeDecodeError) as error:
            raise translate_error(error, path=self.path) from error

    def load_sqlite_vec(self) -> bool:
        """Load the extension sqlite-vec, which compares vectors; return whether it is there."""
        if self._has_sqlite_vec is None:
            self._has_sqlite_vec = False
            # It may be missing, or for another machine; or this SQLite loads no extensions.
            with suppress(ImportError, AttributeError, apsw.Error):
                path = import_module("sqlite_vec").loadable_path()
                self._db.enable_load_extension(True)
                try:
                    self._db.load_extension(path)
                    self._has_sqlite_vec = True
                finally:
                    self._db.enable_load_extension(False)
        return self._has_sqlite_vec

    def now_ms(self) -> int:
        """Return the time, as rows keep it."""
        return read_clock_ms(self._clock)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._db.in_transaction

    def close(self, *, checkpoint: bool = True) -> None:
        """Close; without a checkpoint if another process, such as a child, still uses the file."""
        # What was acknowledged is in the log already. If the checkpoint fails here, the next open
        # does it.
        with suppress(apsw.Error):
            if not checkpoint:
                self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            self._db.close(True)

    def _wait(self, tries: int) -> bool:
        """Wait a little for another writer; give up after the time allowed."""
        now = time.monotonic()
        if tries == 0:
            self._waiting_since = now
        if now - self._waiting_since > self._busy_timeout_s:
            return False
        time.sleep(random.uniform(0, WAIT_S_MAX))  # noqa: S311 (spreads writers, hides nothing)
        return True
