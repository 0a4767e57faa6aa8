"""Tasks that append together: none is left behind, whatever becomes of the others."""

import asyncio
import threading
from dataclasses import replace

import psycopg
import pytest

import indelible
from indelible import BusyError
from indelible.backends.postgres.client import SENDERS_MAX, Pause
from indelible.backends.postgres.errors import translate_error
from indelible.core.deadline import Deadline

BUSY = psycopg.errors.LockNotAvailable
LOST = psycopg.OperationalError


class Groups:
    """Stands where groups are sent: holds them up until they are let go.

    It may refuse them, or send them and lose the answer.
    """

    def __init__(self, store):
        threads = store._backend._threads
        self._send = threads._send
        threads._send = self
        self.open = threading.Event()
        self.entered = []
        self.refused = self.lost = 0

    def __call__(self, batch):
        self.entered.append(len(batch))
        assert self.open.wait(60)
        if self.refused:
            self.refused -= 1
            for one in batch:
                one.fail(translate_error(BUSY(), place="it", committing=True))
            return
        self._send(batch)
        if self.lost:
            self.lost -= 1
            for one in batch:
                one.fail(translate_error(LOST(), place="it", committing=True))


class Attempts:
    """Stands where a call uses a connection: counts, and may refuse."""

    def __init__(self, store):
        client = store._backend._client
        self._attempt = client.attempt
        client.attempt = self
        self.count, self.refused = 0, False

    def __call__(self, attempt):
        refused = self.refused
        self.count += 1
        if refused:
            raise translate_error(BUSY(), place="it", committing=True)
        return self._attempt(attempt)


@pytest.fixture
async def store(url):
    async with indelible.open_async(url, timeout_s=30) as store:
        await store.add_message("s", "user", "first")
        yield store


async def until(found):
    async with asyncio.timeout(60):
        while not found():  # noqa: ASYNC110 (nothing says when it is)
            await asyncio.sleep(0)


async def texts(store):
    return [message.content for message in await store.get_history("s")]


async def test_a_cancelled_append_whose_group_was_refused_ends_with_it(store):
    groups = Groups(store)
    groups.refused = 1
    task = asyncio.create_task(store.add_message("s", "user", "second"))
    await until(lambda: groups.entered)
    task.cancel()
    groups.open.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await texts(store) == ["first"]


async def test_a_cancelled_append_whose_answer_was_lost_goes_on_until_it_is_known(store):
    groups = Groups(store)
    groups.lost = 1
    attempts = Attempts(store)
    task = asyncio.create_task(store.add_message("s", "user", "second"))
    await until(lambda: groups.entered)
    task.cancel()
    groups.open.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    # That of the group, and one that finds the key.
    assert attempts.count == 2
    assert await texts(store) == ["first", "second"]


async def test_cancelled_appends_that_landed_are_not_sent_again(store):
    groups, attempts = Groups(store), Attempts(store)
    tasks = [asyncio.create_task(store.add_message("s", "user", str(n))) for n in range(20)]
    await until(lambda: groups.entered)
    for task in tasks:
        task.cancel()
    groups.open.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {asyncio.CancelledError}
    assert attempts.count == 1
    assert await texts(store) == ["first", *(str(n) for n in range(20))]


async def test_a_write_that_is_cancelled_between_two_attempts_is_not_made(store):
    attempts = Attempts(store)
    attempts.refused = True
    begin, pauses = store._backend._begin, []

    def note(op, *arguments, **options):
        if isinstance(op, Pause):
            pauses.append(op)
        return begin(op, *arguments, **options)

    store._backend._begin = note
    task = asyncio.create_task(store.set_metadata("s", {"a": 1}))
    await until(lambda: len(pauses) > 5)
    task.cancel()
    attempts.refused = False
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await store.session("s")).metadata == {}


async def test_a_cancelled_append_keeps_its_deadline(store, monkeypatch):
    made = []

    class Counted(Deadline):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr("indelible.backends.postgres.client.Deadline", Counted)
    groups = Groups(store)
    groups.lost = 1
    task = asyncio.create_task(store.add_message("s", "user", "second"))
    await until(lambda: groups.entered)
    task.cancel()
    groups.open.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(made) == 1


async def test_a_cancelled_append_whose_group_landed_is_there_once(store):
    groups = Groups(store)
    task = asyncio.create_task(store.add_message("s", "user", "second"))
    await until(lambda: groups.entered)
    task.cancel()
    groups.open.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await texts(store) == ["first", "second"]


async def test_closing_waits_for_appends_that_go_on_alone(store, url):
    groups = Groups(store)
    groups.refused = 1
    tasks = [asyncio.create_task(store.add_message("s", "user", str(n))) for n in range(3)]
    await until(lambda: groups.entered)
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    groups.open.set()
    await closing
    # Their results are there; the tasks themselves go on in the next turn of the loop.
    await asyncio.gather(*tasks)
    async with indelible.open_async(url) as again:
        assert sorted(await texts(again)) == ["0", "1", "2", "first"]


async def test_whoever_waits_until_its_deadline_is_told_that_nothing_was_written(store):
    groups = Groups(store)
    leading = []
    for n in range(SENDERS_MAX):
        leading.append(asyncio.create_task(store.add_message("s", "user", f"lead {n}")))
        await until(lambda: len(groups.entered) == len(leading))
    client = store._backend._client
    client._options = replace(client._options, timeout_s=0.2)
    late = await asyncio.gather(
        *(store.add_message("s", "user", "late") for _ in range(5)), return_exceptions=True
    )
    assert {type(error) for error in late} == {BusyError}
    assert {error.landed for error in late} == {"no"}
    groups.open.set()
    await asyncio.gather(*leading)
    assert sorted(await texts(store)) == ["first", "lead 0", "lead 1"]


async def test_appends_that_wait_together_are_one_group(store):
    groups = Groups(store)
    groups.open.set()
    numbers = [str(n) for n in range(100)]
    await asyncio.gather(*(store.add_message("s", "user", number) for number in numbers))
    assert groups.entered == [len(numbers)]
    assert await texts(store) == ["first", *numbers]
