"""The options of a store that statements need, and parts of statements."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from indelible.backends.postgres.arrays import IntArray
from indelible.core.checksums import compute_session_salt
from indelible.core.clock import Clock, read_clock_ms
from indelible.view import Extents

Row = tuple[Any, ...]
Rows = list[Row]

# How long an attempt waits for a lock, and occupies its connection. Then it gives the connection
# back, pauses, and tries again until its deadline.
LOCK_WAIT_S: Final = 1.0


@dataclass(slots=True)
class PostgresContext:
    """The options of a store that its statements need."""

    namespace: bytes
    # None for the server's time; a caller's clock is for tests.
    clock: Clock | None
    # Whether entries are indexed by their words.
    search: bool = True
    # The key that signs cursors, once it was read.
    cursor_key: bytes | None = None

    def now_ms(self) -> int | None:
        """Return the time of the caller's clock, if there is one."""
        return None if self.clock is None else read_clock_ms(self.clock)

    def get_primary_key(self, session: str) -> tuple[bytes, bytes]:
        """Return the key of a session's row: the first two parameters of most statements."""
        return self.namespace, session.encode()

    def compute_salt(self, session: str) -> int:
        """Compute the salt that binds checksums of entries to their session."""
        return compute_session_salt(self.namespace.decode(), session)


def to_milliseconds(seconds: float | None) -> int | None:
    """Convert a time to live to milliseconds."""
    return None if seconds is None else math.ceil(seconds * 1000)


def format_expected(version: str | None) -> str | None:
    """Format an expected version. Text that the server may not accept matches no version."""
    return version if version is None or (version.isascii() and version.isprintable()) else ""


# `unnest` of several arrays is syntax, and always means the function of pg_catalog.
IN_MANY: Final = """
    FROM unnest($2::bigint[], $3::bigint[]) AS extent (start, stop)
    JOIN indelible.entry ON session OPERATOR(pg_catalog.=) $1
        AND position OPERATOR(pg_catalog.>=) start AND position OPERATOR(pg_catalog.<) stop"""
# The checksum that the content of an entry must have if its row is where it was written.
CONTENT: Final = """indelible.content_at(
    checksum, position, written_at, deadline, generation, batch, {salt}::bigint)"""
# Explicit, since server and role may have other defaults. Each statement sees all that was
# committed before it, so a query behind the lock of a session sees what the last holder committed.
BEGIN_WRITE: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
# All statements see the same state.
BEGIN_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# Otherwise an operator that another role created in `public`, for exactly the types of a call, is
# preferred to PostgreSQL's own, and runs as this role. Each transaction sets it, because a pooler
# may give each one another server process. Statements outside of transactions qualify all names.
SEARCH_PATH: Final = "pg_catalog, pg_temp"
FIX_SEARCH_PATH: Final = f"SET LOCAL search_path = {SEARCH_PATH}"
# Local to the transaction, since a pooler may give the connection to other clients afterwards. A
# client that stops during a transaction does not hold a session's lock beyond its own deadline.
# A commit that did not wait for its standby is a warning, which a role may have switched off.
BOUNDS: Final = f"""
    SELECT pg_catalog.set_config('search_path', '{SEARCH_PATH}', true),
        pg_catalog.set_config('client_min_messages', 'warning', true),
        pg_catalog.set_config('lock_timeout', $1, true),
        pg_catalog.set_config('statement_timeout', $2, true),
        pg_catalog.set_config('idle_in_transaction_session_timeout', $2, true)"""


def format_lock_wait(left_s: float, wait_s_max: float = LOCK_WAIT_S) -> str:
    """Format how long to wait for a lock: the server must give up before its caller does."""
    return format_milliseconds(min(left_s / 2, wait_s_max))


def format_milliseconds(seconds: float) -> str:
    """Format a time limit in milliseconds. It is never 0, which would mean no limit."""
    return str(max(1, int(seconds * 1000)))


def split_bounds(extents: Extents) -> tuple[IntArray, IntArray]:
    """Convert extents to the parameters of `IN_MANY`."""
    return IntArray(start for start, _ in extents), IntArray(stop for _, stop in extents)
