"""A connection with a deadline for each call and translated errors."""

from __future__ import annotations

import select
from collections.abc import Generator
from contextlib import suppress
from typing import Any, Final, TypeVar, cast

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format, TransactionStatus
from psycopg.rows import tuple_row
from psycopg.waiting import Ready, Wait, wait

from indelible.backends.postgres.arrays import register_arrays
from indelible.backends.postgres.errors import (
    TimeLimitError,
    build_not_replicated_error,
    find_interrupt,
    is_usable_after,
    translate_error,
)
from indelible.backends.postgres.statements import (
    BEGIN_READ,
    BEGIN_WRITE,
    BOUNDS,
    FIX_SEARCH_PATH,
    LOCK_WAIT_S,
    PostgresContext,
    Row,
    Rows,
    format_lock_wait,
    format_milliseconds,
)
from indelible.core.backend import Handlers
from indelible.core.deadline import Deadline

T = TypeVar("T")

# A text with its parameters; without any, it may hold several statements.
Statement = tuple[str, tuple[Any, ...] | None]

# A statement that was sent so often over one connection is prepared.
_PREPARE_THRESHOLD: Final = 3
PID: Final = "SELECT pg_catalog.pg_backend_pid()"
# How often a wait for the server looks at its deadline.
_INTERVAL_S: Final = 0.1
# The function of the server that warns of a commit that did not wait for its standby. The warning
# has no SQLSTATE of its own, and others, such as that of a wraparound, must not be taken for it.
_SYNC_WAIT: Final = "SyncRepWaitForLSN"


class DriverConnection(psycopg.Connection[Row]):
    """A connection of the driver that waits for the server until a deadline at most.

    After a deadline or Ctrl-C it is closed: a late answer would be taken for that of the next
    statement. After an error that ends it, it is closed before the driver cleans up, which would
    log a warning.
    """

    deadline = Deadline(float("inf"))
    # Set when the connection ends during a call: the driver's cleanup must not wait for it.
    given_up = False

    def wait(
        self,
        gen: Generator[Wait, Ready | int, T],
        interval: float = _INTERVAL_S,
        timeout: float | None = None,  # noqa: ARG002 (newer drivers pass it)
    ) -> T:
        """Run a generator of the driver whenever the socket is ready, until the deadline."""
        if self.given_up:
            return cast(T, None)
        bounded = _stop_at_deadline(gen, self.deadline)
        interval = min(interval, max(0.001, self.deadline.left_s()))
        try:
            return wait(bounded, self.pgconn.socket, interval)
        except BaseException as error:
            if isinstance(error, psycopg.Error) and is_usable_after(error):
                raise
            self.given_up = True
            self.pgconn.finish()
            # The driver may try to send something to the server.
            with suppress(psycopg.Error, RuntimeError):
                bounded.close()
            with suppress(psycopg.Error, RuntimeError):
                gen.close()
            raise


class BorrowedConnection(DriverConnection):
    """A second object for an application's connection, which the application closes."""

    def __del__(self, *_: Any) -> None:
        """Do not warn that the connection was not closed."""


def _stop_at_deadline(
    gen: Generator[Wait, Ready | int, T], deadline: Deadline
) -> Generator[Wait, Ready | int, T]:
    """Run a generator of the driver; raise if nothing is ready and the deadline has passed."""
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and deadline.left_s() == 0:
                raise TimeLimitError
            wanted = gen.send(ready)
    except StopIteration as finished:
        result: T = finished.value
        return result


class _TextLoader(Loader):
    """Loads text. All of it is ASCII; of a database in `SQL_ASCII`, psycopg would return bytes."""

    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        return bytes(data).decode("utf-8", "backslashreplace")


