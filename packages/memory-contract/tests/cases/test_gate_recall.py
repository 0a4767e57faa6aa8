"""The gate `recall` on stores that search, and on those that do not."""

from memory_contract import check
from tests.support.kit import under_test

# What a store is asked that can put, search, filter and retract.
CLAIMED = {
    "what_was_put_is_found",
    "newest_version_is_found",
    "retracted_is_not_found",
    "filter_comes_before_the_limit",
    "collections_do_not_leak",
    "same_query_same_order",
}


def test_a_store_of_langgraph_takes_part():
    report = check(
        "langgraph-store:tests.support.kit.store_factories:store", gates=["recall"], seed=3
    )
    verdicts = {result.case: result.verdict for result in report.results}
    assert report.verdict == "PASS"
    claimed = {name for name, verdict in verdicts.items() if verdict == "PASS"}
    assert claimed == CLAIMED
    assert {verdicts[name] for name in set(verdicts) - claimed} == {"NOT CLAIMED"}


def test_a_vector_index_of_llama_index_takes_part():
    report = check(
        "llama-index-vectors:tests.support.kit.store_factories:index", gates=["recall"], seed=3
    )
    assert report.verdict == "PASS"
    claimed = {(each.case, each.mode) for each in report.results if each.verdict == "PASS"}
    assert {mode for _, mode in claimed} == {"blocking", "async"}
    assert {case for case, _ in claimed} == CLAIMED


def test_a_store_without_search_claims_nothing_there():
    report = check(under_test.smallest, gates=["recall"], seed=3)
    assert {result.verdict for result in report.results} == {"NOT CLAIMED"}
    assert (report.verdict, report.judge_gate("recall")) == ("NOT RUN", "NOT CLAIMED")


def test_a_gate_of_search_that_is_not_claimed_takes_nothing_from_the_others():
    report = check(under_test.smallest, gates=["sequential", "recall"], seed=3)
    assert report.verdict == "PASS"
