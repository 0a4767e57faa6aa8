"""The loop of the explorer: it permutes the steps of tasks, and keeps what asyncio promises."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from memory_contract.explorer.loop import Clock, ExploringLoop, find_task
from memory_contract.explorer.schedules import RandomOrder, RecordedOrder

SEEDS = range(12)


async def turns(log, name, count):
    for number in range(count):
        log.append((name, number))
        await asyncio.sleep(0)


def order_of(chooser, count=5):
    log = []

    async def main():
        await asyncio.gather(*(turns(log, name, count) for name in "abc"))

    with asyncio.Runner(loop_factory=lambda: ExploringLoop(chooser)) as runner:
        runner.run(main())
        loop = runner.get_loop()
    return log, loop


def test_in_the_plain_order_a_task_goes_on_as_long_as_it_can():
    log, loop = order_of(RecordedOrder())
    assert [name for name, _ in log] == [*"aaaaa", *"bbbbb", *"ccccc"]
    assert loop.switches == ()
    assert loop.is_exact


def test_the_same_seed_gives_the_same_order_and_others_give_others():
    orders = [order_of(RandomOrder(seed))[0] for seed in SEEDS]
    assert orders == [order_of(RandomOrder(seed))[0] for seed in SEEDS]
    assert len(set(map(tuple, orders))) > len(SEEDS) / 2
    for log in orders:
        assert sorted(log) == sorted(orders[0])
        for name in "abc":
            assert [number for who, number in log if who == name] == list(range(5))


def test_what_was_recorded_gives_the_same_order():
    for seed in SEEDS:
        log, loop = order_of(RandomOrder(seed))
        again, replayed = order_of(RecordedOrder(loop.switches))
        assert (again, replayed.switches) == (log, loop.switches)


def test_nobody_starves():
    """A task that waits in a loop for another one's doing ends, whatever the ranks."""

    async def main():
        done = asyncio.Event()

        async def spin():
            while not done.is_set():  # noqa: ASYNC110 -- that is what it is about
                await asyncio.sleep(0)

        async def work():
            for _ in range(3):
                await asyncio.sleep(0)
            done.set()

        await asyncio.gather(spin(), spin(), work())

    for seed in SEEDS:
        run_exploring(main, seed)


def run_exploring(main, seed=0):
    """What it came to, and the loop."""
    with asyncio.Runner(loop_factory=lambda: ExploringLoop(RandomOrder(seed))) as runner:
        return runner.run(main()), runner.get_loop()


class PythonTask(asyncio.tasks._PyTask):
    pass


@pytest.mark.parametrize("factory", [None, PythonTask])
def test_steps_are_told_from_other_callbacks(factory):
    steps = []

    class SentinelGroup(asyncio.SelectorEventLoop):
        def call_soon(self, callback, *args, context=None):
            steps.append((find_task(callback), getattr(callback, "__name__", "")))
            return super().call_soon(callback, *args, context=context)

    async def main():
        task = asyncio.current_task()
        asyncio.get_running_loop().call_soon(task.get_name)
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        return task

    loop = SentinelGroup()
    if factory is not None:
        loop.set_task_factory(lambda loop, coro, **options: factory(coro, loop=loop, **options))
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        task = runner.run(main())
    # Its beginning, after each sleep; not the callback that is a method of it.
    assert [found for found, _ in steps].count(task) == 3
    assert (None, "get_name") in steps


@pytest.mark.parametrize("seed", SEEDS)
def test_the_promises_of_asyncio_hold(seed):
    var = contextvars.ContextVar("var", default="outer")

    async def main():
        loop, seen = asyncio.get_running_loop(), []
        # Callbacks and timers keep their order.
        for number in range(5):
            loop.call_soon(seen.append, number)
        await asyncio.sleep(0)
        assert seen == [0, 1, 2, 3, 4]
        for number in (2, 0, 1):
            loop.call_later(number / 1000, seen.append, f"after {number}")
        began = loop.time()
        await asyncio.sleep(0.004)
        assert loop.time() - began >= 0.004
        assert seen[5:] == ["after 0", "after 1", "after 2"]

        # Context variables stay with their task.
        async def sets(value):
            var.set(value)
            await asyncio.sleep(0)
            return var.get()

        assert await asyncio.gather(*map(sets, "xyz")) == ["x", "y", "z"]
        assert var.get() == "outer"
        await cancelled_and_timed_out()
        await through_a_queue()

    _, loop = run_exploring(main, seed)
    assert loop.is_exact


