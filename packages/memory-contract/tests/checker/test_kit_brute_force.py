"""The checker beside a brute-force model checker, on small histories that Hypothesis draws.

The checker accuses nobody whom brute force acquits. Of the histories that brute force finds
illegal, the checker finds every one, or says that it cannot decide.
"""

import sys
from collections import Counter
from dataclasses import fields, replace

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from memory_contract import NOT_FOUND, Ok, Operation, Undecided, Violated, explain, judge
from memory_contract.traces.diagnosis import judge_lines
from memory_contract.traces.diagnosis.render import render_explanation
from memory_contract.traces.diagnosis.trace_reader import TraceMetadata
from memory_contract.traces.format import TraceOperation
from tests.support.kit.brute_force import effects, is_legal, perform

OPERATIONS_MAX = 6
PLAIN = ("append", "append", "read", "read", "limit")
# Fork, undo and expiry are not searched: the checker does not claim to decide all of those.
EVERYTHING = (*PLAIN, "retry", "pop", "trim", "clear", "snapshot", "rollback", "look")
EXAMPLES = 1_000


def draw_history(rng, kinds):
    """Draw what a right store answers in some order, with up to two answers changed."""
    history = draw_operations(rng, kinds)
    order = list(range(len(history)))
    rng.shuffle(order)
    state, answers = ((), ()), {}
    for place in sorted(order, key=lambda place: effect_moment(history[place], order[place])):
        op = history[place]
        if op.key is not None and (op.op, op.key) in answers:
            history[place] = replace(op, value=answers[op.op, op.key])
            continue
        history[place], state = answer(op, state)
        if op.key is not None and op.outcome != "fail":
            answers[op.op, op.key] = None
    ids = [id_ for op in history for id_ in op.ids]
    asked = [place for place, op in enumerate(history) if op.op in ("read", "pop", "rollback")]
    for place in rng.sample(asked, min(len(asked), rng.choice((0, 1, 1, 2)))):
        history[place] = change_answer(rng, history[place], ids)
    return history


def draw_operations(rng, kinds):
    """Draw operations without answers, each of a worker of its own."""
    made = []
    now = 0
    for number in range(rng.randint(3, OPERATIONS_MAX)):
        kind = rng.choice(kinds)
        now += rng.choice((0, 1, 1, 2, 3))
        more = {}
        if kind == "retry":
            keyed = [op for op in made if op.op == "append" and op.key is not None]
            kind = "append"
            if keyed:
                more = {"ids": keyed[-1].ids, "key": keyed[-1].key}
            else:
                more = {"ids": (f"{number}a",), "key": f"k{number}"}
        elif kind == "append":
            more["ids"] = tuple(f"{number}{part}" for part in "ab"[: rng.choice((1, 1, 2))])
        elif kind == "limit":
            more["limit"] = rng.randint(0, 2)
        elif kind == "trim":
            more["keep"] = rng.randint(0, 2)
        elif kind in ("snapshot", "rollback", "look"):
            more["snapshot"] = rng.choice("xy")
        made.append(
            Operation(
                worker=f"w{number}",
                session="s",
                op="read" if kind in ("limit", "look") else kind,
                invoke_ns=now,
                complete_ns=now + rng.choice((0, 1, 1, 2, 4)),
                outcome=rng.choice(("ok",) * 8 + ("info", "fail")),
                **more,
            )
        )
    return made


def effect_moment(op, rank):
    """Some moment between the two times of an operation, which its rank decides."""
    return (op.invoke_ns + rank % (op.complete_ns - op.invoke_ns + 1), rank)


def answer(op, state):
    """The operation with the answer of a right store, and the state after it."""
    if op.outcome == "fail":
        return op, state
    shown, frozen = state[0], dict(state[1])
    value = None
    if op.op == "read":
        source = shown if op.snapshot is None else frozen.get(op.snapshot)
        if source is None:
            return replace(op, outcome="fail", value=NOT_FOUND), state
        value = source if op.limit is None else source[max(0, len(source) - op.limit) :]
    elif op.op == "pop":
        value = shown[-1] if shown else None
    elif op.op == "rollback" and op.snapshot not in frozen:
        return replace(op, outcome="fail", value=NOT_FOUND), state
    done = replace(op, value=value if op.outcome == "ok" else None)
    (effect,) = effects([done]) or (None,)
    return done, state if effect is None else perform(effect, *state, [])[0]


def change_answer(rng, op, ids):
    """The same operation, with another answer where it has one."""
    if op.outcome != "ok":
        return op
    if op.op == "pop":
        return replace(op, value=rng.choice([None, *ids]))
    if op.op == "rollback" or (op.snapshot is not None and rng.random() < 0.5):
        return replace(op, outcome="fail", value=NOT_FOUND)
    value = list(op.value)
    match rng.choice(("drop", "drop", "cut", "reverse", "other")):
        case "drop" if value:
            del value[rng.randrange(len(value))]
        case "cut":
            value = value[: rng.randint(0, len(value))]
        case "reverse":
            value.reverse()
        case _:
            value = [id_ for id_ in ids if rng.random() < 0.5]
    return replace(op, value=tuple(value))


