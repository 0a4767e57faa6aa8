"""What the blocking and the async driver share: options, and the attempts at an operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

# Modules whose handlers are registered when they are imported.
from indelible.backends.postgres import (
    append,
    maintenance,
    read,
    risks,
    schema,
    search,
    sessions,
    staging,
    views,
)
from indelible.backends.postgres.conninfo import parse_url
from indelible.backends.postgres.context import GUARDED_WRITES, READS, WRITES, PostgresContext
from indelible.backends.postgres.errors import KeyUsedError
from indelible.backends.postgres.statements import in_transaction
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
)
from indelible.model import Claims, Durability

__all__ = ["maintenance", "read", "search", "sessions", "staging", "views"]

# Groups of appends that are under way at once: the second is sent while the first is being
# committed. More would only make the groups smaller.
SENDERS_MAX: Final = 2
# A group is one statement and one transaction.
GROUP_MAX: Final = 128
GROUP_BYTES_MAX: Final = 16 * 1024 * 1024
# How long a group waits for the row of one of its sessions. Then it is given up, and each of its
# appends is sent alone: nobody waits long for somebody else's lock.
GROUP_WAIT_S: Final = 0.25
# The part of its time that an append must have left for one more attempt. With less, a caller would
# often stop waiting before the server answers, and not know whether it was written.
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

    def context(self) -> PostgresContext:
        """What its plans share."""
        return PostgresContext(self.namespace.encode(), self.clock)

    def conninfo(self) -> tuple[str, int]:
        """The connection string, and how many servers it names."""
        return parse_url(self.target, shown=self.shown)


@dataclass(slots=True)
class Run(Operation[Any]):
    """Run a plan on a connection."""

    plan: Callable[[], Plan[Any]]
    deadline: Deadline


@dataclass(slots=True)
class Send(Operation[str | None]):
    """Send the guarded write of an append, alone or together with others that wait.

    The result is the version after it, or None if the guard did not hold.
    """

    append: operations.Append
    deadline: Deadline
    alone: bool


@dataclass(slots=True)
class Pause(Operation[None]):
    """Wait before the next attempt."""

    seconds: float


def is_write(op: Operation[Any]) -> bool:
    """Whether an operation changes anything."""
    return type(op) in WRITES or type(op) in GUARDED_WRITES


def run_with_retries(
    options: PostgresOptions, context: PostgresContext, op: Operation[Any]
) -> Plan[Any]:
    """Every attempt at an operation, within its deadline."""
    if isinstance(op, operations.Append):
        return (yield from _append_with_retries(options, context, op))
    deadline = Deadline(options.timeout_s)
    if isinstance(op, operations.ReadCursorKey):
        return (yield from _read_cursor_key(options, context, op, deadline))
    if type(op) in READS:
        return (yield from _retry(lambda: READS.plan(context, op), deadline))
    if type(op) in GUARDED_WRITES:
        return (yield from _retry(lambda: GUARDED_WRITES.plan(context, op), deadline))
    return (yield from _retry(lambda: in_transaction(WRITES.plan(context, op)), deadline))


def _read_cursor_key(
    options: PostgresOptions,
    context: PostgresContext,
    op: operations.ReadCursorKey,
    deadline: Deadline,
) -> Plan[bytes]:
    """The key for cursors; the first one who needs it writes the secret of the tables."""
    if not context.cursor_key or op.again:
        secret = yield from _retry(schema.read_secret, deadline)
        if secret is None:
            secret = yield from _retry(lambda: in_transaction(schema.ensure_secret()), deadline)
        context.cursor_key[:] = [derive_key(secret, options.namespace)]
    return context.cursor_key[0]


def _retry(plan: Callable[[], Plan[Any]], deadline: Deadline) -> Plan[Any]:
    """Run a plan until the deadline; again only if nothing was written."""
    while True:
        try:
            return (yield Run(plan, deadline))
        except OutcomeUnknownError as error:
            if deadline.left_s() == 0:
                raise error.copy(exhausted=True) from error.__cause__
            raise
        except UnavailableError:
            wait_s = deadline.next_wait_s()
            if wait_s is None:
                raise
        yield Pause(wait_s)


def _append_with_retries(
    options: PostgresOptions, context: PostgresContext, op: operations.Append
) -> Plan[operations.AppendResult]:
    """Send an append until it is written or refused; its key makes it safe to send it again."""
    deadline = Deadline(options.timeout_s)
    unknown: OutcomeUnknownError | None = None
    alone = False
    while True:
        error: MemoryStoreBackendError
        try:
            appended = yield from _attempt(context, op, deadline, alone=alone)
            return appended._replace(resent=unknown is not None)
        except OutcomeUnknownError as lost:
            unknown = error = lost
        except UnavailableError as failed:
            error = failed
        wait_s = deadline.next_wait_s()
        if wait_s is None or deadline.left_s() < options.timeout_s * LAST_ATTEMPT:
            if unknown is not None and error is not unknown:
                # That nothing was written now does not say that nothing was before.
                raise unknown.copy(exhausted=True) from error
            raise error.copy(exhausted=True) from error.__cause__
        yield Pause(wait_s)
        # The group may have failed because of another append; and this one may have been written.
        alone, op = True, replace(op, fresh=False)


def _attempt(
    context: PostgresContext, op: operations.Append, deadline: Deadline, *, alone: bool
) -> Plan[operations.AppendResult]:
    try:
        version = yield from perform(Send(op, deadline, alone))
        if version is not None:
            return append.build_result(op, version)
    except KeyUsedError:
        # The unique index refused one of a group, or an attempt that was committed in between.
        op = replace(op, fresh=False)
        if not alone:
            return (yield from _attempt(context, op, deadline, alone=True))
    decided: operations.AppendResult = yield Run(
        lambda: in_transaction(append.decide_append(context, op)), deadline
    )
    return decided


def prepare_schema(options: PostgresOptions) -> Plan[None]:
    """Reach the server, see to the tables, and refuse it if it cannot keep what was demanded."""
    deadline = Deadline(options.timeout_s)
    yield from _retry(lambda: schema.prepare(options.shown, wait_s=deadline.left_s()), deadline)
    if options.durability is not None:
        given = (yield from _retry(risks.read_settings, deadline)).durability
        if not given.covers(options.durability):
            raise UnsupportedError(
                f"{options.shown} cannot promise durability {options.durability!s}; as it runs now,"
                f" the most it can is {given!s}"
            )


def read_claims(options: PostgresOptions) -> Plan[Claims]:
    """What is promised on the server as it runs now."""
    settings = yield from _retry(risks.read_settings, Deadline(options.timeout_s))
    return risks.build_claims(settings, ttl_clock="server" if options.clock is None else "caller")
