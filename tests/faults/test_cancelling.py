"""Cancelling at every await: where it strikes, and whom it does not accuse."""

import asyncio

import pytest

from memory_contract.adapter import Adapter
from memory_contract.cases.cancellation import CancelAtAwait, Cancelled
from memory_contract.contract_run import select
from memory_contract.runner import StoreUnderTest, run_case


async def three_steps(done):
    for step in range(3):
        await asyncio.sleep(0)
        done.append(step)
    return "all"


@pytest.mark.parametrize(("nth", "done"), [(1, []), (2, [0]), (3, [0, 1])])
async def test_it_cancels_at_the_await_that_it_counts(nth, done):
    found, interrupting = [], CancelAtAwait(nth)
    with pytest.raises(Cancelled):
        await interrupting(three_steps(found))
    assert interrupting.reached
    assert found == done
    assert asyncio.current_task().cancelling() == 0


async def test_what_has_fewer_awaits_is_left_alone():
    found, interrupting = [], CancelAtAwait(4)
    assert await interrupting(three_steps(found)) == "all"
    assert not interrupting.reached


async def test_what_is_not_awaited_is_its_own_answer():
    interrupting = CancelAtAwait(1)
    assert await interrupting("at once") == "at once"
    assert not interrupting.reached


class HalfAwaited:
    """Awaits to append, and reads at once; a lock is given back whatever comes."""

    def __init__(self, workspace):
        self._sessions = {}
        self._lock = asyncio.Lock()

    async def append(self, session, messages):
        async with self._lock:
            await asyncio.sleep(0)
            self._sessions.setdefault(session, []).extend(map(dict, messages))

    def read(self, session):
        return [dict(message) for message in self._sessions.get(session, [])]


class HalfABatch(HalfAwaited):
    """Gives way in the middle of a batch."""

    async def append(self, session, messages):
        for message in messages:
            self._sessions.setdefault(session, []).append(dict(message))
            await asyncio.sleep(0)


def said_of(store):
    subject = StoreUnderTest(Adapter(open_async=store, reach="handle"))
    try:
        (case,) = select(cases=["cancel_everywhere"])
        return run_case(case, "async", subject, seed=1)
    finally:
        subject.close()


def test_a_right_store_that_is_awaited_in_part_is_not_accused():
    result = said_of(HalfAwaited)
    assert (result.verdict, result.reason) == ("PASS", "")
    assert result.faults


def test_half_a_batch_is_seen():
    result = said_of(HalfABatch)
    assert result.verdict == "FAIL"
    assert result.failures[0].name == "torn batch"
