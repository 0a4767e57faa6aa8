"""A fork in the middle of writing: parent and child both go on, and nothing is lost or doubled."""

from __future__ import annotations

import pytest

from tests.support import os_forks, store_workers
from tests.support.ledger import check
from tests.support.worker_processes import in_another_process


def test_parent_and_child_each_note_their_own_reads(path):
    lines = in_another_process(os_forks.fork_between_reads, path)
    assert lines == [("append", 1), ("read", 2), ("read", 3)]


def test_a_child_is_not_stuck_behind_a_thread_that_used_memory(path):
    assert in_another_process(os_forks.fork_while_a_thread_uses_memory, path) == [0]


# Each runs in a process of its own, so that what is forked is not the one that runs the tests.
@pytest.mark.parametrize(
    "fork",
    [
        os_forks.fork_while_threads_write,
        os_forks.fork_while_tasks_write,
        os_forks.fork_in_two_threads_at_once,
    ],
)
def test_parent_and_child_go_on_after_a_fork(path, fork):
    check_fork(path, fork)


@pytest.mark.parametrize(
    "fork",
    [
        os_forks.fork_while_another_thread_is_about_to,
        os_forks.fork_while_another_thread_creates_a_file,
    ],
)
def test_parent_and_child_go_on_after_a_fork_at_a_certain_point_of_sqlite(tmp_path, fork):
    check_fork(str(tmp_path / "agent.db"), fork)


def check_fork(path, fork):
    writes = in_another_process(fork, path)
    writers = {write.writer for write in writes}
    assert any(writer.startswith("child") for writer in writers)
    assert store_workers.is_intact(path)
    with store_workers.opened(path) as store:
        check(store, writes)
