"""The blocking backend. The calling thread does the work."""

from __future__ import annotations

import threading
import time
from typing import Any, TypeVar

from indelible.backends.postgres.client import (
    GROUPS,
    Attempt,
    Pause,
    PostgresClient,
    SendInGroup,
)
from indelible.backends.postgres.connection_pool import ApplicationPool, OwnPool
from indelible.backends.postgres.options import PostgresOptions
from indelible.core import fork
from indelible.core.batcher import Batcher
from indelible.core.deadline import Deadline
from indelible.core.leases import Lease
from indelible.core.limits import LOOK_AGAIN_S
from indelible.core.operations import Append
from indelible.core.plan import Operation, Plan, run_plan
from indelible.errors import ClosedError
from indelible.model import Claims

R = TypeVar("R")


class PostgresBackend:
    """Performs operations on a PostgreSQL server, blocking."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._client = PostgresClient(options)
        self.batcher: Batcher[Append, str | None] = Batcher(self._client.send_group, **GROUPS)
        self._closed = False
        # Calls, with their threads. A lease is released even if its call is interrupted.
        self._running: set[Lease] = set()
        # Parent and child would read each other's answers: the child opens its own connections.
        fork.register(after_in_child=self.after_fork)

    @property
    def pool(self) -> OwnPool | ApplicationPool:
        """The connections."""
        return self._client.pool

    def prepare(self) -> None:
        """Connect, and create or migrate the tables."""
        self._run(self._client.prepare())

    def perform(self, op: Operation[R]) -> R:
        """Perform one operation, with all its retries."""
        return self._run(self._client.perform(op))

    def claims(self) -> Claims:
        """Return what is promised on the server as it runs now."""
        return self._run(self._client.claims())

    def close(self) -> None:
        """Wait for the calls of other threads, each until its deadline; close the connections."""
        self._closed = True
        deadline = Deadline(self._options.timeout_s)
        me = threading.get_ident()
        while deadline.left_s() > 0 and any(
            call.held and call.slot != me for call in list(self._running)
        ):
            time.sleep(min(LOOK_AGAIN_S, deadline.left_s()))
        self._client.close()

    def after_fork(self) -> None:
        """In a forked child: start without connections."""
        self._client.after_fork()
        self.batcher.reset()
        self._running = set()

    def _run(self, plan: Plan[R]) -> R:
        call = Lease()
        call.slot = threading.get_ident()
        try:
            call.held = True
            self._running.add(call)
            # After it was added: `close` either waits for it, or it is refused.
            if self._closed:
                raise ClosedError("the store is closed")
            return run_plan(plan, self._execute)
        finally:
            call.held = False
            self._running.discard(call)

    def _execute(self, op: Operation[Any]) -> Any:
        """Perform an operation of a plan."""
        match op:
            case SendInGroup():
                return self.batcher.run(op.append, op.deadline)
            case Attempt():
                return self._client.attempt(op)
            case Pause():
                return time.sleep(op.seconds)
        raise AssertionError(f"{op} is not an operation of a client's plan")