class PostgresConnection:
    """Sends the statements of handlers. One thread uses it at a time."""

    def __init__(self, driver: DriverConnection, context: PostgresContext, *, place: str) -> None:
        self.driver = driver
        self.context = context
        self._place = place
        # Statements without a result are sent with the next one that has a result.
        self._pending: list[Statement] = []
        self._in_transaction = False
        self._writes = False
        self._warned = False
        register_arrays(driver)
        driver.adapters.register_loader("text", _TextLoader)
        self._cursor = self._new_cursor()
        driver.add_notice_handler(self._on_notice)

    def allow_prepared_statements(self) -> None:
        """Let the driver prepare statements, if all of them reach the same server process.

        Behind a pooler the process may change, so the pooler tells its client an invented PID.
        """
        ((pid,),) = self.query(PID, is_qualified=True)
        if pid == self.driver.info.backend_pid:
            self.driver.prepare_threshold = _PREPARE_THRESHOLD

    def begin_call(self, deadline: Deadline) -> None:
        """Set the deadline of the next statements."""
        self.driver.deadline = deadline
        self._warned = False

    # Statements

    def query(self, text: str, params: tuple[Any, ...] = (), *, is_qualified: bool = False) -> Rows:
        """Return the rows of a statement; outside of a transaction, it only reads.

        Unless all its names are qualified, it is sent in a transaction that sets the search_path.
        """
        if self._in_transaction or is_qualified:
            return self.send((text, params))[-1].fetchall()
        self._pending = [(BEGIN_READ, ()), (FIX_SEARCH_PATH, ()), (text, params)]
        return self.send(("COMMIT", ()))[-2].fetchall()

    def call(self, text: str, params: tuple[Any, ...], *, wait_s_max: float = LOCK_WAIT_S) -> Row:
        """Call a function that writes and returns one row. It is a transaction of its own.

        Its first argument is added here: how long it may wait for a lock.
        """
        wait = format_lock_wait(self.driver.deadline.left_s(), wait_s_max)
        (row,) = self.send((text, (wait, *params)), may_commit=True)[-1].fetchall()
        return row

    def do(self, text: str, params: tuple[Any, ...] = ()) -> None:
        """Send a statement without a result, together with the next one that has a result."""
        self._pending.append((text, params))

    def begin(self, *, writes: bool) -> None:
        """Begin a transaction, with the next statement.

        If it only reads, all its statements see the same state. If it writes, each statement sees
        what was committed before it.
        """
        left_s = self.driver.deadline.left_s()
        bounds = format_lock_wait(left_s), format_milliseconds(left_s)
        self._pending = [(BEGIN_WRITE if writes else BEGIN_READ, ()), (BOUNDS, bounds)]
        self._in_transaction, self._writes = True, writes

    def commit(self) -> None:
        """Commit the transaction."""
        self.send(("COMMIT", ()), may_commit=self._writes)
        self._in_transaction = False

    def run_script(self, text: str) -> None:
        """Run several statements in one text, such as a migration, without a result."""
        # They need the simple protocol, which cannot be in a pipeline.
        if self._pending:
            self.send(self._pending.pop())
        self.send((text, None))

    def send(
        self, statement: Statement, *, may_commit: bool = False
    ) -> list[psycopg.RawCursor[Row]]:
        """Send a statement, together with what is pending; return the cursor of each.

        Everything that the server is asked for passes here, one round trip at a time.
        """
        pending, self._pending = self._pending, []
        try:
            if pending:
                with self.driver.pipeline():
                    sent = [self._run(self._new_cursor(), *each) for each in (*pending, statement)]
            else:
                sent = [self._run(self._cursor, *statement)]
        except (psycopg.Error, TimeLimitError) as error:
            interrupt = find_interrupt(error)
            if interrupt is not None:
                raise interrupt from None
            raise translate_error(error, place=self._place, committing=may_commit) from error
        if self._warned and may_commit:
            raise build_not_replicated_error(self._place)
        return sent

    def _new_cursor(self) -> psycopg.RawCursor[Row]:
        return psycopg.RawCursor(self.driver, row_factory=tuple_row)

    def _run(
        self, cursor: psycopg.RawCursor[Row], text: str, params: tuple[Any, ...] | None
    ) -> psycopg.RawCursor[Row]:
        if params is None:
            return cursor.execute(text.encode())
        return cursor.execute(text.encode(), params, binary=True)

    def try_roll_back(self) -> bool:
        """End a transaction that failed; return whether the connection can be used again."""
        self._pending = []
        self._in_transaction = False
        try:
            if self.driver.info.transaction_status is not TransactionStatus.IDLE:
                self._run(self._cursor, "ROLLBACK", ())
        except Exception:  # noqa: BLE001 (whatever it is, the connection is not used again)
            return False
        return True

    def is_alive(self) -> bool:
        """Return whether it is open: a server sends nothing to an idle connection but its end."""
        if self.driver.closed:
            return False
        poll = select.poll()
        poll.register(self.driver.pgconn.socket, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """Close the connection. The server may still finish the statement that it runs."""
        self.driver.pgconn.finish()

    def _on_notice(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.source_function == _SYNC_WAIT:
            self._warned = True


# Operations with handlers of their own; the shared handlers perform the others.
HANDLERS: Final[Handlers[PostgresConnection]] = Handlers()
