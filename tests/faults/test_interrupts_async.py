"""Ctrl-C in the thread of an event loop, and cancellation, at every point of an awaited call."""

import asyncio
import gc
import itertools

import pytest

import indelible
from tests.faults.test_interrupts import BATCH, BEFORE, SOAK, STRIDE, options_of, place_of
from tests.support import stores
from tests.support.interrupts import HANGS_S, Thread, interrupted

# A pipeline of psycopg that is interrupted while it is left complains when it is collected, because
# its connection was closed meanwhile: nobody waits for it any more.
pytestmark = pytest.mark.filterwarnings(
    r"ignore:Exception ignored in. <generator object BasePipeline\._exit_gen:"
    "pytest.PytestUnraisableExceptionWarning"
)

# Memory has no async code of its own.
# How many calls are under way at once: more than there are connections.
CROWD = 20
INTERRUPTED = {
    "append": (lambda store, s: store.add_message(s, "user", "new"), ["new"]),
    "batch": (lambda store, s: store.add_messages(s, BATCH), [m.content for m in BATCH]),
    "snapshot": (lambda store, s: store.save_snapshot(s), []),
    "read": (lambda store, s: store.get_history(s), []),
}


class Place:
    """A store on an event loop that goes on after it was interrupted, as one in a notebook does."""

    def __init__(self, engine, folder):
        self.loop = asyncio.new_event_loop()
        # What an interrupt tore from its task is told here, and is no news.
        self.loop.set_exception_handler(lambda *_: None)
        url = place_of(engine, folder)
        opening = indelible.open_async(url, **options_of(engine), **stores.unsynced(url))
        self.store = self.run(_awaited(opening))

    def run(self, coroutine):
        """Run the loop in a thread that is given up when it hangs."""
        return Thread("event loop").run(self._bounded, coroutine)

    def _bounded(self, coroutine):
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, HANGS_S))

    def settle(self):
        """An interrupted run may have left the order to stop behind, meant for itself."""
        self.loop.call_soon(self.loop.stop)
        Thread("event loop").run(self.loop.run_forever)

    async def contents(self, session):
        return [message.content for message in await self.store.get_history(session)]

    async def next_calls(self, session):
        await self.store.add_message(session, "user", "next")
        return await self.contents(session)

    async def crowd(self):
        """As many calls at once as use every slot."""
        store = self.store
        await asyncio.gather(*(self.contents("known") for _ in range(CROWD)))
        adds = [store.add_messages(f"crowd {n}", BATCH) for n in range(CROWD)]
        await asyncio.gather(*adds, *(store.save_snapshot(f"crowd {n}") for n in range(CROWD)))
        return (await store.verify()).ok

    def close(self):
        self.run(self.store.close())
        self.loop.close()


async def _awaited(opening):
    return await opening


@pytest.fixture
def place(engine, tmp_path):
    made = Place(engine, tmp_path)
    yield made
    made.close()
    # Coroutines that an interrupt tore from their loop end here, and not in somebody's next test.
    del made
    gc.collect()


def assert_all_or_nothing(seen, adds, where):
    """What was there, the next one, and all of what was interrupted, in whichever order."""
    before = [message.content for message in BEFORE]
    rest = seen[len(before) :]
    allowed = [["next"], [*adds, "next"], ["next", *adds]]
    assert seen[: len(before)] == before, where
    assert rest in allowed, f"{rest} {where}"


@pytest.mark.filterwarnings(
    "ignore:coroutine .* was never awaited:RuntimeWarning",
    # psycopg's own cleanup, in a coroutine that nobody will run again, on a connection we closed.
    "ignore:Exception ignored in. <coroutine object AsyncPipeline"
    ":pytest.PytestUnraisableExceptionWarning",
    # A connection that was being opened in such a coroutine is closed when it is collected.
    r"ignore:Exception ignored in. <function BaseConnection\.__del__"
    ":pytest.PytestUnraisableExceptionWarning",
)
@pytest.mark.parametrize("verb", INTERRUPTED)
@pytest.mark.parametrize("engine", stores.PERSISTENT)
def test_the_event_loop_goes_on_wherever_it_was_interrupted(place, engine, verb):
    do, adds = INTERRUPTED[verb]
    store = place.store
    place.run(store.add_message("known", "user", "so that all is open"))
    for at in itertools.count(1, 1 if SOAK else STRIDE[engine]):
        session = f"{verb} {at}"
        place.run(store.add_messages(session, BEFORE))

        def work(session=session):
            return place.loop.run_until_complete(do(store, session))

        point, error = interrupted(work, at, beneath=False)
        place.settle()
        assert error is not None or not point.fired, point.where
        assert_all_or_nothing(place.run(place.next_calls(session)), adds, point.where)
        if not point.fired:
            break
    assert at > 10
    assert place.run(place.crowd())


@pytest.mark.parametrize("verb", INTERRUPTED)
@pytest.mark.parametrize("engine", stores.PERSISTENT)
def test_a_call_that_is_cancelled_at_any_step_keeps_no_slot(place, verb):
    do, adds = INTERRUPTED[verb]
    store = place.store

    async def cancelled(session, steps):
        """Whether the call was still under way after so many steps of the loop."""
        task = asyncio.ensure_future(do(store, session))
        for _ in range(steps):
            await asyncio.sleep(0)
        if task.done():
            return False
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return True

    place.run(store.add_message("known", "user", "so that all is open"))
    steps = 0
    for number in itertools.count():
        session = f"{verb} {number}"
        place.run(store.add_messages(session, BEFORE))
        under_way = place.run(cancelled(session, steps))
        assert_all_or_nothing(place.run(place.next_calls(session)), adds, f"{steps} steps")
        if not under_way:
            break
        # Close together first, where most happens; then as far apart as it takes to wait.
        steps = steps + 1 if steps < 12 else steps * 2
    assert number > 2
    assert place.run(place.crowd())
