"""The blocking driver: threads that share connections, and send for one another."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from redis.exceptions import RedisClusterException, RedisError, ResponseError

from indelible.backends.redis.calls import HANDLERS, RedisContext
from indelible.backends.redis.connections import (
    READ_CONNECTIONS,
    TIMEOUT_S_MIN,
    WRITE_CONNECTIONS,
    connecting_within,
    keeps_connections,
)
from indelible.backends.redis.options import RedisOptions
from indelible.backends.redis.plans import build_context, prepare, read_claims
from indelible.backends.redis.request_batch import (
    BATCH_BYTES_MAX,
    BATCH_MAX,
    ConnectionSlot,
    PendingRequest,
    RequestBatch,
    compute_size,
)
from indelible.backends.redis.requests import Replies, SendCommands, Wait
from indelible.backends.redis.topology import build_topology
from indelible.core import fork
from indelible.core.batcher import Batcher
from indelible.core.leases import Lease, Slots, call_into
from indelible.core.plan import Operation, Plan, run_plan
from indelible.errors import BusyError, ClosedError, OutcomeUnknownError
from indelible.model import Claims

R = TypeVar("R")


class RedisBackend:
    """Performs operations on Redis, Valkey or a cluster of them, blocking."""

    def __init__(self, options: RedisOptions) -> None:
        self._options = options
        self._context = build_context(options)
        self._topology = build_topology(options)
        self._servers: dict[str, Node] = {}
        self._lock = threading.Lock()
        self._closed = False
        fork.register(after_in_child=self.reset)

    def __repr__(self) -> str:
        return f"RedisBackend({self._options.shown!r})"

    def prepare(self) -> None:
        """Reach the servers, and refuse those that give less than was demanded."""
        self._run(prepare(self._context))

    def perform(self, op: Operation[R]) -> R:
        """Perform one operation: one call of a script, or several inside one state."""
        return self._run(HANDLERS.plan(self._context, op))

    def claims(self) -> Claims:
        """What is promised on the servers as they are configured right now."""
        return self._run(read_claims(self._context))

    def owns(self, path: Path) -> bool:  # noqa: ARG002 (no file is)
        """Whether a file is part of the store itself."""
        return False

    def close(self) -> None:
        """Release the connections; a client that was handed in stays open."""
        with self._lock:
            self._closed = True
            servers, self._servers = self._servers, {}
        for server in servers.values():
            server.close()
        self._topology.close()

    def reset(self) -> None:
        """After a fork, in the child: what is open belongs to the parent."""
        self._lock = threading.Lock()
        self._servers = {}
        self._topology = build_topology(self._options)

    def _run(self, plan: Plan[R]) -> R:
        if self._closed:
            raise ClosedError("the store is closed")
        return run_plan(plan, self._execute)

    def _execute(self, op: Operation[Any]) -> Any:
        if isinstance(op, Wait):
            time.sleep(op.seconds)
            return None
        try:
            if not isinstance(op, SendCommands):
                return self._topology.count()
            name, pool = self._topology.locate(op)
        except (RedisError, RedisClusterException, OSError) as error:
            return Replies([], error) if isinstance(op, SendCommands) else error
        return self._find_server(name, pool).send(op)

    def _find_server(self, name: str, pool: Any) -> Node:
        server = self._servers.get(name)
        if server is None:
            with self._lock:
                if self._closed:
                    raise ClosedError("the store is closed")
                server = self._servers.get(name)
                if server is None:
                    keeps = keeps_connections(pool, owned=self._topology.owned)
                    server = self._servers[name] = Node(pool, self._context, keeps=keeps)
        return server


class Node:
    """One server: a connection for those who write, and some for those who read."""

    def __init__(self, pool: Any, context: RedisContext, *, keeps: bool) -> None:
        self.writers = Channel(pool, WRITE_CONNECTIONS, context, keeps=keeps)
        self.readers = Channel(pool, READ_CONNECTIONS, context, keeps=keeps)

    def send(self, request: SendCommands) -> Replies:
        """Send a request, and return the replies."""
        return (self.writers if request.write else self.readers).run(request)

    def close(self) -> None:
        """Release the connections."""
        self.writers.close()
        self.readers.close()


class Channel:
    """A few connections to one server. Requests that wait for them share round trips.

    A pool of redis-py does not survive an interrupt: Ctrl-C inside of its `get_connection` or
    `release`, or right after they returned, leaves a connection on its books that nobody has. So a
    connection is taken once and kept in a slot, which is leased by assignments alone.
    """

    def __init__(self, pool: Any, connections: int, context: RedisContext, *, keeps: bool) -> None:
        self._pool = pool
        self._context = context
        # Whether connections are kept: they are ours, or the application has many.
        self._keeps = keeps
        self.slots = Slots(ConnectionSlot() for _ in range(connections))
        self.batcher: Batcher[SendCommands, Replies] = Batcher(
            self._send,
            senders=connections,
            requests_max=BATCH_MAX,
            bytes_max=BATCH_BYTES_MAX,
            size_of=compute_size,
        )
        self._closed = False

    def run(self, request: SendCommands) -> Replies:
        """Send a request, with others that wait, and return its replies."""
        try:
            return self.batcher.run(request, request.deadline)
        except BusyError as error:
            return Replies([], error)
        except OutcomeUnknownError as error:
            # Whoever sent it was interrupted.
            return Replies([], error, sent=True)

    def close(self) -> None:
        """Release every idle connection; those in use follow."""
        self.batcher.close()
        self._closed = True
        for _ in self.slots.things:
            lease = Lease()
            try:
                slot = self.slots.try_take(lease)
                if slot is not None:
                    self._release(slot)
            finally:
                lease.held = False

    def _send(self, pendings: list[PendingRequest]) -> None:
        lease = Lease()
        try:
            # There are as many slots as senders.
            slot = self.slots.try_take(lease)
            assert slot is not None
            try:
                self._exchange(slot, pendings)
            finally:
                slot.used_at = time.monotonic()
                if self._closed or not self._keeps:
                    self._release(slot)
        finally:
            lease.held = False

    def _exchange(self, slot: ConnectionSlot, pendings: list[PendingRequest]) -> None:
        batch = RequestBatch(pendings, self._context)
        sent = False
        try:
            connection = self._connect(slot, max(batch.left_s, TIMEOUT_S_MIN))
            sent = slot.busy = True
            connection.send_packed_command(batch.pack(), check_health=False)
            for _ in batch.commands:
                try:
                    batch.replies.append(connection.read_response(disable_decoding=True))
                except ResponseError as error:
                    batch.replies.append(error)
            slot.busy = False
            batch.settle()
            if batch.met_replica():
                self._drop(slot)
        except (RedisError, OSError) as error:
            self._drop(slot)
            batch.lose(error, sent=sent)
        except BaseException as error:
            # Ctrl-C in the thread that sends: the others learn that theirs may have landed.
            self._drop(slot)
            batch.lose(error, sent=sent)
            raise

    def _connect(self, slot: ConnectionSlot, left_s: float) -> Any:
        """The connection of a slot, checked if it was idle, with the time that is left."""
        if slot.busy:
            self._drop(slot)
        if slot.box and slot.is_stale:
            try:
                stale = slot.connection.can_read()
            except (RedisError, OSError):
                stale = True
            if stale:
                self._drop(slot)
        if not slot.box:
            with connecting_within(left_s):
                call_into(slot.box, self._pool.get_connection)
        connection = slot.box[0]
        if not slot.waits_about(left_s) and not self._context.simulated:
            connection.update_current_socket_timeout(left_s)
            slot.timeout_s = left_s
        return connection

    def _drop(self, slot: ConnectionSlot) -> None:
        """Close the connection of a slot, and give it back to the pool."""
        connection = slot.clear()
        if connection is not None:
            with suppress(RedisError, OSError):
                connection.disconnect()
            self._pool.release(connection)

    def _release(self, slot: ConnectionSlot) -> None:
        """Give a connection that is well back to the pool, with the timeout that it came with."""
        if slot.busy:
            self._drop(slot)
        connection = slot.clear()
        if connection is not None:
            if not self._context.simulated:
                connection.update_current_socket_timeout(-1)
            self._pool.release(connection)
