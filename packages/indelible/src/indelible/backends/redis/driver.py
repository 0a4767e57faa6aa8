"""The blocking driver: threads that share connections, and carry for one another."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

from redis.exceptions import NoScriptError, RedisError, ResponseError

from indelible.backends.redis.calls import Context
from indelible.backends.redis.cluster import Address
from indelible.backends.redis.connection_slots import (
    ConnectionSlot,
    PendingRequest,
    RequestBatch,
    is_read_only,
    longest_s,
    take,
)
from indelible.backends.redis.connections import (
    READ_LANES,
    TIMEOUT_S_MIN,
    WRITE_LANES,
    ConnectionSource,
    connecting_within,
    origin_of,
)
from indelible.backends.redis.errors import WaitedError
from indelible.backends.redis.options import RedisOptions
from indelible.backends.redis.router import Replies, Router, SendCommands, Wait
from indelible.backends.redis.shortcut import Part, Shortcut, alone
from indelible.core.deadline import Deadline
from indelible.core.leases import Leaders, Lease, call_into
from indelible.core.operations import Append, AppendResult
from indelible.core.plan import Operation, Plan, run_plan
from indelible.errors import ClosedError
from indelible.model import Claims

R = TypeVar("R")


class RedisBackend:
    """Performs the waist on Redis, Valkey or a cluster of them, blocking."""

    def __init__(self, options: RedisOptions) -> None:
        self._options = options
        self._origin = origin_of(options, awaited=False)
        context = Context(
            namespace=options.namespace,
            clock=options.clock,
            durability=options.durability,
            shown=options.shown,
        )
        context.simulated = self._origin.simulated
        self._network = Router(context, timeout_s=options.timeout_s, seeds=self._origin.seeds)
        self._shortcut = Shortcut(context, cluster=self._network.is_cluster)
        self._servers: dict[Address | None, Server] = {}
        self._lock = threading.Lock()
        self._closed = False
        _backends.add(self)

    def __repr__(self) -> str:
        return f"RedisBackend({self._options.shown!r})"

    def prepare(self) -> None:
        """Reach the servers, and refuse those that give less than was demanded."""
        self._drive(self._network.prepare())

    def perform(self, op: Operation[R]) -> R:
        """Do one step: one script call, or several inside one state."""
        if type(op) is Append:
            return cast(R, self._append(op))
        return cast(R, self._drive(self._network.perform(op)))

    def _append(self, op: Append) -> AppendResult:
        """Append by the shortcut if it fits, else by the way that fits all."""
        lost: BaseException | None = None
        started = time.monotonic()
        shortcut = self._shortcut
        part = shortcut.part(op) if shortcut.usable and not self._closed else None
        if part is not None:
            reply, lost = self._send(part)
            if isinstance(reply, NoScriptError):
                reply, lost = self._send(part._replace(by_text=True))
            appended = shortcut.appended(op, reply)
            if appended is not None:
                return appended
            op = replace(op, fresh=op.fresh and lost is None)
        left_s = max(0.0, self._options.timeout_s - (time.monotonic() - started))
        done: AppendResult = self._drive(self._network.append(op, lost=lost, left_s=left_s))
        shortcut.learn(op)
        return done

    def _send(self, part: Part) -> tuple[Any, BaseException | None]:
        """The reply to a shortcut; or what became of it, if it was sent and none came."""
        carried = self._server(None).append(part)
        if carried.lost is None:
            return carried.replies[-1], None
        return None, carried.lost if carried.sent else None

    def claims(self) -> Claims:
        """What is promised on the servers as they are configured right now."""
        return self._drive(self._network.claims())

    def owns(self, path: Path) -> bool:  # noqa: ARG002 (no file is)
        """Whether a file is part of the store itself."""
        return False

    def close(self) -> None:
        """Let go of the connections; a client that was handed in stays open."""
        with self._lock:
            self._closed = True
            servers, self._servers = self._servers, {}
        for server in servers.values():
            server.close(owned=self._origin.owned)

    def forget_connections(self) -> None:
        """After a fork, in the child: what was open is the parent's."""
        self._lock = threading.Lock()
        self._servers = {}

    def _drive(self, plan: Plan[R]) -> R:
        if self._closed:
            raise ClosedError("the store is closed")
        return run_plan(plan, self._execute)

    def _execute(self, op: Operation[Any]) -> Any:
        if type(op) is SendCommands:
            return self._server(op.address).carry(op)
        assert isinstance(op, Wait)
        time.sleep(op.seconds)
        return None

    def _server(self, address: Address | None) -> Server:
        server = self._servers.get(address)
        if server is None:
            with self._lock:
                if self._closed:
                    raise ClosedError("the store is closed")
                server = self._servers.get(address)
                if server is None:
                    server = Server(self._origin, address, self._network)
                    self._servers[address] = server
        return server


class Server:
    """One server: a lane for those who write, and some for those who read."""

    def __init__(self, origin: ConnectionSource, address: Address | None, network: Router) -> None:
        self._pool = origin.pool(address)
        self._timeout_s = network.timeout_s
        self._writers = Lanes(self._pool, WRITE_LANES, network, origin)
        self._readers = Lanes(self._pool, READ_LANES, network, origin)

    def carry(self, carry: SendCommands) -> Replies:
        """Take commands there and bring their replies."""
        return (self._writers if carry.write else self._readers).run(carry)

    def append(self, part: Part) -> Replies:
        """Take one append there, alone if nobody else is on the way."""
        carried = self._writers.run_alone((alone(part),), self._timeout_s)
        if carried is not None:
            return carried
        patience = Deadline(self._timeout_s)
        return self._writers.run(SendCommands(None, (), patience, write=True, part=part))

    def close(self, *, owned: bool) -> None:
        """Let go of the connections."""
        self._writers.close()
        self._readers.close()
        if owned:
            self._pool.disconnect()


