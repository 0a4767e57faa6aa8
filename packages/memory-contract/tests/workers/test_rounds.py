"""One case by itself: what its rounds come to, and how many there are."""

import time

import pytest

from memory_contract import runner as runner_module
from memory_contract.case_context import CaseNotRun
from memory_contract.cases.case import Case
from memory_contract.cases.catalogue import all_cases
from memory_contract.runner import run_case


def a_case(run, **options):
    fields = {
        "gate": "sequential",
        "name": "made_up",
        "does": "",
        "catches": "",
        "needs": frozenset(),
        "reach": "handle",
        "modes": ("blocking",),
        "overlaps": False,
    }
    return Case(run=run, **fields | options)


def a_bad_day(run):
    return a_case(run, gate="faults")


def test_a_defect_of_the_kit_accuses_nobody(subject):
    def divides_by_zero(context):
        context.open().append(context.new_session())
        1 // 0  # noqa: B018

    result = run_case(a_case(divides_by_zero), "blocking", subject, seed=1)
    assert result.verdict == "UNKNOWN"
    assert "the kit itself failed: ZeroDivisionError" in result.reason


def test_a_race_in_which_nothing_met_is_vacuous(subject, monkeypatch):
    monkeypatch.setattr(runner_module, "TRYING_S", 0.0)

    def one_alone(context):
        context.open().append(context.new_session())

    result = run_case(a_case(one_alone, overlaps=True), "threads", subject, seed=1)
    assert result.verdict == "VACUOUS"


def test_a_bad_day_without_a_fault_proves_nothing(subject):
    def nothing_happens(context):
        context.open().append(context.new_session())

    result = run_case(a_bad_day(nothing_happens), "blocking", subject, seed=1)
    assert (result.verdict, result.reason) == ("VACUOUS", "no fault was made")


def test_a_fault_that_strikes_between_operations_proves_nothing(subject):
    def strikes_late(context):
        context.open().append(context.new_session())
        now = time.monotonic_ns()
        context.record_fault("a storm", now, now)

    result = run_case(a_bad_day(strikes_late), "blocking", subject, seed=1)
    assert result.verdict == "VACUOUS"
    assert [fault.name for fault in result.faults] == ["a storm"]


def test_a_fault_that_strikes_during_an_operation_is_a_bad_day(subject):
    def strikes(context):
        context.record_fault("a storm", time.monotonic_ns())
        context.open().append(context.new_session())

    assert run_case(a_bad_day(strikes), "blocking", subject, seed=1).verdict == "PASS"


def test_a_bad_day_is_repeated_with_other_faults_while_its_share_lasts(subject):
    drawn = []

    def strikes(context):
        drawn.append(context.random.random())
        context.record_fault("a storm", time.monotonic_ns())
        if len(drawn) == 3:
            context.fail("lost", "the third storm took it")
        context.open().append(context.new_session())

    assert run_case(a_bad_day(strikes), "blocking", subject, seed=1).verdict == "PASS"
    assert len(drawn) == 1
    result = run_case(a_bad_day(strikes), "blocking", subject, seed=1, share_s=600.0)
    assert (result.verdict, len(drawn), len(set(drawn))) == ("FAIL", 3, 2)


def a_race_that_comes_to(words):
    """A race whose rounds end so, one after the other; what each drew first is kept."""
    drawn = []

    def race(context):
        word = words[len(drawn)]
        drawn.append(context.random.random())
        if word != "pass":
            context.fail(word, f"round {len(drawn)}")
        context.open().append(context.new_session())

    return a_case(race, overlaps=True), drawn


@pytest.fixture
def always_meet(monkeypatch):
    """Rounds of races that are made up: whether their workers met is not asked."""
    monkeypatch.setattr(runner_module, "check_race_coverage", lambda *_: None)


@pytest.mark.usefixtures("always_meet")
def test_a_race_is_run_as_often_as_asked_with_other_seeds(subject):
    race, drawn = a_race_that_comes_to(["pass", "pass", "pass", "lost"])
    assert run_case(race, "threads", subject, seed=1, rounds=3).verdict == "PASS"
    assert (len(drawn), len(set(drawn))) == (3, 3)
    race, drawn = a_race_that_comes_to(["pass", "pass", "pass", "lost"])
    result = run_case(race, "threads", subject, seed=1, rounds=4)
    assert (result.verdict, result.reason, len(drawn)) == ("FAIL", "round 4", 4)


@pytest.mark.usefixtures("always_meet")
def test_a_race_with_errors_goes_on_since_a_loss_says_more(subject):
    race, drawn = a_race_that_comes_to(["pass", "unexpected error", "lost", "pass"])
    result = run_case(race, "threads", subject, seed=1, rounds=4)
    assert [failure.name for failure in result.failures] == ["lost"]
    assert len(drawn) == 3


@pytest.mark.usefixtures("always_meet")
def test_a_race_with_errors_fails_though_later_rounds_pass(subject):
    race, drawn = a_race_that_comes_to(["pass", "unexpected error", "pass", "unexpected error"])
    result = run_case(race, "threads", subject, seed=1, rounds=4)
    assert (result.verdict, result.reason, len(drawn)) == ("FAIL", "round 2", 4)


def test_a_bad_day_of_several_workers_is_run_in_rounds_too():
    races = {case.id: case.races for case in all_cases()}
    assert (races["faults/reply_lost"], races["faults/connection_flap"]) == (False, True)


def test_what_is_no_race_is_not_run_in_rounds(subject):
    days = []

    def counts(context):
        days.append(context)
        context.open().append(context.new_session())

    assert run_case(a_case(counts), "blocking", subject, seed=1, rounds=4).verdict == "PASS"
    assert len(days) == 1


def test_a_repeated_bad_day_on_which_nothing_happens_takes_nothing_back(subject):
    days = []

    def strikes_once(context):
        days.append(context)
        if len(days) == 1:
            context.record_fault("a storm", time.monotonic_ns())
        context.open().append(context.new_session())

    result = run_case(a_bad_day(strikes_once), "blocking", subject, seed=1, share_s=600.0)
    assert (result.verdict, result.seed, len(days)) == ("PASS", 1, 2)


def test_what_this_machine_lacks_is_not_run(subject):
    def lacks(context):
        raise CaseNotRun("there is no server here")

    result = run_case(a_bad_day(lacks), "blocking", subject, seed=1)
    assert (result.verdict, result.reason) == ("NOT RUN", "there is no server here")
