"""The blocking driver of PostgreSQL. The calling thread does the work."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from indelible.backends.postgres.append import build_result
from indelible.backends.postgres.connection import Link
from indelible.backends.postgres.connection_pool import GivenPool, OwnPool
from indelible.backends.postgres.engine import (
    Pause,
    PostgresOptions,
    Run,
    Send,
    append_with_retries,
    prepare_schema,
    read_claims,
    run_with_retries,
)
from indelible.backends.postgres.errors import is_usable_after
from indelible.backends.postgres.groups import (
    Groups,
    Job,
    in_order,
    soonest,
    wait_s_of,
)
from indelible.backends.postgres.sending import statement_of, versions_of
from indelible.core.deadline import Deadline
from indelible.core.leases import Lease
from indelible.core.operations import Append, AppendResult
from indelible.core.plan import Operation, run_plan
from indelible.errors import MemoryStoreError
from indelible.model import Claims

R = TypeVar("R")


class PostgresBackend:
    """Performs the waist on a PostgreSQL server, blocking."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._context = options.context()
        self._pool: OwnPool | GivenPool
        if isinstance(options.target, str):
            conninfo, servers = options.conninfo()
            self._pool = OwnPool(conninfo, servers=servers, place=options.shown, seam=options.seam)
        else:
            self._pool = GivenPool(options.target, place=options.shown, seam=options.seam)
        self._groups = Groups(self._append)
        _backends.add(self)

    def prepare(self) -> None:
        """Reach the server, and see to the tables."""
        run_plan(prepare_schema(self._options), self._do)

    def perform(self, op: Operation[R]) -> R:
        """Do one step, in one transaction, with all its retries."""
        if isinstance(op, Append):
            return cast(R, self._appended(op))
        return cast(R, run_plan(run_with_retries(self._options, self._context, op), self._do))

    def claims(self) -> Claims:
        """What is promised on the server as it runs now."""
        return run_plan(read_claims(self._options), self._do)

    def owns(self, path: Path) -> bool:  # noqa: ARG002 (no file is)
        """Whether a file is part of the store itself."""
        return False

    def close(self) -> None:
        """Let go of the server."""
        _backends.discard(self)
        self._pool.close()

    def after_fork(self) -> None:
        """In a forked child: begin with no connections."""
        self._pool.after_fork()
        self._groups.after_fork()

    def _appended(self, op: Append) -> AppendResult:
        """Go with a group; what does not land there at once goes on alone."""
        job = Job(op, Deadline(self._options.timeout_s))
        self._groups.run(job)
        if job.version is not None:
            return build_result(op, job.version)
        plan = append_with_retries(self._options, self._context, op, job.patience, job.outcome)
        return run_plan(plan, self._do)

    def _do(self, op: Operation[Any]) -> Any:
        if isinstance(op, Send):
            job = Job(op.append, op.patience)
            self._append([job], alone=True)
            return job.outcome()
        if isinstance(op, Run):
            return self._on_link(lambda link: run_plan(op.plan(), link.execute), op.patience)
        assert isinstance(op, Pause)
        time.sleep(op.seconds)
        return None

    def _append(self, group: list[Job], *, alone: bool = False) -> None:
        """Send a group; each job has its outcome afterwards."""
        try:
            ordered, patience = in_order(group), soonest(group)
            wait_s = wait_s_of(patience, alone=alone)
            steps = [job.append for job in ordered]
            statement = statement_of(self._context, steps, wait_s=wait_s)
            answer = self._on_link(lambda link: link.execute(statement), patience)
            for job, version in zip(ordered, versions_of(steps, answer), strict=True):
                job.answer(version)
        except MemoryStoreError as error:
            for job in group:
                job.fail(error.copy())
        except Exception as error:  # noqa: BLE001 (a caller's clock: told to each)
            for job in group:
                job.fail(error)

    def _on_link(self, work: Callable[[Link], Any], patience: Deadline) -> Any:
        lease = Lease()
        healthy = False
        try:
            link = self._pool.borrow(lease, patience)
            try:
                answer = work(link)
                healthy = True
            except BaseException as error:
                healthy = is_usable_after(error) and _rolled_back(link)
                raise
            return answer
        finally:
            try:
                self._pool.give_back(lease, healthy=healthy)
            finally:
                lease.held = False
                self._pool.wake()


def _rolled_back(link: Link) -> bool:
    try:
        link.roll_back()
    except Exception:  # noqa: BLE001 (whatever it is, the connection is not used again)
        return False
    return True


# Connections must not be used on both sides of a fork: parent and child would read each other's
# answers. The child leaves them alone, and opens its own.
_backends: weakref.WeakSet[PostgresBackend] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for backend in list(_backends):
        backend.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