class Lanes:
    """A few connections, and the threads that wait for them.

    Whoever finds a free lane carries its own parcel. Others wait; when a lane is free again, the
    first of them carries all that wait, in one round trip, and tells everyone.
    """

    def __init__(
        self, pool: Any, lanes_max: int, network: Router, origin: ConnectionSource
    ) -> None:
        self._pool = pool
        self._network = network
        self._simulated = origin.simulated
        self._keeps = origin.keeps(pool)
        self._leaders: Leaders[ConnectionSlot, PendingRequest] = Leaders(
            (ConnectionSlot() for _ in range(lanes_max)), self._lead, take
        )
        self._closed = False

    def run(self, carry: SendCommands) -> Replies:
        """Carry commands, or have them carried."""
        if carry.part is None and not carry.confirmed:
            carried = self.run_alone(carry.commands, carry.patience.left_s())
            if carried is not None:
                return carried
        parcel = PendingRequest(carry)
        if not self._leaders.run(parcel, carry.patience.left_s):
            return Replies([], WaitedError("no connection became free in time"))
        return parcel.outcome()

    def run_alone(self, commands: Sequence[bytes], left_s: float) -> Replies | None:
        """Carry commands if a lane is free and its connection ready; None if nothing was sent."""
        lease = Lease()
        try:
            lane = self._leaders.try_take(lease)
            if lane is None or lane.busy or lane.connection is None:
                return None
            if lane.rested or not lane.waits_for(left_s):
                return None
            try:
                return self._exchange(lane, commands)
            finally:
                self._rest(lane)
        finally:
            lease.held = False
            self._leaders.wake()

    def _exchange(self, lane: ConnectionSlot, commands: Sequence[bytes]) -> Replies:
        connection = lane.connection
        replies: list[Any] = []
        lane.busy = True
        try:
            connection.send_packed_command((b"".join(commands),), check_health=False)
            for _ in commands:
                try:
                    replies.append(connection.read_response(disable_decoding=True))
                except ResponseError as error:
                    replies.append(error)
            lane.busy = False
            if any(map(is_read_only, replies)):
                self._drop(lane)
            return Replies(replies)
        except (RedisError, OSError) as error:
            self._drop(lane)
            return Replies([], error, sent=True)
        except BaseException:
            self._drop(lane)
            raise

    def _lead(self, lane: ConnectionSlot, group: list[PendingRequest]) -> None:
        if self._closed:
            for parcel in group:
                parcel.carried = Replies([], WaitedError("the store was closed"))
            return
        try:
            self._carry(lane, group)
        finally:
            self._rest(lane)

    def _rest(self, lane: ConnectionSlot) -> None:
        """A group was carried: keep the connection, unless the pool needs it back."""
        lane.used_at = time.monotonic()
        if self._closed:
            self._drop(lane)
        elif not self._keeps and not lane.busy:
            self._give_back(lane)

    def _carry(self, lane: ConnectionSlot, group: list[PendingRequest]) -> None:
        trip = RequestBatch(group)
        sent = False
        try:
            connection = self._connected(lane, group)
            commands = trip.commands(disks=self._network.waits_for_disks)
            sent = lane.busy = True
            connection.send_packed_command([b"".join(commands)], check_health=False)
            for _ in commands:
                try:
                    trip.take(connection.read_response(disable_decoding=True))
                except ResponseError as error:
                    trip.take(error)
            lane.busy = False
            trip.settle()
            if trip.met_a_replica():
                self._drop(lane)
        except (RedisError, OSError) as error:
            self._drop(lane)
            trip.lose(error, sent=sent)
        except BaseException as error:
            # Ctrl-C in the thread that leads: the others learn that theirs may have landed.
            self._drop(lane)
            trip.lose(error, sent=sent)
            raise

    def _connected(self, lane: ConnectionSlot, group: list[PendingRequest]) -> Any:
        """The lane's connection, looked at if it rested, with the time that is left."""
        if lane.busy:
            self._drop(lane)
        if lane.connection is not None and lane.rested:
            try:
                stale = lane.connection.can_read()
            except (RedisError, OSError):
                stale = True
            if stale:
                self._drop(lane)
        if lane.connection is None:
            with connecting_within(longest_s(group)):
                call_into(lane.box, self._pool.get_connection)
            lane.timeout_s = None
        connection = lane.connection
        left_s = max(longest_s(group), TIMEOUT_S_MIN)
        if not lane.waits_for(left_s):
            lane.timeout_s = left_s
            if not self._simulated:
                connection.update_current_socket_timeout(left_s)
        return connection

    def _drop(self, lane: ConnectionSlot) -> None:
        connection = lane.clear()
        if connection is not None:
            with suppress(RedisError, OSError):
                connection.disconnect()
            self._pool.release(connection)

    def close(self) -> None:
        """Give every idle connection back; those in use follow."""
        self._closed = True
        leases = [Lease() for _ in self._leaders.things]
        try:
            for lease in leases:
                lane = self._leaders.try_take(lease, ahead=True)
                if lane is not None:
                    self._give_back(lane)
        finally:
            for lease in leases:
                lease.held = False
            self._leaders.wake()

    def _give_back(self, lane: ConnectionSlot) -> None:
        """Let the pool have a connection that is well, with the deadline that it came with."""
        if lane.busy:
            self._drop(lane)
        connection = lane.clear()
        if connection is not None:
            if not self._simulated:
                connection.update_current_socket_timeout(-1)
            self._pool.release(connection)


_backends: weakref.WeakSet[RedisBackend] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for backend in list(_backends):
        backend.forget_connections()


os.register_at_fork(after_in_child=_after_fork_in_child)
