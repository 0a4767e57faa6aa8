"""Races between tasks: found by exploring schedules, brought back by their seed, made small."""

from __future__ import annotations

import asyncio
import contextvars
import json
import sys
import threading
from dataclasses import replace
from random import Random

import pytest

from indelible.contract import Adapter
from indelible.contract.calling import Call, Program
from indelible.contract.cases import Case
from indelible.contract.explorer import (
    ExploringLoop,
    Plain,
    Recorded,
    ScheduleError,
    Switch,
    chooser_of,
    explore,
    parsed,
    replay,
    written,
)
from indelible.contract.explorer.choosing import Priorities, Sticky, Uniform
from indelible.contract.explorer.clock import Clock
from indelible.contract.explorer.exploring import explore_case
from indelible.contract.explorer.shrinking import shrunk
from indelible.contract.explorer.steps import task_of
from indelible.contract.results import EXIT_FAIL
from indelible.contract.running import Bench

SEEDS = range(12)


# Stores


class Memory:
    def __init__(self):
        self.sessions = {}

    async def read(self, session):
        await asyncio.sleep(0)
        return list(self.sessions.get(session, []))


class Polite(Memory):
    """Gives way between its read and its write, but only if much was written while it waited.

    In the order of asyncio, in which tasks take turns, that never comes about.
    """

    async def append(self, session, messages):
        before = len(self.sessions.get(session, []))
        await asyncio.sleep(0)
        seen = list(self.sessions.get(session, []))
        if len(seen) - before > 4:
            await asyncio.sleep(0)
        self.sessions[session] = [*seen, *messages]


class Locked(Memory):
    def __init__(self):
        super().__init__()
        self.lock = asyncio.Lock()

    async def append(self, session, messages):
        async with self.lock:
            seen = list(self.sessions.get(session, []))
            await asyncio.sleep(0)
            self.sessions[session] = [*seen, *messages]


class Slow(Memory):
    """Right, with timers and tasks of its own."""

    def __init__(self):
        super().__init__()
        self.lock = asyncio.Lock()

    async def append(self, session, messages):
        async with self.lock, asyncio.timeout(30):
            seen = await asyncio.create_task(self.read(session))
            await asyncio.sleep(0.0001)
            self.sessions[session] = [*seen, *messages]


class Abrupt(Memory):
    """Never gives way."""

    async def append(self, session, messages):
        self.sessions.setdefault(session, []).extend(messages)

    async def read(self, session):
        return list(self.sessions.get(session, []))


class InFile:
    """Reads the file, gives way, writes the file."""

    def __init__(self, workspace):
        self.path = workspace / "sessions.json"

    async def append(self, session, messages):
        sessions = self._load()
        await asyncio.sleep(0)
        sessions.setdefault(session, []).extend(messages)
        self.path.write_text(json.dumps(sessions))

    async def read(self, session):
        return self._load().get(session, [])

    def _load(self):
        return json.loads(self.path.read_text()) if self.path.exists() else {}


class InThreads(InFile):
    """Right, and works in threads."""

    def __init__(self, workspace):
        super().__init__(workspace)
        self.lock = threading.Lock()

    async def append(self, session, messages):
        await asyncio.to_thread(self._append, session, messages)

    async def read(self, session):
        return (await asyncio.to_thread(self._locked_load)).get(session, [])

    def _append(self, session, messages):
        with self.lock:
            sessions = self._load()
            sessions.setdefault(session, []).extend(messages)
            self.path.write_text(json.dumps(sessions))

    def _locked_load(self):
        with self.lock:
            return self._load()


class Blocking:
    def __init__(self):
        self.sessions = {}

    def append(self, session, messages):
        self.sessions.setdefault(session, []).extend(messages)

    def read(self, session):
        return list(self.sessions.get(session, []))


def in_memory(store):
    return Adapter(open=lambda _: store(), reach="handle", name=store.__name__)


def on_disk(store):
    return Adapter(open=store, reach="process", name=store.__name__)


def storm(adapter, **options):
    report = explore(adapter, cases=["append_storm"], **options)
    (result,) = report.results
    return result


def timeless(history):
    return [replace(op, invoke_ns=0, complete_ns=0) for op in history]


# Finding


async def gathered(seed):
    """What is left of four writers' appends in the order of asyncio itself."""
    store, random = Polite(), Random(seed)

    async def writer():
        for _ in range(16):
            session = random.choice(["a", "b"])
            await store.append(session, [1])
            if random.random() < 0.4:
                await store.read(session)

    await asyncio.gather(*(writer() for _ in range(4)))
    return sum(map(len, store.sessions.values()))


