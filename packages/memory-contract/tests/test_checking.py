"""The kit against small stores: verdicts, exit codes, and what is asked of whom."""

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from memory_contract import Adapter, Unreachable, check, contract_run, read_deviations
from memory_contract import runner as runner_module
from memory_contract.cases.case import REGISTRY
from memory_contract.cases.catalogue import all_cases
from memory_contract.contract_run import (
    NOT_QUICK,
    QUICK_GATES,
    QUICK_LATE,
    Item,
    SelectionError,
    iter_quick,
    select,
)
from memory_contract.gates import GATES
from memory_contract.history import Operation
from memory_contract.runner import StoreUnderTest, run_round
from memory_contract.targets import TargetError, probe, resolve
from memory_contract.workers.pool import Worker, WorkerPool
from tests.support.kit import under_test

RIGHT = [
    "tests.support.kit.under_test:ListUnderALock",
    "tests.support.kit.under_test:AwaitedList",
    "tests.support.kit.under_test:AwaitedListThatGivesWay",
    "tests.support.kit.under_test:Turns",
    "tests.support.kit.under_test:smallest",
]


def verdicts(report):
    return {(result.case, result.mode): result.verdict for result in report.results}


@pytest.mark.parametrize("target", RIGHT)
def test_a_right_store_is_accused_of_nothing(target):
    report = check(target, seed=1, budget_s=0)
    assert [(r.id, r.verdict, r.reason) for r in report.results if r.verdict == "FAIL"] == []
    assert (report.verdict, report.exit_code) == ("PASS", 0)


def test_a_store_that_writes_lists_back_is_caught_in_threads_and_processes():
    report = check("tests.support.kit.under_test:WritesItAllBack", gates=["concurrency"], seed=1)
    assert (report.verdict, report.exit_code) == ("FAIL", 1)
    for mode in ("threads", "processes"):
        assert verdicts(report)["append_storm", mode] == "FAIL"
    failures = [f for r in report.results if r.case == "append_storm" for f in r.failures]
    assert "lost append" in {failure.name for failure in failures}
    assert all(failure.witness for failure in failures)


def test_the_same_sin_between_two_awaits_is_caught_in_tasks():
    report = check("tests.support.kit.under_test:AwaitedWriteBack", cases=["append_storm"], seed=1)
    assert verdicts(report)["append_storm", "tasks"] == "FAIL"


def test_calls_that_never_give_way_cannot_overlap_and_are_not_held_against_it():
    report = check("tests.support.kit.under_test:AwaitedList", gates=["concurrency"], seed=1)
    result = next(r for r in report.results if r.case == "append_storm")
    assert result.verdict == "NOT CLAIMED"
    assert "gave way" in result.reason
    assert verdicts(report)["gathered_turns_all_land", "tasks"] == "PASS"
    assert report.exit_code == 0


def test_an_error_that_says_nothing_about_the_data_is_a_failure():
    report = check(
        "tests.support.kit.under_test:RaisesWhenCrowded", cases=["gathered_turns_all_land"], seed=1
    )
    (result,) = [r for r in report.results if r.mode == "threads"]
    assert result.verdict == "FAIL"
    assert result.failures[0].name == "unexpected error"
    assert "RuntimeError: somebody else is in" in result.reason


def calls_of(result):
    return sorted((op.worker, op.op, op.ids, op.session) for op in result.history)


def test_the_same_seed_asks_for_the_same_calls(subject):
    (storm,) = select([], ["mixed_storm"])
    one, two, other = (calls_of(run_round(storm, "threads", subject, seed)) for seed in (7, 7, 8))
    assert one == two
    assert one != other


