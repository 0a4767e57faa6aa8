"""Ctrl-C at every point of a call: the next one works, and that one left all or nothing."""

import itertools
import os
import threading
from functools import partial

import pytest

import indelible
from indelible import ChatMessage
from indelible.backends.memory import MemoryBackend
from indelible.backends.postgres.driver import PostgresBackend
from indelible.backends.redis.driver import RedisBackend
from indelible.backends.sqlite import SqliteDatabase
from indelible.core.embedded import EmbeddedBackend
from tests.support import postgres_server
from tests.support.interrupts import HANGS_S, Interrupter, Thread, interrupted
from tests.support.stores import EMBEDDED, ENGINES, PERSISTENT, empty_url, unsynced
from tests.support.wait import wait_until

SOAK = "INDELIBLE_SOAK" in os.environ
# In the everyday run, points inside of the client libraries are left out, where most are.
BENEATH = SOAK
# Each point costs some round trips; on servers, an everyday run takes some of them.
STRIDE = {**dict.fromkeys(ENGINES, 1), "redis": 2, "postgres": 4}
WHOLE = {"append", "read"}
BEFORE = [ChatMessage(role="user", content=content) for content in ("one", "two")]
BATCH = [ChatMessage(role="user", content=f"part {n}") for n in range(3)]


def options_of(engine):
    """Deadlines that a slot which is never given back runs into."""
    return {"busy_timeout_s": 30.0} if engine in EMBEDDED else {"timeout_s": 30.0}


def place_of(engine, folder):
    # Connections that were interrupted may still be in an emptied database.
    return postgres_server.fresh_database() if engine == "postgres" else empty_url(engine, folder)


@pytest.fixture
def store(engine, tmp_path):
    url = place_of(engine, tmp_path)
    opened = indelible.open(url, **options_of(engine), **unsynced(url))
    yield opened
    Thread("closing").run(opened.close)


