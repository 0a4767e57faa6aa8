"""The badge says how far a store came, and nothing that was skipped improves it."""

from dataclasses import replace

import pytest

from memory_contract import Report
from memory_contract.cases.catalogue import all_cases
from memory_contract.report import build_badge
from tests.support.report_samples import every_verdict, whole

GATES_WITH_CASES = list(dict.fromkeys(found.gate for found in all_cases()))
HIGHEST = GATES_WITH_CASES[-1]


def without(report: Report, keep) -> Report:
    return replace(report, results=tuple(filter(keep, report.results)))


def test_who_passes_everything_has_the_highest_gate_that_has_cases():
    badge = build_badge(whole())
    assert badge.gate == HIGHEST
    assert badge.message == HIGHEST
    assert badge.line.startswith(f"memory contract {badge.contract}: {HIGHEST} · ")


@pytest.mark.parametrize("verdict", ["FAIL", "UNKNOWN", "VACUOUS", "NOT RUN"])
def test_one_case_in_doubt_stops_at_the_gate_below(verdict):
    badge = build_badge(whole(ttl_ends_everything=verdict))
    assert badge.gate == "edges"


@pytest.mark.parametrize("gate", GATES_WITH_CASES)
def test_a_gate_that_was_not_asked_for_stops_there(gate):
    report = without(whole(), lambda result: result.gate != gate)
    below = GATES_WITH_CASES.index(gate) - 1
    assert build_badge(report).gate == (GATES_WITH_CASES[below] if below >= 0 else None)


def test_one_picked_case_is_no_gate():
    report = without(whole(), lambda result: result.case == "append_then_read")
    badge = build_badge(report)
    assert badge.gate is None
    assert badge.message == f"{len(report.results)} passed, sequential incomplete"


def test_a_whole_gate_without_those_below_is_not_called_nothing():
    report = without(whole(), lambda result: result.gate == "concurrency")
    passed = sum(result.verdict == "PASS" for result in report.results)
    assert build_badge(report).line.endswith(f": {passed} passed, sequential incomplete")


def test_the_badge_counts_what_the_table_counts():
    report = whole(append_storm="FAIL", ttl_ends_everything="NOT CLAIMED")
    passed = sum(report.count(gate)["PASS"] for gate in report.gates)
    assert build_badge(report).line.endswith(f": lifecycle · {passed} passed · 1 not claimed")


def test_where_nothing_passed_nothing_is_proved():
    report = without(whole(), lambda result: result.verdict != "PASS")
    assert build_badge(report).message == "nothing proved"


def test_leaving_one_case_out_is_seen():
    report = without(whole(), lambda result: result.case != "append_storm")
    assert build_badge(report).gate == "lifecycle"


def test_a_gate_that_claims_nothing_is_not_passed():
    assert build_badge(whole(lifecycle="NOT CLAIMED")).gate == "edges"


def test_writing_every_case_down_as_a_deviation_is_no_way_around():
    assert build_badge(whole(edges="DEVIATION")).gate == "sequential"


def test_what_is_not_claimed_is_neutral():
    badge = build_badge(whole(ttl_ends_everything="NOT CLAIMED"))
    assert (badge.gate, badge.not_claimed) == (HIGHEST, 1)


def test_deviations_stand_on_the_badge():
    badge = build_badge(whole(append_storm="DEVIATION"))
    assert badge.message == f"{HIGHEST}, 1 deviation"


def test_a_store_that_fails_at_the_first_gate_has_none():
    badge = build_badge(whole(sequential="FAIL"))
    assert (badge.gate, badge.message) == (None, "failing")
    assert build_badge(every_verdict()).gate is None
