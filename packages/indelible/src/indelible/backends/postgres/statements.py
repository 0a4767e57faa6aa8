"""What plans ask of a connection: statements, alone or inside one transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from indelible.backends.postgres.named import Statement
from indelible.core.plan import Operation, Plan

Row = tuple[Any, ...]
Rows = list[Row]


@dataclass(slots=True)
class Sql(Operation[Rows]):
    """One statement, answered with its rows."""

    text: str
    params: tuple[Any, ...] = ()


@dataclass(slots=True)
class All(Operation[list[Rows]]):
    """Statements that do not wait for one another: one round trip, and outside one state."""

    queries: tuple[Sql, ...]


@dataclass(slots=True)
class Do(Operation[None]):
    """One statement that answers nothing; it travels with the next one that does."""

    text: str
    params: tuple[Any, ...] = ()


@dataclass(slots=True)
class DoAlone(Operation[Rows]):
    """One statement that writes and commits by itself, answered with its rows."""

    text: str
    params: tuple[Any, ...]


@dataclass(slots=True)
class Call(Operation[str | None]):
    """A call of one of the schema's functions, which commits by itself; answered with its text."""

    statement: Statement
    values: list[bytes | None]


@dataclass(slots=True)
class Fetch(Operation[Rows]):
    """A query that only reads, outside of a transaction, answered with its rows."""

    statement: Statement
    values: list[bytes | None]


@dataclass(slots=True)
class Script(Operation[None]):
    """Several statements as they stand in a file."""

    text: str


class Begin(Operation[None]):
    """Begin a transaction that writes."""

    __slots__ = ()


class Commit(Operation[None]):
    """Commit it."""

    __slots__ = ()


BEGIN: Final = Begin()
COMMIT: Final = Commit()

# Whatever the server's or the role's defaults are: each statement sees what was committed before
# it, so that a look behind the lock of a session's row sees all that its holder left.
BEGIN_WRITE: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
# One state for all statements.
BEGIN_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# How long an attempt waits for a lock, and keeps its connection from others. Then it pauses, and
# tries again until its deadline.
LOCK_WAIT_S: Final = 1.0
# Else an operator that another role made in `public`, and that takes exactly the types at hand, is
# preferred to PostgreSQL's own, and runs as this role. Set by each transaction: a pooler may give
# each one another server process. Statements outside of one qualify all that they name.
SEARCH_PATH: Final = "pg_catalog, pg_temp"
FIX_SEARCH_PATH: Final = f"SET LOCAL search_path = {SEARCH_PATH}"
# Local to the transaction, so that a pooler may give the connection to anyone afterwards. A client
# that stops in the middle of one does not hold its session's row for longer than its own deadline.
BOUNDS: Final = f"""
    SELECT pg_catalog.set_config('search_path', '{SEARCH_PATH}', true),
        pg_catalog.set_config('lock_timeout', $1, true),
        pg_catalog.set_config('statement_timeout', $2, true),
        pg_catalog.set_config('idle_in_transaction_session_timeout', $2, true)"""


def in_transaction(plan: Plan[Any]) -> Plan[Any]:
    """Put one transaction around a plan that writes; whoever drives it rolls back what is left."""
    yield BEGIN
    result = yield from plan
    yield COMMIT
    return result


def lock_wait_s(left_s: float, *, longest_s: float = LOCK_WAIT_S) -> float:
    """How long to wait for a lock: the server must give up, and say so, before its caller does."""
    return min(left_s / 2, longest_s)


def bounds(left_s: float) -> tuple[str, str]:
    """The parameters of `BOUNDS`."""
    return milliseconds_of(lock_wait_s(left_s)), milliseconds_of(left_s)


def milliseconds_of(seconds: float) -> str:
    """A bound as the server takes it; 0 would mean none."""
    return str(max(1, int(seconds * 1000)))
