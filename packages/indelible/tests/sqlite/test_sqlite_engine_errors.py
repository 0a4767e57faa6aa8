"""SQLite's errors become ours by their codes, and each says truly whether the data is there."""

from __future__ import annotations

import resource
from contextlib import contextmanager

import apsw
import pytest

from indelible import (
    BusyError,
    FormatError,
    MemoryStoreBackendError,
    OutcomeUnknownError,
    UnavailableError,
)
from indelible.backends.sqlite.readers import READERS_MAX
from tests.support.sqlite.seams import blocking, database_of, failing

BUSY = [apsw.SQLITE_BUSY, apsw.SQLITE_BUSY_TIMEOUT, apsw.SQLITE_LOCKED, apsw.SQLITE_PROTOCOL]
UNAVAILABLE = [
    apsw.SQLITE_CANTOPEN,
    apsw.SQLITE_FULL,
    apsw.SQLITE_IOERR,
    apsw.SQLITE_IOERR_READ,
    apsw.SQLITE_NOMEM,
    apsw.SQLITE_PERM,
    apsw.SQLITE_READONLY,
]
DAMAGED = [
    apsw.SQLITE_CORRUPT,
    apsw.SQLITE_CORRUPT_VTAB,
    apsw.SQLITE_ERROR,
    apsw.SQLITE_NOTADB,
    apsw.SQLITE_TOOBIG,
]
REFUSED = [apsw.SQLITE_INTERRUPT, apsw.SQLITE_MISUSE]
# After one of these at the commit nobody knows.
HALF_WAY = [apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_WRITE, apsw.SQLITE_NOMEM]

KIND_OF = {
    **dict.fromkeys(BUSY, BusyError),
    **dict.fromkeys(UNAVAILABLE, UnavailableError),
    **dict.fromkeys(DAMAGED, FormatError),
    **dict.fromkeys(REFUSED, MemoryStoreBackendError),
}
AT_COMMIT = [code for code in KIND_OF if code not in HALF_WAY and code & 0xFF != apsw.SQLITE_IOERR]
AT_COMMIT.remove(apsw.SQLITE_INTERRUPT)


@pytest.fixture
def store(path, seam):
    with blocking(path, seam=seam) as store:
        store.save_context("session", "one", "two")
        yield store


def contents(store):
    return [message.content for message in store.get_history("session")]


@pytest.mark.parametrize(
    ("name", "code"),
    [(name, code) for name in ("begin", "insert") for code in KIND_OF]
    + [("commit", code) for code in AT_COMMIT],
)
def test_an_error_up_to_the_commit_means_that_nothing_was_written(store, seam, name, code):
    seam.at(name, before=failing(code))
    with pytest.raises(MemoryStoreBackendError if code not in DAMAGED else FormatError) as caught:
        store.save_context("session", "lost", "lost")
    error = caught.value
    assert type(error) is KIND_OF[code]
    assert error.landed == "no"
    assert error.retryable == (code in BUSY + UNAVAILABLE)
    assert error.code == code
    assert isinstance(error.__cause__, apsw.Error)
    assert contents(store) == ["one", "two"]
    assert store.save_context("session", "three", "four").positions == range(2, 4)
    assert contents(store) == ["one", "two", "three", "four"]


@pytest.mark.parametrize("code", HALF_WAY)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_answer_to_a_commit_ends_in_exactly_one_batch(store, seam, when, code):
    seam.at("commit", **{when: failing(code)})
    receipt = store.save_context("session", "three", "four")
    assert receipt.positions == range(2, 4)
    assert receipt.visible
    assert receipt.version == store.session("session").version
    assert contents(store) == ["one", "two", "three", "four"]


@pytest.mark.parametrize("code", HALF_WAY)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_answer_to_a_lone_append_ends_in_exactly_one_entry(store, seam, when, code):
    seam.at("commit", **{when: failing(code)})
    receipt = store.add_message("session", "user", "three")
    assert receipt.positions == range(2, 3)
    assert receipt.version == store.session("session").version
    assert store.add_message("session", "user", "four").positions == range(3, 4)
    assert contents(store) == ["one", "two", "three", "four"]


@pytest.mark.parametrize("code", [*BUSY, apsw.SQLITE_FULL, apsw.SQLITE_READONLY])
def test_a_lone_append_that_was_refused_wrote_nothing(store, seam, code):
    seam.at("begin", before=failing(code))
    with pytest.raises(KIND_OF[code]) as caught:
        store.add_message("session", "user", "lost")
    assert caught.value.landed == "no"
    assert contents(store) == ["one", "two"]
    assert store.add_message("session", "user", "three").positions == range(2, 3)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("key", [None, "mine"])
