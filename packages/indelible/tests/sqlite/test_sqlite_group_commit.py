"""Writes that wait at the same time share a commit, and each gets its own answer."""

from __future__ import annotations

import asyncio

import apsw
import pytest

from indelible import BusyError, ConflictError, FormatError, MemoryStoreError, UnavailableError
from indelible.core import rules
from indelible.core.batcher import Pending
from indelible.core.codec import encode_text
from indelible.core.embedded import GROUP_MAX, NO_DEADLINE
from indelible.core.operations import Append
from tests.support.sqlite.seams import Hold, awaited, beside, blocking, database_of, failing, group


def adding(store, session, content, **more):
    return lambda: store.add_message(session, "user", content, **more)


def contents(store, session):
    return [message.content for message in store.get_history(session)]


def test_fifty_threads_share_one_commit(path, seam):
    with blocking(path, seam=seam) as store:
        told = [f"message {n}" for n in range(50)]
        futures = group(store, seam, [adding(store, "shared", text) for text in told])
        assert seam.calls.count("commit") == 1
        assert seam.calls.count("insert") == 50
        positions = [future.result().positions.start for future in futures]
        assert positions == list(range(50))
        assert len({future.result().version for future in futures}) == 50
        assert contents(store, "shared") == told


@pytest.mark.parametrize(("tasks", "groups"), [(50, 1), (GROUP_MAX, 1), (GROUP_MAX + 2, 2)])
async def test_tasks_share_commits_up_to_the_bound_of_a_group(path, seam, tasks, groups):
    hold = Hold()
    async with awaited(path, seam=seam) as store:
        seam.at("commit", before=hold)
        leader = asyncio.create_task(store.save_context("leader", "who", "leads"))
        await asyncio.to_thread(hold.wait)
        followers = [
            asyncio.create_task(store.add_message("shared", "user", f"message {n}"))
            for n in range(tasks)
        ]
        await asyncio.sleep(0)
        seam.calls.clear()
        hold.let_go()
        await leader
        receipts = await asyncio.gather(*followers)
        assert seam.calls.count("commit") == groups
        assert [receipt.positions.start for receipt in receipts] == list(range(tasks))


def test_a_refused_neighbour_does_not_undo_the_others(path, seam):
    with blocking(path, seam=seam) as store:
        store.add_message("shared", "user", "used", key="taken")
        batch = [{"role": "user", "content": "after"}] * 2
        before, late, other, after = group(
            store,
            seam,
            [
                adding(store, "shared", "before"),
                adding(store, "shared", "late", expected="never"),
                adding(store, "shared", "other", key="taken"),
                lambda: store.add_messages("shared", batch),
            ],
        )
        assert seam.calls.count("commit") == 1
        assert before.result().positions == range(1, 2)
        assert after.result().positions == range(2, 4)
        with pytest.raises(ConflictError, match="changed since"):
            late.result()
        with pytest.raises(ConflictError, match="other content"):
            other.result()
        assert contents(store, "shared") == ["used", "before", "after", "after"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (apsw.SQLITE_IOERR_WRITE, UnavailableError),
        (apsw.SQLITE_FULL, UnavailableError),
        (apsw.SQLITE_BUSY, BusyError),
        (apsw.SQLITE_CORRUPT, FormatError),
    ],
)
def test_an_engine_error_rolls_the_whole_group_back_and_all_are_told(path, seam, code, kind):
    with blocking(path, seam=seam) as store:
        for n in range(4):
            store.add_message(f"session {n}", "user", "one")
        futures = group(
            store,
            seam,
            [adding(store, f"session {n}", "two") for n in range(4)],
            arm=lambda: seam.at("insert", before=failing(code), skip=2),
        )
        errors = [future.exception() for future in futures]
        assert {type(error) for error in errors} == {kind}
        assert {error.landed for error in errors} == {"no"}
        assert len({id(error) for error in errors}) == 4, "each has an error of its own"
        assert all(isinstance(error.__cause__, apsw.Error) for error in errors)
        for n in range(4):
            assert contents(store, f"session {n}") == ["one"]
            assert store.add_message(f"session {n}", "user", "three").positions.start == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_group_whose_commit_is_not_answered_lands_exactly_once(path, seam, when):
    with blocking(path, seam=seam) as store:
        lost = {when: failing(apsw.SQLITE_IOERR_FSYNC)}
        told = [f"message {n}" for n in range(10)]
        futures = group(
            store,
            seam,
            [adding(store, "shared", text) for text in told],
            arm=lambda: seam.at("commit", **lost),
        )
        receipts = [future.result() for future in futures]
        assert sorted(receipt.positions.start for receipt in receipts) == list(range(10))
        for text, receipt in zip(told, receipts, strict=True):
            assert contents(store, "shared")[receipt.positions.start] == text
        assert len(contents(store, "shared")) == 10


