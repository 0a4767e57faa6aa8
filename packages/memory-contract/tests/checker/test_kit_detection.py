"""Legal histories with one defect put in: how many of each kind are found."""

import random
import sys

import pytest

from memory_contract import Violated, judge
from tests.support.kit.defects import (
    DEFECTS,
)
from tests.support.kit.simulated import EVERYTHING, PLAIN, legal

HISTORIES = 300


AT_LEAST = {"lost": 0.95, "duplicate": 0.95, "leak": 0.95, "torn": 0.95, "stale": 0.9, "swap": 0.8}


def tell(capsys, text):
    """Print what was measured, also where the test passes."""
    with capsys.disabled():
        sys.stdout.write(f"\n  {text} ")


def rate(defect, **options):
    """Of so many histories with the defect, so many were accused."""
    found = made = seed = 0
    while made < HISTORIES:
        seed += 1
        broken = DEFECTS[defect](legal(seed, **options), random.Random(seed))
        if broken is None:
            continue
        made += 1
        found += isinstance(judge(broken, search_steps=2_000), Violated)
    return found / made


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_among_appends_and_reads_is_found(defect, capsys):
    measured = rate(defect, kinds=(*PLAIN, "limit"), ops=40, sessions=3)
    tell(capsys, f"{defect}: {measured:.1%} of {HISTORIES} found")
    assert measured >= AT_LEAST[defect]


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_among_all_operations_is_often_found(defect, capsys):
    # Here a remover may explain what was put in: then it is no defect, and nobody is accused.
    kinds = tuple(kind for kind in EVERYTHING if kind not in {"undo", "fork", "expire"})
    measured = rate(defect, kinds=kinds, ops=30, sessions=2)
    tell(capsys, f"{defect} among removals: {measured:.1%} of {HISTORIES} found")
    assert measured >= 0.5
