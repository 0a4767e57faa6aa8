"""What the plans of this backend share: context, tables of handlers, and statements."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from indelible.core.backend import Handlers
from indelible.core.checksums import compute_session_salt
from indelible.core.clock import Clock, read_clock_ms
from indelible.core.plan import Operation, Plan

R = TypeVar("R")

Row = tuple[Any, ...]
Rows = list[Row]

# How long an attempt waits for a lock, and keeps its connection from others. Then it pauses, and
# tries again until its deadline.
LOCK_WAIT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class PostgresContext:
    """What the plans of one store share."""

    namespace: bytes
    # None for the server's time, which is the rule; a caller's clock is for tests.
    clock: Clock | None

    def now_ms(self) -> int | None:
        """The caller's time, if it has one of its own."""
        return None if self.clock is None else read_clock_ms(self.clock)

    def named(self, session: str) -> tuple[bytes, bytes]:
        """The first two parameters of most statements."""
        return self.namespace, session.encode()

    def salt(self, session: str) -> int:
        """What binds the checksums of entries to their session."""
        return compute_session_salt(self.namespace.decode(), session)


def to_milliseconds(seconds: float | None) -> int | None:
    """A time to live as statements take it."""
    return None if seconds is None else math.ceil(seconds * 1000)


# Plans that only read.
READS: Final[Handlers[PostgresContext]] = Handlers()
# Plans that run inside of a transaction.
WRITES: Final[Handlers[PostgresContext]] = Handlers()
# Plans that begin with a guarded write, which commits by itself. If it wrote nothing, they go on in
# a transaction: they load the session, and the rules decide.
GUARDED_WRITES: Final[Handlers[PostgresContext]] = Handlers()


@dataclass(slots=True)
class Sql(Operation[Rows]):
    """One statement that returns rows; outside of a transaction, it only reads."""

    text: str
    params: tuple[Any, ...] = ()


@dataclass(slots=True)
class All(Operation[list[Rows]]):
    """Several `Sql` in one round trip; outside of a transaction, they read one state."""

    queries: tuple[Sql, ...]


@dataclass(slots=True)
class Fetch(Operation[Rows]):
    """One statement that reads outside of a transaction; every name in it must be qualified."""

    text: str
    params: tuple[Any, ...]


@dataclass(slots=True)
class Call(Operation[Row]):
    """A call of a function that writes, with its row; outside of a transaction, it commits.

    The connection adds the function's first argument: how long it may wait for a lock.
    """

    text: str
    params: tuple[Any, ...]
    wait_s_max: float = LOCK_WAIT_S


@dataclass(slots=True)
class Do(Operation[None]):
    """One statement without a result. It is sent together with the next that has one."""

    text: str
    params: tuple[Any, ...] = ()


@dataclass(slots=True)
class RunScript(Operation[None]):
    """Several statements as they stand in a file."""

    text: str


class Begin(Operation[None]):
    """Begin a transaction that writes. It is sent together with the next statement."""

    __slots__ = ()


class Commit(Operation[None]):
    """Commit it."""

    __slots__ = ()


# Independent of the defaults of server and role: each statement sees all that was committed before
# it. So a query behind the lock of a session's row sees what the last holder of the lock committed.
BEGIN_WRITE: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
# One state for all statements.
BEGIN_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# Otherwise an operator that another role made in `public`, and that takes exactly the types at
# hand, is preferred to PostgreSQL's own, and runs as this role. Set by each transaction: a pooler
# may give each one another server process. Statements outside of one qualify all that they name.
SEARCH_PATH: Final = "pg_catalog, pg_temp"
FIX_SEARCH_PATH: Final = f"SET LOCAL search_path = {SEARCH_PATH}"
# Local to the transaction, so that a pooler may give the connection to other clients afterwards. A
# client that stops in the middle of one does not hold a session's row beyond its own deadline.
BOUNDS: Final = f"""
    SELECT pg_catalog.set_config('search_path', '{SEARCH_PATH}', true),
        pg_catalog.set_config('lock_timeout', $1, true),
        pg_catalog.set_config('statement_timeout', $2, true),
        pg_catalog.set_config('idle_in_transaction_session_timeout', $2, true)"""


def is_write(op: Operation[Any]) -> bool:
    """Whether an operation changes anything."""
    return type(op) in WRITES or type(op) in GUARDED_WRITES


def build_plan(context: PostgresContext, op: Operation[R]) -> Plan[R]:
    """The plan that performs an operation."""
    if type(op) in READS:
        return READS.plan(context, op)
    if type(op) in GUARDED_WRITES:
        return GUARDED_WRITES.plan(context, op)
    return in_transaction(WRITES.plan(context, op))


def send_nothing() -> Plan[None]:
    """Do nothing: running it needs a connection all the same."""
    yield from ()


def in_transaction(plan: Plan[R]) -> Plan[R]:
    """Put one transaction around a plan that writes; if it fails, the client rolls back."""
    yield Begin()
    result = yield from plan
    yield Commit()
    return result


def format_lock_wait(left_s: float, wait_s_max: float = LOCK_WAIT_S) -> str:
    """Milliseconds to wait for a lock: the server must give up and say so before its caller."""
    return format_milliseconds(min(left_s / 2, wait_s_max))


def format_milliseconds(seconds: float) -> str:
    """A bound as the server takes it; 0 would mean none."""
    return str(max(1, int(seconds * 1000)))
