"""Replaying a trace, making it small, and writing it as a test."""

import ast
import asyncio
import multiprocessing
import os
import sys
import threading
from random import Random

import pytest

import indelible
from memory_contract import (
    Adapter,
    explain_trace,
    load_trace,
    record,
    replay_trace,
    shrink_trace,
    write_test,
)
from memory_contract.adapter import Refused
from memory_contract.calls import Log
from memory_contract.goldfish import GOLDFISH
from memory_contract.goldfish.stores import ListStore, give_way
from memory_contract.history import HistoryError
from memory_contract.targets import resolve
from memory_contract.traces.diagnosis.render import render_explanation
from memory_contract.traces.format import TraceHeader, TraceOperation, write_trace
from memory_contract.traces.recorder import get_trace_writer
from memory_contract.traces.regression_test import build_store_source
from memory_contract.traces.replay.plan import TEXT_CHARS_MIN, build_plan
from memory_contract.traces.replay.scheduler import plan_rounds
from memory_contract.traces.shrink import write_small_trace
from tests.support.kit import goldfish_stores
from tests.support.kit.child_process import in_a_child
from tests.support.kit.tape import Tape


class Racing(ListStore):
    """Reads, gives way for long, and writes back what it read."""

    capabilities = frozenset({"list"})

    def append(self, session, messages):
        life = self._alive(session)
        shown = [*life.shown, *messages]
        give_way(40)
        life.shown = shown
        self._save(session, life)


class Slow(ListStore):
    """Right, and slow enough for calls to overlap."""

    def append(self, session, messages, **options):
        give_way(40)
        super().append(session, messages, **options)


def adapter_of(store):
    return Adapter(
        open=store,
        capabilities=store.capabilities,
        reach="process",
        thread_safe=True,
        discard=store.discard,
    )


RACE, RIGHT = adapter_of(Racing), adapter_of(Slow)


class CaseFailed(ListStore):
    """Raises where nothing is wrong."""

    def append(self, session, messages, **options):
        raise OSError("no route to host")


class Fussy(ListStore):
    """Refuses, and says so: nothing happened."""

    def append(self, session, messages, **options):
        raise Refused("not today")


class Unopened(ListStore):
    """Opens once, for who looks whether it is there, and never again."""

    left = 1

    def __init__(self, workspace):
        if not self.left:
            raise ConnectionError("nobody is there")
        type(self).left -= 1
        super().__init__(workspace)


@pytest.fixture
def tape(tmp_path):
    """Two appends that overlapped; one is gone."""
    tape = Tape(tmp_path / "trace.jsonl", TraceHeader(fresh=True, workers="threads"))
    tape.append("a", worker="1.1-t1", at=(10, 40))
    tape.append("b", worker="1.1-t2", at=(12, 42))
    tape.read("b", worker="1.1-t3", at=(50, 60))
    tape.explained()
    return tape


# Verdicts


def test_a_store_that_does_it_again_failed(tape):
    found = replay_trace(tape.path, RACE, seed=1, times=60)
    assert (found.verdict, found.exit_code) == ("FAILED", 1)
    assert "lost append" in found.recorded & found.found
    assert "the store does the same again" in found.told
    assert "is missing from the" in found.told


def test_a_store_that_does_not_is_fixed(tape):
    found = replay_trace(tape.path, RIGHT, seed=1, times=3)
    assert (found.verdict, found.exit_code) == ("FIXED", 0)
    assert "the store does not do it" in found.told
    assert found.overlaps.kept > 0
    assert found.times >= 3


def test_a_store_that_does_something_else_changed(tape):
    found = replay_trace(tape.path, GOLDFISH["greets_strangers"].adapter, seed=1)
    assert (found.verdict, found.exit_code) == ("CHANGED", 1)
    assert found.found == {"garbage read"}


def test_a_store_that_lacks_what_the_trace_uses_leaves_it_unknown(tape):
    tape.call("pop", value="b", at=(70, 80))
    tape.explained()
    found = replay_trace(tape.path, "memory:", seed=1)
    assert (found.verdict, found.exit_code) == ("UNKNOWN", 3)
    assert found.lacking == {"pop"}
    assert "does not offer pop" in found.reason


def test_a_pop_is_replayed_on_a_store_that_keeps_a_window(tape):
    tape.call("pop", value="b", at=(70, 80))
    tape.explained()
    found = replay_trace(tape.path, goldfish_stores.RIGHT["list_that_shows_the_newest"], seed=1)
    assert found.verdict == "FIXED", found.reason


