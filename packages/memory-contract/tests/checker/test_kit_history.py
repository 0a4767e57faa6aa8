"""The record as JSON Lines: what is written comes back, and a bad line is named."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_contract import HistoryError, Ok, check_history, judge, read_history, write_history
from memory_contract.history import format_operation, parse_operation
from tests.support.kit.simulated import legal

GOOD = {
    "worker": "w1",
    "session": "s",
    "op": "append",
    "ids": ["e1"],
    "invoke_ns": 1,
    "complete_ns": 2,
    "outcome": "ok",
}


@given(st.integers(0, 10_000))
def test_what_is_written_comes_back(seed):
    history = legal(seed)
    assert [parse_operation(format_operation(operation)) for operation in history] == history


def test_a_file_has_the_verdict_of_the_history_that_it_holds(tmp_path):
    history = legal(7)
    write_history(tmp_path / "trace.jsonl", history)
    assert list(read_history(tmp_path / "trace.jsonl")) == history
    assert check_history(tmp_path / "trace.jsonl") == judge(history)


def test_empty_lines_and_an_empty_file_are_fine(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text("\n\n")
    assert isinstance(check_history(path), Ok)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"op": "compact"}, "'op' cannot be 'compact'"),
        ({"outcome": "maybe"}, "'outcome' cannot be 'maybe'"),
        ({"worker": 3}, "'worker' cannot be 3"),
        ({"worker": None}, "'worker' cannot be None"),
        ({"invoke_ns": "soon"}, "'invoke_ns' cannot be 'soon'"),
        ({"invoke_ns": True}, "'invoke_ns' cannot be True"),
        ({"complete_ns": 0}, "cannot complete before it was invoked"),
        ({"complete_ns": None}, "never came back cannot be 'ok'"),
        ({"ids": []}, "'append' needs 'ids'"),
        ({"ids": "e1"}, "'ids' cannot be 'e1'"),
        ({"ids": [1]}, "'ids' cannot be (1,)"),
        ({"op": "trim"}, "'trim' needs 'keep'"),
        ({"op": "trim", "keep": -1}, "'keep' cannot be negative"),
        ({"op": "rollback"}, "'rollback' needs 'snapshot'"),
        ({"op": "read"}, "must say what it saw"),
        ({"op": "read", "value": [], "limit": -1}, "'limit' cannot be negative"),
        ({"op": "pop", "value": ["e1"]}, "a pop returns one id or null"),
        ({"value": [1]}, "'value' cannot be (1,)"),
        ({"colour": "red"}, "unknown field 'colour'"),
    ],
)
def test_a_bad_line_is_named_with_its_number_and_its_fault(tmp_path, change, says):
    path = tmp_path / "trace.jsonl"
    path.write_text(json.dumps(GOOD) + "\n" + json.dumps(GOOD | change) + "\n")
    with pytest.raises(HistoryError, match="line 2: ") as raised:
        check_history(path)
    assert says in str(raised.value)


@pytest.mark.parametrize("line", [b"{", b"[]", b"\xff\xfe", b'{"worker": "w1"}', b"1", b"nonsense"])
def test_what_is_no_operation_is_named_with_its_number(tmp_path, line):
    path = tmp_path / "trace.jsonl"
    path.write_bytes(line + b"\n")
    with pytest.raises(HistoryError, match="line 1: "):
        list(read_history(path))
