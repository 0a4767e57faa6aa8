"""The report for CI servers: red where the run is not green, and XML whatever a store named."""

from xml.etree import ElementTree as ET

from memory_contract import Report
from memory_contract.report import to_junit
from tests.support.report_samples import every_verdict, hostile, result, whole

PARTS = {
    "PASS": None,
    "FAIL": "failure",
    "UNKNOWN": "error",
    "VACUOUS": "error",
    "NOT RUN": "error",
    "NOT CLAIMED": "skipped",
    "DEVIATION": "skipped",
}


def suite_of(report):
    return ET.fromstring(to_junit(report)).find("testsuite")


def test_every_case_and_mode_is_a_test_case():
    report = every_verdict()
    cases = suite_of(report).findall("testcase")
    assert [(case.get("classname"), case.get("name")) for case in cases] == [
        (f"contract.{each.gate}", f"{each.case}[{each.mode}]") for each in report.results
    ]
    for case, each in zip(cases, report.results, strict=True):
        tags = [part.tag for part in case if part.tag != "system-out"]
        assert tags == ([PARTS[each.verdict]] if PARTS[each.verdict] else [])


def test_the_counts_are_those_of_the_cases():
    suite = suite_of(every_verdict())
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "12",
        "failures": "3",
        "errors": "3",
        "skipped": "4",
    }
    for name, tag in [("failures", "failure"), ("errors", "error"), ("skipped", "skipped")]:
        assert len(suite.findall(f"testcase/{tag}")) == int(suite.get(name))


def test_a_failure_says_what_was_proved_and_how_to_see_it_again():
    failure = suite_of(every_verdict()).find("testcase[@name='append_storm[threads]']/failure")
    assert failure.get("type") == "lost append"
    assert failure.get("message").startswith("lost append: e1 was acknowledged to w0")
    assert (
        "Reproduce with:  memory-contract check 'postgresql://user:***@db/memory'" in failure.text
    )
    assert "LOST APPEND   session c-1" in failure.text


def test_reasons_are_told():
    suite = suite_of(every_verdict())
    deviation = suite.find("testcase[@name='same_words_twice[blocking]']/skipped")
    assert deviation.get("message") == "DEVIATION: it folds repeats: see its manual"
    vacuous = suite.find("testcase[@name='pop_race[threads]']/error")
    assert (vacuous.get("type"), vacuous.get("message")) == (
        "VACUOUS",
        "no two operations overlapped",
    )


def test_the_properties_say_what_was_run():
    found = {p.get("name"): p.get("value") for p in suite_of(every_verdict()).iter("property")}
    assert found == {
        "contract": "1.1",
        "target": "postgresql://user:***@db/memory",
        "seed": "7",
        "verdict": "FAIL",
        "badge": "failing",
        "note": "simulated: this is no real server",
    }


def test_hostile_names_are_still_xml():
    text = to_junit(hostile())
    text.encode("utf-8")
    assert len(suite_of(hostile()).findall("testcase")) == 3


def test_a_gate_of_which_nothing_ran_is_not_green():
    unclaimed = result("lifecycle", "fork_is_independent", "NOT CLAIMED", "no fork")
    report = Report(target="m:x", seed=1, gates=("edges", "lifecycle"), results=(unclaimed,))
    assert report.exit_code == 3
    errors = suite_of(report).findall("testcase/error")
    assert len(errors) == 2
    assert suite_of(report).get("errors") == "2"


def test_a_run_that_passed_has_nothing_but_tests():
    suite = suite_of(whole())
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("0", "0", "0")
