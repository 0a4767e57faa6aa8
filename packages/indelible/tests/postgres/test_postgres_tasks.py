"""Tasks that append together: none is left behind, whatever becomes of the others."""

import asyncio
from dataclasses import replace

import psycopg
import pytest

import indelible
from indelible import BusyError
from indelible.backends.postgres.errors import translate_error
from indelible.backends.postgres.groups import LEADERS_MAX

BUSY = psycopg.errors.LockNotAvailable


class Groups:
    """Stands where groups are sent: holds them up until they are let go, and may refuse them."""

    def __init__(self, store):
        self.room = store._backend._room()
        self._append = self.room._append
        self.room._append = self
        self.open = asyncio.Event()
        self.entered = []
        self.refused = 0

    async def __call__(self, group, *, alone=False):
        self.entered.append(len(group))
        if not alone:
            await self.open.wait()
            if self.refused:
                self.refused -= 1
                for job in group:
                    job.error = translate_error(BUSY(), place="it", committing=True)
                return
        await self._append(group, alone=alone)


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


async def test_whoever_comes_when_all_leaders_are_done_finds_a_new_one(store):
    """Both groups are answered in one turn of the loop; only one of the writers goes on."""
    groups = Groups(store)

    async def answered(group, **_):
        groups.entered.append(len(group))
        await groups.open.wait()
        for job in group:
            job.version = "1.1.1.0"

    groups.room._append = answered

    async def write(times):
        for _ in range(times):
            await store.add_message("s", "user", "x")

    one = asyncio.create_task(write(2))
    await until(lambda: len(groups.entered) == 1)
    other = asyncio.create_task(write(1))
    await until(lambda: len(groups.entered) == LEADERS_MAX)
    groups.open.set()
    async with asyncio.timeout(10):
        await asyncio.gather(one, other)
    assert sum(groups.entered) == 3


async def test_a_cancelled_append_whose_group_was_refused_lands_all_the_same(store):
    groups = Groups(store)
    groups.refused = 1
    task = asyncio.create_task(store.add_message("s", "user", "second"))
    await until(lambda: groups.entered)
    task.cancel()
    groups.open.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert groups.entered == [1, 1]
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
    assert all(task.done() for task in tasks)
    async with indelible.open_async(url) as again:
        assert sorted(await texts(again)) == ["0", "1", "2", "first"]


async def test_whoever_waits_until_its_deadline_is_told_that_nothing_was_written(store):
    groups = Groups(store)
    leading = []
    for n in range(LEADERS_MAX):
        leading.append(asyncio.create_task(store.add_message("s", "user", f"lead {n}")))
        await until(lambda: len(groups.entered) == len(leading))
    # Within a store all have the same time. These have less, so the alarm must be set anew.
    groups.room._alarm.cancel()
    groups.room._alarm = None
    store._backend._options = replace(store._backend._options, timeout_s=0.2)
    late = await asyncio.gather(
        *(store.add_message("s", "user", "late") for _ in range(5)), return_exceptions=True
    )
    assert {type(error) for error in late} == {BusyError}
    assert {error.landed for error in late} == {"no"}
    groups.open.set()
    await asyncio.gather(*leading)
    assert sorted(await texts(store)) == ["first", "lead 0", "lead 1"]
