"""The kit is tested with stores that forget: each is caught by the case that names it.

And with stores that do not: no case says a word against them.
"""

import os

import pytest

from memory_contract.cases.catalogue import all_cases
from memory_contract.gates import FAULT_GATES
from memory_contract.goldfish import examine, survey
from memory_contract.runner import StoreUnderTest, list_modes, run_case
from tests.support import server_goldfish
from tests.support.kit.goldfish_stores import GOLDFISH, RIGHT

# One in the everyday run; a soak asks for more.
SEEDS = range(1, 1 + int(os.environ.get("INDELIBLE_SEEDS", "1")))
# In which gates a goldfish must be caught, so that no gate goes untested.
GATES = ("sequential", "edges", "lifecycle", "concurrency", "faults", "crash", "recall")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", GOLDFISH)
def test_a_goldfish_is_caught_by_the_case_that_names_it(name, seed):
    found = examine(GOLDFISH[name], seed)
    assert found.caught, [(r.id, r.verdict, r.reason) for r in found.results]
    assert found.anomaly
    assert found.modes


# These differ from `list_store` in when a session's time begins anew, and in nothing else.
RENEWED_OTHERWISE = {"list_renewed_by_reading", "list_that_ends_on_time"}
# These differ from `sqlite_store` in what they keep beside the messages: what the others do not.
KEPT_BESIDE = {"audit_store": {"audit"}, "checkpoint_store": {"pending", "prune"}}


def cases_for(name, gate):
    """The cases of a gate in which a right store may differ from all others."""
    for case in all_cases():
        if case.gate != gate or (name in RENEWED_OTHERWISE and gate != "lifecycle"):
            continue
        # Only some search, and these differ from `sqlite_store` in nothing else.
        if (gate == "recall") != RIGHT[name].claims(["search"]):
            continue
        # It writes as `sqlite_store` does. Of crashes, only damage is judged by what a store keeps.
        written_alike = name == "sqlite_of_the_newest" and gate == "crash"
        if written_alike and case.name != "damaged_file_is_loud":
            continue
        # Of what `item_store` promises, it keeps more only in a power cut.
        if name == "synced_item_store" and not case.durable:
            continue
        if name not in KEPT_BESIDE or case.needs & KEPT_BESIDE[name]:
            yield case


ASKED = [(name, gate) for name in RIGHT for gate in GATES if any(cases_for(name, gate))]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "gate"), ASKED)
def test_a_right_store_is_caught_by_no_case(name, gate, seed):
    subject = StoreUnderTest(RIGHT[name])
    try:
        results = [
            known or run_case(case, mode, subject, seed=seed)
            for case in cases_for(name, gate)
            for mode, known in list_modes(case, subject)
        ]
    finally:
        subject.close()
    # A race that did not come about says nothing: that is no accusation.
    said = {"PASS", "NOT CLAIMED", "VACUOUS"}
    assert [(r.id, r.verdict, r.reason) for r in results if r.verdict not in said] == []
    # What no other process sees has no bad days that a process could make.
    if gate not in FAULT_GATES or subject.adapter.reach == "machine":
        assert any(result.verdict == "PASS" for result in results)


def test_every_case_of_these_gates_has_a_goldfish_that_it_must_catch():
    # Those that need a server are examined in `tests/contract`.
    on_servers = server_goldfish.goldfish_on("redis://") | server_goldfish.goldfish_on(
        "postgresql://"
    )
    named = {fish.caught_by for fish in (GOLDFISH | on_servers).values()}
    assert {case.name for case in all_cases() if case.gate in GATES} <= named


def test_every_goldfish_says_what_it_does_wrong_and_where_that_happened():
    for name, fish in GOLDFISH.items():
        assert fish.name == name
        assert fish.sin.endswith(".")
        assert fish.incident
    assert len({fish.sin for fish in GOLDFISH.values()}) == len(GOLDFISH) >= 30


def test_a_survey_tells_of_each_goldfish_before_and_after():
    chosen = [GOLDFISH["reversed_list"], GOLDFISH["window_of_one"]]
    told = []
    found = survey(7, lambda fish, caught: told.append((fish.name, caught)), chosen)
    assert [name for name, _ in told] == ["reversed_list"] * 2 + ["window_of_one"] * 2
    assert [caught for _, caught in told] == [None, found[0], None, found[1]]
    assert [one.caught for one in found] == [True, True]


def test_what_caught_a_goldfish_goes_by_its_full_name():
    found = examine(GOLDFISH["reversed_list"], 3)
    caught = [result.id for result in found.results if result.verdict == "FAIL"]
    assert caught == ["sequential/order_of_single_appends[blocking]"]
