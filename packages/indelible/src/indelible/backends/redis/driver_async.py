"""The async driver: tasks whose requests share round trips."""

from __future__ import annotations

import asyncio
import weakref
from pathlib import Path
from typing import Any, TypeVar

from redis.exceptions import RedisClusterException, RedisError

from indelible.backends.redis.calls import HANDLERS, Lost, ScriptCall, SendCommands
from indelible.backends.redis.channel_async import AsyncNode
from indelible.backends.redis.connections import RedisOptions, keeps_connections
from indelible.backends.redis.plans import build_context, prepare, read_claims
from indelible.backends.redis.requests import Wait
from indelible.backends.redis.topology_async import build_topology_async
from indelible.core.plan import Operation, Plan, run_plan_async
from indelible.errors import ClosedError
from indelible.model import Claims

R = TypeVar("R")


class LoopState:
    """What belongs to one event loop: connections cannot be used in another."""

    def __init__(self, options: RedisOptions) -> None:
        self.topology = build_topology_async(options)
        self.servers: dict[str, AsyncNode] = {}


class AsyncRedisBackend:
    """Performs operations on Redis, Valkey or a cluster of them, async."""

    def __init__(self, options: RedisOptions) -> None:
        self._options = options
        self._context = build_context(options)
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopState] = (
            weakref.WeakKeyDictionary()
        )
        self._closed = False

    def __repr__(self) -> str:
        return f"AsyncRedisBackend({self._options.shown!r})"

    async def prepare(self) -> None:
        """Reach the servers, and refuse those that give less than was demanded."""
        await self._run(prepare(self._context))

    async def perform(self, op: Operation[R]) -> R:
        """Perform one operation: one call of a script, or several inside one state."""
        return await self._run(HANDLERS.plan(self._context, op))

    async def claims(self) -> Claims:
        """Return what is promised on the servers as they are configured right now."""
        return await self._run(read_claims(self._context))

    def owns(self, path: Path) -> bool:  # noqa: ARG002 (no file is)
        """Whether a file is part of the store itself."""
        return False

    async def close(self) -> None:
        """Release the connections; a client that was handed in stays open."""
        self._closed = True
        state = self._loops.pop(asyncio.get_running_loop(), None)
        if state is not None:
            for server in state.servers.values():
                await server.close()
            await state.topology.close()

    async def _run(self, plan: Plan[R]) -> R:
        if self._closed:
            raise ClosedError("the store is closed")
        return await run_plan_async(plan, self._execute)

    async def _execute(self, op: Operation[Any]) -> Any:
        if isinstance(op, Wait):
            await asyncio.sleep(op.seconds)
            return None
        state = self._find_state()
        try:
            if not isinstance(op, (ScriptCall, SendCommands)):
                return await state.topology.count()
            name, pool = await state.topology.locate(op)
        except (RedisError, RedisClusterException, OSError) as error:
            return Lost(error) if isinstance(op, (ScriptCall, SendCommands)) else error
        return await self._find_server(state, name, pool).send(op)

    def _find_state(self) -> LoopState:
        loop = asyncio.get_running_loop()
        state = self._loops.get(loop)
        if state is None:
            if self._closed:
                raise ClosedError("the store is closed")
            state = self._loops[loop] = LoopState(self._options)
        return state

    def _find_server(self, state: LoopState, name: str, pool: Any) -> AsyncNode:
        server = state.servers.get(name)
        if server is None:
            keeps = keeps_connections(pool, owned=state.topology.owned)
            server = state.servers[name] = AsyncNode(pool, self._context, keeps=keeps)
        return server