async def cancelled_and_timed_out():
    async def forever():
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(forever(), 0.001)
    task = asyncio.create_task(forever())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    async def fails():
        await asyncio.sleep(0)
        raise ValueError

    others = []

    async def grouped():
        async with asyncio.TaskGroup() as group:
            others.append(group.create_task(forever()))
            group.create_task(fails())

    with pytest.raises(ExceptionGroup):
        await grouped()
    assert others[0].cancelled()


async def through_a_queue():
    queue, got = asyncio.Queue(2), []

    async def produce():
        for number in range(10):
            await queue.put(number)

    async def consume():
        while len(got) < 10:
            got.append(await queue.get())

    await asyncio.gather(produce(), consume())
    assert got == list(range(10))


@pytest.mark.parametrize("seed", SEEDS)
def test_locks_conditions_and_generators_work(seed):
    async def main():
        lock, inside, most = asyncio.Lock(), 0, 0
        condition = asyncio.Condition()

        async def enter():
            nonlocal inside, most
            async with lock:
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1
            async with condition:
                condition.notify_all()

        async def numbers():
            for number in range(3):
                await asyncio.sleep(0)
                yield number

        async def wait():
            async with condition:
                await condition.wait()

        waiting = asyncio.create_task(wait())
        await asyncio.gather(*(enter() for _ in range(5)))
        async with condition:
            condition.notify_all()
        await asyncio.sleep(0.001)
        async with condition:
            condition.notify_all()
        await waiting
        assert most == 1
        assert [number async for number in numbers()] == [0, 1, 2]

    _, loop = run_exploring(main, seed)
    assert loop.is_exact


@pytest.mark.parametrize("seed", SEEDS)
def test_sockets_work_and_are_noticed(seed):
    async def main():
        async def echo(reader, writer):
            while line := await reader.readline():
                writer.write(line)
                await writer.drain()
            writer.close()
            await writer.wait_closed()

        async def talk(server, name):
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            for number in range(5):
                writer.write(f"{name} {number}\n".encode())
                await writer.drain()
                assert await reader.readline() == f"{name} {number}\n".encode()
            writer.close()
            await writer.wait_closed()

        async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
            await asyncio.gather(*(talk(server, name) for name in "abc"))

    _, loop = run_exploring(main, seed)
    assert not loop.is_exact


def test_subprocesses_work_and_are_noticed():
    async def main():
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "print('hello')", stdout=asyncio.subprocess.PIPE
        )
        out, _ = await child.communicate()
        return out

    out, loop = run_exploring(main, 3)
    assert out == b"hello\n"
    assert not loop.is_exact


def test_threads_are_noticed():
    with ThreadPoolExecutor(1) as pool:

        async def in_executor():
            # The event loop shuts down only an executor of its own, which would show, too.
            return await asyncio.get_running_loop().run_in_executor(pool, threading.get_ident)

        other, loop = run_exploring(in_executor)
    assert other != threading.get_ident()
    assert not loop.is_exact

    async def woken():
        loop, future = asyncio.get_running_loop(), asyncio.Future()
        wake = threading.Thread(target=loop.call_soon_threadsafe, args=(future.set_result, 1))
        wake.start()
        await asyncio.wait_for(future, 60)
        wake.join()

    _, loop = run_exploring(woken)
    assert not loop.is_exact


def test_a_call_from_its_own_thread_is_exact():
    async def main():
        future = asyncio.Future()
        asyncio.get_running_loop().call_soon_threadsafe(future.set_result, 1)
        assert await future == 1

    _, loop = run_exploring(main)
    assert loop.is_exact


def test_a_closed_loop_takes_no_steps():
    loop = ExploringLoop(RecordedOrder())
    loop.close()
    coroutine = asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="closed"):
        loop.create_task(coroutine)
    coroutine.close()


def test_time_passes_by_itself_once_it_is_set_free():
    clock = Clock()
    before = clock.now()
    assert clock.now() == before
    clock.advance(1.5)
    assert clock.now() == before + 1.5
    clock.set_free()
    free = clock.now()
    assert free >= before + 1.5
    assert clock.now() >= free
