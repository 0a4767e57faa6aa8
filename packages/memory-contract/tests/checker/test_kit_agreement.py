"""Two ways to one verdict: what the rules accuse, the exhaustive search must find impossible."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from memory_contract import Violated, explain, judge
from memory_contract.checker.events import group_sessions
from memory_contract.checker.search import search
from tests.support.kit.simulated import EVERYTHING, legal

# The search knows the state of a session alone: not undo, not where a fork came from, and not
# what a failed call says about a snapshot.
KINDS = tuple(kind for kind in EVERYTHING if kind not in {"undo", "fork", "expire"})
UNSEEN = {"lost snapshot"}
CHUNK = 400
STEPS = 20_000


def disturbed(history, rng):
    """One or two answers of the store changed at random: mostly a violation, not always."""
    ids = sorted({id_ for op in history for id_ in op.ids})
    answers = [op for op in history if op.outcome == "ok" and op.op in {"read", "pop"}]
    changes = {}
    for op in rng.sample(answers, k=min(len(answers), rng.choice((1, 1, 2)))):
        if op.op == "pop":
            value = rng.choice([None, *ids])
        else:
            value = list(op.value)
            at = rng.randint(0, len(value))
            how = rng.choice(("drop", "drop", "add", "swap", "cut"))
            if how == "add" and ids:
                value.insert(at, rng.choice(ids))
            elif how == "cut":
                value = value[:at]
            elif how == "drop":
                value = value[:at] + value[at + 1 :]
            else:
                rng.shuffle(value)
            value = tuple(value)
        changes[id(op)] = replace(op, value=value)
    return [changes.get(id(op), op) for op in history]


@pytest.mark.parametrize("chunk", range(5))
def test_what_the_rules_accuse_has_no_legal_order(chunk):
    wrong, seen = [], Counter()
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        history = disturbed(legal(seed, kinds=KINDS, ops=16, sessions=1), random.Random(seed))
        verdict = judge(history, search_steps=0)
        if isinstance(verdict, Violated) and not {a.name for a in verdict.anomalies} <= UNSEEN:
            result = search(group_sessions(history)["s0"], steps=STEPS)
            seen[result if result in {True, None} else False] += 1
            if result is True:
                wrong.append(f"seed {seed}\n{explain(verdict)}")
    assert wrong == []
    assert seen[False] > CHUNK / 4, "most disturbances are violations that both see"