def test_a_store_that_raises_is_an_error_and_one_that_refuses_is_not(tape):
    found = replay_trace(tape.path, adapter_of(CaseFailed), seed=1)
    assert (found.verdict, found.exit_code) == ("ERROR", 4)
    assert "append raised OSError: no route to host" in found.reason
    assert replay_trace(tape.path, adapter_of(Fussy), seed=1).verdict in ("FIXED", "UNKNOWN")


def test_a_store_that_cannot_be_opened_is_an_error(tape):
    Unopened.left = 1
    found = replay_trace(tape.path, adapter_of(Unopened), seed=1)
    assert (found.verdict, found.exit_code) == ("ERROR", 4)
    assert "nobody is there" in found.reason
    Unopened.left = 0
    assert replay_trace(tape.path, adapter_of(Unopened), seed=1).verdict == "ERROR"


def test_what_overlapped_in_the_trace_and_nowhere_in_a_replay_proves_nothing(tape, monkeypatch):
    from memory_contract.traces.replay import scheduler

    monkeypatch.setattr(scheduler, "plan_rounds", lambda steps, *_: [[step] for step in steps])
    monkeypatch.setattr("memory_contract.traces.replay.VACUOUS_MAX", 1)
    found = replay_trace(tape.path, RIGHT, seed=1)
    assert found.verdict == "UNKNOWN"
    assert "no two operations overlapped" in found.reason


# The pattern


def test_a_call_begins_only_when_all_are_back_that_were_back_before_it(tape):
    tape.append("c", worker="1.1-t1", at=(44, 48))
    tape.explained()
    trace = load_trace(tape.path)
    plan = build_plan(trace.lines, trace.metadata, RIGHT, seed=0)
    rounds = plan_rounds(plan.steps, Random(0))
    assert [[step.lane for step in each] for each in rounds] == [
        ["1.1-t1", "1.1-t2"],
        ["1.1-t1"],
        ["1.1-t3"],
    ]
    for seed in range(5):
        found = replay_trace(tape.path, RIGHT, seed=seed, times=2)
        writes = sorted(
            (line for line in found.lines if line.op == "append"), key=lambda x: x.invoke_ns
        )
        # The third append began when both of the first were over.
        assert max(line.complete_ns for line in writes[:2]) < writes[2].invoke_ns


def test_a_call_that_overlapped_two_that_did_not_is_made_with_either(tape):
    tape.append("c", worker="1.1-t4", at=(41, 49))
    tape.explained()
    trace = load_trace(tape.path)
    plan = build_plan(trace.lines, trace.metadata, RIGHT, seed=0)
    seen = set()
    for seed in range(40):
        rounds = plan_rounds(plan.steps, Random(seed), later=0.25)
        where = {step.lane: place for place, each in enumerate(rounds) for step in each}
        assert where["1.1-t1"] < where["1.1-t4"], "the one was over before the other began"
        assert max(where["1.1-t2"], where["1.1-t4"]) < where["1.1-t3"]
        seen |= {lane for lane in ("1.1-t1", "1.1-t4") if where[lane] == where["1.1-t2"]}
    assert seen == {"1.1-t1", "1.1-t4"}


def test_what_was_said_is_made_up_as_long_as_it_was_and_the_same_again(tmp_path):
    path = tmp_path / "trace.jsonl"
    with record(indelible.open("memory:"), path, fresh=True) as store:
        for said in ("x" * 400, "y" * 30, "x" * 400):
            store.add_message("s", "user", said)
        store.add_message("s", "assistant", "z", name="ada")
    trace = load_trace(path)
    plan = build_plan(trace.lines, trace.metadata, RIGHT, seed=3)
    first, second, third, fourth = (step.call.messages[0] for step in plan.steps)
    assert len(first["content"]) == 400
    assert len(second["content"]) == 30
    assert first == third != second
    assert fourth["role"] == "assistant"
    assert fourth["name"]
    again = build_plan(trace.lines, trace.metadata, RIGHT, seed=3)
    assert [s.call for s in again.steps] == [s.call for s in plan.steps]
    assert (
        build_plan(trace.lines, trace.metadata, RIGHT, seed=4).steps[0].call != plan.steps[0].call
    )


def test_one_call_at_a_time_does_not_race(tape):
    found = replay_trace(tape.path, RACE, level="sequential", seed=1, times=3)
    assert found.verdict == "FIXED"
    assert found.level == "sequential"