def test_items_by_keys_that_were_drawn_before_a_race_are_not_held_to_its_order():
    """`w0` draws its key first and puts its item last, after `w1` has read."""

    def race(context):
        for worker, op, began, ended, ids in (
            ("w0", "append", 0, 9, ("w0e0",)),
            ("w1", "append", 1, 2, ("w1e0",)),
            ("w1", "read", 3, 4, ("w1e0",)),
            ("w1", "read", 10, 11, ("w0e0", "w1e0")),
        ):
            named = {"ids": ids} if op == "append" else {"value": ids}
            context.record(
                Operation(
                    worker=worker,
                    session="s",
                    op=op,
                    invoke_ns=began,
                    complete_ns=ended,
                    outcome="ok",
                    **named,
                )
            )

    (known,) = select([], ["gathered_turns_all_land"])
    verdicts = {}
    for ordered in (True, False):
        store = StoreUnderTest(replace(under_test.smallest, ordered=ordered))
        try:
            made = run_round(replace(known, run=race), "threads", store, 1)
        finally:
            store.close()
        verdicts[ordered] = made.verdict
    assert verdicts == {True: "FAIL", False: "PASS"}


def test_who_cannot_be_opened_is_not_judged():
    with pytest.raises(Unreachable, match="ConnectionError: nobody there"):
        check("tests.support.kit.under_test:CannotBeOpened")


def test_a_store_that_hangs_does_not_hang_the_kit(monkeypatch):
    monkeypatch.setattr(runner_module, "CASE_S_MAX", 0.5)
    monkeypatch.setattr(probe, "PROBE_S_MAX", 1.0)
    report = check("tests.support.kit.under_test:Hangs", cases=["append_then_read"], seed=1)
    (result,) = report.results
    assert result.verdict == "UNKNOWN"
    assert "hangs, or is too slow" in result.reason
    assert "add_messages" in result.reason
    assert report.exit_code == 3


def test_what_a_store_does_not_claim_is_not_asked(subject):
    report = check(under_test.smallest, cases=["clear_against_append", "pop_race"], seed=1)
    assert {r.verdict for r in report.results} == {"NOT CLAIMED"}
    assert report.verdict == "NOT RUN", "a gate in which nothing ran is not passed"
    assert report.exit_code == 3


def test_a_budget_repeats_races_and_cuts_nothing():
    asked = []

    def progress(item, result):
        asked.append((item.id, result))

    report = check("memory:", gates=["concurrency"], seed=1, budget_s=0.0, progress=progress)
    assert "NOT RUN" not in {r.verdict for r in report.results}
    assert len(asked) == 2 * len(report.results)
    seeds = {r.seed for r in report.results if r.verdict == "PASS" and r.case.startswith("gather")}
    assert seeds == {1}


def test_gates_and_cases_are_chosen_by_name():
    assert {found.gate for found in select(["edges"])} == {"edges"}
    assert [c.id for c in select([], ["append_storm"])] == ["concurrency/append_storm"]
    assert [c.id for c in select([], ["concurrency/append_storm"])] == ["concurrency/append_storm"]
    with pytest.raises(SelectionError, match="no gate 'speed'"):
        select(["speed"])
    with pytest.raises(SelectionError, match=r"no gate 'concurency'.*did you mean concurrency"):
        select(["concurency"])
    with pytest.raises(SelectionError, match=r"no case 'append_strom'.*did you mean append_storm"):
        select([], ["append_strom"])


def list_all_items(known=lambda case: None):
    return [
        Item(case=case, mode=mode, known=known(case)) for case in all_cases() for mode in case.modes
    ]


def test_a_quick_run_takes_each_case_once_before_any_twice_and_slow_ones_last():
    assert {case.name for case in all_cases()} >= NOT_QUICK | QUICK_LATE
    ordered = list(iter_quick(list_all_items()))
    firsts = {item.case.id for item in ordered}
    assert {item.case.id for item in ordered[: len(firsts)]} == firsts
    assert not NOT_QUICK & {item.case.name for item in ordered}
    sequential = [i.case.name for i in ordered[: len(firsts)] if i.case.gate == "sequential"]
    assert set(sequential[-2:]) == {"short_programs", "random_programs"}


