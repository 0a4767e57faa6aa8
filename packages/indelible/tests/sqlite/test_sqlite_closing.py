"""Closing finishes what was asked for, refuses what comes later, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import indelible
from indelible import ClosedError
from indelible.backends.sqlite.readers import READERS_MAX
from tests.support.sqlite.seams import PATIENCE_S, Hold, awaited, blocking
from tests.support.verbs import CALLS

# What a store promises needs no engine.
ALL = [verb for verb in CALLS if verb != "claims"]


def open_files(directory):
    """The files below a directory that this process has open."""
    found = []
    for handle in Path("/proc/self/fd").iterdir():
        try:
            target = str(handle.readlink())
        except FileNotFoundError:
            continue
        if target.startswith(str(directory)):
            found.append(target)
    return found


def our_threads():
    return {thread for thread in threading.enumerate() if thread.name.startswith("indelible")}


def contents(path, session="session"):
    with indelible.open(path) as store:
        return [message.content for message in store.get_history(session)]


@pytest.mark.parametrize("verb", ALL)
def test_a_closed_store_refuses_every_verb(path, verb):
    store = indelible.open(path)
    store.add_message("session", "user", "one")
    store.close()
    with pytest.raises(ClosedError) as caught:
        CALLS[verb](store, "session", "snapshot")
    assert caught.value.landed == "no"
    assert contents(path) == ["one"]


@pytest.mark.parametrize("verb", ALL)
async def test_a_closed_async_store_refuses_every_verb(path, verb):
    store = await indelible.open_async(path)
    await store.add_message("session", "user", "one")
    await store.close()
    with pytest.raises(ClosedError):
        await CALLS[verb](store, "session", "snapshot")
    assert contents(path) == ["one"]


def test_closing_again_is_fine(path):
    store = indelible.open(path)
    store.add_message("session", "user", "one")
    store.close()
    store.close()
    with indelible.open(path) as used:
        used.close()


async def test_closing_an_async_store_again_is_fine(path):
    store = await indelible.open_async(path)
    await store.close()
    await store.close()
    store = await indelible.open_async(path)
    await store.add_message("session", "user", "one")
    await asyncio.gather(store.close(), store.close(), store.close())


def test_a_closed_store_has_no_file_open_and_no_thread(path):
    others = our_threads()
    store = indelible.open(path)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: store.add_message("session", "user", f"{n}"), range(50)))
        list(threads.map(lambda n: store.get_history("session"), range(50)))
    assert open_files(path.parent)
    store.close()
    assert open_files(path.parent) == []
    assert our_threads() == others


async def test_a_closed_async_store_has_no_file_open_and_no_thread(path):
    others = our_threads()
    store = await indelible.open_async(path)
    await asyncio.gather(*(store.add_message("session", "user", f"{n}") for n in range(50)))
    await asyncio.gather(*(store.get_history("session") for _ in range(50)))
    assert open_files(path.parent)
    assert our_threads() > others
    await store.close()
    assert open_files(path.parent) == []
    # They were told to end, and may need a moment.
    for thread in our_threads() - others:
        thread.join(PATIENCE_S)
    assert our_threads() == others


def test_a_store_that_was_not_opened_leaves_no_file_open(path):
    path.write_text("no database" * 100)
    with pytest.raises(indelible.FormatError):
        indelible.open(path)
    assert open_files(path.parent) == []


def test_closing_while_threads_write_keeps_what_was_acknowledged(path):
    store = indelible.open(path)
    writing = threading.Barrier(9)

    def write_until_closed(writer):
        acknowledged = []
        writing.wait()
        while True:
            content = f"{writer} {len(acknowledged)}"
            try:
                store.save_context(writer, content, "yes")
            except ClosedError:
                return acknowledged
            acknowledged.append(content)
            if len(acknowledged) == 5:
                enough.release()

    enough = threading.Semaphore(0)
    with ThreadPoolExecutor(8) as threads:
        writers = [f"writer {n}" for n in range(8)]
        futures = [threads.submit(write_until_closed, writer) for writer in writers]
        writing.wait()
        for _ in writers:
            assert enough.acquire(timeout=PATIENCE_S)
        store.close()
    assert open_files(path.parent) == []
    for writer, future in zip(writers, futures, strict=True):
        assert contents(path, writer)[::2] == future.result()


def test_closing_while_threads_read_gives_each_all_or_a_refusal(path):
    store = indelible.open(path)
    store.add_messages("session", [{"role": "user", "content": "x"}] * 100)
    reading = threading.Semaphore(0)

    def read_until_closed():
        reads = 0
        while True:
            try:
                assert len(store.get_history("session")) == 100
            except ClosedError:
                return reads
            reads += 1
            reading.release()

    with ThreadPoolExecutor(2 * READERS_MAX) as threads:
        futures = [threads.submit(read_until_closed) for _ in range(2 * READERS_MAX)]
        for _ in range(50):
            assert reading.acquire(timeout=PATIENCE_S)
        store.close()
    assert sum(future.result() for future in futures) >= 50
    assert open_files(path.parent) == []


def test_closing_waits_for_the_commit_that_is_running(path, seam):
    store = blocking(path, seam=seam)
    hold = Hold()
    seam.at("commit", before=hold)
    with ThreadPoolExecutor(2) as threads:
        write = threads.submit(store.add_message, "session", "user", "one")
        hold.wait()
        close = threads.submit(store.close)
        assert not close.done()
        hold.let_go()
        assert write.result().positions == range(1)
        close.result()
    assert contents(path) == ["one"]


async def test_closing_an_async_store_finishes_the_writes_that_were_asked_for(path, seam):
    store = awaited(path, seam=seam)
    hold = Hold()
    seam.at("commit", before=hold)
    writes = [asyncio.create_task(store.add_message("session", "user", f"{n}")) for n in range(20)]
    await asyncio.to_thread(hold.wait)
    close = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    with pytest.raises(ClosedError):
        await store.add_message("session", "user", "late")
    hold.let_go()
    receipts = await asyncio.gather(*writes)
    await close
    assert [receipt.positions.start for receipt in receipts] == list(range(20))
    assert contents(path) == [f"{n}" for n in range(20)]


async def test_closing_an_async_store_finishes_the_reads_that_were_asked_for(path, seam):
    store = awaited(path, seam=seam)
    loop = asyncio.get_running_loop()
    # What the loop does in threads is done in this one, in order.
    loop.set_default_executor(ThreadPoolExecutor(1))
    hold = Hold()
    seam.at("read", before=hold, times=READERS_MAX)
    reads = [asyncio.create_task(store.get_history("session")) for _ in range(2 * READERS_MAX)]
    await asyncio.to_thread(hold.wait)
    close = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    # Closing has come as far as it can; or, where it waits for the reads, it has not.
    closed = asyncio.ensure_future(asyncio.to_thread(lambda: None))
    await asyncio.wait({closed}, timeout=0.5)
    hold.let_go()
    results = await asyncio.gather(*reads, return_exceptions=True)
    await close
    await closed
    assert results == [[]] * len(reads)
    assert open_files(path.parent) == []


def test_a_loop_that_ended_in_the_middle_of_a_write_does_not_end_the_store(path, seam):
    store = awaited(path, seam=seam)
    hold = Hold()
    seam.at("commit", before=hold)

    async def ask_and_leave():
        write = store._backend.perform(_append("abandoned"))
        write.send(None)
        await asyncio.to_thread(hold.wait)
        return write

    loop = asyncio.new_event_loop()
    write = loop.run_until_complete(ask_and_leave())
    loop.close()
    hold.let_go()
    asyncio.run(store.add_message("session", "user", "next"))
    asyncio.run(store.close())
    write.close()
    assert contents(path) == ["abandoned", "next"]


def _append(content):
    from indelible.core.codec import encode_text
    from indelible.core.operations import Append

    draft = encode_text("user", content)
    return Append("session", (draft,), "~made", True, None, None)


async def test_a_read_that_comes_between_the_steps_of_closing_is_refused(path):
    store = await indelible.open_async(path)
    await store.add_message("session", "user", "one")
    # As another event loop does it, after this one has seen that the store is open.
    await store._backend._threads.close()
    with pytest.raises(ClosedError):
        await store.get_history("session")
    await store.close()
