"""The process dies before and after each call to the engine, of each verb, on each engine.

Every point is one process. It first looks at what the one before it left, so that each look is the
first of a fresh process; then it prepares a session, and dies in the middle of one verb.
"""

import os
from itertools import product

import pytest

from indelible.core.operations import Audited
from indelible.core.verbs import COMMITTING_OPERATIONS, VERBS
from memory_contract import Adapter
from memory_contract.workers.pool import WorkerLost, WorkerPool
from tests.faults.walked import DOES, SEAMS, OpenWalked
from tests.support import postgres_server, stores
from tests.support.crash_points import CrashPoints

ENGINES = (*stores.PERSISTENT, "cluster")
# The label of the snapshot of a prepared session.
KEPT = "kept"
SHOWN_BY_SNAPSHOT = [*(f"message {n}" for n in range(4)), "and", "so"]
# What these change is not seen by callers, or there is nothing to change.
UNSEEN = {"compact_memories", "embed_missing", "refresh_ttl", "reindex"}
# Before the first call and after each: what the engine holds after one call and before the next is
# the same. And of the async drivers and the cluster, which run the same plans, some verbs. A soak
# walks both sides of every call of every verb everywhere.
SOAK = "INDELIBLE_SOAK" in os.environ


def build_walks():
    """Each verb on each engine. On PostgreSQL and SQLite the same handlers perform most verbs."""
    for engine, flavour, (verb, row) in product(ENGINES, ("blocking", "async"), DOES.items()):
        is_first = flavour == "blocking" and engine != "cluster"
        if (engine == "sqlite" or not row.only_sqlite) and (SOAK or is_first or row.everywhere):
            repeats = not is_first or (engine == "postgres" and not row.everywhere)
            marks = [pytest.mark.exhaustive] if repeats else []
            yield pytest.param(engine, flavour, verb, marks=marks)


WALKS = list(build_walks())


def test_every_operation_that_completes_a_write_is_walked():
    walked = {VERBS[row.verb].commits for row in DOES.values()}
    assert walked | {Audited} == set(COMMITTING_OPERATIONS)
    assert any(verb.startswith("audited") for verb in DOES)


def points(calls):
    """Where to die."""
    both = [(at, when) for at in range(1, calls + 1) for when in ("before", "after")]
    return [(at, when) for at, when in both if SOAK or when == "after" or at == 1]


@pytest.fixture(scope="module")
def places(tmp_path_factory, request):
    """The URL of each engine, fresh for these tests."""

    def place(engine):
        match engine:
            case "postgres":
                return postgres_server.fresh_database()
            case "cluster":
                return request.getfixturevalue("cluster_url")
        return stores.empty_url(engine, tmp_path_factory.mktemp("walk"))

    return place


class Walk:
    """Processes on one engine that are told to die."""

    def __init__(self, engine, flavour, url, folder):
        # The flavours of an engine may share a server.
        self.name = flavour
        self._engine = engine
        self._url = url
        self._folder = folder
        adapter = Adapter(open=OpenWalked(flavour == "async"), name=engine)
        self._worker_pool = WorkerPool(adapter, [seam.partition(":")[0] for seam in SEAMS[engine]])

    def process(self, at=0, when="before", url=None):
        """A fresh process with the store open; or None if it died in opening it."""
        worker = self._worker_pool.start_worker()
        worker.ask("install_plugin", CrashPoints(SEAMS[self._engine], at, when))
        try:
            worker.ask("open", self._folder, "blocking", url or self._url)
        except WorkerLost:
            worker.kill()
            return None
        return worker

    def close(self):
        self._worker_pool.close()


@pytest.fixture(scope="module")
def walks(places, tmp_path_factory):
    """One walk for each engine and flavour, made when it is first asked for.

    A verb that works on all sessions of a store has a store of its own.
    """
    made = {}

    def walk(engine, flavour, verb=""):
        key = engine, flavour, verb if verb and DOES[verb].whole_store else ""
        if key not in made:
            folder = tmp_path_factory.mktemp("walk")
            made[key] = Walk(engine, flavour, places(engine), folder)
        return made[key]

    yield walk
    for each in made.values():
        each.close()


def call(worker, method, *arguments):
    return worker.ask("call", method, arguments, {})


def reference(walk, verb):
    """What shows before the verb and after it, and how many calls to the engine it makes."""
    worker, session = walk.process(), f"{walk.name}-{verb}-ref"
    snapshot = call(worker, "prepare", verb, session)
    before = call(worker, "shows", session)
    worker.call_plugin("arm", 0, "before")
    call(worker, "do", verb, session, snapshot)
    calls = worker.call_plugin("passed")
    after = call(worker, "shows", session)
    worker.end()
    return before, after, calls


def look(worker, left, before, after, verb):
    """Hold what a process left that died to all or nothing, and go on from there."""
    session, snapshot, point = left
    seen = call(worker, "shows", session)
    assert seen in (before, after), point
    if seen == before and not DOES[verb].doubles:
        call(worker, "do", verb, session, snapshot)
        seen = call(worker, "shows", session)
        assert seen == after, point
    _, _, labels, *_ = seen[0]
    if KEPT in labels:
        assert call(worker, "snapshot_shows", session, snapshot) == SHOWN_BY_SNAPSHOT, point
    assert call(worker, "goes_on", session), point


def dies(worker, verb, session, snapshot):
    """Whether the process ended in the middle of a verb."""
    try:
        call(worker, "do", verb, session, snapshot)
    except WorkerLost:
        worker.kill()
        return True
    worker.call_plugin("arm", 0, "before")
    return False


@pytest.mark.parametrize(("engine", "flavour", "verb"), WALKS)
def test_who_dies_in_a_verb_leaves_all_of_it_or_nothing(walks, engine, flavour, verb):
    walk = walks(engine, flavour, verb)
    before, after, calls = reference(walk, verb)
    assert calls
    assert before != after or verb in UNSEEN, "let Walked._one (walked.py) show what it changes"
    left = None
    for at, when in points(calls):
        worker = walk.process()
        if left is not None:
            look(worker, left, before, after, verb)
        session = f"{walk.name}-{verb}-{at}-{when}"
        snapshot = call(worker, "prepare", verb, session)
        worker.call_plugin("arm", at, when)
        if not dies(worker, verb, session, snapshot):
            # The first of all had more to do: a server learns a script only once.
            assert call(worker, "shows", session) == after
            left = None
            break
        left = (session, snapshot, f"{when} call {at} of {calls}")
    assert at > 1 or calls == 1
    last = walk.process()
    if left is not None:
        look(last, left, before, after, verb)
    assert call(last, "findings") == []
    last.end()


@pytest.mark.parametrize("flavour", ["blocking", "async"])
@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "cluster"])
def test_who_dies_in_the_first_open_leaves_what_the_next_one_completes(
    walks, places, engine, flavour
):
    walk = walks(engine, flavour)
    whole = walk.process(url=places(engine))
    calls = whole.call_plugin("passed")
    whole.end()
    assert calls
    for at, when in points(calls):
        url = places(engine)
        assert walk.process(at, when, url) is None, f"{when} call {at} of {calls}"
        opened = walk.process(url=url)
        assert call(opened, "goes_on", "s"), f"{when} call {at} of {calls}"
        assert call(opened, "findings") == []
        opened.end()
