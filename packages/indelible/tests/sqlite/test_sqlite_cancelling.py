"""A cancelled call is all or nothing, is released when that is settled, and disturbs nobody."""

from __future__ import annotations

import asyncio

import pytest

from indelible import ConflictError
from tests.support.sqlite.seams import Hold, awaited

# More steps of the event loop than an append takes, so that the last ones come too late.
STEPS = 40


def batch(name):
    return [{"role": "user", "content": f"{name} {n}"} for n in range(3)]


async def cancel_after(steps, task):
    """Cancel a task when the event loop has gone round so often; says whether it was cancelled."""
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    (result,) = await asyncio.gather(task, return_exceptions=True)
    if isinstance(result, asyncio.CancelledError):
        return True
    assert not isinstance(result, BaseException), result
    return False


async def contents(store, session):
    return [message.content for message in await store.get_history(session)]


async def test_an_append_that_is_cancelled_at_any_step_is_all_or_nothing(path):
    async with awaited(path) as store:
        landed = 0
        for steps in range(STEPS):
            session = f"session {steps}"
            neighbours = [
                asyncio.create_task(store.add_messages(session, batch(name)))
                for name in ("left", "right")
            ]
            task = asyncio.create_task(store.add_messages(session, batch("cancelled")))
            cancelled = await cancel_after(steps, task)
            released = await contents(store, session)
            receipts = await asyncio.gather(*neighbours)
            settled = await contents(store, session)
            ours = [content for content in settled if content.startswith("cancelled")]
            told = [message["content"] for message in batch("cancelled")]
            assert ours in ([], told)
            assert ours == told or cancelled
            assert ours == [c for c in released if c.startswith("cancelled")], "it came later"
            for name, receipt in zip(("left", "right"), receipts, strict=True):
                at = receipt.positions
                assert settled[at.start : at.stop] == [m["content"] for m in batch(name)]
            assert len(settled) == 6 + len(ours)
            landed += bool(ours)
        assert landed


@pytest.mark.parametrize("name", ["begin", "insert", "commit"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_task_that_is_cancelled_in_the_middle_of_its_write_waits_for_it(
    path, seam, name, when
):
    async with awaited(path, seam=seam) as store:
        hold = Hold()
        seam.at(name, **{when: hold})
        task = asyncio.create_task(store.add_messages("session", batch("cancelled")))
        neighbour = asyncio.create_task(store.add_messages("session", batch("neighbour")))
        await asyncio.to_thread(hold.wait)
        for _ in range(5):
            task.cancel()
            await asyncio.sleep(0)
            assert not task.done(), "released before its write was settled"
        hold.let_go()
        with pytest.raises(asyncio.CancelledError):
            await task
        there = await contents(store, "session")
        assert there[:3] == [message["content"] for message in batch("cancelled")]
        await neighbour
        assert len(await contents(store, "session")) == 6


async def test_a_call_that_runs_out_of_time_waits_for_its_write(path, seam):
    async with awaited(path, seam=seam) as store:
        hold = Hold()
        seam.at("commit", before=hold)
        task = asyncio.create_task(
            asyncio.wait_for(store.add_messages("session", batch("late")), timeout=0.001)
        )
        await asyncio.to_thread(hold.wait)
        hold.let_go()
        (result,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(result, TimeoutError) or result.positions == range(3)
        assert len(await contents(store, "session")) == 3


async def test_a_cancelled_append_can_be_sent_again_with_its_key(path):
    async with awaited(path) as store:
        for steps in range(STEPS):
            session = f"session {steps}"
            task = asyncio.create_task(store.add_messages(session, batch("once"), key="once"))
            await cancel_after(steps, task)
            receipt = await store.add_messages(session, batch("once"), key="once")
            assert receipt.positions == range(3)
            assert len(await contents(store, session)) == 3


async def test_a_group_of_cancelled_and_others_is_not_disturbed(path, seam):
    async with awaited(path, seam=seam) as store:
        hold = Hold()
        seam.at("commit", before=hold)
        leader = asyncio.create_task(store.save_context("leader", "who", "leads"))
        await asyncio.to_thread(hold.wait)
        tasks = [
            asyncio.create_task(store.add_messages("session", batch(f"task {n}")))
            for n in range(10)
        ]
        refused = asyncio.create_task(
            store.add_messages("session", batch("refused"), expected="never")
        )
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        hold.let_go()
        await leader
        results = await asyncio.gather(*tasks, return_exceptions=True)
        with pytest.raises(ConflictError):
            await refused
        for n, result in enumerate(results):
            if n % 2:
                assert result.positions == range(3 * n, 3 * n + 3)
            else:
                assert isinstance(result, asyncio.CancelledError)
        told = [message["content"] for n in range(10) for message in batch(f"task {n}")]
        assert await contents(store, "session") == told


async def test_reads_that_are_cancelled_at_any_step_give_their_reader_back(path):
    async with awaited(path, busy_timeout_s=0.5) as store:
        await store.add_messages("session", batch("read"))
        for steps in range(STEPS):
            tasks = [asyncio.create_task(store.get_history("session")) for _ in range(12)]
            for _ in range(steps % 8):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        assert len(await contents(store, "session")) == 3


async def test_a_trim_that_is_cancelled_at_any_step_is_all_or_nothing(path):
    async with awaited(path) as store:
        for steps in range(0, STEPS, 2):
            session = f"session {steps}"
            await store.add_messages(session, batch("trim"))
            await cancel_after(steps, asyncio.create_task(store.trim(session, keep_last=1)))
            there = await contents(store, session)
            assert there in (["trim 0", "trim 1", "trim 2"], ["trim 2"])
            await store.trim(session, keep_last=1)
            assert await contents(store, session) == ["trim 2"]


async def test_a_copy_that_is_cancelled_at_any_step_is_all_or_nothing(path):
    async with awaited(path) as store:
        await store.add_messages("original", batch("copy"))
        for steps in range(0, 3 * STEPS, 3):
            copy = f"copy {steps}"
            await cancel_after(steps, asyncio.create_task(store.fork("original", copy)))
            if (await store.session(copy)).status == "new":
                assert await contents(store, copy) == []
                await store.fork("original", copy)
            assert await contents(store, copy) == await contents(store, "original")