def test_a_commit_that_keeps_failing_is_an_unknown_outcome_and_its_key_lands_it_once(
    store, seam, when, key
):
    seam.at("commit", **{when: failing(apsw.SQLITE_IOERR_FSYNC)}, times=100)
    with pytest.raises(OutcomeUnknownError) as caught:
        store.save_context("session", "three", "four", key=key)
    error = caught.value
    assert error.landed == "maybe"
    assert error.retryable
    assert error.session == "session"
    assert key is None or error.key == key
    assert isinstance(error.__cause__, apsw.IOError)
    assert contents(store) in (["one", "two"], ["one", "two", "three", "four"])

    seam.heal()
    receipt = store.save_context("session", "three", "four", key=error.key)
    assert receipt.positions == range(2, 4)
    assert receipt.replayed == (when == "after")
    again = store.save_context("session", "three", "four", key=error.key)
    assert again.replayed
    assert contents(store) == ["one", "two", "three", "four"]


@pytest.mark.parametrize("code", [apsw.SQLITE_BUSY, apsw.SQLITE_CANTOPEN, apsw.SQLITE_CORRUPT])
@pytest.mark.parametrize("lone", [True, False])
def test_a_retry_that_cannot_be_made_leaves_the_outcome_of_an_append_unknown(
    store, seam, lone, code
):
    batch = [{"role": "user", "content": text} for text in ("three", "four")][: 1 if lone else 2]
    seam.at("commit", after=failing(apsw.SQLITE_IOERR_FSYNC))
    seam.at("begin", before=failing(code), skip=1)
    with pytest.raises(OutcomeUnknownError) as caught:
        store.add_messages("session", batch)
    assert caught.value.landed == "maybe"
    assert contents(store)[2] == "three", "it did land"
    assert store.add_messages("session", batch, key=caught.value.key).replayed


@pytest.mark.parametrize("code", [apsw.SQLITE_BUSY, apsw.SQLITE_CANTOPEN])
def test_a_look_that_cannot_be_taken_leaves_the_outcome_of_a_view_change_unknown(store, seam, code):
    seam.at("commit", after=failing(apsw.SQLITE_IOERR_FSYNC))
    for look in ("read", "begin"):
        seam.at(look, before=failing(code), skip=1)
    with pytest.raises(OutcomeUnknownError) as caught:
        store.clear("session")
    seam.heal()
    assert caught.value.landed == "maybe"
    assert contents(store) == [], "it did land"
    assert store.clear("session", key=caught.value.key).replayed


@pytest.mark.parametrize("code", [apsw.SQLITE_BUSY, apsw.SQLITE_CANTOPEN])
def test_a_retry_that_cannot_be_made_leaves_the_outcome_of_a_snapshot_unknown(store, seam, code):
    seam.at("commit", after=failing(apsw.SQLITE_IOERR_FSYNC))
    seam.at("begin", before=failing(code), skip=1)
    with pytest.raises(OutcomeUnknownError) as caught:
        store.save_snapshot("session")
    assert caught.value.landed == "maybe"
    assert len(store.list_snapshots("session")) == 1, "it did land"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_view_change_whose_answer_is_lost_happens_exactly_once(store, seam, when):
    snapshot = store.save_snapshot("session")
    store.save_context("session", "three", "four")
    for change, dropped, restored in [
        (lambda: store.rollback_to_snapshot("session", snapshot.id), (2, 3), ()),
        (lambda: store.undo("session"), (), (2, 3)),
        (lambda: store.trim("session", keep_last=1, align=None), (0, 1, 2), ()),
        (lambda: store.clear("session"), (3,), ()),
    ]:
        before = store.session("session").version
        seam.at("commit", **{when: failing(apsw.SQLITE_IOERR_FSYNC)})
        changed = change()
        assert (changed.dropped, changed.restored) == (dropped, restored)
        assert changed.version == store.session("session").version
        life_end, generation = before.rsplit(".", 1)
        assert changed.version == f"{life_end}.{int(generation) + 1}", "one change, not two"
    assert contents(store) == []
    assert [taken.id for taken in store.list_snapshots("session")] == [snapshot.id]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_snapshot_whose_answer_is_lost_is_saved_exactly_once(store, seam, when):
    seam.at("commit", **{when: failing(apsw.SQLITE_IOERR_FSYNC)})
    snapshot = store.save_snapshot("session", label="here")
    assert store.list_snapshots("session") == [snapshot]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("commit", range(3))
