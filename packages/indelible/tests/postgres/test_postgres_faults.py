"""A server that is killed, frozen or away: every error says whether it landed, none is doubled."""

import asyncio
import gc
import threading

import psycopg
import pytest
from psycopg.waiting import Wait

import indelible
from indelible import OutcomeUnknownError, UnavailableError
from indelible.backends.postgres.connection import DriverConnection
from indelible.backends.postgres.errors import TimeLimitError
from indelible.core.deadline import Deadline
from indelible.core.leases import Lease
from tests.support.ledger import SESSION, check
from tests.support.postgres.loads import Load, insist
from tests.support.postgres.seam import put_between
from tests.support.wait import wait_until


def test_a_server_that_is_killed_and_comes_back_under_load_loses_and_doubles_nothing(server):
    with indelible.open(server.url(), timeout_s=60) as store:
        with Load(store) as load:
            for _ in range(3):
                load.wait_for(20)
                server.kill()
                server.restart()
            load.wait_for(20)
        assert load.errors == [], "each retry found the server again, within its deadline"
        check(store, load.writes)
        assert store.verify().ok


async def test_an_async_store_goes_on_after_a_restart(server):
    async with indelible.open_async(server.url(), timeout_s=60) as store:
        await store.add_message("s", "user", "one", key="1")
        server.kill()
        server.restart()
        receipt = await store.add_message("s", "user", "two", key="2")
        assert receipt.positions == range(1, 2)
        assert [m.content for m in await store.get_history("s")] == ["one", "two"]


def test_errors_during_an_outage_say_whether_it_landed(server):
    # The tables are made without a short deadline, which a busy machine would miss.
    indelible.open(server.url()).close()
    with insist(lambda: indelible.open(server.url(), timeout_s=0.2)) as store:
        with Load(store) as load:
            load.wait_for(10)
            server.kill()
            server.restart()
            load.wait_for(10)
        assert {error.landed for error in load.errors} <= {"no", "maybe"}
        assert all(error.retryable for error in load.errors)
        check(store, load.writes, others=True)


@pytest.mark.parametrize("flavour", ["blocking", "async"])
async def test_a_frozen_server_is_waited_for_until_the_deadline(server, flavour):
    """The write was sent and nobody answers: it may have landed, and the key settles it."""
    timeout_s = 0.4
    blocking = indelible.open(server.url(), timeout_s=timeout_s)
    awaited = await indelible.open_async(server.url(), timeout_s=timeout_s)

    async def append(**options):
        if flavour == "blocking":
            return blocking.add_message(SESSION, "user", "hi", **options)
        return await awaited.add_message(SESSION, "user", "hi", **options)

    async def read():
        if flavour == "blocking":
            return blocking.get_history(SESSION)
        return await awaited.get_history(SESSION)

    first = await append()
    assert len(await read()) == 1
    server.freeze()
    with pytest.raises(OutcomeUnknownError) as caught:
        await append()
    assert caught.value.landed == "maybe"
    with pytest.raises(UnavailableError) as unread:
        await read()
    assert unread.value.landed == "no"
    server.thaw()
    again = await append(key=caught.value.key)
    assert again.positions.start == first.positions.stop
    assert len(await read()) == 2
    blocking.close()
    await awaited.close()


def test_a_server_that_is_not_there_is_an_error_that_says_so(server):
    url = server.url()
    server.kill()
    with pytest.raises(UnavailableError) as caught:
        indelible.open(url, timeout_s=0.3)
    assert caught.value.landed == "no"
    server.restart()
    indelible.open(url).close()
    with insist(lambda: indelible.open(url, timeout_s=0.3)) as store:
        insist(lambda: store.add_message("s", "user", "one", key="1"))
        server.kill()
        with pytest.raises(UnavailableError):
            store.get_history("s")
        with pytest.raises(UnavailableError) as caught:
            store.add_message("s", "user", "two")
        assert caught.value.landed == "no", "the idle connection was seen to be dead"
        server.restart()
        insist(lambda: store.add_message("s", "user", "three", key="3"))
        history = insist(lambda: store.get_history("s"))
        assert [m.content for m in history] == ["one", "three"]