def test_older_entries_are_put_there_first(tmp_path):
    old = Tape(tmp_path / "trace.jsonl", TraceHeader())
    old.read("o1", "o2", "o3")
    old.append("a")
    old.read("o1", "o2", "o3", "a")
    old.explained()
    found = replay_trace(old.path, RIGHT, seed=1)
    assert found.verdict == "FIXED"
    assert len(found.lines[-1].value) == 4


def test_a_rollback_goes_to_the_snapshot_that_stands_for_the_old_one(tmp_path):
    path = tmp_path / "trace.jsonl"
    with record(indelible.open("memory:"), path, fresh=True) as store:
        store.add_message("s", "user", "a")
        snapshot = store.save_snapshot("s")
        store.add_message("s", "user", "b")
        store.rollback_to_snapshot("s", snapshot.id)
        store.get_history("s")
    assert replay_trace(path, "memory:", seed=1).verdict == "FIXED"
    wiped = replay_trace(path, GOLDFISH["rollback_leaves_ghosts"].adapter, seed=1)
    assert wiped.verdict == "CHANGED"
    assert "resurrected entry" in wiped.found


def test_a_trace_that_is_too_long_or_empty_is_refused(tape, monkeypatch):
    monkeypatch.setattr("memory_contract.traces.replay.OPERATIONS_MAX", 2)
    with pytest.raises(HistoryError, match="3 operations are too many"):
        load_trace(tape.path)
    assert len(load_trace(tape.path, session="s").lines) == 3
    with pytest.raises(HistoryError, match="holds no operation of session 'nobody'"):
        load_trace(tape.path, session="nobody")


def test_a_trace_may_ask_for_as_much_text_as_is_made(tape, monkeypatch):
    # The fixture's are smaller than any made-up text, and of `e` nothing is said.
    tape.call("append", ids=("c",), sizes=(100,))
    tape.call("append", ids=("d", "e"), sizes=(20,))
    tape.explained()
    made = 3 * TEXT_CHARS_MIN + 100 + 20
    monkeypatch.setattr("memory_contract.traces.replay.TEXT_CHARS_MAX", made)
    trace = load_trace(tape.path)
    plan = build_plan(trace.lines, trace.metadata, RIGHT, seed=1)
    texts = [message["content"] for step in plan.steps for message in step.call.messages]
    assert sum(map(len, texts)) == made
    monkeypatch.setattr("memory_contract.traces.replay.TEXT_CHARS_MAX", made - 1)
    with pytest.raises(HistoryError, match=f"asks for {made} characters of text"):
        load_trace(tape.path)


class WipesSnapshots:
    """A class of turns that keeps its snapshots in a dict, which a rollback empties."""

    def __init__(self):
        self.turns, self.snapshots = [], {}

    def save_context(self, session_id, human_msg, ai_msg):
        self.turns.append({"human": human_msg, "ai": ai_msg})

    def load_memory(self, session_id):
        return list(self.turns)

    def save_snapshot(self, session_id):
        name = f"s{len(self.snapshots)}"
        self.snapshots[name] = list(self.turns)
        return name

    def rollback_to_snapshot(self, session_id, snapshot_id):
        self.turns = self.snapshots[snapshot_id]
        self.snapshots.clear()


def test_a_snapshot_that_is_no_key_any_more_is_lost_again(tmp_path):
    store = record(WipesSnapshots(), tmp_path / "trace.jsonl", fresh=True)
    snapshots = [store.save_snapshot("s") for _ in range(2)]
    store.rollback_to_snapshot("s", snapshots[0])
    with pytest.raises(KeyError):
        store.rollback_to_snapshot("s", snapshots[1])
    get_trace_writer(store).close()
    found = replay_trace(tmp_path / "trace.jsonl", WipesSnapshots, seed=1)
    assert (found.verdict, found.found) == ("FAILED", {"lost snapshot"}), found.told


# Processes and faults


def _storm(path, db, number, together):
    store = record(indelible.open(str(db)), path, fresh=True)
    for n in range(4):
        together.wait()
        store.add_message("shared", "user", f"{number}-{n}")
        store.get_history("shared", last=3)
    store.close()


def test_the_overlaps_of_eight_processes_are_kept(tmp_path, capsys):
    folder = tmp_path / "trace"
    indelible.open(str(tmp_path / "agent.db")).close()
    database = tmp_path / "agent.db"
    # Else one may be done before the next has begun.
    together = multiprocessing.get_context("fork").Barrier(8)
    pids = [in_a_child(lambda n=n: _storm(folder, database, n, together)) for n in range(8)]
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 8
    found = replay_trace(folder, f"sqlite:///{tmp_path}/again.db", seed=1)
    assert found.verdict == "FIXED", found.told
    assert found.operations == 64
    assert found.way.workers == "processes"
    overlaps = found.overlaps
    assert 0 < overlaps.kept <= overlaps.recorded
    assert f"({overlaps.share:.0%})" in found.told
    kept = f"{overlaps.kept} of {overlaps.recorded} overlapping pairs ({overlaps.share:.0%})"
    with capsys.disabled():
        sys.stdout.write(f"\n8 processes: a replay kept {kept}\n")


