"""A right store is never accused: ten thousand legal histories, each known by its seed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_contract import Ok, Operation, Violated, explain, judge
from tests.support.kit.simulated import EVERYTHING, PLAIN, legal

CHUNK = 500
NO_SEARCH = 0


def accused(seeds, *, search_steps=2_000, flicker=False, **options):
    """The reports on legal histories, each with the seed that makes it again."""
    found = []
    for seed in seeds:
        verdict = judge(legal(seed, **options), search_steps=search_steps, flicker=flicker)
        if isinstance(verdict, Violated):
            found.append(f"seed {seed}, {options}\n{explain(verdict)}")
    return found


@pytest.mark.parametrize("chunk", range(12))
def test_a_right_store_with_every_operation_is_never_accused(chunk):
    assert accused(range(chunk * CHUNK, (chunk + 1) * CHUNK)) == []


@pytest.mark.parametrize("chunk", range(4))
def test_a_right_store_under_appends_and_reads_alone_is_never_accused(chunk):
    seeds = range(100_000 + chunk * CHUNK, 100_000 + (chunk + 1) * CHUNK)
    assert accused(seeds, kinds=(*PLAIN, "limit"), unknown=0.15, failed=0.1, flicker=True) == []


@pytest.mark.parametrize("chunk", range(4))
def test_a_right_store_that_mostly_removes_is_never_accused(chunk):
    seeds = range(200_000 + chunk * CHUNK, 200_000 + (chunk + 1) * CHUNK)
    kinds = ("append", "append", "read", "pop", "trim", "clear", "snapshot", "rollback", "look")
    assert accused(seeds, kinds=kinds, ops=18, sessions=1) == []


@pytest.mark.parametrize("keeps_last", [2, 3, 5])
def test_a_right_store_that_keeps_the_newest_entries_is_never_accused(keeps_last):
    seeds = range(400_000, 400_000 + 2 * CHUNK)
    assert accused(seeds, keeps_last=keeps_last) == []
    removing = ("append", "append", "append", "read", "read", "pop", "rollback", "snapshot", "look")
    assert accused(seeds, kinds=removing, sessions=1, keeps_last=keeps_last) == []
    plain = (*PLAIN, "limit")
    assert accused(seeds, kinds=plain, ops=40, sessions=1, keeps_last=keeps_last) == []


def test_long_histories_of_a_right_store_are_never_accused():
    assert accused(range(300_000, 300_040), ops=250, sessions=3, search_steps=NO_SEARCH) == []


def test_most_appends_and_reads_of_a_right_store_are_decided():
    kinds = (*PLAIN, "limit")
    assert all(isinstance(judge(legal(seed, kinds=kinds)), Ok) for seed in range(200))


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    kinds=st.lists(st.sampled_from(sorted(set(EVERYTHING))), min_size=2, max_size=8),
    ops=st.integers(1, 40),
)
def test_a_right_store_with_any_mix_of_operations_is_never_accused(seed, kinds, ops):
    assert accused([seed], kinds=("append", "read", *kinds), ops=ops) == []


def trimmed_meanwhile(kept):
    """A trim to one entry, beside which another is appended; then a read that saw `kept`."""

    def op(worker, name, began, ended, **more):
        return Operation(
            worker=worker,
            session="s",
            op=name,
            invoke_ns=began,
            complete_ns=ended,
            outcome="ok",
            **more,
        )

    return [
        op("w0", "append", 1, 2, ids=("a",)),
        op("w0", "append", 3, 4, ids=("b",)),
        op("w1", "trim", 10, 20, keep=1),
        op("w0", "append", 12, 14, ids=("c",)),
        op("w2", "read", 30, 31, value=tuple(kept)),
    ]


@pytest.mark.parametrize("kept", ["c", "bc"])
def test_a_trim_may_look_first_and_act_then(kept):
    assert isinstance(judge(trimmed_meanwhile(kept)), Ok)


@pytest.mark.parametrize("kept", ["abc", "b", "ac"])
def test_a_trim_that_looked_first_is_no_excuse_for_anything_else(kept):
    assert isinstance(judge(trimmed_meanwhile(kept)), Violated)