def test_a_damaged_session_does_not_undo_its_neighbours(path, seam):
    with blocking(path, seam=seam) as store:
        store.add_message("damaged", "user", "one")
        with beside(path) as file:
            file.execute("UPDATE session SET extents = x'80' WHERE name = 'damaged'")
        before, damaged, after = group(
            store,
            seam,
            [
                adding(store, "healthy", "before"),
                lambda: store.save_snapshot("damaged"),
                adding(store, "healthy", "after"),
            ],
        )
        with pytest.raises(FormatError):
            damaged.result()
        assert [before.exception(), after.exception()] == [None, None]
        assert contents(store, "healthy") == ["before", "after"]


def test_a_programming_error_in_one_plan_tells_its_neighbours_the_truth(path, seam, monkeypatch):
    calls = 0
    refuse_if_full = rules.refuse_if_full

    def break_third(*args):
        nonlocal calls
        calls += 1
        if calls == 3:
            raise ZeroDivisionError
        refuse_if_full(*args)

    with blocking(path, seam=seam) as store:
        store.add_message("shared", "user", "zero")
        futures = group(
            store,
            seam,
            [adding(store, "shared", f"message {n}") for n in range(4)],
            arm=lambda: monkeypatch.setattr(rules, "refuse_if_full", break_third),
        )
        errors = [future.exception() for future in futures]
        assert [type(error) for error in errors].count(ZeroDivisionError) == 1
        landed = contents(store, "shared")
        for n, error in enumerate(errors):
            assert landed.count(f"message {n}") == (error is None)
            if error is not None and not isinstance(error, ZeroDivisionError):
                assert (type(error), error.landed) == (UnavailableError, "no")


def test_a_programming_error_in_one_plan_does_not_end_the_writing_thread(path):
    broken = False

    def clock() -> float:
        if broken:
            raise ZeroDivisionError
        return 1_700_000_000.0

    async def use() -> None:
        nonlocal broken
        store = awaited(path, clock=clock)
        await store.add_message("shared", "user", "one")
        broken = True
        failed = asyncio.ensure_future(store.add_message("shared", "user", "two"))
        done, _ = await asyncio.wait({failed}, timeout=60)
        assert done, "nobody answers"
        assert isinstance(failed.exception(), (MemoryStoreError, ZeroDivisionError))
        broken = False
        await store.add_message("shared", "user", "three")
        assert [m.content for m in await store.get_history("shared")] == ["one", "three"]
        await store.close()

    # A loop that does not wait for its tasks at the end: a write without an answer cannot be ended.
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(use())
    finally:
        loop.close()


def test_ctrl_c_in_anothers_handler_is_not_the_others_error(path, seam):
    def interrupt():
        raise KeyboardInterrupt

    with blocking(path, seam=seam) as store:
        store.add_message("s", "user", "first")
        seam.at("insert", before=interrupt, skip=1)
        batch = [
            Pending(
                Append(
                    "s", (encode_text("user", "new"),), key, fresh=True, expected=None, ttl_s=None
                ),
                NO_DEADLINE,
            )
            for key in ("~one", "~two")
        ]
        with pytest.raises(KeyboardInterrupt):
            database_of(store).writer.write(batch)
        for pending in batch:
            with pytest.raises(UnavailableError) as caught:
                pending.outcome()
            assert caught.value.landed == "no"
        store.add_message("s", "user", "next")
        assert contents(store, "s") == ["first", "next"]
