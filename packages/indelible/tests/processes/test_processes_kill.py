"""A process that is killed takes nothing with it that it had acknowledged, and leaves no halves."""

from __future__ import annotations

import io
import shutil

import pytest

import indelible
from tests.support import store_workers
from tests.support.ledger import SESSION, all_entries, check
from tests.support.worker_processes import Doomed

COPIED = 2_450
# Begun, two batches of 1,000 entries, the last one with what shows it.
COMMITS_OF_A_COPY = 4
# Three sessions copied into another file, each begun, and then given its entries and shown.
COMMITS_OF_A_COPY_OVER = 6


@pytest.mark.parametrize("durability", ["power", "process"])
@pytest.mark.parametrize("stream", [store_workers.stream, store_workers.stream_async])
def test_a_killed_writer_loses_nothing_that_was_acknowledged(path, stream, durability):
    doomed = Doomed(stream, path, durability)
    writes = [doomed.report() for _ in range(100)]
    writes += doomed.kill()
    assert store_workers.is_intact(path)
    with indelible.open(path) as store:
        check(store, writes, others=True)
        logged = store.session(SESSION).logged
        assert store.add_message(SESSION, "user", "on").positions.start == logged


def test_a_copy_that_is_killed_half_way_is_not_there_and_can_be_made_again(tmp_path):
    original = tmp_path / "original.db"
    with indelible.open(original) as store:
        contents = [f"message {number}" for number in range(COPIED)]
        for text in contents:
            store.add_message(SESSION, "user", text)

    doomed = {}
    for commit in range(1, COMMITS_OF_A_COPY + 1):
        for when in ("before", "after"):
            path = tmp_path / f"{commit}-{when}.db"
            shutil.copy(original, path)
            doomed[path] = Doomed(store_workers.copy_up_to, str(path), commit, when)
    for process in doomed.values():
        assert process.report() == "there"
        assert process.kill() == []

    for path in doomed:
        shown = path.stem == f"{COMMITS_OF_A_COPY}-after"
        with indelible.open(path) as store:
            status = store.session("copy").status
            assert status == ("active" if shown else "new"), path.stem
            assert store.list_sessions().ids == (["copy", SESSION] if shown else [SESSION])
            if not shown:
                assert store.get_history("copy") == []
                store.fork(SESSION, "copy")
            copied = [entry.value.content for entry in all_entries(store, "copy")]
            assert copied == contents, path.stem


def test_a_copy_into_another_store_that_is_killed_is_finished_by_doing_it_again(tmp_path):
    original = tmp_path / "original.db"
    with indelible.open(original) as store:
        for name in ("one", "two", "three"):
            store.save_context(name, "a question", "an answer")
            store.save_snapshot(name)
            store.trim(name, keep_last=1)

    doomed = {}
    for commit in range(1, COMMITS_OF_A_COPY_OVER + 1):
        for when in ("before", "after"):
            path = tmp_path / f"{commit}-{when}.db"
            indelible.open(path).close()
            arguments = (str(original), str(path), commit, when)
            doomed[path] = (commit, when), Doomed(store_workers.copy_over_up_to, *arguments)
    for _, process in doomed.values():
        assert process.report() == "there"
        assert process.kill() == []

    with indelible.open(original) as source:
        for path, ((commit, when), _) in doomed.items():
            shown = (commit - (when == "before")) // 2
            with indelible.open(path) as target:
                assert len(target.list_sessions()) == shown, path.stem
                report = indelible.copy_sessions(source, target)
                assert (report.ok, report.equal) == (True, shown), path.stem
                assert report.sessions == 3 - shown
                assert exported(target) == exported(source)
                assert target.verify().findings == ()


def exported(store):
    lines = io.StringIO()
    store.export(lines)
    return lines.getvalue()
