"""A report's history shrinks to what shows the anomaly, and still shows it."""

import random

import pytest

from memory_contract import Violated, explain, judge, minimal
from tests.support.kit.defects import DEFECTS
from tests.support.kit.simulated import EVERYTHING, PLAIN, legal


def broken(defect, *, kinds, ops):
    """The first history with this defect that is accused, and its first anomaly."""
    for seed in range(1, 200):
        history = DEFECTS[defect](legal(seed, kinds=kinds, ops=ops), random.Random(seed))
        if history is not None:
            verdict = judge(history)
            if isinstance(verdict, Violated):
                return history, verdict.anomalies[0]
    raise AssertionError("no seed shows the defect")


def names(history):
    return {anomaly.name for anomaly in judge(history).anomalies}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_small_history_keeps_the_anomaly(defect):
    history, anomaly = broken(defect, kinds=(*PLAIN, "limit"), ops=120)
    small = minimal(history, anomaly)
    assert anomaly.name in names(small)
    # What a kept read shows was appended by somebody: those appends stay, and little else.
    seen = {id_ for operation in small for id_ in operation.value or ()}
    others = [o for o in small if not seen & set(o.ids) and o not in anomaly.witness]
    assert others == []
    assert len(small) < len(history) / 3
    assert [operation for operation in history if operation in small] == small


@pytest.mark.parametrize("defect", ["lost", "stale", "swap"])
def test_a_history_full_of_removals_shrinks_too(defect):
    history, anomaly = broken(defect, kinds=EVERYTHING, ops=60)
    small = minimal(history, anomaly)
    assert anomaly.name in names(small)
    assert len(small) < len(history) / 3


@pytest.mark.parametrize("defect", DEFECTS)
def test_nothing_can_be_left_out_of_a_small_history(defect):
    history, anomaly = broken(defect, kinds=PLAIN, ops=40)
    small = minimal(history, anomaly)
    for at in range(len(small)):
        verdict = judge(small[:at] + small[at + 1 :])
        same = [] if not isinstance(verdict, Violated) else verdict.anomalies
        assert not any(
            found.name == anomaly.name and set(found.ids) & set(anomaly.ids) for found in same
        )


def test_a_report_shows_at_most_five_operations():
    for seed in range(1, 120):
        history = DEFECTS["swap"](legal(seed, kinds=EVERYTHING, ops=40), random.Random(seed))
        verdict = judge(history or [])
        if isinstance(verdict, Violated):
            shown = [line for line in explain(verdict).splitlines() if line.startswith("    ")]
            assert 1 <= len(shown) <= 5
