"""What a gate came to, what is a loss and what a refusal, and whether two runs agree."""

from dataclasses import replace

from scoreboard import results
from scoreboard.cases import GATES
from scoreboard.results import Outcome, merged
from scoreboard.verdicts import choose_verdict, count_compared, differences, findings, verdict
from tests.scoreboard.scoreboard_runs import (
    FILE,
    LOST,
    OURS,
    RAISED,
    SQL,
    found_by_search,
    passed,
    run_of,
    three_stores,
)


def test_a_store_that_raises_is_not_one_that_loses():
    run = three_stores()
    assert verdict(run.outcomes[FILE], "concurrency") == "FAIL"
    assert verdict(run.outcomes[SQL], "concurrency") == "RAISES"
    assert verdict(run.outcomes[OURS], "concurrency") == "PASS"


def test_nothing_passes_by_not_running():
    silent = replace(passed("crash"), verdict="VACUOUS")
    run = run_of({FILE: [passed("crash"), silent], SQL: []})
    assert verdict(run.outcomes[FILE], "crash") == "VACUOUS"
    assert verdict(run.outcomes[SQL], "crash") == "NOT CLAIMED"
    assert verdict(Outcome(not_run="no server"), "crash") == "NOT RUN"


def test_findings_are_counted_and_losses_come_first():
    lost, raised = findings([three_stores()], FILE, "concurrency")
    assert (lost.anomaly, lost.count, lost.first) == ("lost append", 3, LOST)
    assert lost.cases == {"append_storm": ["processes"]}
    assert (raised.anomaly, raised.count) == ("unexpected error", 2)


def test_two_runs_that_agree_differ_in_nothing():
    assert list(differences(three_stores(), three_stores(), GATES)) == []
    assert count_compared(three_stores(), three_stores(), GATES) == 3 * len(GATES)


def test_a_changed_verdict_is_found():
    again = three_stores()
    again.outcomes[FILE] = replace(again.outcomes[FILE], seen=(passed("sequential"), RAISED))
    assert list(differences(three_stores(), again, GATES)) == [
        "langchain/file, concurrency: FAIL, then RAISES"
    ]
    runs = [three_stores(), again]
    assert choose_verdict(runs, FILE, "concurrency") == "FAIL in 1 of 2, RAISES in 1 of 2"
    assert findings(runs, FILE, "concurrency")[0].runs == 1


def test_a_gate_that_is_asked_alone_takes_nothing_from_the_others():
    before = run_of({OURS: [passed("sequential"), found_by_search("a", "FAIL")]})
    newer = run_of({OURS: [found_by_search("a", "PASS")], SQL: [found_by_search("a", "PASS")]})
    run = merged(before, newer, "recall")
    assert run.outcomes[OURS].seen == (passed("sequential"), found_by_search("a", "PASS"))
    assert run.outcomes[SQL] == newer.outcomes[SQL]
    # The other of two runs, in which it was not asked, says nothing about it.
    assert choose_verdict([run, run_of({OURS: [passed("sequential")]})], OURS, "recall") == "PASS"


def test_results_come_back_from_their_file(tmp_path):
    path = tmp_path / "results.json"
    results.write(path, [three_stores(), three_stores()])
    assert results.read(path) == [three_stores(), three_stores()]
    assert results.read(tmp_path / "none.json") == []
