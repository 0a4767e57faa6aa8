"""How often each of the daily verbs waits for the server."""

import psycopg
import pytest

import indelible
from indelible.backends.postgres.connection import DriverConnection

VERBS = {
    "append": lambda store, _: store.add_message("s", "user", "hi"),
    "append with a key": lambda store, _: store.add_message("s", "user", "hi", key="k"),
    "batch": lambda store, _: store.save_context("s", "question", "answer"),
    "first append": lambda store, _: store.add_message("new", "user", "hi"),
    "last 20": lambda store, _: store.get_history("s", last=20),
    "last 20 after a rollback": lambda store, at: store.get_history("pieces", last=20),
    "snapshot": lambda store, _: store.save_snapshot("s"),
    "rollback": lambda store, at: store.rollback_to_snapshot("s", at),
}


@pytest.fixture
def store(url):
    with indelible.open(url) as store:
        yield store


@pytest.fixture
def trips(monkeypatch):
    """The status of the connection at each round trip."""
    trips = []
    wait = DriverConnection.wait

    def counted(self, gen, *args, **options):
        trips.append(self.info.transaction_status)
        return wait(self, gen, *args, **options)

    monkeypatch.setattr(DriverConnection, "wait", counted)
    return trips


@pytest.mark.parametrize("verb", VERBS)
def test_it_is_one_round_trip(store, verb, trips):
    for session in ("s", "pieces"):
        store.add_messages(session, [{"role": "user", "content": str(n)} for n in range(30)])
    at = store.save_snapshot("s").id
    store.hide("pieces", [3, 20, 25])
    store.add_message("s", "user", "later")
    trips.clear()
    VERBS[verb](store, at)
    # Outside of a transaction: the statement is one by itself.
    assert trips == [psycopg.pq.TransactionStatus.IDLE]


def test_a_memory_is_erased_in_as_many_round_trips_however_many_versions_it_has(store, trips):
    counts = set()
    for versions in (2, 50):
        for number in range(versions):
            store.remember("c", f"{number}", id=f"m{versions}")
            store.remember("c", "between", id="other")
        trips.clear()
        assert store.erase_memory("c", f"m{versions}").entries == versions
        counts.add(len(trips))
    assert len(counts) == 1
