"""Races between tasks: found by exploring schedules, brought back by their seed, made small."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from random import Random

import pytest

from memory_contract import Adapter
from memory_contract.calls import Call, Program
from memory_contract.cases.case import Case
from memory_contract.checker.shrink import minimize
from memory_contract.deviations import Deviation, Deviations
from memory_contract.entries import EntryIds
from memory_contract.explorer import explore
from memory_contract.explorer.exploration import explore_case
from memory_contract.explorer.schedules import Switch, format_schedule
from memory_contract.results import EXIT_FAIL
from memory_contract.runner import StoreUnderTest

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


def four_writers(context):
    context.open()
    sessions = [context.new_session(), context.new_session()]
    programs = []
    for worker in ("w0", "w1", "w2", "w3"):
        ids, calls = EntryIds(worker), []
        for _ in range(16):
            session = context.random.choice(sessions)
            calls.append(Call(op="append", session=session, ids=ids.draw()))
            if context.random.random() < 0.4:
                calls.append(Call(op="read", session=session))
        programs.append(Program(worker, tuple(calls)))
    context.race(programs)
    context.read_with_fresh_client(sessions)


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
    subject = StoreUnderTest(in_memory(Polite))
    found = explore_case(FOUR_WRITERS, subject=subject, seed=seed, schedules=500)
    subject.close()
    assert found.verdict == "FAIL"
    assert found.mode == "tasks"
    assert found.failures[0].name == "lost append"
    first, words, exact = found.schedule.splitlines()
    assert first.startswith(f"seed {found.seed}, ")
    assert 1 <= len(first.partition(": ")[2].split()) <= 3, first
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


def test_a_known_failure_is_told_as_a_deviation_at_once():
    known = Deviation(case="concurrency/append_storm", reason="known", issue="", modes=("tasks",))
    told = []
    report = explore(
        in_memory(Polite),
        cases=["append_storm"],
        seed=1,
        deviations=Deviations((known,)),
        progress=lambda _, result: told.append(result and result.verdict),
    )
    assert [told[-1]] == [result.verdict for result in report.results] == ["DEVIATION"]


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
    assert any("not exact: threads, sockets or pipes took part" in note for note in result.notes)


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


def test_a_schedule_is_written():
    schedule = (Switch("w1", 7, "w0"), Switch("main/2/1", 0, "w1/again2", 3))
    assert format_schedule(schedule) == "w1#7>w0 main/2/1#0.3>w1/again2"
    assert format_schedule(()) == "plain"


def test_shrinking_keeps_what_the_failure_needs():
    schedule = tuple(Switch(f"w{number % 3}", number, "w9") for number in range(100))
    needed = {schedule[17], schedule[61]}
    tried = []

    def still_fails(candidate):
        tried.append(candidate)
        return candidate if needed <= set(candidate) else None

    assert set(minimize(schedule, still_fails, tries=400)) == needed
    assert tried[0] == ()
    assert len(tried) < 100
