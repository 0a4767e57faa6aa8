"""One writer path: concurrent writes share a commit, and each gets its own answer.

Whoever holds the lock leads: it takes what is waiting, runs it in one transaction, and answers all.
A blocking caller leads by itself, with no thread in between; an async store has one thread that
does. A plan checks before it writes; once it has written it cannot refuse, so one plan's refusal
never undoes its neighbour. If the engine fails, the whole group is rolled back, and all are told.

Ctrl-C may strike between any two calls. The lock is taken by `with` alone, which cannot be
interrupted halfway. A leader says in `_busy` and `_group` what it is at; if it was interrupted
before it could clean up, whoever holds the lock next does so.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import apsw

from indelible.backends.sqlite.append import INSERT_IF_STILL, build_result, shortcut
from indelible.backends.sqlite.connection import (
    BEGIN_WRITE,
    COMMIT,
    ROLLBACK,
    Connection,
    DoAlone,
    DoCounted,
)
from indelible.backends.sqlite.sessions import Context
from indelible.core.operations import Append, AppendResult
from indelible.core.plan import Plan, run_plan
from indelible.errors import (
    BusyError,
    ClosedError,
    MemoryStoreError,
    OutcomeUnknownError,
    UnavailableError,
)

# A group is one transaction: long enough to share an fsync, short enough to be fair.
GROUP_MAX = 256


class Job:
    """A write that waits for its commit."""

    __slots__ = ("_plan", "context", "done", "error", "gone", "result", "settle", "step")

    def __init__(
        self,
        context: Context,
        op: Any,
        plan: Callable[[Context, Any], Plan[Any]],
        settle: Any = None,
    ) -> None:
        self.step = op
        self.context = context
        self._plan = plan
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False
        # Whether the caller was interrupted: then nobody may commit it later.
        self.gone = False
        # Whom to tell, where the caller does not wait on the lock.
        self.settle = settle

    def plan(self) -> Plan[Any]:
        """What to do, inside a transaction."""
        return self._plan(self.context, self.step)

    def guess(self) -> tuple[Any, ...] | None:
        """What to give to the one statement that may do the whole job."""
        return shortcut(self.context, self.step) if type(self.step) is Append else None

    def outcome(self) -> Any:
        """The plan's result, or its error."""
        if self.error is not None:
            raise self.error
        return self.result


