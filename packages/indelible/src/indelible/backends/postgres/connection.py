"""A connection in the hands of one call, and the one seam through which every statement passes."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, suppress
from typing import Any, Final, TypeVar

import psycopg
import psycopg.waiting
from psycopg.rows import tuple_row
from psycopg.types.array import ListBinaryDumper
from psycopg.waiting import Ready, Wait

from indelible.backends.postgres.calls import Caller
from indelible.backends.postgres.errors import TimeLimitError, translate_error
from indelible.backends.postgres.statements import (
    BEGIN_READ,
    BEGIN_WRITE,
    BOUNDS,
    FIX_SEARCH_PATH,
    All,
    Begin,
    Call,
    Commit,
    Do,
    DoAlone,
    Fetch,
    Rows,
    Script,
    Sql,
    bounds,
)
from indelible.core.deadline import Deadline
from indelible.core.plan import Operation
from indelible.errors import OutcomeUnknownError

T = TypeVar("T")

# Called around every statement: fault tests stand here, and nothing else does.
Seam = Callable[[Operation[Any], Callable[[], Any]], Any]

_EVENTS = {
    Wait.R: select.POLLIN,
    Wait.W: select.POLLOUT,
    Wait.RW: select.POLLIN | select.POLLOUT,
}
_READY = {
    select.POLLIN: Ready.R,
    select.POLLOUT: Ready.W,
    select.POLLIN | select.POLLOUT: Ready.RW,
}
# Where in the server a commit says that it did not wait for its standby. The warning has no code of
# its own, and others, such as those of a coming wraparound, must not be taken for it.
SYNC_WAIT: Final = "SyncRepWaitForLSN"


class Link:
    """A connection with a deadline, and its errors translated. One thread uses it at a time."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        *,
        place: str,
        seam: Seam | None = None,
        named: bool = False,
    ) -> None:
        self.connection = connection
        self._place = place
        self._seam = seam
        self._patience = Deadline(0)
        self._stack = ExitStack()
        self._warned = False
        self._poll = select.poll()
        self._pipelined = False
        self._pipeline: psycopg.Pipeline | None = None
        self._caller = Caller(connection, named=named)
        # What its owner had set, and gets back.
        self.was_autocommit = connection.autocommit
        connection.add_notice_handler(self._on_notice)
        # The driver takes no deadline with a statement; all its waiting goes through this method.
        vars(connection)["wait"] = self._wait

    def begin(self, patience: Deadline) -> None:
        """From now on, this deadline counts."""
        self._patience = patience
        self._warned = False

    def execute(self, op: Operation[Any]) -> Any:
        """Do one step."""
        try:
            if self._seam is not None:
                answer = self._seam(op, lambda: self._execute(op))
            else:
                answer = self._execute(op)
        except (psycopg.Error, TimeLimitError) as error:
            interrupt = interrupt_behind(error)
            if interrupt is not None:
                raise interrupt from None
            committing = isinstance(op, (Call, Commit, DoAlone))
            raise translate_error(error, place=self._place, committing=committing) from error
        if self._warned and isinstance(op, (Call, Commit, DoAlone)):
            raise not_replicated(self._place)
        return answer

    def _execute(self, op: Operation[Any]) -> Any:
        if isinstance(op, Call):
            return self._wait(self._caller.call(op))
        if isinstance(op, Fetch):
            return self._wait(self._caller.fetch(op))
        if isinstance(op, Sql) and self._is_outside_transaction():
            return self._all(All((op,)))[0]
        if isinstance(op, (Sql, DoAlone)):
            return self._run(op.text, op.params).fetchall()
        if isinstance(op, Do):
            self._run(op.text, op.params)
        elif isinstance(op, All):
            return self._all(op)
        elif isinstance(op, Begin):
            self._begin(BEGIN_WRITE)
            self._run(BOUNDS, bounds(self._patience.left_s()))
        elif isinstance(op, Commit):
            self._run("COMMIT")
            self._end_pipeline()
        elif isinstance(op, Script):
            # Several statements in one message need the simple protocol, outside of a pipeline.
            self.connection.execute(op.text.encode())
        return None

    def _is_outside_transaction(self) -> bool:
        idle = psycopg.pq.TransactionStatus.IDLE
        return not self._pipelined and self.connection.info.transaction_status is idle

    def _begin(self, how: str) -> None:
        self._pipeline = self._stack.enter_context(self.connection.pipeline())
        self._pipelined = True
        self._run(how)

    def _end_pipeline(self) -> None:
        self._pipelined = False
        self._stack.close()

    def _run(self, text: str, params: tuple[Any, ...] = ()) -> psycopg.RawCursor[Any]:
        # Each has its own cursor, since in a pipeline the answer comes later.
        cursor = psycopg.RawCursor(self.connection, row_factory=tuple_row)
        params = bind_arrays(cursor, params)
        # Never a named statement: behind a pooler the next one may go to another server process.
        return cursor.execute(text.encode(), params, prepare=False, binary=True)

    def _all(self, op: All) -> list[Rows]:
        alone = not self._pipelined
        if alone:
            self._begin(BEGIN_READ)
            self._run(FIX_SEARCH_PATH)
        cursors = [self._run(query.text, query.params) for query in op.queries]
        if alone:
            self._run("COMMIT")
            self._end_pipeline()
        return [cursor.fetchall() for cursor in cursors]

    def roll_back(self) -> None:
        """Leave nothing behind of a transaction that was given up."""
        with suppress(psycopg.Error):
            self._end_pipeline()
        if self.connection.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE:
            self._run("ROLLBACK")

    def is_alive(self) -> bool:
        """Whether the server has said nothing since: an idle connection only ever hears its end."""
        if self.connection.closed:
            return False
        self._poll.register(self.connection.pgconn.socket, select.POLLIN)
        return not self._poll.poll(0)

    def release(self) -> None:
        """Give the connection back to its owner as it was."""
        vars(self.connection).pop("wait", None)
        self.connection.remove_notice_handler(self._on_notice)

    def close(self) -> None:
        """Hang up. What the server is doing, it may still finish."""
        self.connection.pgconn.finish()
        if self._pipeline is not None:
            vars(self._pipeline)["_conn"] = Gone()
            self._pipeline.result_queue.clear()
        self._stack.pop_all()
        vars(self.connection).pop("wait", None)

    def _on_notice(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.source_function == SYNC_WAIT:
            self._warned = True

    def _wait(self, waits: Generator[Wait, Ready | int, T], *_: Any, **__: Any) -> T:
        """Let the driver go on whenever its socket is ready, until the deadline."""
        left_s = self._patience.left_s()
        try:
            answer: T = wait_timed(
                waits, self.connection.pgconn.socket, interval=left_s + 1, timeout=left_s
            )
            return answer
        except _TIMED_OUT as error:
            give_up(self.connection, waits)
            raise TimeLimitError from error
        except (KeyboardInterrupt, SystemExit):
            # Else the driver would go on waiting for what is left of a pipeline.
            give_up(self.connection, waits)
            raise


def bind_arrays(
    cursor: psycopg.RawCursor[Any] | psycopg.AsyncRawCursor[Any], params: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Keep the driver from sending arrays as text, whose meaning depends on the role's settings.

    As text, `bytea` is escaped for a literal, which it is not: with standard_conforming_strings off
    its backslashes are doubled, and other bytes are stored. With array_nulls off, a NULL becomes a
    word. An array of nothing but NULL has no type, and is sent as text all the same: NULL stands
    for it, since `unnest` fills up the shorter of several arrays.
    """
    if not any(isinstance(value, list) for value in params):
        return params
    cursor.adapters.register_dumper(list, ListBinaryDumper)
    return tuple(
        None if isinstance(value, list) and value and all(item is None for item in value) else value
        for value in params
    )


def interrupt_behind(error: BaseException) -> BaseException | None:
    """Ctrl-C, or a cancellation, that an error of the driver has replaced.

    The driver cleans up when it is interrupted, and if that fails, its error comes out instead.
    """
    behind: BaseException | None = error
    while behind is not None and isinstance(behind, Exception):
        # What was raised from another on purpose, such as a timeout, replaces nothing.
        behind = None if behind.__suppress_context__ else behind.__context__
    return behind


def give_up(
    connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any],
    waits: Generator[Wait, Ready | int, Any],
) -> None:
    """Hang up in the middle of a call, and end the driver's own part of it.

    That may want to talk to the server once more. Nobody would hear what it says then, but for
    whoever reads the complaints of the garbage collector.
    """
    connection.pgconn.finish()
    with suppress(psycopg.Error, RuntimeError):
        waits.close()


def wait_until(
    waits: Generator[Wait, Ready | int, T], socket: int, *, interval: float, timeout: float
) -> T:
    """Wait with a deadline, for drivers that have no way to do so."""
    ends = time.monotonic() + min(interval, timeout)
    poll = select.poll()
    try:
        wanted = next(waits)
        while True:
            poll.register(socket, _EVENTS[wanted])
            events = poll.poll(max(0.0, ends - time.monotonic()) * 1000)
            if not events:
                raise TimeLimitError
            # What went wrong on a socket is found out by reading it.
            wanted = waits.send(_READY.get(events[0][1], Ready.R))
    except StopIteration as finished:
        answer: T = finished.value
        return answer


# Newer drivers wait with a deadline by themselves, in C; this is what they raise at its end.
_DRIVERS_TIMEOUT: Final = getattr(psycopg.errors, "_WaitTimeout", None)
_TIMED_OUT: Final[tuple[type[Exception], ...]] = tuple(
    filter(None, (TimeLimitError, _DRIVERS_TIMEOUT))
)
wait_timed: Any = wait_until if _DRIVERS_TIMEOUT is None else psycopg.waiting.wait


class Gone:
    """Stands in for a connection that is gone, in a pipeline that nobody left.

    The pipeline is swept up some time later. It would then wait for answers that cannot come, and
    log that.
    """

    def wait(self, waits: object) -> None:
        """Nothing comes any more."""


def not_replicated(place: str) -> OutcomeUnknownError:
    """The commit is on the primary, and did not wait for its standby."""
    return OutcomeUnknownError(
        f"{place} warned at the commit: it landed there, but may not be as durable as it should."
        " The same call with the same key makes sure",
        place=place,
    )
