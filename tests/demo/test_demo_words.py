"""The demo says only what its numbers say, and on any terminal."""

import io

import pytest
from rich.console import Console

from examples.demo import prose, tables
from examples.demo.acts import Crowd, Kill, Kills, Rollback, State
from examples.demo.conversation import (
    Line,
    are_positions_dense,
    find_whole_turns,
    make_conversation,
)

HELD = Crowd(turns_each=80, acknowledged=640, refused=0, found=640, lost=0, torn=0)
LOST = Crowd(turns_each=20, acknowledged=160, refused=0, found=60, lost=100, torn=0)
KEPT = Rollback(taken=3, left=3, after_mistake=State.EXACT, back=State.EXACT, forward=State.EXACT)
WIPED = Rollback(
    taken=3, left=0, after_mistake=State.EXACT, back=State.IMPOSSIBLE, forward=State.IMPOSSIBLE
)
SURVIVED = Kills((Kill(acknowledged=40, found=41, lost=0, torn=0, dense=True),))
EMPTIED = Kills(
    (Kill(acknowledged=40, found=0, lost=40, torn=0, dense=False, unreadable="JSONDecodeError"),)
)


def lines_of(turns):
    messages = [pair for turn in turns for pair in (("user", turn.human), ("assistant", turn.ai))]
    return [Line(n, role, text) for n, (role, text) in enumerate(messages)]


def test_a_naive_store_that_lost_nothing_is_not_blamed():
    assert "lost nothing in 3 attempts with up to 80 turns" in prose.about_crowd(HELD, HELD)
    assert "kept its snapshots in this run" in prose.about_rollback(KEPT, KEPT)
    assert "came through all 1 kills of this run" in prose.about_kills(SURVIVED, SURVIVED)


def test_a_naive_store_that_lost_is_described_by_its_numbers():
    assert "lost 100 turns that it had acknowledged, with no error" in prose.about_crowd(LOST, HELD)
    assert "3 of 3 are gone" in prose.about_rollback(WIPED, KEPT)
    assert "Once out of 1 the kill fell" in prose.about_kills(EMPTIED, SURVIVED)


def test_indelible_is_not_praised_where_it_did_not_hold():
    assert "indelible did not hold" in prose.about_crowd(LOST, LOST)
    assert "indelible did not hold" in prose.about_rollback(WIPED, WIPED)
    assert "indelible did not hold" in prose.about_kills(EMPTIED, EMPTIED)
    assert "did NOT hold in act 1 and 3" in prose.verdict([False, True, False], elapsed_s=1)


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_every_table_and_word_fits_a_plain_terminal_of_80_columns(encoding):
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding=encoding), width=80)
    console.print(tables.crowd_table(LOST, HELD))
    console.print(tables.rollback_table(WIPED, KEPT))
    console.print(tables.kills_table(EMPTIED, SURVIVED))
    console.print(tables.summary_table((LOST, HELD), (WIPED, KEPT), (EMPTIED, SURVIVED)))
    console.print(prose.OPENING, prose.CROWD, prose.ROLLBACK, prose.KILLS)
    console.file.flush()
    output = raw.getvalue().decode(encoding)
    assert max(len(line) for line in output.splitlines()) <= 80
    assert "…" not in output
    assert "\x1b" not in output


def test_whole_turns_are_found_and_a_torn_one_is_counted():
    turns = make_conversation(speaker=1, turns=4)
    lines = lines_of(turns)
    assert find_whole_turns(lines, turns) == (turns, 0)
    assert find_whole_turns(lines[:-1], turns) == (turns[:-1], 1)
    assert find_whole_turns(lines[:2] + lines[3:], turns) == ([turns[0], *turns[2:]], 1)


def test_two_turns_that_interleave_are_torn():
    turns = make_conversation(speaker=1, turns=2)
    first, answer, second, other = lines_of(turns)
    assert find_whole_turns([first, second, answer, other], turns) == ([], 4)


def test_a_gap_or_a_double_in_the_positions_is_seen():
    lines = lines_of(make_conversation(speaker=1, turns=2))
    assert are_positions_dense(lines)
    assert not are_positions_dense(lines[1:])
    assert not are_positions_dense([*lines, lines[-1]])