class Writer:
    """The only connection that writes, and those who wait for it."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        connection: Connection,
        *,
        on_rollback: Callable[[], None],
        refuse_if_moved: Callable[[], None],
    ) -> None:
        self._connect = connect
        self._refuse_if_moved = refuse_if_moved
        self._on_rollback = on_rollback
        # None after a failure, or a fork, until the next write.
        self._connection: Connection | None = connection
        self._waiting: deque[Job] = deque()
        self._lock = threading.Lock()
        self._closed = False
        # Whether the lock is held because this process forks.
        self._paused = False
        self._inherited: Connection | None = None
        # Whether the commit has been asked for; before that, a group can be taken back.
        self._committing = False
        # Whether a write is under way, and whose; still so when the lock is free if it was
        # interrupted.
        self._busy = False
        self._group: list[Job] = []

    def append_alone(self, context: Context, op: Append) -> AppendResult | None:
        """Append in one statement, if that is enough and nobody else is here; else write nothing.

        Most appends go this way. Without neighbours there is no group, and no job to wait for.
        """
        if self._waiting or self._lock.locked():
            return None
        with self._lock:
            connection = self._connection
            if self._waiting or self._busy or connection is None:
                return None
            self._refuse_if_moved()
            given = shortcut(context, op)
            if given is None:
                return None
            self._busy = True
            try:
                changed = connection.execute(DoAlone(INSERT_IF_STILL, given))
                appended = build_result(context, op, given, changed)
            except BaseException as error:
                self._abandon(error)
                if isinstance(error, MemoryStoreError) or not isinstance(error, Exception):
                    raise
                raise _unknown() from error
            self._busy = False
            return appended

    def run(self, job: Job) -> Any:
        """Commit one job, together with whoever else is waiting."""
        try:
            self._waiting.append(job)
            while not job.done:
                with self._lock:
                    self._recover()
                    if not job.done:
                        self._lead(self._take())
        except BaseException:
            job.gone = True
            raise
        return job.outcome()

    def run_group(self, jobs: list[Job]) -> None:
        """Commit several plans at once; each job has its outcome afterwards."""
        with self._lock:
            self._recover()
            self._lead(jobs)

    def run_outside(self, plan: Plan[Any]) -> Any:
        """Run a plan on the writing connection, outside of any transaction."""
        with self._lock:
            self._recover()
            self._refuse_if_moved()
            return run_plan(plan, self._connected().execute)

    def close(self) -> None:
        """Wait for the running commit, then close."""
        with self._lock:
            self._recover()
            self._closed = True
            self._disconnect(checkpoint=True)

    def pause(self) -> None:
        """Before a fork: wait for the running commit and let go of the file."""
        self._lock.acquire()
        self._paused = True
        self._disconnect(checkpoint=False)

    def resume(self, *, in_child: bool) -> None:
        """After a fork: go on, in the child without the parent's waiting writes."""
        if in_child:
            self._waiting.clear()
            self._group = []
            # If Ctrl-C came before the file was let go: the parent's connection is not ours to
            # use or to close, and the lock may be one of its threads'.
            self._inherited, self._connection = self._connection, None
            self._lock = threading.Lock()
            self._paused = False
        elif self._paused:
            self._paused = False
            self._lock.release()

    def _take(self) -> list[Job]:
        jobs = self._group = []
        while self._waiting and len(jobs) < GROUP_MAX:
            job = self._waiting[0]
            if not job.gone and not job.done:
                jobs.append(job)
            # By index, not by `popleft`: an interrupt may follow on a call, and lose its result.
            del self._waiting[0]
        return jobs

    def _recover(self) -> None:
        """Clean up after a leader that was interrupted before it could."""
        if self._busy:
            self._abandon(self._interrupted())
        for job in self._group:
            if not job.done:
                job.error = self._interrupted()
                job.done = True
        self._group = []

    def _lead(self, jobs: list[Job]) -> None:
        first = jobs[0]
        self._group = jobs
        self._committing = False
        self._busy = True
        try:
            self._refuse_if_moved()
            connection = self._connection or self._connected()
            given = first.guess() if len(jobs) == 1 else None
            if given is not None:
                self._committing = True
                changed = connection.execute(DoAlone(INSERT_IF_STILL, given))
                first.result = build_result(first.context, first.step, given, changed)
            if first.result is None:
                self._commit(connection, jobs)
            self._busy = False
        except MemoryStoreError as error:
            self._abandon(error)
            for job in jobs:
                job.error = error.copy()
        except BaseException as error:
            # A bug in one plan, or Ctrl-C in the leading thread: not the neighbours' error.
            self._abandon(error)
            alone = len(jobs) == 1 and not self._committing and isinstance(error, Exception)
            for job in jobs:
                if job.error is not error:
                    job.error = error if alone else self._interrupted()
            if not isinstance(error, Exception):
                raise
        finally:
            for job in jobs:
                job.done = True

    def _connected(self) -> Connection:
        if self._closed:
            raise ClosedError("the store is closed")
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _commit(self, connection: Connection, jobs: list[Job]) -> None:
        execute = connection.execute
        self._committing = False
        execute(BEGIN_WRITE)
        for job in jobs:
            try:
                given = job.guess()
                if given is not None:
                    changed = execute(DoCounted(INSERT_IF_STILL, given))
                    job.result = build_result(job.context, job.step, given, changed)
                if job.result is None:
                    job.result = run_plan(job.plan(), execute)
            except MemoryStoreError as error:
                # What the engine raised is everyone's; what a plan says of its session is not.
                if isinstance(error.__cause__, apsw.Error):
                    raise
                job.error = error
            except Exception as error:
                # A bug in this plan. Ctrl-C is not: it meets the leader, whoever's plan it runs.
                job.error = error
                raise
        self._committing = True
        execute(COMMIT)

    def _interrupted(self) -> MemoryStoreError:
        """What those are told whose group was given up through no fault of theirs."""
        if self._committing:
            return _unknown()
        return UnavailableError(
            "another write of the same group was interrupted, and the group was rolled back:"
            " nothing was written, so it is safe to try again"
        )

    def _abandon(self, error: BaseException) -> None:
        """Roll back, and begin with a new connection where the old one may be unwell."""
        self._on_rollback()
        connection = self._connection
        if connection is not None:
            try:
                if connection.in_transaction:
                    connection.execute(ROLLBACK)
            except MemoryStoreError as second:
                error = second
            # What a file that was moved or deleted holds can be read as long as it stays open.
            if not isinstance(error, BusyError) and not getattr(error, "moved", False):
                self._disconnect(checkpoint=False)
        self._busy = False

    def _disconnect(self, *, checkpoint: bool) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(checkpoint=checkpoint)


def _unknown() -> OutcomeUnknownError:
    return OutcomeUnknownError("the commit was interrupted: it may have landed")
