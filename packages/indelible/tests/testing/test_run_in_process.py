"""Work in another process: its result, its error, or its end."""

import os
import time

import pytest

from indelible.testing import ChildError, run_in_process, start_in_process
from tests.support import functions_elsewhere as work


def test_one_process_saves_and_another_rolls_back(tmp_path, run_in_process):
    snapshot = run_in_process(work.save, tmp_path / "a.db")
    assert run_in_process(work.roll_back, tmp_path / "a.db", snapshot) == ["one"]


def test_it_is_another_process_and_arguments_go_there_and_back():
    assert run_in_process(work.who) != os.getpid()
    sent = ("é", {"a": [1, None]}), {"b": b"\x00", "function": 2}
    assert run_in_process(work.named, *sent[0], b=b"\x00", function=2) == sent


def test_what_it_raises_is_raised_here_with_where_it_was():
    with pytest.raises(ZeroDivisionError, match="by what") as caught:
        run_in_process(work.raise_it, ZeroDivisionError, "by what")
    assert "in raise_it" in caught.value.__notes__[0]


def test_an_error_that_cannot_be_made_again_is_told():
    with pytest.raises(ChildError, match="refused: because"):
        run_in_process(work.refuse)


def test_a_result_that_cannot_be_carried_over_is_told():
    with pytest.raises(ChildError, match="result cannot be pickled"):
        run_in_process(work.unsendable)


def test_a_process_that_ends_without_an_answer_is_told():
    with pytest.raises(ChildError, match="exit code 7"):
        run_in_process(work.end, 7)
    with pytest.raises(SystemExit):
        run_in_process(work.leave)


def test_a_process_that_takes_too_long_is_killed():
    with pytest.raises(TimeoutError, match="did not end within"):
        run_in_process(work.wait_for_ever, timeout_s=0.2)


def test_a_process_can_be_killed_when_it_has_come_far_enough(tmp_path, start_in_process):
    sign = tmp_path / "sign"
    started = start_in_process(work.wait_for_ever, sign)
    deadline = time.monotonic() + 60
    while not sign.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert started.running()
    assert started.kill() == -9
    assert not started.running()
    with pytest.raises(ChildError, match="SIGKILL"):
        started.result()


def test_what_was_started_does_not_outlive_its_with():
    with start_in_process(work.wait_for_ever) as started:
        pid = started.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_what_it_prints_is_printed_here(capfd):
    run_in_process(work.say, "hello from there")
    assert "hello from there" in capfd.readouterr().out


@pytest.mark.parametrize("function", [lambda: 1, "no function"])
def test_what_another_process_cannot_find_is_refused_at_once(function):
    with pytest.raises(ValueError, match="must stand in a module"):
        run_in_process(function)


def test_an_argument_that_cannot_travel_is_refused_at_once():
    with pytest.raises(ValueError, match="cannot be pickled"):
        run_in_process(work.named, lambda: 1)


def test_a_module_that_cannot_be_imported_by_its_name_is_found_by_its_file(tmp_path, monkeypatch):
    import importlib.util
    import sys

    path = tmp_path / "odd one.py"
    path.write_text("def answer():\n    return 42\n")
    spec = importlib.util.spec_from_file_location("some.odd.one", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "some.odd.one", module)
    spec.loader.exec_module(module)
    assert run_in_process(module.answer) == 42
