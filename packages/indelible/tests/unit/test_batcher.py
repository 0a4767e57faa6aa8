"""Group commit: who is sent with whom, and what interrupts, deadlines, closing and forks leave."""

import asyncio
import math
import os
import threading
from contextlib import suppress

import pytest

from indelible import BusyError, ClosedError, OutcomeUnknownError
from indelible.core.batcher import AsyncBatcher, Batcher
from indelible.core.deadline import Deadline
from tests.support.interrupts import HANGS_S, Interrupter, Thread
from tests.support.wait import wait_until

LIMITS = {"senders": 1, "requests_max": 100, "bytes_max": 1000, "measure": len}


def upper(batch):
    for pending in batch:
        pending.succeed(pending.request.upper())


class Gate:
    """A sender that notes its batches, and waits in those that hold a certain request."""

    def __init__(self, stops_at="first"):
        self.batches = []
        self.stops_at = stops_at
        self.open = threading.Event()

    def send(self, batch):
        requests = [pending.request for pending in batch]
        self.batches.append(requests)
        if self.stops_at in requests:
            assert self.open.wait(HANGS_S)
        upper(batch)


def begin(batcher, request, seconds=HANGS_S):
    return Thread(request).begin(batcher.run, request, Deadline(seconds))


def begin_behind(batcher, gate, *requests):
    """Have one request on its way, and the others waiting in this order."""
    results = [begin(batcher, gate.stops_at)]
    wait_until(lambda: batcher.sending == 1 and gate.batches)
    for number, request in enumerate(requests, start=1):
        results.append(begin(batcher, request))
        wait_until(lambda number=number: batcher.waiting == number)
    return results


def test_a_lone_request_is_sent_by_its_own_thread():
    threads = []

    def send(batch):
        threads.append(threading.current_thread())
        upper(batch)

    assert Batcher(send, **LIMITS).run("a", Deadline(HANGS_S)) == "A"
    assert threads == [threading.current_thread()]


def test_what_waits_is_sent_together_in_the_order_in_which_it_came():
    gate = Gate()
    batcher = Batcher(gate.send, **LIMITS)
    results = begin_behind(batcher, gate, "b", "c", "d")
    gate.open.set()
    assert [result() for result in results] == ["FIRST", "B", "C", "D"]
    assert gate.batches == [["first"], ["b", "c", "d"]]
    assert (batcher.waiting, batcher.sending) == (0, 0)


def test_a_batch_has_at_most_so_many_requests_and_bytes():
    gate = Gate()
    batcher = Batcher(gate.send, **{**LIMITS, "requests_max": 3, "bytes_max": 10})
    results = begin_behind(batcher, gate, "a", "b", "c", "d", "e" * 9, "f", "g" * 50, "h")
    gate.open.set()
    assert [len(result()) for result in results] == [5, 1, 1, 1, 1, 9, 1, 50, 1]
    assert gate.batches[1:] == [["a", "b", "c"], ["d", "e" * 9], ["f"], ["g" * 50], ["h"]]


def test_no_more_batches_are_on_their_way_than_there_are_senders():
    gate = Gate()
    batcher = Batcher(gate.send, **{**LIMITS, "senders": 2})
    first = begin(batcher, "first")
    wait_until(lambda: len(gate.batches) == 1)
    assert begin(batcher, "beside")() == "BESIDE"
    gate.stops_at = "second"
    second = begin(batcher, "second")
    wait_until(lambda: batcher.sending == 2)
    third = begin(batcher, "third")
    wait_until(lambda: batcher.waiting == 1)
    gate.open.set()
    assert [first(), second(), third()] == ["FIRST", "SECOND", "THIRD"]


def test_each_request_gets_its_own_outcome():
    gate = Gate()

    def send(batch):
        gate.send(batch)
        for pending in batch:
            if pending.request == "bad":
                pending.fail(ValueError("bad"))

    batcher = Batcher(send, **LIMITS)
    results = begin_behind(batcher, gate, "b", "bad", "c")
    gate.open.set()
    with pytest.raises(ValueError, match="bad"):
        results[2]()
    assert [results[n]() for n in (0, 1, 3)] == ["FIRST", "B", "C"]


