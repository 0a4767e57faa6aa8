"""Tasks that are cancelled, wherever they stand: nothing is half done, and nobody else suffers."""

from __future__ import annotations

import asyncio
import inspect
import time
import types
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final

from memory_contract.calls import Call
from memory_contract.case_context import CaseContext, CaseNotClaimed, CaseUnknown
from memory_contract.cases.case import case
from memory_contract.cases.lock_bounds import Heartbeat
from memory_contract.cases.pacing import paced
from memory_contract.cases.verbs import Verb, calls_of, claimed
from memory_contract.client import Client

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
        if not inspect.isawaitable(answer):
            return answer
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
def cancel_everywhere(context: CaseContext) -> None:
    """Cancel every operation at each of its awaits; the next calls on the same handle are well."""
    store, struck = context.open(), ""
    for verb in paced(context, claimed(context), "operations", within_s=10.0):
        for nth in range(1, AWAITS_MAX + 1):
            session = _cancel(context, store, verb, nth)
            if session is None:
                break
            struck = session
            if _complaint(context, store, session, f"{verb} was cancelled at its await {nth}"):
                _try_again(context, verb, nth)
        if struck and context.adapter.reach != "handle":
            # A lock that was left behind is not always in the way of the handle that took it.
            other = context.open()
            _complaint(context, other, struck, f"{verb} was cancelled on another handle")
            other.close()
    if not struck:
        raise CaseNotClaimed("no call ever gave way, so none could be cancelled")
    context.read_with_fresh_client(sorted(context.sessions))


def _cancel(context: CaseContext, store: Client, verb: Verb, nth: int) -> str | None:
    """Cancel an operation at its n-th await; its session, or None if it has no such await."""
    *before, call = calls_of(context, verb)
    for each in before:
        store.make(each)
    interrupting, began_ns = Interrupting(nth), time.monotonic_ns()
    done = store.attempt(call, interrupting)
    if not interrupting.reached:
        return None
    context.record_fault(f"cancel {verb} at await {nth}", began_ns, done.complete_ns)
    return call.session


def _try_again(context: CaseContext, verb: Verb, nth: int) -> None:
    """An innocent call failed, and then succeeded: what happens twice is no accident."""
    store = context.open()
    session = _cancel(context, store, verb, nth)
    if session is not None:
        before = f"{verb} was cancelled at its await {nth}"
        if said := _complaint(context, store, session, before):
            context.fail("broken by a cancel", said, session=session)
    store.close()


def _complaint(context: CaseContext, client: Client, session: str, before: str) -> str:
    """What failed of the next calls on a handle, which nobody cancelled; empty if nothing did."""
    makes = (_reading(session), _writing(client, session), _reading(session))
    said = [_failing(context, client, make, before) for make in makes]
    return next(filter(None, said), "")


def _reading(session: str) -> Callable[[], Call]:
    return lambda: Call(op="read", session=session)


def _writing(client: Client, session: str) -> Callable[[], Call]:
    return lambda: Call(op="append", session=session, ids=client.draw())


def _failing(context: CaseContext, client: Client, make: Callable[[], Call], before: str) -> str:
    """Make a call until it succeeds; what was said the first time, if it did not at once."""
    said, last = "", None
    with Heartbeat() as heart:
        for _ in range(TRIES):
            last = client.attempt(make(), _bounded)
            if last.outcome == "ok":
                return said
            if isinstance(context.raised[-1], _Stuck):
                break
            words = f"{type(context.raised[-1]).__name__}: {context.raised[-1]}"
            said = said or f"after {before}, {last.op} on {last.session} raised {words}"
    assert last is not None
    if heart.late_s > STUCK_S / 4:
        raise CaseUnknown(f"the machine itself stood still for {heart.late_s:.1f} s")
    stuck = isinstance(context.raised[-1], _Stuck)
    if stuck:
        said = f"after {before}, {last.op} did not come back within {STUCK_S:g} s"
    name = "stuck after a cancel" if stuck else "broken by a cancel"
    return context.fail(name, said, session=last.session)


async def _bounded(answer: Any) -> Any:
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
            raise _Stuck from None
        raise