async def test_a_cancelled_read_is_released_at_once(url):
    """Whoever waited until the deadline would not be back in time for the test."""
    async with indelible.open_async(url, timeout_s=3600) as store:
        await store.add_message("s", "user", "hi")
        with psycopg.connect(url) as other:
            other.execute("LOCK indelible.snapshot IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await store.list_snapshots("s")
        assert await store.list_snapshots("s") == []


async def test_a_cancelled_read_does_not_keep_its_thread(url):
    """The process would not end before the deadline of the read."""
    before = {*threading.enumerate()}
    store = await indelible.open_async(url, timeout_s=3600)
    await store.add_message("s", "user", "hi")
    with psycopg.connect(url) as other:
        other.execute("LOCK indelible.session IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await store.get_history("s")
        await store.close()
        own = [each for each in {*threading.enumerate()} - before if "indelible" in each.name]
        wait_until(lambda: not any(each.is_alive() for each in own))


def test_what_the_driver_leaves_half_done_is_ended_without_complaint(url):
    """It would complain when it is cleared away: a warning, and warnings are errors."""

    def ends_badly():
        try:
            while True:
                yield Wait.R
        finally:
            raise psycopg.OperationalError("the connection is gone")

    held = DriverConnection.connect(url)
    held.deadline = Deadline(0)
    with pytest.raises(TimeLimitError):
        held.wait(ends_badly())
    assert held.closed
    gc.collect()


class LostAnswer:
    """Does what was asked, and loses the answer."""

    def __init__(self):
        self.left = 0

    def __call__(self, step, run):
        answer = run()
        if self.left and step.may_commit:
            self.left -= 1
            raise OutcomeUnknownError("the answer was lost")
        return answer


@pytest.fixture
def lossy(url):
    """A store that can be told to lose answers."""
    seam = LostAnswer()
    with indelible.open(url, timeout_s=5) as store:
        put_between(store._backend, seam)
        yield store, seam


def test_a_lost_answer_ends_in_one_entry(lossy):
    store, seam = lossy
    seam.left = 1
    receipt = store.add_message("s", "user", "hi")
    assert receipt.replayed
    seam.left = 1
    turn = store.save_context("s", "question", "answer")
    assert (turn.replayed, turn.positions) == (True, range(1, 3))
    assert len(store.get_history("s")) == 3


def test_a_lost_answer_of_a_view_change_is_found_again(lossy):
    store, seam = lossy
    store.add_message("s", "user", "hi")
    for change in (store.clear, store.undo, store.save_snapshot):
        seam.left = 1
        change("s")
    assert store.session("s").snapshots == 1
    assert [line.change for line in store.timeline("s").changes] == ["undo", "clear"]


def test_a_statement_ends_at_the_deadline(url):
    with indelible.open(url, timeout_s=30) as store:
        store.save_context("s", "question " * 100_000, "answer")
        store.clear("s")
        store.undo("s")
        assert len(store.get_history("s")) == 2
        lease = Lease()
        pool = store._backend.pool
        borrowed = pool.borrow(lease, Deadline(0.2))
        with pytest.raises(UnavailableError) as caught:
            borrowed.query("SELECT pg_sleep(60)")
        assert isinstance(caught.value.__cause__, TimeLimitError)
        assert borrowed.driver.closed
        pool.give_back(lease, healthy=False)
        lease.held = False
        assert len(store.get_history("s")) == 2


def test_a_closed_store_is_closed(url):
    store = indelible.open(url)
    store.close()
    store.close()
    with pytest.raises(indelible.ClosedError):
        store.add_message("s", "user", "hi")


@pytest.mark.parametrize("later", ["closed", "refused"])
def test_after_a_lost_answer_no_later_refusal_says_that_nothing_was_written(url, later):
    store = indelible.open(url)
    store.add_message("s", "user", "before")
    lost = []

    def lose_first_answer(step, run):
        if not lost:
            lost.append(run())
            if later == "closed":
                store.close()
            raise psycopg.OperationalError("the connection was cut")
        raise psycopg.errors.InsufficientPrivilege("permission denied")

    put_between(store._backend, lose_first_answer)
    with pytest.raises(OutcomeUnknownError) as caught:
        store.add_message("s", "user", "hi")
    store.close()
    with indelible.open(url) as again:
        assert again.add_message("s", "user", "hi", key=caught.value.key).replayed