def test_in_a_quick_run_every_gate_gets_the_same_time(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(contract_run, "time", SimpleNamespace(monotonic=lambda: clock.now))
    running = []
    for item in iter_quick(list_all_items()):
        clock.now += 3.0 if item.case.gate == "crash" else 1.0
        running.append(item.case.gate)
    assert running[: len(QUICK_GATES)] == list(QUICK_GATES)
    assert Counter(running[:13]) == {gate: 1 if gate == "crash" else 3 for gate in QUICK_GATES}


def test_a_quick_run_leaves_out_what_it_has_no_time_for(monkeypatch):
    monkeypatch.setattr(contract_run, "QUICK_S_MAX", 0.0)
    report = check(under_test.smallest, seed=1, quick=True)
    assert report.results == ()
    assert report.left_out > len(QUICK_GATES)
    monkeypatch.setattr(contract_run, "QUICK_S_MAX", 60.0)
    report = check(under_test.smallest, cases=["append_then_read"], seed=1, quick=True)
    assert [(r.case, r.verdict) for r in report.results] == [("append_then_read", "PASS")]
    assert (report.verdict, report.gates, report.left_out) == ("PASS", ("sequential",), 0)


def test_every_case_says_what_it_does_and_what_it_catches():
    assert len(all_cases()) >= 45
    for found in REGISTRY.values():
        assert found.gate in GATES
        assert found.does.endswith("."), found.id
        assert found.catches, found.id
        assert not found.catches.endswith("."), found.id


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("no_such_module:thing", "cannot import"),
        ("tests.support.kit.under_test:no_such_thing", "cannot import"),
        ("tests.support.kit.under_test:smalest", "did you mean smallest"),
        ("langchian:chat:history", "did you mean langchain"),
        (
            "tests.support.kit.under_test:HandleOnAList",
            r'append and read.* Adapter\(open="tests.support.kit.under_test:HandleOnAList"\)',
        ),
        ("under_test:", "name a URL"),
    ],
)
def test_a_target_that_names_nothing_is_refused_in_words(target, words):
    with pytest.raises(TargetError, match=words):
        resolve(target)


def test_an_adapter_is_told_what_the_kit_knows():
    with pytest.raises(ValueError, match="unknown capability 'rewind'"):
        Adapter(open="a:b", capabilities=["rewind"])
    with pytest.raises(ValueError, match="needs `open`"):
        Adapter()


@pytest.mark.parametrize(("name", "value"), [("reach", "galaxy"), ("durability", "pwer")])
def test_a_claim_that_the_kit_does_not_know_is_refused(name, value):
    with pytest.raises(ValueError, match=f"`{name}` is one of .*, not '{value}'"):
        Adapter(open=dict, **{name: value})


def test_a_class_is_taken_as_it_is():
    turns = resolve("tests.support.kit.under_test:Turns")
    assert turns.pairs
    assert turns.reach == "machine"
    assert turns.open is not None
    assert turns.open_async is not None
    listed = resolve(under_test.AwaitedList)
    assert (listed.pairs, listed.reach, listed.open) == (False, "handle", None)


def test_the_file_that_is_named_is_never_touched(tmp_path):
    precious = tmp_path / "x.db"
    precious.write_bytes(b"not even a database")
    report = check(f"sqlite:///{precious}", cases=["append_then_read"], seed=1)
    assert report.verdict == "PASS"
    assert precious.read_bytes() == b"not even a database"
    assert list(tmp_path.iterdir()) == [precious], "what the kit made is gone"


def test_a_folder_that_is_not_there_is_said(tmp_path):
    with pytest.raises(Unreachable, match="no folder"):
        check(f"sqlite:///{tmp_path}/missing/x.db")


async def test_the_kit_can_be_called_from_a_running_loop():
    report = await asyncio.to_thread(check, "memory:", cases=["append_then_read"], seed=1)
    assert report.verdict == "PASS"
    inside = check("memory:", cases=["append_then_read"], seed=1)
    assert inside.verdict == "PASS", "each case runs in a thread of its own"


def test_a_store_that_cannot_travel_is_not_run_in_processes(tmp_path):
    def local(workspace: Path):
        return under_test.HandleOnAList()

    adapter = Adapter(open=local, reach="machine", name="local")
    report = check(adapter, cases=["gathered_turns_all_land"], seed=1)
    (result,) = [r for r in report.results if r.mode == "processes"]
    assert result.verdict == "NOT RUN"
    assert "another process" in result.reason
    assert report.exit_code in {1, 3}


