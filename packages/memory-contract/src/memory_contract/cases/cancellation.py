"""Tasks that are cancelled at any await: nothing is half done, and other calls work."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import Any, Final

from memory_contract.calls import Call
from memory_contract.case_context import CaseContext, CaseNotClaimed, Client
from memory_contract.cases.case import case
from memory_contract.cases.locks import Heartbeat
from memory_contract.cases.workload import Verb, build_calls, list_verbs, pace
from memory_contract.handles import StepwiseAwait

# The awaits of one operation at which it is cancelled: all of them, up to this number.
AWAITS_MAX: Final = 25
# A call on a healthy store that takes longer is stuck.
STUCK_S: Final = 20.0
# How often another call may fail after a cancelled one.
TRIES: Final = 3


class Cancelled(Exception):  # noqa: N818 -- names what happened
    """The task was cancelled, and the call ended."""


class _StuckError(Exception):
    """A call did not return."""


class CancelAtAwait:
    """Cancels the task that awaits something, at its n-th await."""

    def __init__(self, nth: int) -> None:
        self._left = nth
        self.reached = False

    async def __call__(self, answer: Any) -> Any:
        """Await it, and cancel."""
        if not inspect.isawaitable(answer):
            return answer
        try:
            return await _await_bounded(StepwiseAwait(answer, self._count))
        except asyncio.CancelledError:
            # The case cancelled it; the event loop must not treat the task as cancelled.
            task = asyncio.current_task()
            assert task is not None
            while task.uncancel():
                continue
            raise Cancelled from None

    def _count(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.reached = True
            task = asyncio.current_task()
            assert task is not None
            # Takes effect when the task next waits, as if another task had cancelled it.
            task.cancel()


@case(
    "faults",
    catches="a cancelled task that leaves half a batch, a lock or an unread reply behind",
    reach="handle",
    modes=("async",),
)
def cancel_everywhere(context: CaseContext) -> None:
    """Cancel every operation at each of its awaits; later calls on the handle work."""
    store, struck = context.open(), ""
    for verb in pace(context, list_verbs(context), "operations", within_s=10.0):
        for nth in range(1, AWAITS_MAX + 1):
            session = _cancel(store, verb, nth)
            if session is None:
                break
            struck = session
            before = f"{verb} was cancelled at its await {nth}"
            if _find_complaint(store, session, before):
                # A later call failed once: if it happens again, the store fails.
                fresh = context.open()
                session = _cancel(fresh, verb, nth)
                if session and (said := _find_complaint(fresh, session, before)):
                    context.fail("broken by a cancel", said, session=session)
                fresh.close()
        if struck and context.adapter.reach != "handle":
            # A lock that was left behind may not block the handle that took it.
            other = context.open()
            _find_complaint(other, struck, f"{verb} was cancelled on another handle")
            other.close()
    if not struck:
        raise CaseNotClaimed("no call ever gave way, so none could be cancelled")
    context.read_with_fresh_client(sorted(context.sessions))


def _cancel(store: Client, verb: Verb, nth: int) -> str | None:
    """Cancel an operation at its n-th await; its session, or None if it has no such await."""
    *before, call = build_calls(store.context, verb)
    for each in before:
        store.make(each)
    interrupting, began_ns = CancelAtAwait(nth), time.monotonic_ns()
    done = store.attempt(call, interrupting)
    if not interrupting.reached:
        return None
    store.context.record_fault(f"cancel {verb} at await {nth}", began_ns, done.complete_ns)
    return call.session


def _find_complaint(client: Client, session: str, before: str) -> str:
    """Make further calls on a handle, each until it succeeds; the first error, or empty."""
    context, said = client.context, ""
    for op in ("read", "append", "read"):
        with Heartbeat() as heart:
            for _ in range(TRIES):
                ids = client.draw() if op == "append" else ()
                last = client.attempt(Call(op=op, session=session, ids=ids), _await_bounded)
                if last.outcome == "ok":
                    break
                error = context.raised[-1]
                if isinstance(error, _StuckError):
                    break
                words = f"{type(error).__name__}: {error}"
                said = said or f"after {before}, {op} on {session} raised {words}"
        if last.outcome != "ok":
            heart.require_calm(STUCK_S)
            if isinstance(context.raised[-1], _StuckError):
                said = f"after {before}, {op} did not come back within {STUCK_S:g} s"
                context.fail("stuck after a cancel", said, session=session)
            context.fail("broken by a cancel", said, session=session)
    return said


async def _await_bounded(answer: Any) -> Any:
    if not inspect.isawaitable(answer):
        # A store may await some of its methods only.
        return answer
    limit = asyncio.timeout(STUCK_S)
    try:
        async with limit:
            return await answer
    except TimeoutError:
        # A store has deadlines of its own.
        if limit.expired():
            raise _StuckError from None
        raise
