"""Threads of async backends: a call that cannot be begun is told so, and never happens later."""

import asyncio
import gc
import threading

import pytest

from indelible.core.deadline import Deadline
from indelible.core.threads import WorkerThreads
from indelible.core.uncancellable import call_in_thread
from indelible.errors import ClosedError, UnavailableError

HANGS_S = 60


class Written:
    """Notes what is sent."""

    def __init__(self):
        self.requests = []

    def send(self, batch):
        for pending in batch:
            self.requests.append(pending.request)
            pending.succeed(pending.request)


def build_threads(written):
    return WorkerThreads(written.send, senders=1, callers=1, requests_max=100)


@pytest.fixture
def no_new_threads(monkeypatch):
    """The system refuses to start a thread."""

    def refuse(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        yield patched


async def test_a_write_for_which_no_thread_starts_is_never_sent(no_new_threads):
    written = Written()
    threads = build_threads(written)
    results = await asyncio.gather(
        *(threads.send(request, Deadline(HANGS_S)) for request in "ab"), return_exceptions=True
    )
    assert [(type(each), each.landed, each.retryable) for each in results] == [
        (UnavailableError, "no", True)
    ] * 2
    assert results[0] is not results[1]
    no_new_threads.undo()
    assert await threads.send("c", Deadline(HANGS_S)) == "c"
    assert written.requests == ["c"]
    await threads.close()


async def test_a_call_for_which_no_thread_starts_is_never_made(no_new_threads):
    written = Written()
    threads = build_threads(written)
    for call in (threads.call, threads.finish):
        with pytest.raises(UnavailableError):
            await call(written.requests.append, "a")
    no_new_threads.undo()
    await threads.finish(written.requests.append, "b")
    assert written.requests == ["b"]
    await threads.close()


async def test_a_call_after_closing_is_told_that_it_was_closed():
    threads = build_threads(Written())
    await threads.close()
    with pytest.raises(ClosedError):
        await threads.call(len, "a")


async def test_closing_may_leave_a_call_behind_whose_caller_has_gone():
    threads = build_threads(Written())
    begun, gate, ended = threading.Event(), threading.Event(), threading.Event()

    def work(_):
        begun.set()
        gate.wait()
        ended.set()

    task = asyncio.create_task(threads.call(work, None))
    await asyncio.to_thread(begun.wait, HANGS_S)
    task.cancel()
    await threads.close(wait=False)
    assert not ended.is_set()
    with pytest.raises(ClosedError):
        await threads.call(len, "a")
    gate.set()
    assert await asyncio.to_thread(ended.wait, HANGS_S)


def test_a_failure_that_nobody_waits_for_is_not_logged(caplog):
    may_end = threading.Event()

    async def main():
        begun, loop = asyncio.Event(), asyncio.get_running_loop()

        def fail():
            loop.call_soon_threadsafe(begun.set)
            may_end.wait(HANGS_S)
            raise ValueError("of a call whose caller was cancelled")

        task = asyncio.create_task(call_in_thread(fail))
        await begun.wait()
        task.cancel()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    gc.collect()
    assert caplog.text == ""
