"""Another program writes to the file: writers wait for a while and then say so, readers go on."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

import indelible
from indelible import BusyError
from tests.support.sqlite.seams import awaited, beside, blocking

# Long enough to pass through the waiting, short enough not to matter.
WAIT_S = 0.05


@contextmanager
def write_lock(path, kind="IMMEDIATE"):
    """Another connection has begun to write, and does not end."""
    with beside(path) as other:
        other.execute(f"BEGIN {kind}")
        yield
        other.execute("ROLLBACK")


@pytest.fixture
def store(path):
    with blocking(path, busy_timeout_s=WAIT_S) as store:
        store.save_context("session", "one", "two")
        yield store


def contents(store):
    return [message.content for message in store.get_history("session")]


@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.add_message("session", "user", "lost"),
        lambda store: store.save_context("session", "lost", "lost"),
        lambda store: store.add_message("new", "user", "lost"),
        lambda store: store.save_snapshot("session"),
        lambda store: store.clear("session"),
        lambda store: store.set_metadata("session", {"a": 1}),
        lambda store: store.fork("session", "copy"),
    ],
)
def test_a_write_that_waited_too_long_wrote_nothing_and_can_be_made_later(store, path, write):
    before = store.session("session")
    with write_lock(path):
        with pytest.raises(BusyError) as caught:
            write(store)
        assert caught.value.landed == "no"
        assert caught.value.retryable
        assert contents(store) == ["one", "two"]
    assert store.session("session") == before
    assert store.list_sessions().ids == ["session"]
    write(store)


async def test_an_async_write_that_waited_too_long_wrote_nothing(path):
    async with awaited(path, busy_timeout_s=WAIT_S) as store:
        await store.add_message("session", "user", "one")
        with write_lock(path):
            with pytest.raises(BusyError):
                await store.add_message("session", "user", "lost")
            assert len(await store.get_history("session")) == 1
        assert (await store.add_message("session", "user", "two")).positions == range(1, 2)


def test_readers_do_not_wait_for_a_writer(store, path):
    with write_lock(path):
        assert contents(store) == ["one", "two"]
        assert store.session("session").entries == 2
        assert store.list_sessions().ids == ["session"]


def test_opening_a_file_that_is_up_to_date_does_not_wait_for_a_writer(store, path):
    with write_lock(path), indelible.open(path, busy_timeout_s=WAIT_S) as second:
        assert contents(second) == ["one", "two"]


@pytest.mark.parametrize("kind", ["IMMEDIATE", "EXCLUSIVE"])
def test_opening_a_new_file_that_somebody_holds_is_busy_and_works_later(path, kind):
    path.touch()
    with write_lock(path, kind), pytest.raises(BusyError):
        indelible.open(path, busy_timeout_s=WAIT_S)
    assert path.read_bytes() == b""
    with indelible.open(path) as store:
        store.add_message("session", "user", "one")
        assert contents(store) == ["one"]


def test_with_no_time_to_wait_a_busy_file_is_busy_at_once(path):
    with blocking(path, busy_timeout_s=0) as store:
        store.add_message("session", "user", "one")
        with write_lock(path), pytest.raises(BusyError):
            store.add_message("session", "user", "lost")
        store.add_message("session", "user", "two")
        assert contents(store) == ["one", "two"]
