"""Tasks that are cancelled, wherever they stand: nothing is half done, and nobody else suffers."""

from __future__ import annotations

import asyncio
import time
import types
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final

from indelible.contract.calling import Call
from indelible.contract.cases import case
from indelible.contract.client import Client
from indelible.contract.gates.locking import Heartbeat
from indelible.contract.gates.pacing import paced
from indelible.contract.history import Operation, OpName
from indelible.contract.room import NotClaimed, Room, Unsure

# Of one operation, the awaits at which it is cancelled: all of them, up to so many.
AWAITS_MAX: Final = 25
# A call on a healthy store that takes longer is stuck. Who cancelled holds nothing any more.
STUCK_S: Final = 20.0
# How often an innocent call may fail after somebody else's was cancelled.
TRIES: Final = 3


class Cancelled(Exception):  # noqa: N818 -- names what happened
    """The task was cancelled, and the store let go of it."""


class _Stuck(Exception):  # noqa: N818 -- names what happened
    """A call did not come back."""


class Interrupting:
    """Cancels the task that awaits something, at its n-th await."""

    def __init__(self, nth: int) -> None:
        self._nth = nth
        self.reached = False

    async def __call__(self, answer: Any) -> Any:
        """Await it, and cancel."""
        try:
            return await _bounded(self._counted(answer))
        except asyncio.CancelledError:
            # Our own doing. The loop that runs us must not take it for its own.
            task = asyncio.current_task()
            assert task is not None
            while task.uncancel():
                continue
            raise Cancelled from None

    @types.coroutine
    def _counted(self, answer: Awaitable[Any]) -> Generator[Any, Any, Any]:
        inner, left = answer.__await__(), self._nth
        thrown: BaseException | None = None
        while True:
            try:
                step = next(inner) if thrown is None else inner.throw(thrown)
            except StopIteration as finished:
                return finished.value
            left -= 1
            if left == 0:
                self.reached = True
                task = asyncio.current_task()
                assert task is not None
                # Noticed as soon as the task would wait, as if another had cancelled it meanwhile.
                task.cancel()
            thrown = None
            try:
                yield step
            except BaseException as error:  # noqa: BLE001 -- it goes where it belongs
                thrown = error


@case(
    "faults",
    catches="a cancelled task that leaves half a batch, a lock or an unread reply behind",
    modes=("async",),
)
def cancel_everywhere(room: Room) -> None:
    """Cancel every operation at each of its awaits; the next calls on the same handle are well."""
    store, awaits = room.open(), 0
    for op in paced(room, _operations(room), "operations", within_s=10.0):
        for nth in range(1, AWAITS_MAX + 1):
            session = room.session()
            call = _prepared(room, store, op, session)
            interrupting = Interrupting(nth)
            began = time.monotonic_ns()
            done = store.attempt(call, interrupting)
            if not interrupting.reached:
                break
            awaits += 1
            room.struck(f"cancel {op} at await {nth}", began, done.complete_ns)
            _is_well(room, store, session, f"{op} was cancelled at its await {nth}")
        if awaits and room.adapter.reach != "handle":
            # A lock that was left behind is not always in the way of the handle that took it.
            other = room.open()
            _is_well(room, other, session, f"{op} was cancelled at its awaits")
            other.close()
    if not awaits:
        raise NotClaimed("no call ever gave way, so none could be cancelled")
    room.read_afresh(sorted(room.sessions))


def _operations(room: Room) -> list[OpName]:
    offered: tuple[OpName, ...] = ("pop", "clear", "trim", "snapshot", "rollback", "undo", "fork")
    return ["append", "read", *(op for op in offered if room.adapter.claims([op]))]


def _prepared(room: Room, store: Client, op: OpName, session: str) -> Call:
    store.append(session, 1 if room.adapter.pairs else 2)
    if op == "append":
        return Call(op="append", session=session, ids=store.draw(1 if room.adapter.pairs else 3))
    if op == "undo":
        store.clear(session)
    snapshot = None
    if op == "rollback":
        snapshot = store.snapshot(session)
        store.append(session)
    elif op == "snapshot":
        snapshot = room.name("s")
    return Call(
        op=op,
        session=session,
        keep=1 if op == "trim" else None,
        snapshot=snapshot,
        target=room.session() if op == "fork" else None,
    )


def _is_well(room: Room, client: Client, session: str, before: str) -> None:
    """The handle reads and writes as if nothing had been."""
    for make in (_reading(session), _writing(client, session), _reading(session)):
        _succeeds(room, client, make, before)


def _reading(session: str) -> Callable[[], Call]:
    return lambda: Call(op="read", session=session)


def _writing(client: Client, session: str) -> Callable[[], Call]:
    return lambda: Call(op="append", session=session, ids=client.draw())


def _succeeds(room: Room, client: Client, make: Callable[[], Call], before: str) -> None:
    last: Operation | None = None
    with Heartbeat() as heart:
        for _ in range(TRIES):
            last = client.attempt(make(), _bounded)
            if last.outcome == "ok":
                return
            if isinstance(room.raised[-1], _Stuck):
                break
    assert last is not None
    if heart.late_s > STUCK_S / 4:
        raise Unsure(f"the machine itself stood still for {heart.late_s:.1f} s")
    if isinstance(room.raised[-1], _Stuck):
        what = f"{last.op} on {last.session} did not come back within {STUCK_S:g} s"
        room.fail("stuck after a cancel", f"after {before}, {what}", session=last.session)
    said = f"{type(room.raised[-1]).__name__}: {room.raised[-1]}"
    proof = f"after {before}, {last.op} on {last.session} failed {TRIES} times ({said})"
    room.fail("broken by a cancel", proof, session=last.session)


async def _bounded(answer: Any) -> Any:
    limit = asyncio.timeout(STUCK_S)
    try:
        async with limit:
            return await answer
    except TimeoutError:
        # A store has deadlines of its own.
        if limit.expired():
            raise _Stuck from None
        raise
