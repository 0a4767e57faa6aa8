"""The blocking driver: a calling thread also sends the requests of others."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, TypeVar

from redis.exceptions import RedisClusterException, RedisError

from indelible.backends.redis.calls import HANDLERS, Lost, ScriptCall, SendCommands
from indelible.backends.redis.channel import Node
from indelible.backends.redis.connections import RedisOptions, keeps_connections
from indelible.backends.redis.plans import build_context, prepare, read_claims
from indelible.backends.redis.requests import Wait
from indelible.backends.redis.topology import build_topology
from indelible.core import fork
from indelible.core.plan import Operation, Plan, run_plan
from indelible.errors import ClosedError
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
        """Return what is promised on the servers as they are configured right now."""
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
        """In a forked child: leave the connections to the parent."""
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
            if not isinstance(op, (ScriptCall, SendCommands)):
                return self._topology.count()
            name, pool = self._topology.locate(op)
        except (RedisError, RedisClusterException, OSError) as error:
            return Lost(error) if isinstance(op, (ScriptCall, SendCommands)) else error
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
