"""What docs/findings.md says of stores of other projects on bad days of their disk."""

from dataclasses import replace

import pytest

from memory_contract.cases.catalogue import all_cases
from memory_contract.cases.crashes import Kills, PowerCuts
from memory_contract.runner import StoreUnderTest, run_case
from memory_contract.targets import resolve

CASES = {case.name: case for case in all_cases()}


def result_of(target, case, run=None):
    subject = StoreUnderTest(resolve(target))
    chosen = CASES[case] if run is None else replace(CASES[case], run=run)
    try:
        return run_case(chosen, "processes", subject, seed=1)
    finally:
        subject.close()


def test_a_kill_leaves_langchains_file_history_empty_and_unreadable():
    result = result_of(
        "langchain:tests.support.kit.framework_factories:in_files",
        "kill_at_every_step",
        lambda context: Kills(context, ["append"], 10**6, 0).run(),
    )
    assert result.verdict == "FAIL"
    assert result.failures[-1].name == "unusable after a kill"
    assert "JSONDecodeError" in result.reason


@pytest.mark.parametrize(
    ("target", "keeps_all"),
    [
        ("langchain:tests.support.kit.framework_factories:in_sql", False),
        ("openai-agents:tests.support.kit.framework_factories:sqlite_session", True),
    ],
)
def test_a_power_cut_takes_what_sqlites_defaults_do_not_sync(target, keeps_all):
    result = result_of(target, "power_loss", lambda context: PowerCuts(context, 56).run())
    assert result.verdict == "NOT CLAIMED"
    assert ("cuts, 0 took" in result.reason) is keeps_all, result.reason
    assert "cannot be used" not in result.reason


def test_an_item_of_the_agents_sdk_that_was_damaged_comes_back_changed():
    target = "openai-agents:tests.support.kit.framework_factories:sqlite_session"
    result = result_of(target, "damaged_file_is_loud")
    assert result.verdict == "PASS"
    assert any("came back changed, and nothing was said" in note for note in result.notes)
