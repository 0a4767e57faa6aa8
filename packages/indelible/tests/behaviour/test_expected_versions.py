"""A snapshot and a forget that expect a version happen at that version, or not at all."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from indelible import ConflictError, Status
from tests.support.stores import said, say

ROUNDS = 20


def test_a_snapshot_of_the_expected_version(store):
    say(store, "s", "one")
    version = store.session("s").version
    assert store.save_snapshot("s", expected=version).entries == 1
    # A snapshot changes no version.
    assert store.save_snapshot("s", label="again", expected=version).entries == 1
    say(store, "s", "two")
    with pytest.raises(ConflictError) as refused:
        store.save_snapshot("s", expected=version)
    assert (refused.value.reason, refused.value.landed) == ("version", "no")
    assert len(store.list_snapshots("s")) == 2


def test_a_snapshot_that_begins_a_session(store):
    with pytest.raises(ConflictError):
        store.save_snapshot("s", expected="1.1.0.0")
    assert store.session("s").status is Status.NEW
    assert store.save_snapshot("s", expected="new").entries == 0
    with pytest.raises(ConflictError):
        store.save_snapshot("s", expected="new")


def test_a_forget_of_the_expected_version(store):
    say(store, "s", "one")
    version = store.session("s").version
    say(store, "s", "two")
    with pytest.raises(ConflictError) as refused:
        store.forget("s", expected=version)
    assert (refused.value.reason, refused.value.landed) == ("version", "no")
    assert said(store, "s") == ["one", "two"]
    assert store.forget("s", expected=store.session("s").version).entries == 2
    assert store.session("s").status is Status.NEW
    assert store.forget("s", expected="new").entries == 0
    with pytest.raises(ConflictError):
        store.forget("s", expected=version)


def race(first, second):
    """Call both at the same time; return whether the second was done."""
    ready = Barrier(2)

    def refused(call):
        ready.wait()
        try:
            call()
        except ConflictError:
            return True
        return False

    with ThreadPoolExecutor(2) as threads:
        results = [threads.submit(refused, call) for call in (first, second)]
        assert not results[0].result()
        return not results[1].result()


def test_a_snapshot_never_holds_what_came_after_its_version(store):
    for number in range(ROUNDS):
        version = store.session("s").version
        taken = race(
            lambda: store.add_message("s", "user", "meanwhile"),
            lambda version=version: store.save_snapshot("s", label="of it", expected=version),
        )
        entries = [each.entries for each in store.list_snapshots("s")]
        assert entries == ([number] if taken else [])
        for each in store.list_snapshots("s"):
            store.delete_snapshot("s", each.id)


@pytest.mark.parametrize("audit", [False, True], ids=["plain", "audited"])
def test_a_forget_never_takes_what_came_after_its_version(make_store, audit):
    store = make_store(audit=True, audit_key=b"a secret of the tests") if audit else make_store()
    for _ in range(ROUNDS):
        store.forget("s")
        say(store, "s", "one")
        version = store.session("s").version
        erased = race(
            lambda: store.add_message("s", "user", "meanwhile"),
            lambda version=version: store.forget("s", expected=version),
        )
        assert said(store, "s") == (["meanwhile"] if erased else ["one", "meanwhile"])
    assert store.verify("s").ok
