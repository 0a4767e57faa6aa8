"""A store that claims to keep the newest entries owes those, and shows no others."""

import pytest

from memory_contract import Ok, Operation, Violated, judge

KEEPS = 5


def op(worker, name, began, ended, **more):
    more.setdefault("outcome", "ok")
    return Operation(
        worker=worker, session="s", op=name, invoke_ns=began, complete_ns=ended, **more
    )


def appended(count, keep=KEEPS):
    """One entry after the other: a0 at 0, a1 at 10, and so on."""
    return [op("w", "append", 10 * n, 10 * n + 5, ids=(f"a{n}",), keep=keep) for n in range(count)]


def read(seen, began=1000, ended=1005, **more):
    return op("r", "read", began, ended, value=tuple(seen.split()), **more)


def names(history):
    verdict = judge(history)
    return {found.name for found in verdict.anomalies} if isinstance(verdict, Violated) else set()


@pytest.mark.parametrize(
    ("count", "seen"),
    [(3, "a0 a1 a2"), (5, "a0 a1 a2 a3 a4"), (8, "a3 a4 a5 a6 a7")],
)
def test_the_newest_entries_are_right(count, seen):
    assert isinstance(judge([*appended(count), read(seen)]), Ok)


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        # One too few, at either end or in the middle.
        ("a4 a5 a6 a7", "lost append"),
        ("a3 a4 a5 a6", "lost append"),
        ("a3 a4 a6 a7", "lost append"),
        # The wrong ones: older ones in place of newer ones.
        ("a0 a1 a2 a3 a4", "lost append"),
        ("a2 a3 a4 a5 a6", "lost append"),
        ("a0 a4 a5 a6 a7", "lost append"),
        # More than are kept.
        ("a2 a3 a4 a5 a6 a7", "resurrected entry"),
        ("", "lost append"),
    ],
)
def test_anything_else_is_accused(seen, name):
    assert name in names([*appended(8), read(seen)])


def test_a_limit_asks_for_fewer():
    assert isinstance(judge([*appended(8), read("a6 a7", limit=2)]), Ok)
    assert isinstance(judge([*appended(8), read("a3 a4 a5 a6 a7", limit=7)]), Ok)
    assert "lost append" in names([*appended(8), read("a4 a5", limit=2)])


@pytest.mark.parametrize("seen", ["a3 a4 a5 a6 a7", "a4 a5 a6 a7 b0", "a4 a5 a6 b0 a7"])
def test_an_append_that_overlaps_may_have_pushed_an_entry_out(seen):
    # It overlaps the last append and the read.
    beside = op("v", "append", 69, 1002, ids=("b0",), keep=KEEPS)
    assert isinstance(judge([*appended(8), beside, read(seen)]), Ok)


@pytest.mark.parametrize("seen", ["a4 a5 a6 a7", "a3 a5 a6 a7 b0", "b0 a4 a5 a6 a7"])
def test_an_append_that_overlaps_is_no_excuse_for_anything_else(seen):
    beside = op("v", "append", 69, 1002, ids=("b0",), keep=KEEPS)
    assert names([*appended(8), beside, read(seen)])


def test_a_batch_may_be_cut_in_front_and_nowhere_else():
    history = [
        op("w", "append", 0, 5, ids=("a0", "a1", "a2"), keep=KEEPS),
        op("w", "append", 10, 15, ids=("b0", "b1", "b2"), keep=KEEPS),
    ]
    assert isinstance(judge([*history, read("a1 a2 b0 b1 b2")]), Ok)
    assert "torn batch" in names([*history, read("a1 a2 b0 b1")])
    assert "torn batch" in names([*history, read("a0 a2 b0 b1 b2")])


@pytest.mark.parametrize("seen", ["a3 a4 a5 a6", "a2 a3 a4 a5 a6"])
def test_after_a_pop_what_was_left_out_may_show_again_or_be_gone(seen):
    pop = op("w", "pop", 900, 905, value="a7")
    assert names([*appended(8), pop, read(seen)]) == set()


def test_a_pop_excuses_no_loss_of_what_is_kept():
    pop = op("w", "pop", 900, 905, value="a7")
    assert names([*appended(8), pop, read("a4 a5 a6")])
    assert names([*appended(8), op("w", "pop", 900, 905, value=None), read("")])


def test_a_store_that_claims_nothing_keeps_everything():
    assert "lost append" in names([*appended(8, keep=None), read("a3 a4 a5 a6 a7")])


def test_the_entries_that_a_read_owed_are_named_and_no_older_ones():
    shown = " ".join(f"a{n}" for n in range(60, 75))
    verdict = judge([*appended(80, keep=20), read(shown)])
    assert isinstance(verdict, Violated)
    lost = {each for found in verdict.anomalies for each in found.ids}
    assert lost == {f"a{n}" for n in range(75, 80)}