@pytest.mark.parametrize("kinds", [PLAIN, EVERYTHING], ids=["appends and reads", "everything"])
def test_the_checker_agrees_with_brute_force(kinds, capsys):
    counted = Counter()

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.randoms(use_true_random=False))
    def compare(rng):
        history = draw_history(rng, kinds)
        verdict, legal = judge(history, flicker=True), is_legal(history)
        counted[legal, type(verdict)] += 1
        note("\n".join(map(str, history)))
        note(explain(verdict))
        lenient = judge(history)
        if isinstance(verdict, Violated) or isinstance(lenient, Violated):
            assert not legal, "brute force finds an order that explains what the checker accuses"
            assert isinstance(verdict, Violated), "who may flicker is held to less"
        elif not legal:
            assert isinstance(verdict, Undecided), "brute force finds no order, the checker is sure"

    compare()
    wrong = sum(count for (legal, _), count in counted.items() if not legal)
    found = counted[False, Violated]
    with capsys.disabled():
        sys.stdout.write(
            f"\n  of {wrong} illegal histories {found} found, {wrong - found} undecided;"
            f" of {counted.total() - wrong} legal ones {counted[True, Ok]} acquitted "
        )
    assert wrong > EXAMPLES / 10, "too few histories are illegal to compare anything"


@pytest.mark.parametrize("fresh", [True, False], ids=["from the beginning", "begun late"])
def test_a_trace_accuses_only_what_brute_force_finds_illegal(fresh, capsys):
    """Each entry has a hash of its own, or shares one with others."""
    counted = Counter()

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.randoms(use_true_random=False), st.booleans())
    def compare(rng, shared):
        history = draw_history(rng, EVERYTHING)
        explanation = judge_lines(
            [to_trace_line(each, shared=shared) for each in history],
            TraceMetadata(own_ids=False, fresh=fresh),
        )
        legal = is_legal(history)
        accused = isinstance(explanation.verdict, Violated)
        counted[legal, accused] += 1
        note("\n".join(map(str, history)))
        note(render_explanation(explanation))
        assert not (accused and legal), "an order explains what the trace is taken to prove"

    compare()
    wrong = counted[False, True] + counted[False, False]
    with capsys.disabled():
        sys.stdout.write(
            f"\n  of {wrong} illegal histories {counted[False, True]} found in traces "
        )
    assert counted[False, True] > (wrong / 3 if fresh else 0)


def to_trace_line(op, *, shared):
    """The operation as a recorder writes it, who knows entries by their hashes alone."""

    def hashed(value):
        if isinstance(value, tuple):
            return tuple(map(hashed, value))
        return value[-1] if shared and value not in (None, NOT_FOUND) else value

    known = {each.name: getattr(op, each.name) for each in fields(op)}
    return TraceOperation(**{**known, "ids": hashed(op.ids), "value": hashed(op.value)})


def op(name, began, ended, **more):
    return Operation(
        worker=f"w{began}-{name}",
        session="s",
        op=name,
        invoke_ns=began,
        complete_ns=ended,
        outcome="ok",
        **more,
    )


def test_a_read_that_shows_an_entry_shows_all_that_stand_before_it():
    # The read overlaps both appends; only together do they show that it lacks one.
    history = [
        op("append", 0, 0, ids=("b",)),
        op("append", 1, 1, ids=("a",)),
        op("read", 0, 1, value=("a",)),
    ]
    assert not is_legal(history)
    assert isinstance(judge(history), Violated)


def test_two_reads_of_which_each_shows_what_the_other_lacks_fit_no_order():
    history = [
        op("append", 0, 9, ids=("a",)),
        op("append", 1, 9, ids=("b",)),
        op("read", 2, 9, value=("a",)),
        op("read", 3, 9, value=("b",)),
    ]
    assert not is_legal(history)
    assert isinstance(judge(history), Violated)


def test_what_may_flicker_is_not_accused_beside_a_change_either():
    history = [
        replace(op("append", 0, 1, ids=("a",)), outcome="info"),
        op("read", 2, 3, value=("a",)),
        op("read", 4, 5, value=()),
        op("append", 6, 7, ids=("b",)),
        op("pop", 8, 9, value="b"),
    ]
    assert isinstance(judge(history), Ok)
    assert isinstance(judge(history, flicker=True), Violated)


def test_a_snapshot_that_was_used_is_there_although_nobody_acknowledged_it():
    history = [
        replace(op("snapshot", 0, 0, snapshot="x"), outcome="info"),
        op("rollback", 1, 1, snapshot="x"),
        replace(op("rollback", 2, 2, snapshot="x", value=NOT_FOUND), outcome="fail"),
    ]
    assert not is_legal(history)
    assert isinstance(judge(history), Violated)