def test_a_process_that_was_killed_is_killed_again(tmp_path):
    tape = Tape(tmp_path / "trace.jsonl", TraceHeader(fresh=True, workers="processes"))
    tape.append("a", worker="1.1-t1", at=(10, 20))
    tape.append("b", worker="1.1-t1", at=(30, None), outcome="info")
    tape.append("c", worker="2.1-t1", at=(60, 70))
    tape.explained()
    store = f"sqlite:///{tmp_path}/agent.db"
    found = replay_trace(tape.path, store, level="faults", seed=1)
    assert found.verdict == "FIXED", found.told
    lost = [line for line in found.lines if line.complete_ns is None]
    assert [(line.op, line.outcome) for line in lost] == [("append", "info")]
    assert len(found.lines[-1].value) in (2, 3)


class Halves:
    """Stores a batch message by message, and gives way between."""

    def __init__(self, workspace):
        self.sessions = {}

    async def append(self, session, messages):
        for message in messages:
            self.sessions.setdefault(session, []).append(message)
            await asyncio.sleep(0.01)

    async def read(self, session):
        return list(self.sessions.get(session, []))


def test_a_call_that_was_cancelled_is_cancelled_again(tmp_path):
    tape = Tape(tmp_path / "trace.jsonl", TraceHeader(fresh=True, workers="tasks"))
    tape.append("a", "b", worker="1.1-a1", at=(1, 2), outcome="info", error="CancelledError")
    tape.explained()
    halves = Adapter(open_async=Halves, reach="handle", name="halves")
    found = replay_trace(tape.path, halves, level="faults", seed=1)
    assert found.found == {"torn batch"}, found.told
    assert [line.error for line in found.lines if line.op == "append"] == ["CancelledError"]
    right = replay_trace(tape.path, "memory:", level="faults", seed=1)
    assert right.verdict == "FIXED"
    assert "the trace shows nothing wrong, nor does the store" in right.told


def test_a_call_that_was_never_made_changed_nothing(tmp_path, monkeypatch):
    from memory_contract.traces.replay import scheduler

    async def race_none(programs, names, handles, *, cancels):
        return [Log() for _ in programs] if cancels else await race_all(programs, names, handles)

    race_all = scheduler.race_tasks
    monkeypatch.setattr(scheduler, "race_tasks", race_none)
    tape = Tape(tmp_path / "trace.jsonl", TraceHeader(fresh=True, workers="tasks"))
    tape.append("a", worker="1.1-a1", at=(1, 2), outcome="info", error="CancelledError")
    tape.explained()
    halves = Adapter(open_async=Halves, reach="handle", name="halves")
    found = replay_trace(tape.path, halves, level="faults", seed=1)
    assert (found.verdict, found.reason) == ("UNKNOWN", "no fault could be made here"), found.told
    assert [line.op for line in found.lines] == ["read"]


def test_without_a_fault_that_struck_nothing_is_proved(tape):
    found = replay_trace(tape.path, RIGHT, level="faults", seed=1)
    assert found.verdict == "UNKNOWN"
    assert found.reason == "no fault stands in the trace"


# Small


def noisy(tape):
    """The race, among much that has nothing to do with it."""
    for n in range(12):
        tape.append(f"x{n}", session=f"t{n % 3}", worker=f"1.1-t{4 + n % 2}")
        tape.read(*(f"x{m}" for m in range(n + 1) if m % 3 == n % 3), session=f"t{n % 3}")
    tape.explained()


def test_a_trace_is_reduced_to_the_race(tape, tmp_path):
    noisy(tape)
    found = shrink_trace(tape.path, RACE, seed=1, times=10)
    assert found.replay.verdict == "FAILED"
    assert found.operations_before == 27
    # Two appends, the final read, and at most one more.
    assert found.operations == len(found.trace.lines) <= 4
    assert found.workers < found.workers_before
    small = tmp_path / "small.jsonl"
    write_small_trace(small, found.trace)
    explained = explain_trace(small)
    assert "lost append" in explained.names, render_explanation(explained)
    assert replay_trace(small, RACE, seed=1, times=60).verdict == "FAILED"
    assert replay_trace(small, RIGHT, seed=1, times=3).verdict == "FIXED"


