"""Nothing passes by not happening."""

from memory_contract import Operation
from memory_contract.coverage import check_race_coverage


def op(worker, name, began, ended, *, session="a", ids=(), value=None, outcome="ok"):
    return Operation(
        worker=worker,
        session=session,
        op=name,
        invoke_ns=began,
        complete_ns=ended,
        outcome=outcome,
        ids=ids,
        value=value,
    )


def test_two_overlapping_appends_are_a_race():
    history = [op("w0", "append", 1, 5, ids=("a",)), op("w1", "append", 3, 8, ids=("b",))]
    assert check_race_coverage(history, ["w0", "w1"]) is None


def test_one_after_the_other_is_none():
    history = [op("w0", "append", 1, 2, ids=("a",)), op("w1", "append", 3, 8, ids=("b",))]
    assert "overlapped" in check_race_coverage(history, ["w0", "w1"])


def test_two_reads_disturb_nobody():
    history = [op("w0", "read", 1, 5, value=()), op("w1", "read", 3, 8, value=())]
    assert "overlapped" in check_race_coverage(history, ["w0", "w1"])


def test_two_sessions_are_no_race():
    history = [
        op("w0", "append", 1, 5, ids=("a",)),
        op("w1", "append", 3, 8, ids=("b",), session="b"),
    ]
    assert "overlapped" in check_race_coverage(history, ["w0", "w1"])


def test_a_worker_whose_calls_all_failed_took_no_part():
    history = [
        op("w0", "append", 1, 5, ids=("a",)),
        op("w1", "append", 3, 8, ids=("b",), outcome="fail"),
    ]
    assert check_race_coverage(history, ["w0", "w1"]) == "worker w1 completed nothing"


def test_reads_must_see_somebody_else():
    history = [
        op("w0", "append", 1, 5, ids=("a",)),
        op("w1", "append", 3, 8, ids=("b",)),
        op("w0", "read", 6, 7, value=("a",)),
    ]
    assert check_race_coverage(history, ["w0", "w1"]) == "no read saw what another worker wrote"
    assert (
        check_race_coverage([*history, op("w1", "read", 9, 10, value=("a", "b"))], ["w0", "w1"])
        is None
    )


def test_a_call_that_never_came_back_overlaps_all_that_follows():
    history = [
        op("w0", "append", 1, 2, ids=("c",)),
        op("w0", "append", 3, None, ids=("a",), outcome="info"),
        op("w1", "append", 30, 80, ids=("b",)),
    ]
    assert check_race_coverage(history, ["w0", "w1"]) is None