def test_plain_runs_miss_the_race():
    assert {asyncio.run(gathered(seed)) for seed in range(1000)} == {64}


def four_writers(room):
    room.open()
    sessions = [room.session(), room.session()]
    programs = []
    for worker in ("w0", "w1", "w2", "w3"):
        ids, calls = room.ids(worker), []
        for _ in range(16):
            session = room.random.choice(sessions)
            calls.append(Call(op="append", session=session, ids=ids.draw()))
            if room.random.random() < 0.4:
                calls.append(Call(op="read", session=session))
        programs.append(Program(worker, tuple(calls)))
    room.race(programs)
    room.read_afresh(sessions)


# Of our own, so that what is found with a seed does not change with the contract.
FOUR_WRITERS = Case(
    gate="concurrency",
    name="four_writers",
    does="Four writers append to two sessions.",
    catches="lost appends",
    run=four_writers,
    needs=frozenset(),
    reach="handle",
    modes=("tasks",),
    overlaps=True,
)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_exploring_finds_the_race_and_makes_it_small(seed):
    bench = Bench(in_memory(Polite))
    found = explore_case(FOUR_WRITERS, bench, seed, 500)
    bench.close()
    assert found.verdict == "FAIL"
    assert found.mode == "tasks"
    assert found.failures[0].name == "lost append"
    first, words, exact = found.schedule.splitlines()
    assert first.startswith(f"seed {found.seed}, ")
    assert 1 <= len(parsed(first.partition(": ")[2])) <= 2, first
    assert " stops in its append of w" in words
    assert "test_explorer.py:" in words
    assert "goes on" in words
    assert exact == "exact: the seed brings it back"


def test_the_seed_brings_the_failure_back():
    found = storm(in_memory(Polite), schedules=500, seed=1)
    again = storm(in_memory(Polite), schedules=1, seed=found.seed)
    assert again.verdict == "FAIL"
    assert again.schedule == found.schedule
    assert again.reason == found.reason
    assert timeless(again.history) == timeless(found.history)


def test_the_written_schedule_brings_the_failure_back():
    found = storm(in_memory(Polite), schedules=500, seed=1)
    schedule = found.schedule.splitlines()[0].partition(": ")[2]
    options = {"case": "append_storm", "seed": found.seed}
    again = replay(in_memory(Polite), **options, schedule=schedule)
    assert (again.verdict, again.schedule) == ("FAIL", found.schedule)
    assert timeless(again.history) == timeless(found.history)
    # Without its switches it is a run like any other.
    assert replay(in_memory(Polite), **options, schedule="plain").verdict != "FAIL"


def test_a_store_in_a_file_is_explored_too():
    found = storm(on_disk(InFile), schedules=50, seed=1)
    assert found.verdict == "FAIL"
    assert found.schedule.endswith("exact: the seed brings it back")


@pytest.mark.parametrize("store", [Locked, Slow])
def test_a_right_store_is_never_accused(store):
    schedules = 300 if store is Locked else 30
    report = explore(in_memory(store), cases=["append_storm"], schedules=schedules, seed=7)
    (result,) = report.results
    assert (result.verdict, result.reason) == ("PASS", "")
    assert report.verdict == "PASS"
    assert not any("not exact" in note for note in report.notes)


def test_threads_are_noticed_and_said():
    result = storm(on_disk(InThreads), schedules=5, seed=7)
    assert result.verdict == "PASS"
    assert any("not exact: work was given to threads" in note for note in result.notes)


@pytest.mark.parametrize(("store", "reason"), [(Abrupt, "gave way"), (Blocking, "is not awaited")])
def test_what_has_no_schedules_is_not_claimed(store, reason):
    report = explore(in_memory(store), cases=["append_storm"], schedules=10, seed=7)
    (result,) = report.results
    assert result.verdict == "NOT CLAIMED"
    assert reason in result.reason
    assert report.verdict == "NOT RUN", "nothing passes by not running"


def test_schedules_are_spread_over_the_races_that_a_store_has():
    seen = []
    report = explore(
        in_memory(Polite), schedules=200, seed=1, progress=lambda item, result: seen.append(result)
    )
    assert report.gates == ("concurrency",)
    assert report.exit_code == EXIT_FAIL
    assert [result for result in seen if result is not None] == list(report.results)
    assert all(result.mode == "tasks" for result in report.results)


# Schedules


