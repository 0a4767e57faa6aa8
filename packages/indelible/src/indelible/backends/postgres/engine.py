"""What the blocking and the async driver share: options, the table of plans, and the attempts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from indelible.backends.postgres import (
    append,
    at_once,
    maintenance,
    read,
    risks,
    schema,
    search,
    sessions,
    staging,
    views,
)
from indelible.backends.postgres.errors import KeyUsedError
from indelible.backends.postgres.sessions import Context, Handler
from indelible.backends.postgres.statements import in_transaction, lock_wait_s
from indelible.core import operations
from indelible.core.clock import Clock
from indelible.core.cursors import derive_key
from indelible.core.deadline import Deadline
from indelible.core.plan import Operation, Plan, perform
from indelible.errors import (
    MemoryStoreBackendError,
    OutcomeUnknownError,
    UnavailableError,
    UnsupportedError,
    UsageError,
)
from indelible.model import Claims, Durability

_WRITES: Final[dict[type, Handler]] = {
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
# What is one call of a function in most cases; where it is not, the plan above does it.
_AT_ONCE: Final[dict[type, at_once.Shortcut]] = {
    operations.Rollback: at_once.roll_back,
    operations.SaveSnapshot: at_once.save_snapshot,
}
_READS: Final[dict[type, Handler]] = {
    operations.ReadHead: sessions.head,
    operations.Read: read.read,
    operations.FindNearest: search.nearest,
    operations.ReadOutline: read.outline,
    operations.ReadSnapshots: views.read_snapshots,
    operations.ReadJournal: views.read_journal,
    operations.ListSessions: sessions.list_sessions,
    operations.ReadLog: read.read_log,
    operations.ReadQuarantine: maintenance.read_quarantine,
    operations.CheckEngine: maintenance.check_engine,
    operations.CheckSession: maintenance.check_session,
}
# Gives the version that an attempt at an append came to, None where somebody must look, or raises.
Tried = Callable[[], str | None]
# The part of its time that an append must have left for one more attempt. With less, a caller would
# often stop waiting before the server answers, and not know what became of it.
LAST_ATTEMPT: Final = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class PostgresOptions:
    """How a store on a server is opened."""

    # A URL, perhaps with a password, or the pool of an application.
    target: Any = field(repr=False)
    # The target as messages show it: without its password.
    shown: str
    namespace: str
    durability: Durability | None
    timeout_s: float
    # None for the server's clock.
    clock: Clock | None
    # Tests stand here: it is called around every statement.
    seam: Any = None

    def context(self) -> Context:
        """What its plans share."""
        return Context(self.namespace.encode(), self.clock)

    def conninfo(self) -> tuple[str, int]:
        """How to connect, and to how many servers; the one that can be written to is meant."""
        asked: dict[str, Any] | None = None
        # A percent sign may stand before what is no UTF-8.
        with suppress(psycopg.ProgrammingError, UnicodeDecodeError):
            asked = conninfo_to_dict(self.target)
        if asked is None:
            # The driver's error shows what it cannot read, with the password: it stays behind.
            raise UsageError(f"not a URL of a PostgreSQL server: {self.shown}")
        servers = str(asked.get("host") or asked.get("hostaddr") or "").count(",") + 1
        if servers > 1:
            asked.setdefault("target_session_attrs", "read-write")
        asked.setdefault("application_name", "indelible")
        return make_conninfo("", **asked), servers


@dataclass(slots=True)
class Run(Operation[Any]):
    """Run a plan on a connection; in a transaction, unless it only reads."""

    plan: Callable[[], Plan[Any]]
    patience: Deadline


@dataclass(slots=True)
class Send(Operation[str | None]):
    """Append with the one statement, alone."""

    append: operations.Append
    patience: Deadline


@dataclass(slots=True)
class Pause(Operation[None]):
    """Wait before the next attempt."""

    seconds: float


def writes(op: Operation[Any]) -> bool:
    """Whether a step changes anything."""
    return type(op) is operations.Append or type(op) in _WRITES


def run_with_retries(options: PostgresOptions, context: Context, op: Operation[Any]) -> Plan[Any]:
    """Every attempt at a step that is not an append, within its deadline."""
    patience = Deadline(options.timeout_s)
    if isinstance(op, operations.Scrub):
        # What the server keeps, no client can clear: the receipt of the erasure says so.
        return ()
    if isinstance(op, operations.ReadCursorKey):
        return (yield from _read_cursor_key(options, context, op, patience))
    if isinstance(op, operations.FindRisks):
        settings = yield from patiently(risks.read_settings, patience)
        return risks.risks_of(settings)
    if isinstance(op, operations.Identify):
        place = yield from patiently(risks.read_place, patience)
        return f"{place} {options.namespace}"
    handler = _WRITES.get(type(op))
    if handler is None:
        handler = _READS[type(op)]
        return (yield from patiently(lambda: handler(context, op), patience))
    return (yield from patiently(lambda: _written(handler, context, op, patience), patience))


def _read_cursor_key(
    options: PostgresOptions, context: Context, op: operations.ReadCursorKey, patience: Deadline
) -> Plan[bytes]:
    """The key for cursors; the first one who needs it writes the secret of the tables."""
    if not context.cursor_key or op.again:
        secret = yield from patiently(schema.read_secret, patience)
        if secret is None:
            secret = yield from patiently(lambda: in_transaction(schema.ensure_secret()), patience)
        context.cursor_key[:] = [derive_key(secret, options.namespace)]
    return context.cursor_key[0]


def _written(
    handler: Handler, context: Context, op: Operation[Any], patience: Deadline
) -> Plan[Any]:
    """A write by one call of a function if that will do, else in a transaction."""
    shortcut = _AT_ONCE.get(type(op))
    if shortcut is not None:
        done = yield from shortcut(context, op, lock_wait_s(patience.left_s()))
        if done is not None:
            return done
    return (yield from in_transaction(handler(context, op)))


def patiently(plan: Callable[[], Plan[Any]], patience: Deadline) -> Plan[Any]:
    """Try until it is done, or until the deadline; only what surely was not written again."""
    while True:
        try:
            return (yield Run(plan, patience))
        except OutcomeUnknownError as error:
            if patience.left_s() == 0:
                raise error.copy(exhausted=True) from error.__cause__
            raise
        except UnavailableError:
            wait_s = patience.next_wait_s()
            if wait_s is None:
                raise
        yield Pause(wait_s)


def append_with_retries(
    options: PostgresOptions,
    context: Context,
    op: operations.Append,
    patience: Deadline,
    tried: Tried | None,
) -> Plan[operations.AppendResult]:
    """Go on after an attempt in company. After a lost answer, ask again: the key makes that safe.

    `tried` gives what came of that attempt.
    """
    unknown: OutcomeUnknownError | None = None
    while True:
        error: MemoryStoreBackendError
        try:
            appended = yield from _attempt(context, op, patience, tried)
            return appended._replace(resent=unknown is not None)
        except OutcomeUnknownError as lost:
            unknown = error = lost
        except UnavailableError as failed:
            error = failed
        wait_s = patience.next_wait_s()
        if wait_s is None or patience.left_s() < options.timeout_s * LAST_ATTEMPT:
            if unknown is not None and error is not unknown:
                # That nothing was written now does not say that nothing was before.
                raise unknown.copy(exhausted=True) from error
            raise error.copy(exhausted=True) from error.__cause__
        yield Pause(wait_s)
        # What failed in company may have been a neighbour's fault: from now on, alone.
        tried = None


def _attempt(
    context: Context, op: operations.Append, patience: Deadline, tried: Tried | None
) -> Plan[operations.AppendResult]:
    try:
        version = tried() if tried is not None else (yield from perform(Send(op, patience)))
        if version is not None:
            return append.build_result(op, version)
    except KeyUsedError:
        # An earlier attempt landed, or a neighbour's did; a look tells.
        pass
    looked: operations.AppendResult = yield Run(
        lambda: in_transaction(append.append(context, op)), patience
    )
    return looked


def prepare_schema(options: PostgresOptions) -> Plan[None]:
    """Reach the server, see to the tables, and refuse it if it cannot keep what was demanded."""
    patience = Deadline(options.timeout_s)
    yield from patiently(lambda: schema.prepare(options.shown, wait_s=patience.left_s()), patience)
    if options.durability is not None:
        given = (yield from patiently(risks.read_settings, patience)).durability
        if not given.covers(options.durability):
            raise UnsupportedError(
                f"{options.shown} cannot promise durability {options.durability!s}; as it runs now,"
                f" the most it can is {given!s}"
            )


def read_claims(options: PostgresOptions) -> Plan[Claims]:
    """What is promised on the server as it runs now."""
    settings = yield from patiently(risks.read_settings, Deadline(options.timeout_s))
    return risks.claims_of(settings, ttl_clock="server" if options.clock is None else "caller")
