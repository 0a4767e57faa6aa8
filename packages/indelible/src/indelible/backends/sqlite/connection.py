"""One connection, and the one seam through which every call to the engine passes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import apsw

from indelible.backends.sqlite import checksums
from indelible.backends.sqlite.errors import translate_error
from indelible.core.limits import ROW_BYTES_MAX
from indelible.core.plan import Operation, Plan
from indelible.model import Durability

# SQLite's own busy timeout starves writers: it backs off to 100 ms while others slip in. Short
# random waits let everyone through.
WAIT_S_MAX = 0.002

# A file may come from somewhere else: no trigger or view of its own runs, double quotes never
# make a string, and its pages and schema are written in no way but by SQL.
_CONFIG = {
    apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER: 0,
    apsw.SQLITE_DBCONFIG_ENABLE_VIEW: 0,
    apsw.SQLITE_DBCONFIG_DEFENSIVE: 1,
    apsw.SQLITE_DBCONFIG_DQS_DDL: 0,
    apsw.SQLITE_DBCONFIG_DQS_DML: 0,
    # Else every new bound of a range has its statement planned anew, which takes longer than to
    # read twenty entries. Our plans do not depend on what is bound.
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


@dataclass(slots=True)
class Sql(Operation[Rows]):
    """One statement, answered with its rows."""

    text: str
    params: tuple[Any, ...] | dict[str, Any] = ()

    def run(self, cursor: apsw.Cursor) -> Rows:
        """Do it."""
        return cursor.execute(self.text, self.params).fetchall()


@dataclass(slots=True)
class Do(Operation[None]):
    """One statement that answers nothing."""

    text: str
    params: tuple[Any, ...] | None = None

    def run(self, cursor: apsw.Cursor) -> None:
        """Do it."""
        cursor.execute(self.text, self.params)


@dataclass(slots=True)
class DoCounted(Operation[int]):
    """One statement of a transaction, answered with how many rows it changed."""

    text: str
    params: tuple[Any, ...]

    def run(self, cursor: apsw.Cursor) -> int:
        """Do it."""
        cursor.execute(self.text, self.params)
        return cursor.connection.changes()


class DoAlone(DoCounted):
    """One statement that is a transaction of its own, answered with how many rows it changed."""

    __slots__ = ()


@dataclass(slots=True)
class SqlMany(Operation[None]):
    """One statement that answers nothing, for many rows of parameters."""

    text: str
    params: list[tuple[Any, ...]]

    def run(self, cursor: apsw.Cursor) -> None:
        """Do it."""
        cursor.executemany(self.text, self.params)


BEGIN_WRITE = Do("BEGIN IMMEDIATE")
BEGIN_READ = Do("BEGIN")
COMMIT = Do("COMMIT")
# Nothing is at stake when a transaction ends that only read.
END_READ = Do("COMMIT")
ROLLBACK = Do("ROLLBACK")

# Called around every engine call: crash and fault tests stand here, and nothing else does.
Seam = Callable[[Operation[Any], Callable[[], Any]], Any]


class Connection:
    """A connection with its waits, its durability, and its errors translated."""

    def __init__(
        self,
        path: str,
        *,
        durability: Durability,
        busy_timeout_s: float,
        read_only: bool = False,
        seam: Seam | None = None,
    ) -> None:
        self.path = path
        self._busy_timeout_s = busy_timeout_s
        self._waiting_since = 0.0
        self._seam = seam
        try:
            self._db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
        except apsw.Error as error:
            raise translate_error(error, path=path) from error
        try:
            # One for all steps, since each has all its rows before the next begins.
            self._cursor = self._db.cursor()
            self._db.set_busy_handler(self._wait)
            checksums.register(self._db)
            for option, value in _CONFIG.items():
                self._db.config(option, value)
            for limit, value in _LIMITS.items():
                self._db.limit(limit, value)
            level = "FULL" if durability.covers(Durability.POWER) else "NORMAL"
            self._db.execute(
                # On macOS, a sync that does not reach the platter unless it is asked to.
                f"PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON;"
                f"PRAGMA synchronous = {level}; PRAGMA secure_delete = ON;"
                f" PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;"
                f" PRAGMA query_only = {int(read_only)}"
            ).fetchall()  # Some answer with a row, and what follows is only run when it was read.
        except apsw.Error as error:
            self._db.close(True)
            raise translate_error(error, path=path) from error

    def execute(self, op: Any) -> Any:
        """Do one step."""
        try:
            if self._seam is not None:
                return self._seam(op, lambda: op.run(self._cursor))
            return op.run(self._cursor)
        except (apsw.Error, UnicodeDecodeError) as error:
            committing = op is COMMIT or type(op) is DoAlone
            raise translate_error(error, path=self.path, committing=committing) from error

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return bool(self._db.in_transaction)

    def close(self, *, checkpoint: bool = True) -> None:
        """Close; without a checkpoint where another process, or a child, goes on with the file."""
        # What was acknowledged is in the log already; a checkpoint that fails here is done by
        # whoever opens the file next.
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


def read_transaction(plan: Plan[Any]) -> Plan[Any]:
    """Put one transaction around a plan that reads; whoever drives it rolls back what is left."""
    yield BEGIN_READ
    result = yield from plan
    yield END_READ
    return result
