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


@pytest.mark.parametrize("verb", VERBS)
def test_it_is_one_round_trip(store, verb, monkeypatch):
    for session in ("s", "pieces"):
        store.add_messages(session, [{"role": "user", "content": str(n)} for n in range(30)])
    at = store.save_snapshot("s").id
    store.hide("pieces", [3, 20, 25])
    store.add_message("s", "user", "later")
    trips = []
    wait = DriverConnection.wait

    def counted(self, gen, *args, **options):
        trips.append(self.info.transaction_status)
        return wait(self, gen, *args, **options)

    monkeypatch.setattr(DriverConnection, "wait", counted)
    VERBS[verb](store, at)
    # Outside of a transaction: the statement is one by itself.
    assert trips == [psycopg.pq.TransactionStatus.IDLE]
