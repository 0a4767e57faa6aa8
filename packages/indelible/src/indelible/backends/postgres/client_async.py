"""Performs operations on a server: runs their plans on connections, and sends appends in groups."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from indelible.backends.postgres.append import build_call, sort_appends
from indelible.backends.postgres.connection_async import AsyncPostgresConnection
from indelible.backends.postgres.connection_pool_async import AsyncGivenPool, AsyncOwnPool
from indelible.backends.postgres.engine import (
    GROUP_BYTES_MAX,
    GROUP_MAX,
    GROUP_WAIT_S,
    SENDERS_MAX,
    Pause,
    PostgresOptions,
    Run,
    Send,
    prepare_schema,
    read_claims,
    run_with_retries,
)
from indelible.backends.postgres.errors import is_usable_after
from indelible.backends.postgres.waiting import sleep_async
from indelible.core.batcher import AsyncBatcher, Pending
from indelible.core.deadline import Deadline
from indelible.core.leases import Lease
from indelible.core.operations import Append
from indelible.core.plan import Operation, Plan, perform, run_plan_async
from indelible.errors import MemoryStoreError
from indelible.model import Claims

R = TypeVar("R")


class AsyncPostgresClient:
    """A server, with the connections and the waiting appends of a store."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._context = options.context()
        self.pool: AsyncOwnPool | AsyncGivenPool
        if isinstance(options.target, str):
            conninfo, servers = options.conninfo()
            self.pool = AsyncOwnPool(
                conninfo, servers=servers, place=options.shown, seam=options.seam
            )
        else:
            self.pool = AsyncGivenPool(options.target, place=options.shown, seam=options.seam)
        self.batcher: AsyncBatcher[Append, str | None] = AsyncBatcher(
            self._send_group,
            senders=SENDERS_MAX,
            requests_max=GROUP_MAX,
            bytes_max=GROUP_BYTES_MAX,
            size_of=_size_of,
        )

    async def prepare(self) -> None:
        """Connect, and create or migrate the tables."""
        await run_plan_async(prepare_schema(self._options), self._do)

    async def perform(self, op: Operation[R]) -> R:
        """Perform one operation, with all its retries."""
        plan = run_with_retries(self._options, self._context, op)
        return cast(R, await run_plan_async(plan, self._do))

    async def claims(self) -> Claims:
        """Return what is promised on the server as it runs now."""
        return await run_plan_async(read_claims(self._options), self._do)

    async def _do(self, op: Operation[Any]) -> Any:
        if isinstance(op, Send):
            if not op.alone:
                return await self.batcher.run(op.append, op.deadline)
            call = build_call(self._context, [op.append])
            ((version,),) = await self._run(perform(call), op.deadline)
            return version
        if isinstance(op, Run):
            return await self._run(op.plan(), op.deadline)
        assert isinstance(op, Pause)
        await sleep_async(op.seconds)
        return None

    async def _send_group(self, batch: list[Pending[Append, str | None]]) -> None:
        """Send a group of appends; each has its outcome afterwards."""
        try:
            ordered = [batch[nth] for nth in sort_appends([one.request for one in batch])]
            appends = [one.request for one in ordered]
            call = build_call(self._context, appends, wait_s_max=GROUP_WAIT_S)
            deadline = min((one.deadline for one in batch), key=Deadline.left_s)
            (versions,) = await self._run(perform(call), deadline)
            for one, version in zip(ordered, versions, strict=True):
                one.succeed(version)
        except MemoryStoreError as error:
            for one in batch:
                one.fail(error.copy())
        except Exception as error:  # noqa: BLE001 (a caller's clock: each is told)
            for one in batch:
                one.fail(error)

    async def _run(self, plan: Plan[R], deadline: Deadline) -> R:
        """Run a plan on a connection."""
        lease = Lease()
        healthy = False
        try:
            connection = await self.pool.borrow(lease, deadline)
            try:
                result = await run_plan_async(plan, connection.execute)
                healthy = True
            except BaseException as error:
                healthy = is_usable_after(error) and await _is_rolled_back(connection)
                raise
            return result
        finally:
            try:
                await self.pool.give_back(lease, healthy=healthy)
            finally:
                lease.held = False
                self.pool.wake()


async def _is_rolled_back(connection: AsyncPostgresConnection) -> bool:
    try:
        await connection.roll_back()
    except Exception:  # noqa: BLE001 (whatever it is, the connection is not used again)
        return False
    return True


def _size_of(op: Append) -> int:
    return sum(len(draft.envelope) for draft in op.drafts)
