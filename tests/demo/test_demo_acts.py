"""Each act by itself, on each side."""

import pytest

from examples.demo import acts
from examples.demo.acts import Crowd, Kill, Kills, Rollback, State
from examples.demo.conversation import make_conversation
from examples.demo.naive import NaiveFile, NaiveStore
from examples.demo.sides import Ours

CROWD = {"turns_each": 2, "acknowledged": 15, "refused": 1, "found": 15, "lost": 0, "torn": 0}
ROLLBACK = {
    "taken": 3,
    "left": 3,
    "after_mistake": State.EXACT,
    "back": State.EXACT,
    "forward": State.EXACT,
}
KILL = {"acknowledged": 9, "found": 9, "lost": 0, "torn": 0, "dense": True}


def test_the_naive_store_loses_turns_when_eight_write_at_once(tmp_path):
    result = acts.run_crowd_until_lost(NaiveStore, tmp_path)
    assert result.lost > 0
    assert not result.held


def test_the_naive_store_is_right_as_long_as_it_is_alone(tmp_path):
    assert acts.run_crowd(NaiveStore, tmp_path, turns_each=10, processes=1).held


def test_the_naive_rollback_does_not_hold(tmp_path):
    result = acts.run_rollback(NaiveStore, tmp_path)
    assert (result.after_mistake, result.left) == (State.EXACT, 0)
    assert not result.held


def test_sqlite_saves_the_naive_store_from_a_kill_as_the_demo_says(tmp_path):
    assert acts.run_kill(NaiveStore, tmp_path, after=20).held


@pytest.mark.parametrize("bytes_left", [0, 100])
def test_a_json_file_that_was_cut_off_is_a_lost_history(tmp_path, bytes_left):
    path = tmp_path / "history"
    turns = make_conversation(speaker=1, turns=3)
    for turn in turns:
        NaiveFile(path).save_turn(turn)
    assert acts.reopen(NaiveFile, path, turns).held
    path.write_bytes(path.read_bytes()[:bytes_left])
    result = acts.reopen(NaiveFile, path, turns)
    assert (result.unreadable, result.lost) == ("JSONDecodeError", 3)
    assert not result.held


def test_indelible_holds_in_every_act(tmp_path):
    assert acts.run_crowd(Ours, tmp_path, turns_each=5).held
    assert acts.run_rollback(Ours, tmp_path).held
    assert acts.run_kill(Ours, tmp_path, after=20).held


@pytest.mark.parametrize(
    "flaw",
    [{"lost": 1}, {"torn": 1}, {"found": 17}, {"found": 14}, {"acknowledged": 0, "found": 0}],
)
def test_a_flaw_in_the_crowd_is_not_overlooked(flaw):
    assert Crowd(**CROWD).held
    assert not Crowd(**CROWD | flaw).held


@pytest.mark.parametrize(
    "flaw",
    [
        {"left": 2},
        {"after_mistake": State.DIFFERENT},
        {"back": State.IMPOSSIBLE},
        {"forward": State.DIFFERENT},
    ],
)
def test_a_flaw_in_the_rollback_is_not_overlooked(flaw):
    assert Rollback(**ROLLBACK).held
    assert not Rollback(**ROLLBACK | flaw).held


@pytest.mark.parametrize(
    "flaw",
    [{"lost": 1}, {"torn": 1}, {"dense": False}, {"found": 11}, {"unreadable": "FormatError"}],
)
def test_a_flaw_after_a_kill_is_not_overlooked(flaw):
    assert Kill(**KILL | {"found": 10}).held
    assert not Kills((Kill(**KILL), Kill(**KILL | flaw))).held
