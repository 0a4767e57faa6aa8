"""Who goes together, in which order, and what happens to the others when one is interrupted."""

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import pytest

from indelible import BusyError
from indelible.backends.postgres.groups import (
    GROUP_BYTES_MAX,
    GROUP_MAX,
    LEADERS_MAX,
    Groups,
    Job,
    in_order,
    soonest,
    take,
)
from indelible.core.deadline import Deadline
from indelible.core.leases import Lease
from indelible.core.operations import Append, Draft
from indelible.model import Kind
from tests.support.wait import wait_until


def job(session="s", *, size=10, seconds=60):
    draft = Draft(Kind.MESSAGE, b"x" * size)
    return Job(Append(session, (draft,), "k", True, None, None), Deadline(seconds))


def taken(waiting):
    group = []
    take(group, waiting, Lease())
    return group


def test_a_group_is_bounded_in_number_and_in_bytes():
    waiting = deque(job() for _ in range(GROUP_MAX + 5))
    assert len(taken(waiting)) == GROUP_MAX
    assert len(waiting) == 5
    large = deque([job(size=GROUP_BYTES_MAX), job(), job(size=GROUP_BYTES_MAX)])
    assert [len(taken(large)) for _ in range(3)] == [1, 1, 1]


def test_rows_are_taken_in_one_order_and_appends_of_one_session_in_theirs():
    group = [job("b"), job("a"), job("b"), job("ä"), job("Z")]
    ordered = in_order(group)
    assert [each.append.session for each in ordered] == ["Z", "a", "b", "b", "ä"]
    assert ordered[2] is group[0]


def test_a_group_has_the_earliest_deadline_of_its_members():
    group = [job(seconds=9), job(seconds=3), job(seconds=6)]
    assert soonest(group) is group[1].patience


def outcome(groups, job):
    groups.run(job)
    return job.outcome()


class Turnstile:
    """Lets groups through when it is told to, and may interrupt whoever leads one."""

    def __init__(self):
        self.open = threading.Event()
        self.entered = []
        self.interrupt_next = False

    def __call__(self, group):
        self.entered.append(len(group))
        self.open.wait(60)
        if self.interrupt_next:
            self.interrupt_next = False
            raise KeyboardInterrupt
        for each in group:
            each.answer("1.1.1.0")


@pytest.fixture
def held():
    """As many leaders as there may be, under way; whoever comes now has to wait."""
    turnstile = Turnstile()
    groups = Groups(turnstile)
    with ThreadPoolExecutor(LEADERS_MAX + 20) as threads:
        leaders = [threads.submit(outcome, groups, job()) for _ in range(LEADERS_MAX)]
        wait_until(lambda: len(turnstile.entered) == LEADERS_MAX)
        yield turnstile, groups, threads, leaders
        turnstile.open.set()


def test_those_who_wait_go_together(held):
    turnstile, groups, threads, leaders = held
    waiting = [threads.submit(outcome, groups, job()) for _ in range(10)]
    wait_until(lambda: groups.waiting == 10)
    turnstile.open.set()
    assert {each.result() for each in leaders + waiting} == {"1.1.1.0"}
    assert sum(turnstile.entered) == LEADERS_MAX + 10
    assert len(turnstile.entered) <= LEADERS_MAX + 2
    assert groups.leading == 0


def test_whoever_waits_until_the_deadline_is_told_that_nothing_was_written(held):
    _, groups, _, _ = held
    with pytest.raises(BusyError) as caught:
        outcome(groups, job(seconds=0.05))
    assert caught.value.landed == "no"
    assert not groups.waiting


def test_an_interrupted_leader_leaves_the_lead_to_the_next(held):
    turnstile, groups, threads, leaders = held
    waiting = [threads.submit(outcome, groups, job()) for _ in range(5)]
    wait_until(lambda: groups.waiting == 5)
    turnstile.interrupt_next = True
    turnstile.open.set()
    errors = [each.exception() for each in leaders]
    assert sum(isinstance(error, KeyboardInterrupt) for error in errors) == 1
    # Those who went with it may have landed: the key tells.
    told = [each.exception() for each in waiting]
    assert all(error is None or error.landed == "maybe" for error in told)
    assert groups.leading == 0
