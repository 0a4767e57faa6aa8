"""Figures: when a target is missed, and how far a figure can be trusted."""

import pytest

from benchmarks import __main__ as bench
from benchmarks.measure import NOISE_MIN, Result, compare, compute_noise


def result(figure, *, bound="at most", noise=0.1):
    return Result(
        name="an append",
        subject="",
        baseline="",
        figure=figure,
        target=1.3,
        bound=bound,
        noise=noise,
    )


@pytest.mark.parametrize(
    ("figure", "bound", "met", "missed"),
    [
        (1.3, "at most", True, False),
        (1.35, "at most", False, False),
        (1.41, "at most", False, True),
        (1.3, "at least", True, False),
        (1.25, "at least", False, False),
        (1.1, "at least", False, True),
    ],
)
def test_a_target_is_missed_by_more_than_the_noise(figure, bound, met, missed):
    found = result(figure, bound=bound)
    assert (found.met, found.missed) == (met, missed)


def test_what_is_counted_has_no_noise():
    assert result(1.300001, noise=0.0).missed
    assert not result(1.3, noise=0.0).unsure


def test_a_figure_from_a_busy_machine_is_said_to_be_of_little_worth():
    assert not result(1.3, noise=0.2).unsure
    assert result(1.3, noise=0.4).unsure


def test_noise_is_that_of_the_rounds_and_never_less_than_two_runs_differ():
    assert compute_noise([2.0] * 20) == pytest.approx(2.0 * NOISE_MIN)
    wide = compute_noise([1.0, 3.0] * 10)
    assert wide > 0.5
    assert compute_noise([1.0, 3.0] * 1000) < wide


def test_work_is_done_in_turns_with_what_it_is_compared_to():
    done = []
    found = compare(
        "this beside that",
        lambda: done.append("this"),
        lambda: done.append("that"),
        at_most=1000,
        calls=2,
        seconds=0,
    )
    assert done[:6] == ["this", "that", "that", "that", "this", "this"]
    assert done.count("this") == done.count("that")
    assert found.met


def test_the_table_says_which_are_missed():
    rows = bench.build_table([result(1.0), result(1.35), result(2.0)]).columns[-1]
    verdicts = list(rows.cells)
    assert verdicts[0].endswith("1.3×")
    assert verdicts[1].endswith("within noise")
    assert verdicts[2].endswith("MISSED")