def test_an_error_of_the_sender_itself_leaves_the_others_with_an_unknown_outcome():
    gate = Gate()

    def send(batch):
        gate.batches.append([pending.request for pending in batch])
        assert gate.open.wait(HANGS_S)
        if len(batch) > 1:
            raise MemoryError
        upper(batch)

    batcher = Batcher(send, **LIMITS)
    first, *others = begin_behind(batcher, gate, "b", "c")
    gate.open.set()
    assert first() == "FIRST"
    raised = []
    for result in others:
        with pytest.raises((MemoryError, OutcomeUnknownError)) as caught:
            result()
        raised.append(caught.type)
    assert set(raised) == {MemoryError, OutcomeUnknownError}
    assert batcher.run("again", Deadline(HANGS_S)) == "AGAIN"


def test_a_request_that_waits_until_its_deadline_is_never_sent():
    gate = Gate()
    batcher = Batcher(gate.send, **LIMITS)
    (first,) = begin_behind(batcher, gate)
    with pytest.raises(BusyError, match="nothing was written"):
        begin(batcher, "late", seconds=0.01)()
    gate.open.set()
    first()
    assert batcher.run("next", Deadline(HANGS_S)) == "NEXT"
    assert gate.batches == [["first"], ["next"]]


def test_closing_refuses_what_is_new_and_finishes_what_waits():
    gate = Gate()
    batcher = Batcher(gate.send, **LIMITS)
    results = begin_behind(batcher, gate, "b")
    batcher.close()
    with pytest.raises(ClosedError):
        batcher.run("c", Deadline(HANGS_S))
    gate.open.set()
    assert [result() for result in results] == ["FIRST", "B"]


def test_an_interrupt_at_any_point_costs_nobody_else_an_answer(monkeypatch):
    """A thread that waits, then sends, is interrupted at every point in turn."""
    # How long whoever was not woken waits before it looks again.
    monkeypatch.setattr("indelible.core.leases.LOOK_AGAIN_S", 0.05)
    points = 1
    while interrupt_at(points):
        points += 1
    assert points > 10, "it did not wait and send"
    assert points < 500, "a thread that waits is busy"


def interrupt_at(point):
    """Interrupt a thread beside others at one point, unless it is done before that."""
    gate = Gate()
    batcher = Batcher(gate.send, **LIMITS)
    (first,) = begin_behind(batcher, gate)
    interrupter = Interrupter(point)

    def run():
        with interrupter:
            return batcher.run("struck", Deadline(HANGS_S))

    struck = Thread("struck").begin(run)
    wait_until(lambda: batcher.waiting == 1 or interrupter.fired)
    beside = begin(batcher, "beside")
    wait_until(lambda: any(each.request == "beside" for each in list(batcher._waiting)))
    gate.open.set()
    with suppress(KeyboardInterrupt):
        assert struck() == "STRUCK"
    assert first() == "FIRST"
    try:
        assert beside() == "BESIDE", interrupter.where
    except OutcomeUnknownError:
        assert interrupter.fired
    assert batcher.run("after", Deadline(HANGS_S)) == "AFTER", interrupter.where
    sent = [request for batch in gate.batches for request in batch]
    assert len(sent) == len(set(sent)), interrupter.where
    assert (batcher.waiting, batcher.sending) == (0, 0), interrupter.where
    return interrupter.fired


def test_a_forked_child_starts_with_an_empty_queue():
    gate = Gate()
    batcher = Batcher(gate.send, **LIMITS)
    results = begin_behind(batcher, gate, "b")
    child = os.fork()
    if child == 0:
        gate.stops_at = None
        batcher.reset()
        ok = (batcher.waiting, batcher.sending) == (0, 0)
        ok = ok and batcher.run("child", Deadline(5)) == "CHILD"
        os._exit(0 if ok else 1)
    _, status = os.waitpid(child, 0)
    gate.open.set()
    assert os.waitstatus_to_exitcode(status) == 0
    assert [result() for result in results] == ["FIRST", "B"]


# Tasks