@pytest.mark.parametrize("name", ["HandsOutItsList", "KeepsTheCallersList", "HandsOutItsTurns"])
def test_memory_that_is_shared_with_the_caller_is_seen_through_a_class_too(name):
    report = check(f"tests.support.kit.under_test:{name}", cases=["reads_are_copies"], seed=1)
    assert [f.name for r in report.results for f in r.failures] == ["alias"]


def test_what_is_written_down_as_a_deviation_is_no_failure(tmp_path):
    listed = tmp_path / "known.toml"
    listed.write_text('[concurrency.append_storm]\nreason = "it writes whole lists back"\n')
    report = check(
        "tests.support.kit.under_test:WritesItAllBack",
        cases=["append_storm"],
        seed=1,
        deviations=read_deviations(listed),
    )
    assert {r.verdict for r in report.results} == {"DEVIATION"}
    assert report.exit_code == 0


@pytest.mark.parametrize(
    ("store", "case", "mode", "reason"),
    [
        ("EndsItsProcess", "append_storm", "processes", "a worker process ended"),
        ("EndsItsProcess", "clock_jumps", "blocking", "a worker process ended"),
        (
            "EndsItsProcessAtOnce",
            "clock_jumps",
            "blocking",
            "append on c-1: a worker process ended, with the store open in it",
        ),
        ("OpensInOneProcess", "append_storm", "processes", "a worker process ended"),
        (
            "OpensInOneProcess",
            "clock_jumps",
            "blocking",
            "opening the store: a worker process ended",
        ),
    ],
)
def test_a_store_that_ends_its_process_is_not_told_as_a_failure_of_the_kit(
    store, case, mode, reason, monkeypatch
):
    monkeypatch.setenv("ONE_PROCESS", str(os.getpid()))
    (known,) = select([], [case])
    subject = StoreUnderTest(Adapter(open=getattr(under_test, store), name="ends"))
    try:
        result = run_round(known, mode, subject, 1)
    finally:
        subject.close()
    assert result.verdict == "UNKNOWN"
    assert result.reason == reason


@pytest.mark.parametrize("name", ["Exits", "CancelsItself"])
def test_a_store_cannot_end_the_kit(name):
    report = check(
        f"tests.support.kit.under_test:{name}",
        cases=["append_then_read", "gathered_turns_all_land"],
    )
    assert {r.verdict for r in report.results} <= {"FAIL", "NOT CLAIMED"}
    assert report.exit_code == 1


def test_each_worker_imports_the_store_by_itself():
    report = check(under_test.in_this_process, cases=["append_storm", "first_open_race"], seed=1)
    assert [(r.id, r.reason) for r in report.results if r.verdict == "FAIL"] == []


def test_a_quick_run_reports_no_case_of_a_gate_that_it_does_not_show():
    report = check(under_test.smallest, gates=["sequential", "lifecycle"], seed=1, quick=True)
    shown = sum(report.count(gate).total() for gate in report.gates)
    assert len(report.results) == shown


def test_a_quick_run_does_not_wait_for_a_store_that_hangs(monkeypatch):
    monkeypatch.setattr(contract_run, "QUICK_END_S", 1.0)
    (result,) = check(
        "tests.support.kit.under_test:HangsOnceClosed", cases=["close_is_final"], quick=True
    ).results
    assert result.verdict == "UNKNOWN"
    assert "hangs, or is too slow" in result.reason


def test_no_process_is_left_behind_by_a_case_that_hangs(monkeypatch):
    monkeypatch.setattr(runner_module, "CASE_S_MAX", 1.0)
    monkeypatch.setattr(probe, "PROBE_S_MAX", 1.0)
    workers = []
    began = Worker.__init__

    def noted(self, *pipes):
        began(self, *pipes)
        workers.append(self.pid)

    monkeypatch.setattr(Worker, "__init__", noted)
    report = check(
        "tests.support.kit.under_test:StuckElsewhere", cases=["gathered_turns_all_land"], seed=1
    )
    assert report.verdict == "UNKNOWN"
    assert workers
    for pid in workers:
        wait_until_gone(pid)


def wait_until_gone(pid):
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(f"/proc/{pid}").exists()