def test_a_copy_whose_answer_is_lost_is_there_whole_or_not_at_all(store, seam, commit, when):
    seam.at("commit", **{when: failing(apsw.SQLITE_IOERR_FSYNC)}, skip=commit)
    try:
        store.fork("session", "copy")
    except OutcomeUnknownError as unknown:
        assert unknown.landed == "maybe"  # noqa: PT017 (it may just as well succeed)
    copied = [message.content for message in store.get_history("copy")]
    if store.session("copy").status == "active":
        assert copied == ["one", "two"]
    else:
        assert copied == []
        store.fork("session", "copy")
        assert [message.content for message in store.get_history("copy")] == ["one", "two"]


@pytest.mark.parametrize("code", [apsw.SQLITE_BUSY, apsw.SQLITE_IOERR_WRITE, apsw.SQLITE_FULL])
def test_a_session_whose_bytes_could_not_be_scrubbed_is_not_said_to_be_untouched(store, seam, code):
    seam.at("checkpoint", before=failing(code))
    try:
        pending = store.forget("session").pending
    except MemoryStoreBackendError as error:
        pending = error.landed == "maybe"
    assert contents(store) == [], "it is forgotten"
    assert pending
    assert not store.forget("session").pending


@pytest.mark.parametrize("code", [apsw.SQLITE_BUSY, apsw.SQLITE_IOERR_WRITE])
def test_a_connection_on_which_scrubbing_failed_is_replaced_unless_the_file_was_busy(
    store, seam, code
):
    writer = database_of(store).writer
    before = writer._connection
    seam.at("checkpoint", before=failing(code))
    assert store.forget("session").pending
    assert (writer._connection is before) == (code == apsw.SQLITE_BUSY)


@contextmanager
def files_may_not_grow_over(size):
    """Have the system refuse to let any file of this process grow over a size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("lone", [True, False])
def test_a_real_failure_to_write_the_log_is_an_unknown_outcome_that_a_retry_settles(
    store, path, lone
):
    def add(key=None):
        if lone:
            return store.add_message("session", "user", "four", key=key)
        return store.save_context("session", "four", "five", key=key)

    # The log's index must fit below the limit, which holds for every file of the process.
    store.add_message("session", "user", "x" * 100_000)
    log = path.with_name(path.name + "-wal")
    with files_may_not_grow_over(log.stat().st_size), pytest.raises(OutcomeUnknownError) as caught:
        add()
    assert caught.value.code == apsw.SQLITE_IOERR_WRITE
    assert len(contents(store)) == 3
    assert add(key=caught.value.key).positions.start == 3
    assert add(key=caught.value.key).replayed
    assert contents(store)[3:] == (["four"] if lone else ["four", "five"])


@pytest.mark.parametrize("lone", [True, False])
def test_a_full_disk_is_unavailable_stores_nothing_and_works_when_there_is_room(store, seam, lone):
    writer = database_of(store).writer
    large = "x" * 100_000

    def no_room():
        file = writer._connection._db
        file.pragma("max_page_count", file.pragma("page_count"))

    def add(content):
        if lone:
            return store.add_message("session", "user", content)
        return store.save_context("session", content, content)

    seam.at("begin", before=no_room, times=10)
    for _ in range(3):
        with pytest.raises(UnavailableError) as caught:
            add(large)
        assert caught.value.code == apsw.SQLITE_FULL
        assert caught.value.landed == "no"
        assert contents(store) == ["one", "two"]
    seam.heal()
    assert add(large).positions.start == 2
    assert contents(store)[2:] == [large] * (1 if lone else 2)


def test_a_reader_that_fails_is_replaced(store, seam):
    for _ in range(2 * READERS_MAX):
        seam.at("read", before=failing(apsw.SQLITE_IOERR_READ))
        with pytest.raises(UnavailableError):
            contents(store)
        assert contents(store) == ["one", "two"]


# A file of another user, or on a file system that is mounted read-only, cannot be opened.
@pytest.mark.parametrize("code", [apsw.SQLITE_READONLY, apsw.SQLITE_CANTOPEN])
def test_a_file_that_may_only_be_read_says_what_reading_needs(store, seam, code):
    seam.at("begin", before=failing(code))
    with pytest.raises(UnavailableError, match="must be writable also to be read"):
        store.add_message("session", "user", "three")