# What is done, and what it adds to the two messages that a session begins with.
INTERRUPTED = {
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


def slots_held(store):
    """How many slots are taken, while no call is under way."""
    match backend := store._backend:
        case EmbeddedBackend(_database=SqliteDatabase(readers=readers)):
            leased = [readers._slots]
        case RedisBackend():
            return sum(each.batcher.sending for each in backend.find_servers().channels.values())
        case PostgresBackend():
            return backend.batcher.sending + backend.pool.held
        case MemoryBackend():
            leased = []
        case _:
            pytest.fail(f"name the leases of {type(backend).__name__} in slots_held")
    return sum(each.held for each in leased)


def list_outcomes(engine, adds):
    """What a session may show after an interrupted call and two more messages.

    A server may still perform what was sent when its connection is closed: behind later calls, too.
    """
    before, later = [message.content for message in BEFORE], ["next", "other"]
    yield [*before, *later]
    for place in range(1 if engine in EMBEDDED else len(later) + 1):
        if adds is None:
            yield [*before[:1], *later[place:]]
        else:
            yield [*before, *later[:place], *adds, *later[place:]]


def check(store, engine, session, adds, where):
    """Both threads can write, and the interrupted call left all of its entries or none."""
    here, other = Thread("the same"), Thread("another")
    here.run(store.add_message, session, "user", "next")
    other.run(store.add_message, session, "user", "other")
    seen = other.run(contents, store, session)
    assert seen in list_outcomes(engine, adds), where
    assert slots_held(store) == 0, where


def build_runs():
    """Each engine with each verb; on servers they take the ways of an append or of a read."""
    for engine, verb in itertools.product(ENGINES, INTERRUPTED):
        repeats = engine not in EMBEDDED and verb not in WHOLE
        marks = [pytest.mark.exhaustive] if repeats else []
        yield pytest.param(engine, verb, marks=marks)


@pytest.mark.parametrize(("engine", "verb"), list(build_runs()))
def test_the_next_call_works_wherever_one_was_interrupted(store, engine, verb):
    do, adds = INTERRUPTED[verb]
    store.add_message("known", "user", "so that all is open")
    for at in itertools.count(1, 1 if SOAK or verb in WHOLE else STRIDE[engine]):
        session, snapshot = f"{verb} {at}", None
        if verb == "rollback":
            store.add_message(session, "user", "one")
            snapshot = store.save_snapshot(session).id
            store.add_message(session, "user", "two")
        else:
            store.add_messages(session, BEFORE)
        point, error = interrupted(partial(do, store, session, snapshot), at, beneath=BENEATH)
        assert error is not None or not point.fired, point.where
        check(store, engine, session, adds, point.where)
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


# Where a thread begins to lead, or a task to send, what waited for it.
LEADS = {**dict.fromkeys(EMBEDDED, "write"), "redis": "_send", "postgres": "send_group"}
FOLLOWERS = 3


def holding(engine, store, monkeypatch):
    """Have the next group wait until it is let go; how many calls wait behind it."""
    backend = store._backend
    gate, there = threading.Semaphore(0), threading.Semaphore(0)

    def held(original):
        def perform(*arguments, **options):
            there.release()
            assert gate.acquire(timeout=HANGS_S)
            return original(*arguments, **options)

        return perform

    match engine:
        case "redis":
            batcher = backend.find_servers().channels["", True].batcher
        case "postgres":
            batcher = backend.batcher
        case _:
            batcher = backend._batcher
    # One sender, so that whoever comes next has to wait.
    batcher._senders_max = 1
    monkeypatch.setattr(batcher, "_send", held(batcher._send))
    return gate, there, lambda: batcher._waiting


def batch(text):
    """A batch, so that half of one would show."""
    return [ChatMessage(role="user", content=f"{text} {part}") for part in "ab"]


def told(outcome):
    """What a call came to."""
    try:
        return outcome()
    except (indelible.MemoryStoreError, KeyboardInterrupt) as error:
        return error


@pytest.mark.parametrize("engine", PERSISTENT)
def test_whoever_waits_behind_an_interrupted_leader_is_answered(store, engine, monkeypatch):
    store.add_messages("s", BEFORE)
    gate, there, waiting = holding(engine, store, monkeypatch)
    shown = [message.content for message in BEFORE]
    at = 1
    for turn in itertools.count():
        # One leads and is held; the next is to lead those behind it, and is interrupted.
        first = Thread("first").begin(store.add_messages, "s", batch(f"first {turn}"))
        assert there.acquire(timeout=HANGS_S)
        leader = Thread("leader").begin(
            partial(
                run_interrupted, point := Interrupter(at, beneath=BENEATH, after=LEADS[engine])
            ),
            partial(store.add_messages, "s", batch(f"leader {turn}")),
        )
        wait_until(lambda: len(waiting()) == 1)
        followers = []
        for number in range(FOLLOWERS):
            text = f"follower {turn} {number}"
            followers.append(Thread(text).begin(store.add_messages, "s", batch(text)))
            wait_until(lambda number=number: len(waiting()) == number + 2)
        for _ in range(2 + 2 * FOLLOWERS):
            gate.release()
        answers = [told(each) for each in (first, leader, *followers)]
        while gate.acquire(blocking=False) or there.acquire(blocking=False):
            pass
        after = contents(store, "s")
        added = after[len(shown) :]
        assert after[: len(shown)] == shown, point.where
        names = ["first {}", "leader {}", *(f"follower {{}} {n}" for n in range(FOLLOWERS))]
        for name, answer in zip(names, answers, strict=True):
            entries = [f"{name.format(turn)} {part}" for part in "ab"]
            found = [entry for entry in added if entry in entries]
            landed = found == entries
            assert landed or not found, f"{found} {point.where}"
            if isinstance(answer, indelible.Receipt):
                assert landed, point.where
            elif isinstance(answer, indelible.MemoryStoreError) and answer.landed == "no":
                assert not landed, point.where
        shown = after
        if point.fired:
            at += 1 if SOAK else 3
        else:
            assert all(isinstance(answer, indelible.Receipt) for answer in answers), answers
            # Else a follower was quicker, and led: nobody was interrupted.
            if point.counts:
                break
    assert at > 3
    assert store.verify().ok


def run_interrupted(interrupter, work):
    with interrupter:
        return work()
