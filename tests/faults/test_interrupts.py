"""Ctrl-C at every point of a call: the next one works, and that one left all or nothing."""

import itertools
import os
from functools import partial

import pytest

import indelible
import postgres_here
import redis_here
from indelible import ChatMessage
from interrupts import Thread, interrupted

ENGINES = ("memory", "sqlite", "redis", "postgres")
SOAK = "INDELIBLE_SOAK" in os.environ
# In the everyday run, points inside of the client libraries are left out, where most are.
BENEATH = SOAK
# Each point costs some round trips; on servers, an everyday run takes some of them.
STRIDE = {"memory": 1, "sqlite": 1, "redis": 2, "postgres": 4}
BEFORE = [ChatMessage(role="user", content=content) for content in ("one", "two")]
BATCH = [ChatMessage(role="user", content=f"part {n}") for n in range(3)]


def options_of(engine):
    """Deadlines that a slot which is never given back runs into."""
    return {"busy_timeout_s": 3.0} if engine in ("memory", "sqlite") else {"timeout_s": 3.0}


def place_of(engine, folder):
    match engine:
        case "memory":
            return "memory:"
        case "sqlite":
            return f"sqlite:///{folder}/agent.db"
        case "redis":
            return redis_here.emptied()
        case _:
            return postgres_here.fresh_database()


@pytest.fixture
def store(engine, tmp_path):
    more = {"durability": "process"} if engine == "sqlite" else {}
    opened = indelible.open(place_of(engine, tmp_path), **options_of(engine), **more)
    yield opened
    Thread("closing").run(opened.close)


# What is done, and what it adds to the two messages that a session begins with.
DOES = {
    "append": (lambda store, s, _: store.add_message(s, "user", "new"), ["new"]),
    "append with a key": (
        lambda store, s, _: store.add_message(s, "user", "new", key="new"),
        ["new"],
    ),
    "batch": (lambda store, s, _: store.add_messages(s, BATCH), [m.content for m in BATCH]),
    "snapshot": (lambda store, s, _: store.save_snapshot(s), []),
    "rollback": (lambda store, s, at: store.rollback_to_snapshot(s, at, key="back"), None),
    "metadata": (lambda store, s, _: store.set_metadata(s, {"mood": "calm"}), []),
    "read": (lambda store, s, _: store.get_history(s), []),
}


def contents(store, session):
    return [message.content for message in store.get_history(session)]


def check(store, session, adds, where):
    """Both threads can write, and the interrupted call left all of its entries or none."""
    here, other = Thread("the same"), Thread("another")
    here.run(store.add_message, session, "user", "next")
    other.run(store.add_message, session, "user", "other")
    seen = other.run(contents, store, session)
    before = [message.content for message in BEFORE]
    allowed = [before, before[:1] if adds is None else before + adds]
    assert seen in [[*each, "next", "other"] for each in allowed], where


@pytest.mark.parametrize("verb", DOES)
@pytest.mark.parametrize("engine", ENGINES)
def test_the_next_call_works_wherever_one_was_interrupted(store, engine, verb):
    do, adds = DOES[verb]
    store.add_message("known", "user", "so that all is open")
    for at in itertools.count(1, 1 if SOAK else STRIDE[engine]):
        session, snapshot = f"{verb} {at}", None
        if verb == "rollback":
            store.add_message(session, "user", "one")
            snapshot = store.save_snapshot(session).id
            store.add_message(session, "user", "two")
        else:
            store.add_messages(session, BEFORE)
        point, error = interrupted(partial(do, store, session, snapshot), at, beneath=BENEATH)
        assert error is not None or not point.fired, point.where
        check(store, session, adds, point.where)
        if not point.fired:
            break
    assert at > 10
    # No slot is lost: as many as there are can work at once, and more.
    threads = [Thread(f"crowd {n}").begin(contents, store, "known") for n in range(20)]
    assert {tuple(each()) for each in threads} == {("so that all is open",)}
    threads = [
        Thread(f"crowd {n}").begin(store.add_message, "known", "user", "more") for n in range(20)
    ]
    assert len({each().version for each in threads}) == 20
    assert store.verify().ok