def test_a_store_that_does_not_fail_leaves_nothing_to_shrink(tape):
    found = shrink_trace(tape.path, RIGHT, seed=1, times=1)
    assert found.replay.verdict == "FIXED"
    assert found.operations_before == 3


# A test


@pytest.mark.parametrize("store", ["sqlite:///😀.db", 'a "b".db', "C:\\new.db", "caf\udce9.db"])
def test_a_store_is_named_in_code_as_it_is(store):
    assert ascii(ast.literal_eval(build_store_source(store))) == ascii(store)


def test_a_trace_becomes_a_test_that_a_person_can_read(tape, tmp_path):
    written = write_test(
        tmp_path / "incidents" / "test_amnesia.py", load_trace(tape.path), store="agent.db"
    )
    text = written.test.read_text("utf-8")
    assert text.startswith('"""Lost append: 3 operations of 3 workers.\n')
    assert "a was acknowledged to 1.1-t1 and is missing from the final read." in text
    assert 'STORE = "agent.db"' in text
    assert "def test_amnesia():" in text
    assert len(text.splitlines()) < 25
    compile(text, "test_amnesia.py", "exec")
    assert written.trace.name == "test_amnesia.jsonl"
    assert explain_trace(written.trace).names == {"lost append"}


def test_a_test_that_is_there_is_not_overwritten(tape, tmp_path):
    trace = load_trace(tape.path)
    place = tmp_path / "test_x.py"
    write_test(place, trace, store="memory:")
    with pytest.raises(HistoryError, match="is there already: nothing was written"):
        write_test(place, trace, store="memory:")
    with pytest.raises(HistoryError, match="no name of a test file"):
        write_test(tmp_path / "2026-05.py", trace, store="memory:")


def test_a_session_with_a_hostile_name_cannot_leave_the_docstring(tmp_path):
    tape = Tape(tmp_path / "trace.jsonl")
    name = '"""\nimport os\n"""\\'
    tape.append("a", session=name)
    tape.read(session=name)
    tape.explained()
    written = write_test(tmp_path / "test_hostile.py", load_trace(tape.path), store="memory:")
    code = compile(written.test.read_text("utf-8"), "test_hostile.py", "exec")
    assert "os" not in code.co_names
    assert replay_trace(written.trace, "memory:", seed=1).verdict == "FIXED"


def test_the_kits_own_histories_can_be_replayed(tmp_path):
    from memory_contract.contract_run import list_items, select
    from memory_contract.history import write_history
    from memory_contract.runner import StoreUnderTest, run_case

    fish = GOLDFISH["window_of_one"]
    subject = StoreUnderTest(fish.adapter)
    try:
        (item,) = list_items(select(cases=[fish.caught_by]), subject)
        result = run_case(item.case, item.mode, subject, seed=3)
    finally:
        subject.close()
    write_history(tmp_path / "failure.jsonl", result.history)
    assert replay_trace(tmp_path / "failure.jsonl", fish.adapter, seed=1).verdict == "FAILED"
    assert replay_trace(tmp_path / "failure.jsonl", resolve("memory:"), seed=1).verdict == "FIXED"


def test_a_worker_that_is_called_as_ours_leaves_no_thread_behind(tmp_path):
    lines = [
        TraceOperation(
            session="s",
            worker="final",
            op="append",
            invoke_ns=1,
            complete_ns=2,
            outcome="ok",
            ids=("a",),
        )
    ]
    write_trace(tmp_path / "t.jsonl", TraceHeader(fresh=True), lines)
    before = threading.enumerate()
    assert replay_trace(tmp_path / "t.jsonl", "memory:").verdict == "FIXED"
    assert threading.enumerate() == before


def test_threads_of_a_replay_install_profile_functions_one_after_the_other(monkeypatch):
    """Python refuses to install one while another thread does."""
    from memory_contract.traces.replay import scheduler

    installing, overlaps, together = threading.Lock(), [], threading.Barrier(2)

    def install(_):
        alone = installing.acquire(blocking=False)
        overlaps.append(not alone)
        threading.Event().wait(0.05)
        if alone:
            installing.release()

    def call():
        handle = scheduler._PreemptedHandle([], Random(1))
        together.wait()
        handle.append("hello")

    monkeypatch.setattr(scheduler.sys, "setprofile", install)
    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert overlaps == [False] * 4
