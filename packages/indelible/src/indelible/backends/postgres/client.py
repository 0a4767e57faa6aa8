"""The plans of calls: attempts until a deadline, and pauses between them. Appends go in groups.

A call is a plan of three operations: an attempt on a connection, an append in a group, a pause. So
a thread is needed for an attempt, and never for a pause.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from indelible.backends.postgres import (  # noqa: F401 (some only register their handlers)
    read,
    risks,
    schema,
    sessions,
    views,
)
from indelible.backends.postgres.append import (
    APPEND,
    build_parameters,
    build_result,
    sort_appends,
)
from indelible.backends.postgres.connection import PostgresConnection
from indelible.backends.postgres.connection_pool import ApplicationPool, OwnPool
from indelible.backends.postgres.errors import KeyUsedError, is_usable_after
from indelible.backends.postgres.options import PostgresOptions
from indelible.backends.postgres.statements import PostgresContext
from indelible.backends.postgres.transaction import find_handler, perform_in_transaction
from indelible.core.backend import UnreachedError
from indelible.core.batcher import Pending
from indelible.core.deadline import Deadline
from indelible.core.leases import Lease
from indelible.core.limits import FIRST_CONTACT_S
from indelible.core.operations import Append, AppendResult
from indelible.core.plan import Operation, Plan, perform
from indelible.errors import (
    ClosedError,
    FormatError,
    MemoryStoreBackendError,
    MemoryStoreError,
    OutcomeUnknownError,
    UnavailableError,
    UnsupportedError,
)
from indelible.model import Claims

R = TypeVar("R")

# Groups of appends in flight: the second is sent while the first commits. More than two would only
# make the groups smaller.
SENDERS_MAX: Final = 2
# The options of the batchers. A group is one statement and one transaction.
GROUPS: Final[dict[str, Any]] = {
    "senders": SENDERS_MAX,
    "requests_max": 128,
    "bytes_max": 16 * 1024 * 1024,
    "measure": lambda op: sum(len(draft.envelope) for draft in op.drafts),
}
# How long a group waits for the lock of one of its sessions. Then each of its appends is sent
# alone, so that none waits long for the lock of another session.
GROUP_WAIT_S: Final = 0.25
# The share of its time that an append must have left for another attempt. With less, the deadline
# would often pass before the server answers, and the outcome would be unknown.
LAST_ATTEMPT: Final = 0.1


@dataclass(frozen=True, slots=True)
class Attempt(Operation[R]):
    """Use a connection once."""

    use: Callable[[PostgresConnection], R]
    deadline: Deadline


@dataclass(frozen=True, slots=True)
class SendInGroup(Operation[str | None]):
    """Send an append with those that wait; its version, or None if its guard did not hold."""

    append: Append
    deadline: Deadline


@dataclass(frozen=True, slots=True)
class Pause(Operation[None]):
    """Wait before the next attempt."""

    seconds: float
    # Whether the write may have landed, so that even a cancelled call makes the next attempt.
    may_have_landed: bool = False


class PostgresClient:
    """The connections of a store to its server, and the plans of its calls."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._context = PostgresContext(options.namespace.encode(), options.clock, options.search)
        self.pool: OwnPool | ApplicationPool
        if isinstance(options.target, str):
            conninfo, servers = options.build_conninfo()
            self.pool = OwnPool(
                conninfo, servers=servers, place=options.shown, context=self._context
            )
        else:
            self.pool = ApplicationPool(options.target, place=options.shown, context=self._context)

    # Plans

    def prepare(self) -> Plan[None]:
        """Connect, create or migrate the tables, and check the durability of the server."""
        options = self._options
        yield from self._reach()
        deadline = Deadline(options.timeout_s)
        yield from self._retry(deadline, lambda db: schema.prepare(db, options.shown, deadline))
        if options.durability is not None:
            given = (yield from self._retry(deadline, risks.read_settings)).durability
            if not given.covers(options.durability):
                raise UnsupportedError(
                    f"{options.shown} cannot promise durability {options.durability!s}; as it runs"
                    f" now, the most it can is {given!s}"
                )

    def _reach(self) -> Plan[None]:
        """Connect for the first time; give up soon if nothing there answers as a server.

        A server that is still starting answers. A pool of the application connects by itself.
        """
        if not isinstance(self._options.target, str):
            return
        deadline = Deadline(self._options.timeout_s)
        tried = Deadline(min(self._options.timeout_s, FIRST_CONTACT_S))
        while True:
            try:
                return (yield from perform(Attempt(lambda _: None, deadline)))
            except UnavailableError as error:
                if error.details.get("answered"):
                    return
                wait_s = tried.next_wait_s()
                if wait_s is None:
                    reason = error.details.get("reason", error.message)
                    raise UnreachedError(reason) from error.__cause__
            yield Pause(wait_s)

    def claims(self) -> Plan[Claims]:
        """Return what is promised on the server as it runs now."""
        settings = yield from self._retry(Deadline(self._options.timeout_s), risks.read_settings)
        ttl_clock = "server" if self._options.clock is None else "caller"
        return risks.build_claims(settings, ttl_clock=ttl_clock)

    def perform(self, op: Operation[R]) -> Plan[R]:
        """Perform one operation, with all its retries."""
        deadline = Deadline(self._options.timeout_s)
        if isinstance(op, Append):
            plan: Plan[Any] = self._append(op, deadline)
            return plan
        handler = find_handler(op)
        return self._retry(deadline, lambda db: handler(db, op))

    def _retry(self, deadline: Deadline, use: Callable[[PostgresConnection], R]) -> Plan[R]:
        """Use a connection, again until the deadline, but only if nothing was written."""
        while True:
            try:
                return (yield from perform(Attempt(use, deadline)))
            except OutcomeUnknownError as error:
                if deadline.left_s() == 0:
                    raise error.copy(exhausted=True) from error.__cause__
                raise
            except UnavailableError:
                wait_s = deadline.next_wait_s()
                if wait_s is None:
                    raise
            yield Pause(wait_s)

    def _append(self, op: Append, deadline: Deadline) -> Plan[AppendResult]:
        """Send an append until it is written or refused; its key makes it safe to send it again."""
        unknown: OutcomeUnknownError | None = None
        alone = False
        while True:
            error: MemoryStoreError
            try:
                result = yield from self._try_append(op, deadline, alone=alone)
                return result if unknown is None else result._replace(resent=True)
            except OutcomeUnknownError as lost:
                unknown = error = lost
            except (MemoryStoreBackendError, FormatError, ClosedError) as refused:
                error = refused
            wait_s = deadline.next_wait_s() if error.retryable else None
            if wait_s is None or deadline.left_s() < self._options.timeout_s * LAST_ATTEMPT:
                if unknown is None:
                    raise error
                # If this attempt wrote nothing, an earlier one may have.
                raise unknown.copy(exhausted=True) from (error.__cause__ or error)
            yield Pause(wait_s, may_have_landed=unknown is not None)
            # The group may have failed because of another append; and this one may be written.
            alone, op = True, op.repeat()

    def _try_append(self, op: Append, deadline: Deadline, *, alone: bool) -> Plan[AppendResult]:
        # After a group that failed, and with an expected item, the shared handler decides: it knows
        # what is visible.
        if op.expected_item is None and not alone:
            try:
                version: str | None = yield SendInGroup(op, deadline)
                if version is not None:
                    return build_result(op, version)
            except KeyUsedError:
                # The unique index refused an append of the group.
                pass
        again = op.repeat()
        return (yield from perform(Attempt(lambda db: perform_in_transaction(db, again), deadline)))

    # What a thread does

    def close(self) -> None:
        """Close the connections."""
        self.pool.close()

    def after_fork(self) -> None:
        """In a forked child: start without connections."""
        self.pool.after_fork()

    def send_group(self, batch: list[Pending[Append, str | None]]) -> None:
        """Send a group of appends, and give each its result or error."""
        try:
            ordered = sort_appends(batch)
            appends = [one.request for one in ordered]
            params = build_parameters(self._context, appends)
            deadline = min((one.deadline for one in batch), key=Deadline.left_s)
            attempt = Attempt(lambda db: db.call(APPEND, params, wait_s_max=GROUP_WAIT_S), deadline)
            (versions,) = self.attempt(attempt)
            for one, version in zip(ordered, versions, strict=True):
                one.succeed(version)
        except MemoryStoreError as error:
            for one in batch:
                one.fail(error.copy())
        except Exception as error:  # noqa: BLE001 (a caller's clock: each append gets the error)
            for one in batch:
                one.fail(error)

    def attempt(self, attempt: Attempt[R]) -> R:
        """Use a connection; if that fails, roll back."""
        lease = Lease()
        healthy = False
        try:
            connection = self.pool.borrow(lease, attempt.deadline)
            try:
                result = attempt.use(connection)
                healthy = True
            except BaseException as error:
                healthy = is_usable_after(error) and connection.try_roll_back()
                raise
            return result
        finally:
            try:
                self.pool.give_back(lease, healthy=healthy)
            finally:
                lease.held = False
                self.pool.wake()
