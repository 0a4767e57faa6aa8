"""Known failures, written down: they excuse what they name, and nothing else."""

import pytest

from memory_contract.deviations import (
    FILE,
    Deviations,
    DeviationsError,
    find_deviations,
    read_deviations,
)
from memory_contract.results import CaseResult, Report, build_case_failure

LISTED = """
[concurrency.pop_race]
reason = "two workers may pop the same entry"
issue = "https://example.org/12"
modes = ["processes", "threads"]

[sequential.same_words_twice]
reason = "yes is stored once"
"""


def result(verdict, case="pop_race", gate="concurrency", mode="processes"):
    failures = (build_case_failure("double pop", "twice", session="s"),) * (verdict == "FAIL")
    return CaseResult(
        gate=gate, case=case, mode=mode, verdict=verdict, reason="seen", failures=failures
    )


@pytest.fixture
def listed(tmp_path):
    (tmp_path / FILE).write_text(LISTED, "utf-8")
    return find_deviations(tmp_path / "elsewhere", tmp_path)


def test_a_failure_that_is_listed_is_a_deviation_and_keeps_its_proof(listed):
    known = listed.apply(result("FAIL"))
    assert known.verdict == "DEVIATION"
    assert known.reason == "two workers may pop the same entry (https://example.org/12)"
    assert known.failures[0].name == "double pop"


def test_one_that_passes_is_a_failure(listed):
    stale = listed.apply(result("PASS"))
    assert stale.verdict == "FAIL"
    assert "but it passes: remove it" in stale.reason
    assert stale.failures[0].name == "stale deviation"


@pytest.mark.parametrize("verdict", ["UNKNOWN", "VACUOUS", "NOT RUN", "NOT CLAIMED"])
def test_what_was_not_decided_stays_undecided(listed, verdict):
    assert listed.apply(result(verdict)) == result(verdict)


@pytest.mark.parametrize("verdict", ["PASS", "FAIL"])
def test_what_is_not_listed_stays_as_it_is(listed, verdict):
    other = result(verdict, case="append_storm")
    another_mode = result(verdict, mode="tasks")
    assert [listed.apply(each) for each in (other, another_mode)] == [other, another_mode]
    assert Deviations().apply(result(verdict)) == result(verdict)


@pytest.mark.parametrize("mode", ["blocking", "async"])
def test_without_modes_it_stands_for_all_of_them(listed, mode):
    failed = result("FAIL", gate="sequential", case="same_words_twice", mode=mode)
    assert listed.apply(failed).verdict == "DEVIATION"


def test_a_report_with_deviations_alone_is_no_failure(listed):
    results = [listed.apply(result("FAIL"))]
    report = Report(target="t", seed=1, gates=("concurrency",), results=results)
    assert (report.verdict, report.exit_code) == ("PASS", 0)


def test_no_file_lists_nothing(tmp_path):
    assert find_deviations(tmp_path) == Deviations()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[fast.pop_race]\nreason = 'x'", "there is no gate 'fast'"),
        ("[concurrency.pop_rice]\nreason = 'x'", "there is no case 'pop_rice' in the gate"),
        ("[concurrency.pop_rice]\nreason = 'x'", "; did you mean pop_race?"),
        ("[concurency.pop_race]\nreason = 'x'", "; did you mean concurrency?"),
        ("[sequential.pop_race]\nreason = 'x'", "there is no case 'pop_race' in the gate"),
        ("[concurrency.pop_race]", "needs a reason"),
        ("[concurrency.pop_race]\nreason = ' '", "needs a reason"),
        ("[concurrency.pop_race]\nreason = 1", "needs a reason"),
        ("[concurrency.pop_race]\nreason = 'x'\nissue = 12", "needs an issue"),
        ("[concurrency.pop_race]\nreason = 'x'\nmode = 'tasks'", "has 'mode'; it may have reason"),
        ("[concurrency.pop_race]\nreason = 'x'\nmodes = 'tasks'", "modes is a list"),
        ("[concurrency.pop_race]\nreason = 'x'\nmodes = []", "modes is a list"),
        ("[concurrency.pop_race]\nreason = 'x'\nmodes = ['moods']", "has no mode 'moods'"),
        ("concurrency = 'all'", "write [concurrency.CASE]"),
        ("[concurrency]\nreason = 'all'", "write [concurrency.CASE]"),
        ("[concurrency", "cannot read"),
        (b"\xff\xfe", "cannot read"),
    ],
)
def test_every_mistake_in_the_list_is_an_error(tmp_path, text, words):
    path = tmp_path / FILE
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DeviationsError) as said:
        read_deviations(path)
    assert words in str(said.value)


def test_a_file_that_is_named_must_be_there(tmp_path):
    with pytest.raises(DeviationsError, match="cannot read"):
        read_deviations(tmp_path / "nothing.toml")
