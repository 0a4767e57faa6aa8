# Generated from driver_async.py by scripts/generate_sync.py: edit that file instead.
"""The backend: what waits at the same time is sent together; blocking."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, TypeVar

from redis.exceptions import RedisClusterException, RedisError

from indelible.backends.redis.calls import (
    HANDLERS,
    Lost,
    RedisContext,
    ScriptCall,
    SendCommands,
)
from indelible.backends.redis.channel import Channel
from indelible.backends.redis.connection_io import get_owner, has_ended
from indelible.backends.redis.connections import RedisOptions, keeps_connections
from indelible.backends.redis.plans import prepare, read_claims
from indelible.backends.redis.requests import Wait
from indelible.backends.redis.topology import build_topology
from indelible.core.plan import Operation, Plan, run_plan
from indelible.errors import ClosedError
from indelible.model import Claims

R = TypeVar("R")


class Servers:
    """The servers, with connections that only their owner uses."""

    def __init__(self, options: RedisOptions) -> None:
        self.topology = build_topology(options)
        # By the name of the server, and whether they write.
        self.channels: dict[tuple[str, bool], Channel] = {}


class RedisBackend:
    """Performs operations on Redis, Valkey or a cluster of them, blocking."""

    def __init__(self, options: RedisOptions) -> None:
        self._options = options
        self._context = RedisContext(options)
        # By their owner: an event loop, or a process if the calls are blocking.
        self._servers: dict[Any, Servers] = {}
        self._closed = False

    def __repr__(self) -> str:
        return f"RedisBackend({self._options.shown!r})"

    def prepare(self) -> None:
        """Reach the servers, and refuse those that give less than was demanded."""
        self._run(prepare(self._context))

    def perform(self, op: Operation[R]) -> R:
        """Perform one operation: one call of a script, or several inside one state."""
        return self._run(HANDLERS.plan(self._context, op))

    def claims(self) -> Claims:
        """Return what is promised on the servers as they are configured right now."""
        return self._run(read_claims(self._context))

    def owns(self, path: Path) -> bool:  # noqa: ARG002 (no file is)
        """Whether a file is part of the store itself."""
        return False

    def close(self) -> None:
        """Release the connections; a client that was handed in stays open."""
        self._closed = True
        servers = self._servers.pop(get_owner(), None)
        if servers is not None:
            for channel in list(servers.channels.values()):
                channel.close()
            servers.topology.close()

    def find_servers(self) -> Servers:
        """Return the servers of the caller's event loop or process."""
        owner = get_owner()
        servers = self._servers.get(owner)
        if servers is None:
            for each in list(self._servers):
                if has_ended(each):
                    self._servers.pop(each, None)
            # Another thread may be as far; nothing is connected yet.
            servers = self._servers.setdefault(owner, Servers(self._options))
            self._refuse_if_closed()
        return servers

    def _run(self, plan: Plan[R]) -> R:
        self._refuse_if_closed()
        return run_plan(plan, self._execute)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ClosedError("the store is closed")

    def _execute(self, op: Operation[Any]) -> Any:
        if isinstance(op, Wait):
            time.sleep(op.seconds)
            return None
        servers = self.find_servers()
        try:
            if not isinstance(op, (ScriptCall, SendCommands)):
                return servers.topology.count()
            name, pool = servers.topology.locate(op)
        except (RedisError, RedisClusterException, OSError) as error:
            return Lost(error) if isinstance(op, (ScriptCall, SendCommands)) else error
        channel = servers.channels.get((name, op.write))
        if channel is None:
            keeps = keeps_connections(pool, owned=servers.topology.owned)
            channel = Channel(pool, self._context, writes=op.write, keeps=keeps)
            channel = servers.channels.setdefault((name, op.write), channel)
            self._refuse_if_closed()
        return channel.send(op)