def test_a_schedule_is_written_and_read():
    schedule = (Switch("w1", 7, "w0"), Switch("main/2/1", 0, "w1/again2", 3))
    assert written(schedule) == "w1#7>w0 main/2/1#0.3>w1/again2"
    assert parsed(written(schedule)) == schedule
    assert parsed(written(())) == ()
    with pytest.raises(ScheduleError, match="one looks like"):
        parsed("w1 w0")


def test_shrinking_keeps_what_the_failure_needs():
    schedule = tuple(Switch(f"w{number % 3}", number, "w9") for number in range(100))
    needed = {schedule[17], schedule[61]}
    tried = []

    def still_fails(candidate):
        tried.append(candidate)
        return candidate if needed <= set(candidate) else None

    assert set(shrunk(schedule, still_fails)) == needed
    assert tried[0] == ()
    assert len(tried) < 100


def test_the_seeds_stand_for_all_strategies():
    assert {type(chooser_of(seed)) for seed in range(40)} == {Uniform, Priorities, Sticky}


# The loop


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
    log, loop = order_of(Plain())
    assert [name for name, _ in log] == [*"aaaaa", *"bbbbb", *"ccccc"]
    assert loop.switches == ()
    assert loop.exact


def test_the_same_seed_gives_the_same_order_and_others_give_others():
    orders = [order_of(chooser_of(seed))[0] for seed in SEEDS]
    assert orders == [order_of(chooser_of(seed))[0] for seed in SEEDS]
    assert len(set(map(tuple, orders))) > len(SEEDS) / 2
    for log in orders:
        assert sorted(log) == sorted(orders[0])
        for name in "abc":
            assert [number for who, number in log if who == name] == list(range(5))


def test_what_was_recorded_gives_the_same_order():
    for seed in SEEDS:
        log, loop = order_of(chooser_of(seed))
        again, replayed = order_of(Recorded(loop.switches))
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
    with asyncio.Runner(loop_factory=lambda: ExploringLoop(chooser_of(seed))) as runner:
        return runner.run(main()), runner.get_loop()


class PythonTask(asyncio.tasks._PyTask):
    pass


@pytest.mark.parametrize("factory", [None, PythonTask])
def test_steps_are_told_from_other_callbacks(factory):
    steps = []

    class Watched(asyncio.SelectorEventLoop):
        def call_soon(self, callback, *args, context=None):
            steps.append((task_of(callback), getattr(callback, "__name__", "")))
            return super().call_soon(callback, *args, context=context)

    async def main():
        task = asyncio.current_task()
        asyncio.get_running_loop().call_soon(task.get_name)
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        return task

    loop = Watched()
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
    assert loop.exact


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
    assert loop.exact


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
    assert not loop.exact
    assert "sockets or pipes were waited for" in loop.inexact


def test_subprocesses_work_and_are_noticed():
    async def main():
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "print('hello')", stdout=asyncio.subprocess.PIPE
        )
        out, _ = await child.communicate()
        return out

    out, loop = run_exploring(main, 3)
    assert out == b"hello\n"
    assert not loop.exact


def test_threads_are_noticed():
    async def in_executor():
        return await asyncio.to_thread(threading.get_ident)

    other, loop = run_exploring(in_executor)
    assert other != threading.get_ident()
    assert next(iter(loop.inexact)) == "work was given to threads"

    async def woken():
        loop, future = asyncio.get_running_loop(), asyncio.Future()
        wake = threading.Thread(target=loop.call_soon_threadsafe, args=(future.set_result, 1))
        wake.start()
        await asyncio.wait_for(future, 60)
        wake.join()

    _, loop = run_exploring(woken)
    assert list(loop.inexact) == ["another thread woke the event loop"]


def test_a_call_from_its_own_thread_is_exact():
    async def main():
        future = asyncio.Future()
        asyncio.get_running_loop().call_soon_threadsafe(future.set_result, 1)
        assert await future == 1

    _, loop = run_exploring(main)
    assert loop.exact


def test_a_closed_loop_takes_no_steps():
    loop = ExploringLoop(Plain())
    loop.close()
    coroutine = asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="closed"):
        loop.create_task(coroutine)
    coroutine.close()


def test_time_passes_by_itself_once_it_is_set_free():
    clock = Clock()
    before = clock.now()
    assert clock.now() == before
    clock.waited(1.5)
    assert clock.now() == before + 1.5
    clock.set_free()
    free = clock.now()
    assert free >= before + 1.5
    assert clock.now() >= free