def test_a_choice_that_holds_nothing_is_refused():
    with pytest.raises(SelectionError, match="no case append_storm is in the gate sequential"):
        check("memory:", gates=["sequential"], cases=["append_storm"])


def test_a_gate_that_was_asked_for_must_run():
    report = check("memory:", gates=["sequential", "edges"], cases=["append_then_read"], seed=1)
    assert report.verdict == "NOT RUN"


@pytest.mark.parametrize("target", ["", "  ", "under_test"])
def test_a_target_that_was_forgotten_is_not_a_file(target):
    with pytest.raises(TargetError):
        check(target)


def test_a_case_that_ends_late_takes_nothing_of_others(subject):
    with subject.workspace() as first:
        others = []
        for _ in range(12):
            context = subject.workspace()
            others.append((context, context.__enter__()))
    assert not first.exists()
    assert all(folder.exists() for _, folder in others)


def test_what_cannot_be_cleaned_up_is_said_and_nothing_more_is_begun():
    def refuses(workspace, sessions):
        raise ConnectionError("gone")

    adapter = replace(under_test.smallest, discard=refuses)
    with pytest.raises(Unreachable, match=r"may still be there: ConnectionError: gone"):
        check(adapter, cases=["append_then_read"])


def test_the_sessions_of_a_case_are_handed_to_the_clean_up():
    cleaned = []
    adapter = replace(under_test.smallest, discard=lambda _, used: cleaned.append(set(used)))
    check(adapter, cases=["append_then_read"], seed=1)
    assert {"c-1"} in cleaned


KIT = """
import sys
from memory_contract import check
from memory_contract.workers.pool import Worker

began = Worker.__init__

def told(self, *pipes):
    began(self, *pipes)
    print(self.pid, flush=True)

Worker.__init__ = told
check("tests.support.kit.under_test:StuckElsewhere", cases=["gathered_turns_all_land"], seed=1)
"""


def test_workers_end_with_a_kit_that_was_killed(monkeypatch):
    # In threads it hangs as well, until it is left behind: that must not take four minutes.
    quick = (
        "from memory_contract import runner\nrunner.CASE_S_MAX = 2.0\n"
        "from memory_contract.targets import probe\nprobe.PROBE_S_MAX = 1.0\n"
    )
    kit = subprocess.Popen(
        [sys.executable, "-c", quick + KIT],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        # Two of them: the first is at work by the time that the second is there.
        pids = [int(kit.stdout.readline()) for _ in range(2)]
    finally:
        kit.kill()
        kit.wait()
        kit.stdout.close()
    for pid in pids:
        wait_until_gone(pid)


def test_a_bad_day_that_a_store_cannot_have_does_not_spoil_what_it_passed():
    report = check("memory:", cases=["append_then_read", "power_loss"], seed=1)
    assert [result.verdict for result in report.results] == ["PASS", "PASS", "NOT CLAIMED"]
    assert report.verdict == "PASS"
    assert report.judge_gate("crash") == "NOT CLAIMED"
    assert report.judge_gate("sequential") != "NOT CLAIMED"
    # By itself it is no proof of anything.
    assert check("memory:", cases=["power_loss"], seed=1).verdict == "NOT RUN"


def imported_by_a_worker(target):
    worker_pool = WorkerPool(resolve(target))
    try:
        worker = worker_pool.start_worker()
        worker.ask("install_plugin", under_test.SeesModules())
        return worker.call_plugin("imported")
    finally:
        worker_pool.close()


def test_workers_import_what_the_store_stands_on_and_nothing_else():
    assert "apsw" in imported_by_a_worker("sqlite:///x.db")
    others = ("pytest", "_pytest", "hypothesis", "indelible")
    ours = imported_by_a_worker("tests.support.kit.under_test:Turns")
    assert [name for name in ours if name.startswith(others)] == []


def test_workers_import_the_framework_of_a_store_and_not_the_module_of_its_factory():
    imported = imported_by_a_worker("langchain:tests.support.kit.framework_factories:in_files")
    assert "langchain_core" in imported
    assert "tests.support.kit.framework_factories" not in imported
