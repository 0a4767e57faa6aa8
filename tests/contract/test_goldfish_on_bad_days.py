"""Stores that do well until the network fails: each is caught by the case that names it."""

import pytest

from memory_contract.cases import cancellation, locks, proxied_store
from memory_contract.cases.catalogue import all_cases
from memory_contract.goldfish import examine
from memory_contract.runner import StoreUnderTest, list_modes, run_case
from tests.support import postgres_server, redis_server, server_goldfish

ON_REDIS = sorted(server_goldfish.goldfish_on("redis://"))
ON_POSTGRES = sorted(server_goldfish.goldfish_on("postgresql://"))


@pytest.fixture
def impatient(monkeypatch):
    """Waits less for stores that never come back; right ones have longer on a busy machine."""
    monkeypatch.setattr(proxied_store, "RECOVERS_S", 4.0)
    monkeypatch.setattr(cancellation, "STUCK_S", 4.0)


@pytest.fixture(autouse=True)
def _who_names_no_bound_is_not_watched_for_long(monkeypatch):
    monkeypatch.setattr(locks, "UNDECLARED_S", 1.0)


def caught(fish):
    found = examine(fish, seed=5)
    if any(result.verdict == "UNKNOWN" for result in found.results):
        # The machine stood still: once more.
        found = examine(fish, seed=6)
    assert found.caught, [(r.id, r.verdict, r.reason, r.failures) for r in found.results]
    return found.anomaly


ANOMALY = {
    "RetriesWithoutKey": "duplicate",
    "SendsAgainWhenLate": "duplicate",
    "SaysFailedAlthoughApplied": "aborted read",
    "SwallowsOom": "lost append",
    "SwallowsRefusals": "lost append",
    "AcknowledgesUnheard": "lost append",
    "WaitsForEver": "unbounded wait",
    "NeverLooksAgain": "does not recover",
    "LockKeptAfterCancel": "stuck after a cancel",
    "UnloggedTable": "lost append",
    "SwallowsAFullDisk": "lost append",
    "SwallowsAFullTable": "lost append",
    "RetriesTheTransaction": "duplicate",
    "StaysWithTheOldServer": "does not recover",
    "LineBeforeTheChange": "wrong audit",
    "WritesAgainInDoubt": "wrong pending writes",
    "PrunesInTwoTransactions": "lost append",
}


@pytest.mark.parametrize("name", ON_REDIS)
def test_a_goldfish_on_redis_is_caught(impatient, name):
    anomaly = caught(server_goldfish.goldfish_on(redis_server.emptied())[name])
    assert anomaly == ANOMALY.get(name, anomaly)


@pytest.mark.parametrize("name", ON_POSTGRES)
def test_a_goldfish_on_postgres_is_caught(impatient, name):
    anomaly = caught(server_goldfish.goldfish_on(postgres_server.fresh_database())[name])
    assert anomaly == ANOMALY.get(name, anomaly)


def said_of(adapter):
    subject = StoreUnderTest(adapter)
    try:
        return [
            known or run_case(case, mode, subject, seed=5)
            for case in all_cases()
            if case.gate == "faults"
            for mode, known in list_modes(case, subject)
        ]
    finally:
        subject.close()


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", server_goldfish.RIGHT_ON_REDIS, ids=lambda kind: kind.__name__)
def test_a_right_store_on_redis_is_caught_by_no_case(kind):
    results = said_of(server_goldfish.adapter_on(kind, redis_server.emptied()))
    broken = [r for r in results if r.verdict not in ("PASS", "NOT CLAIMED")]
    assert [(r.id, r.verdict, r.reason) for r in broken] == []
    assert sum(r.verdict == "PASS" for r in results) > 5


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", server_goldfish.RIGHT_ON_POSTGRES, ids=lambda kind: kind.__name__)
def test_a_right_store_on_postgres_is_caught_by_no_case(kind):
    results = said_of(server_goldfish.adapter_on(kind, postgres_server.fresh_database()))
    broken = [r for r in results if r.verdict not in ("PASS", "NOT CLAIMED")]
    assert [(r.id, r.verdict, r.reason) for r in broken] == []
    assert sum(r.verdict == "PASS" for r in results) > 5


def test_every_case_between_a_store_and_its_server_has_a_goldfish():
    fish = {
        **server_goldfish.goldfish_on("redis://"),
        **server_goldfish.goldfish_on("postgresql://"),
    }
    named = {each.caught_by for each in fish.values()}
    rooms = {"network", "cancellation", "servers"}
    ours = {case.name for case in all_cases() if case.run.__module__.rpartition(".")[2] in rooms}
    assert ours <= named
