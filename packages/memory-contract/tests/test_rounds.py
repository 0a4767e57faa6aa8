"""One case by itself: what its rounds come to, and how many there are."""

import time

import pytest

from memory_contract import running as running_module
from memory_contract.cases import BOOK, Case
from memory_contract.room import NotRun
from memory_contract.running import run_case


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


def test_a_defect_of_the_kit_accuses_nobody(bench):
    def divides_by_zero(room):
        room.open().append(room.session())
        1 // 0  # noqa: B018

    result = run_case(a_case(divides_by_zero), "blocking", bench, seed=1)
    assert result.verdict == "UNKNOWN"
    assert "the kit itself failed: ZeroDivisionError" in result.reason


def test_a_race_in_which_nothing_met_is_vacuous(bench, monkeypatch):
    monkeypatch.setattr(running_module, "TRYING_S", 0.0)

    def one_alone(room):
        room.open().append(room.session())

    result = run_case(a_case(one_alone, overlaps=True), "threads", bench, seed=1)
    assert result.verdict == "VACUOUS"


def test_a_bad_day_without_a_fault_proves_nothing(bench):
    def nothing_happens(room):
        room.open().append(room.session())

    result = run_case(a_bad_day(nothing_happens), "blocking", bench, seed=1)
    assert (result.verdict, result.reason) == ("VACUOUS", "no fault was made")


def test_a_fault_that_strikes_between_operations_proves_nothing(bench):
    def strikes_late(room):
        room.open().append(room.session())
        now = time.monotonic_ns()
        room.struck("a storm", now, now)

    result = run_case(a_bad_day(strikes_late), "blocking", bench, seed=1)
    assert result.verdict == "VACUOUS"
    assert [fault.name for fault in result.faults] == ["a storm"]


def test_a_fault_that_strikes_during_an_operation_is_a_bad_day(bench):
    def strikes(room):
        room.struck("a storm", time.monotonic_ns())
        room.open().append(room.session())

    assert run_case(a_bad_day(strikes), "blocking", bench, seed=1).verdict == "PASS"


def test_a_bad_day_is_repeated_with_other_faults_while_its_share_lasts(bench):
    drawn = []

    def strikes(room):
        drawn.append(room.random.random())
        room.struck("a storm", time.monotonic_ns())
        if len(drawn) == 3:
            room.fail("lost", "the third storm took it")
        room.open().append(room.session())

    assert run_case(a_bad_day(strikes), "blocking", bench, seed=1).verdict == "PASS"
    assert len(drawn) == 1
    result = run_case(a_bad_day(strikes), "blocking", bench, seed=1, share_s=600.0)
    assert (result.verdict, len(drawn), len(set(drawn))) == ("FAIL", 3, 2)


def a_race_that_comes_to(words):
    """A race whose rounds end so, one after the other; what each drew first is kept."""
    drawn = []

    def race(room):
        word = words[len(drawn)]
        drawn.append(room.random.random())
        if word != "pass":
            room.fail(word, f"round {len(drawn)}")
        room.open().append(room.session())

    return a_case(race, overlaps=True), drawn


@pytest.fixture
def always_meet(monkeypatch):
    """Rounds of races that are made up: whether their workers met is not asked."""
    monkeypatch.setattr(running_module, "vacuous", lambda *_: None)


@pytest.mark.usefixtures("always_meet")
def test_a_race_is_run_as_often_as_asked_with_other_seeds(bench):
    race, drawn = a_race_that_comes_to(["pass", "pass", "pass", "lost"])
    assert run_case(race, "threads", bench, seed=1, rounds=3).verdict == "PASS"
    assert (len(drawn), len(set(drawn))) == (3, 3)
    race, drawn = a_race_that_comes_to(["pass", "pass", "pass", "lost"])
    result = run_case(race, "threads", bench, seed=1, rounds=4)
    assert (result.verdict, result.reason, len(drawn)) == ("FAIL", "round 4", 4)


@pytest.mark.usefixtures("always_meet")
def test_a_race_with_errors_goes_on_since_a_loss_says_more(bench):
    race, drawn = a_race_that_comes_to(["pass", "unexpected error", "lost", "pass"])
    result = run_case(race, "threads", bench, seed=1, rounds=4)
    assert [failure.name for failure in result.failures] == ["lost"]
    assert len(drawn) == 3


@pytest.mark.usefixtures("always_meet")
def test_a_race_with_errors_fails_though_later_rounds_pass(bench):
    race, drawn = a_race_that_comes_to(["pass", "unexpected error", "pass", "unexpected error"])
    result = run_case(race, "threads", bench, seed=1, rounds=4)
    assert (result.verdict, result.reason, len(drawn)) == ("FAIL", "round 2", 4)


def test_a_bad_day_of_several_workers_is_run_in_rounds_too():
    alone, crowded = BOOK["faults/reply_lost"], BOOK["faults/connection_flap"]
    assert (alone.races, crowded.races) == (False, True)


def test_what_is_no_race_is_not_run_in_rounds(bench):
    days = []

    def counts(room):
        days.append(room)
        room.open().append(room.session())

    assert run_case(a_case(counts), "blocking", bench, seed=1, rounds=4).verdict == "PASS"
    assert len(days) == 1


def test_a_repeated_bad_day_on_which_nothing_happens_takes_nothing_back(bench):
    days = []

    def strikes_once(room):
        days.append(room)
        if len(days) == 1:
            room.struck("a storm", time.monotonic_ns())
        room.open().append(room.session())

    result = run_case(a_bad_day(strikes_once), "blocking", bench, seed=1, share_s=600.0)
    assert (result.verdict, result.seed, len(days)) == ("PASS", 1, 2)


def test_what_this_machine_lacks_is_not_run(bench):
    def lacks(room):
        raise NotRun("there is no server here")

    result = run_case(a_bad_day(lacks), "blocking", bench, seed=1)
    assert (result.verdict, result.reason) == ("NOT RUN", "there is no server here")
