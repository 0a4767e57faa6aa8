"""Deadlines and waits, without waiting."""

import pytest

from indelible.core.deadline import WAIT_S_FIRST, WAIT_S_MAX, Deadline


class Time:
    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def time():
    return Time()


def test_time_runs_out_and_never_below_zero(time):
    patience = Deadline(3, now=time)
    assert patience.left_s() == 3
    time.now_s += 2
    assert patience.left_s() == 1
    time.now_s += 2
    assert patience.left_s() == 0
    assert patience.next_wait_s() is None


def test_waits_double_up_to_a_bound(time):
    patience = Deadline(1e6, now=time, jitter=lambda: 1.0)
    waits = [patience.next_wait_s() for _ in range(60)]
    assert waits[:3] == [WAIT_S_FIRST, 2 * WAIT_S_FIRST, 4 * WAIT_S_FIRST]
    assert waits == sorted(waits)
    assert waits[-1] == WAIT_S_MAX


@pytest.mark.parametrize(("drawn", "share"), [(0.0, 0.5), (0.5, 0.75), (1.0, 1.0)])
def test_a_wait_is_a_random_part_and_at_least_half(time, drawn, share):
    patience = Deadline(10, now=time, jitter=lambda: drawn)
    assert patience.next_wait_s() == pytest.approx(WAIT_S_FIRST * share)


def test_no_wait_reaches_past_the_deadline(time):
    patience = Deadline(WAIT_S_FIRST * 3, now=time, jitter=lambda: 1.0)
    total = 0.0
    while (wait_s := patience.next_wait_s()) is not None:
        total += wait_s
        time.now_s += wait_s
    assert 0 < total < WAIT_S_FIRST * 3