class AsyncGate:
    """A sender that notes its batches, and waits in those that hold a certain request."""

    def __init__(self, stops_at="first"):
        self.batches = []
        self.stops_at = stops_at
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def send(self, batch):
        requests = [pending.request for pending in batch]
        self.batches.append(requests)
        self.reached.set()
        if self.stops_at in requests:
            await self.open.wait()
        upper(batch)


async def run_behind(batcher, gate, *requests):
    """Have one request on its way, and the others waiting in this order."""
    tasks = [asyncio.create_task(batcher.run(gate.stops_at, Deadline(HANGS_S)))]
    await gate.reached.wait()
    tasks += [asyncio.create_task(batcher.run(each, Deadline(HANGS_S))) for each in requests]
    # Each task runs until it waits for its outcome.
    await asyncio.sleep(0)
    assert batcher.waiting == len(requests)
    return tasks


async def test_tasks_are_sent_together_too():
    gate = AsyncGate()
    batcher = AsyncBatcher(gate.send, **LIMITS)
    tasks = await run_behind(batcher, gate, "b", "c", "d")
    gate.open.set()
    assert await asyncio.gather(*tasks) == ["FIRST", "B", "C", "D"]
    assert gate.batches == [["first"], ["b", "c", "d"]]
    await batcher.close()
    assert (batcher.waiting, batcher.sending) == (0, 0)


async def test_tasks_that_wait_are_one_batch_unless_senders_share_them():
    gate = AsyncGate()
    batcher = AsyncBatcher(gate.send, **LIMITS | {"senders": 2})
    waiting = [asyncio.create_task(batcher.run("first", Deadline(HANGS_S))) for _ in range(64)]
    await gate.reached.wait()
    assert [len(batch) for batch in gate.batches] == [64]
    gate.open.set()
    await asyncio.gather(*waiting)
    await batcher.close()


async def test_a_cancelled_task_is_told_when_its_request_has_been_sent():
    gate = AsyncGate()
    batcher = AsyncBatcher(gate.send, **LIMITS)
    first, waits = await run_behind(batcher, gate, "b")
    first.cancel()
    waits.cancel()
    await asyncio.sleep(0)
    assert not first.done()
    assert not waits.done()
    gate.open.set()
    for task in (first, waits):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert gate.batches == [["first"], ["b"]]


async def test_a_sender_that_is_cancelled_leaves_the_others_to_the_next():
    gate = AsyncGate()
    batcher = AsyncBatcher(gate.send, **LIMITS)
    first, waits = await run_behind(batcher, gate, "b")
    (sender,) = batcher._tasks
    sender.cancel()
    with pytest.raises(OutcomeUnknownError):
        await first
    assert await waits == "B"


async def test_a_task_that_waits_until_its_deadline_is_never_sent():
    gate = AsyncGate()
    batcher = AsyncBatcher(gate.send, **LIMITS)
    (first,) = await run_behind(batcher, gate)
    with pytest.raises(BusyError, match="nothing was written"):
        await batcher.run("late", Deadline(0.01))
    gate.open.set()
    await first
    assert await batcher.run("next", Deadline(HANGS_S)) == "NEXT"
    assert gate.batches == [["first"], ["next"]]


async def test_closing_waits_for_what_was_begun():
    gate = AsyncGate()
    batcher = AsyncBatcher(gate.send, **LIMITS)
    tasks = await run_behind(batcher, gate, "b")
    closing = asyncio.create_task(batcher.close())
    await asyncio.sleep(0)
    with pytest.raises(ClosedError):
        await batcher.run("c", Deadline(HANGS_S))
    assert not closing.done()
    gate.open.set()
    await closing
    assert await asyncio.gather(*tasks) == ["FIRST", "B"]


@pytest.mark.parametrize("seconds", [math.inf, HANGS_S])
async def test_a_closed_batcher_leaves_no_timer_in_its_loop(seconds):
    gate = AsyncGate()
    batcher = AsyncBatcher(gate.send, **LIMITS)
    gate.open.set()
    assert await batcher.run("a", Deadline(seconds)) == "A"
    await batcher.close()
    timers = asyncio.get_running_loop()._scheduled
    ours = [each for each in timers if getattr(each._callback, "__self__", None) is batcher]
    assert [each for each in ours if not each.cancelled()] == []
