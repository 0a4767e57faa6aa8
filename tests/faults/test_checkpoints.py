"""Checkpoints survive processes that die in the middle of storing them, and replies that are lost.

As in test_crash_points, every point is one process; the next one looks at what it left.
"""

from contextlib import closing
from random import Random

import pytest

import indelible
from indelible.adapters.langgraph import IndelibleSaver
from memory_contract import Adapter
from memory_contract.faults.proxy import Proxy, ProxyFault
from memory_contract.faults.vfs.faulty_disk import FaultyDisk
from memory_contract.faults.vfs.images import build_final_files, build_images, write_files
from memory_contract.workers.pool import WorkerLost, WorkerPool
from tests.faults.walked import SEAMS
from tests.faults.walked_saver import (
    DOES,
    PREPARED,
    open_synced_saver,
    open_walked_saver,
    put,
    put_writes,
)
from tests.support import postgres_server, stores
from tests.support.crash_points import CrashPoints


def call(worker, method, *arguments):
    return worker.ask("call", method, arguments, {})


def build_url(engine, folder):
    if engine == "postgres":
        return postgres_server.fresh_database()
    return stores.empty_url(engine, folder)


# PostgreSQL and SQLite perform its operations by the same handlers.
ENGINES = [
    *(engine for engine in stores.PERSISTENT if engine != "postgres"),
    pytest.param("postgres", marks=pytest.mark.exhaustive),
]


@pytest.fixture(params=ENGINES)
def start(request, tmp_path):
    """Start a fresh process with a saver, which can be told to die."""
    engine = request.param
    url = build_url(engine, tmp_path)
    modules = [seam.partition(":")[0] for seam in SEAMS[engine]]
    pool = WorkerPool(Adapter(open=open_walked_saver, name=engine), modules)

    def start_worker():
        worker = pool.start_worker()
        worker.ask("install_plugin", CrashPoints(SEAMS[engine]))
        worker.ask("open", tmp_path, "blocking", url)
        return worker

    yield start_worker
    pool.close()


def learn(start, verb):
    """What shows before and after, and how many calls to the engine it takes."""
    worker = start()
    call(worker, "prepare", "reference")
    before = call(worker, "shows", "reference")
    worker.call_plugin("arm", 0, "before")
    call(worker, "do", verb, "reference")
    calls = worker.call_plugin("passed")
    after = call(worker, "shows", "reference")
    worker.end()
    ids = [int(each[0]) for each in after]
    assert ids == {"put": [4, 3, 2, 1], "prune": [3]}.get(verb, [3, 2, 1])
    assert len(after[0][2]) == (2 if verb == "put_writes" else 0)
    return before, after, calls


def look(worker, verb, thread, before, after):
    """Hold what a process left that died to all or nothing, and go on from there."""
    assert call(worker, "shows", thread) in (before, after), thread
    call(worker, "do", verb, thread)
    assert call(worker, "shows", thread) == after, thread
    assert call(worker, "goes_on", thread), thread


@pytest.mark.parametrize("verb", DOES)
def test_who_dies_leaves_all_of_a_step_or_nothing(start, verb):
    before, after, calls = learn(start, verb)
    left, died = None, 0
    # Before the first call and after each: between two calls the engine holds the same.
    for at, when in [(1, "before"), *((at, "after") for at in range(1, calls + 1)), (0, "before")]:
        worker = start()
        if left is not None:
            look(worker, verb, left, before, after)
        left = f"{at} {when}"
        call(worker, "prepare", left)
        worker.call_plugin("arm", at, when)
        try:
            call(worker, "do", verb, left)
        except WorkerLost:
            worker.kill()
            died += 1
        else:
            # The first of all had more to do: a server learns a script only once.
            worker.end()
            break
    assert died > 1


@pytest.mark.parametrize("verb", ["put", "put_writes"])
@pytest.mark.parametrize("server", stores.SERVERS)
def test_a_step_whose_reply_is_lost_is_stored_once(server, verb):
    url = stores.SERVERS[server]()
    with Proxy(url) as proxy, indelible.open(proxy.url, timeout_s=60) as store:
        saver = IndelibleSaver(store)
        for number in range(1, PREPARED + 1):
            put(saver, "t", number)
        put_writes(saver, "t", PREPARED - 1)
        before = store.session("~thread/t").logged
        proxy.arm(ProxyFault("cut after"))
        DOES[verb](saver, "t")
        assert len(proxy.struck) == 1
        with indelible.open(url) as other:
            new = other.session("~thread/t").logged - before
            listed = list(IndelibleSaver(other).list({"configurable": {"thread_id": "t"}}))
        assert [int(each.checkpoint["id"]) for each in listed] == (
            [4, 3, 2, 1] if verb == "put" else [3, 2, 1]
        )
        # A new message and the record; two values and the record of writes.
        assert new == (2 if verb == "put" else 3)


POWER_CUTS = 40


@pytest.mark.parametrize("verb", DOES)
def test_a_power_cut_leaves_all_of_a_step_or_nothing(verb, tmp_path):
    recorded = tmp_path / "recorded"
    recorded.mkdir()
    pool = WorkerPool(Adapter(open=open_synced_saver, name="sqlite"), ["tests.faults.walked_saver"])
    with closing(pool):
        worker = pool.start_worker()
        worker.ask("install_plugin", FaultyDisk(recorded, remember=True))
        worker.ask("open", recorded, "blocking")
        call(worker, "prepare", "t")
        before = call(worker, "shows", "t")
        began = worker.call_plugin("length")
        call(worker, "do", verb, "t")
        ended = worker.call_plugin("length") - began
        after = call(worker, "shows", "t")
        changes = worker.call_plugin("changes")
        worker.kill()
    base, changes = build_final_files(changes[:began], {}), changes[began:]
    cuts = 0
    for image in build_images(
        changes, wanted=POWER_CUTS, random=Random(3), base=base, stage=lambda at: at >= ended
    ):
        cuts += 1
        folder = tmp_path / str(cuts)
        folder.mkdir()
        write_files(image.files, folder)
        with closing(open_synced_saver(folder)) as saver:
            shown = saver.shows("t")
            assert shown == after or (shown == before and image.after < ended), image.after
            saver.do(verb, "t")
            assert saver.shows("t") == after
            assert saver.goes_on("t")
    assert cuts > 5
