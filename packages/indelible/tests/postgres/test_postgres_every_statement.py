"""The connection is lost around each statement of each verb, in turn: it is done once, or not."""

import itertools

import psycopg
import pytest

import indelible
from tests.support.postgres.seam import put_between

STATEMENTS_MAX = 60


class Cut:
    """Loses the connection before or after the n-th statement."""

    def __init__(self):
        self.disarm()

    def arm(self, nth, when):
        self.left, self.when, self.fired = nth, when, False

    def disarm(self):
        self.arm(0, "never")

    def __call__(self, step, run):
        self.left -= 1
        if self.left != 0:
            return run()
        self.fired = True
        if self.when == "after":
            run()
        raise psycopg.OperationalError("the connection was cut")


@pytest.fixture
def cut():
    return Cut()


@pytest.fixture
def store(url, cut):
    with indelible.open(url, timeout_s=30) as store:
        put_between(store._backend, cut)
        yield store


def texts(store, session):
    return [message.content for message in store.get_history(session)]


def prepare(store, session):
    for text in ("a", "b", "c"):
        store.add_message(session, "user", text)
    snapshot = store.save_snapshot(session)
    store.add_message(session, "user", "d")
    return snapshot.id


VERBS = {
    "append": (
        lambda store, s, _: store.add_message(s, "user", "e"),
        lambda store, s: texts(store, s) == ["a", "b", "c", "d", "e"],
    ),
    "a turn": (
        lambda store, s, _: store.save_context(s, "e", "f"),
        lambda store, s: texts(store, s) == ["a", "b", "c", "d", "e", "f"],
    ),
    "append with a key and a version": (
        lambda store, s, _: store.add_message(
            s, "user", "e", key="k", expected=store.get_history(s).version
        ),
        lambda store, s: texts(store, s) == ["a", "b", "c", "d", "e"],
    ),
    "the first append": (
        lambda store, s, _: store.add_message(s + "-new", "user", "d"),
        lambda store, s: texts(store, s + "-new") == ["d"],
    ),
    "trim": (
        lambda store, s, _: store.trim(s, keep_last=1),
        lambda store, s: texts(store, s) == ["d"],
    ),
    "clear and undo": (
        lambda store, s, _: (store.clear(s, key="c"), store.undo(s, key="u")),
        lambda store, s: (
            texts(store, s) == ["a", "b", "c", "d"] and len(store.timeline(s).changes) == 2
        ),
    ),
    "rollback": (
        lambda store, s, at: store.rollback_to_snapshot(s, at, key="r"),
        lambda store, s: texts(store, s) == ["a", "b", "c"] and len(store.timeline(s).changes) == 1,
    ),
    "snapshot": (
        lambda store, s, _: store.save_snapshot(s),
        lambda store, s: len(store.list_snapshots(s)) == 2,
    ),
    "metadata": (
        lambda store, s, _: store.set_metadata(s, {"a": 1}),
        lambda store, s: store.session(s).metadata == {"a": 1},
    ),
    "vacuum": (
        lambda store, s, _: store.vacuum(session_id=s, undo_window=0),
        lambda store, s: texts(store, s) == ["a", "b", "c", "d"],
    ),
    "forget": (
        lambda store, s, _: store.forget(s),
        lambda store, s: store.session(s).status == "new",
    ),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_connection_leaves_it_done_once(store, cut, verb, when):
    call, is_done = VERBS[verb]
    for nth in itertools.count(1):
        assert nth < STATEMENTS_MAX
        session = f"s{nth}"
        at = prepare(store, session)
        cut.arm(nth, when)
        try:
            call(store, session, at)
        except indelible.OutcomeUnknownError:
            # What has no key does no harm when it is done again.
            assert verb in ("metadata", "vacuum", "forget")
            call(store, session, at)
        fired = cut.fired
        cut.disarm()
        assert is_done(store, session), f"cut {when} statement {nth}"
        if not fired:
            break
    assert nth > 1
    assert store.verify().ok
