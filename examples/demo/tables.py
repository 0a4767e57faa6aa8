"""The numbers of each act as a table. Colour only repeats what the words say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rich import box
from rich.table import Table
from rich.text import Text

from examples.demo.acts import PROCESSES, Crowd, Kills, Rollback, State

NAIVE: Final = "naive"
OURS: Final = "indelible"

Row = tuple[str, Text, Text]


def crowd_table(naive: Crowd, ours: Crowd) -> Table:
    """Act 1."""
    return _side_by_side(
        [
            ("turns acknowledged", _plain(naive.acknowledged), _plain(ours.acknowledged)),
            ("turns refused with an error", _plain(naive.refused), _plain(ours.refused)),
            ("turns found afterwards", _plain(naive.found), _plain(ours.found)),
            ("acknowledged turns lost", _none_is_good(naive.lost), _none_is_good(ours.lost)),
        ]
    )


def rollback_table(naive: Rollback, ours: Rollback) -> Table:
    """Act 2."""
    return _side_by_side(
        [
            ("A: snapshots taken", _plain(naive.taken), _plain(ours.taken)),
            (
                "B: history after the rollback",
                _state(naive.after_mistake),
                _state(ours.after_mistake),
            ),
            ("C: snapshots left", _left(naive), _left(ours)),
            ("C: back to the first snapshot", _state(naive.back), _state(ours.back)),
            ("C: forward to the last snapshot", _state(naive.forward), _state(ours.forward)),
        ]
    )


def kills_table(naive: Kills, ours: Kills) -> Table:
    """Act 3."""
    return _side_by_side(
        [
            (
                "turns acknowledged before a kill",
                _plain(naive.acknowledged),
                _plain(ours.acknowledged),
            ),
            ("whole turns found on reopening", _plain(naive.found), _plain(ours.found)),
            ("acknowledged turns lost", _none_is_good(naive.lost), _none_is_good(ours.lost)),
            ("histories that cannot be read", _unreadable(naive), _unreadable(ours)),
            (
                "questions or answers torn apart",
                _none_is_good(naive.torn),
                _none_is_good(ours.torn),
            ),
            ("histories numbered without a gap", _dense(naive), _dense(ours)),
        ]
    )


def summary_table(
    crowds: tuple[Crowd, Crowd], rollbacks: tuple[Rollback, Rollback], kills: tuple[Kills, Kills]
) -> Table:
    """All three acts in three lines."""
    naive_crowd, our_crowd = crowds
    naive_rollback, our_rollback = rollbacks
    naive_kills, our_kills = kills
    return _side_by_side(
        [
            (f"Act 1: {PROCESSES} at once", _lost(naive_crowd), _lost(our_crowd)),
            ("Act 2: a rollback", _kept_snapshots(naive_rollback), _kept_snapshots(our_rollback)),
            ("Act 3: kill -9", _lost(naive_kills), _lost(our_kills)),
        ]
    )


def _side_by_side(rows: Iterable[Row]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("")
    table.add_column(NAIVE, justify="right")
    table.add_column(OURS, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _plain(number: int) -> Text:
    return Text(str(number))


def _judged(words: object, *, good: bool) -> Text:
    return Text(str(words), style="green" if good else "bold red")


def _none_is_good(number: int) -> Text:
    return _judged(number, good=number == 0)


def _state(state: State) -> Text:
    return _judged(state, good=state is State.EXACT)


def _left(result: Rollback) -> Text:
    return _judged(result.left, good=result.left == result.taken)


def _unreadable(result: Kills) -> Text:
    words = f"{result.unreadable} of {len(result.each)}"
    return _judged(words, good=result.unreadable == 0)


def _dense(result: Kills) -> Text:
    dense = sum(one.dense for one in result.each)
    return _judged(f"{dense} of {len(result.each)}", good=dense == len(result.each))


def _lost(result: Crowd | Kills) -> Text:
    words = f"{result.lost} of {result.acknowledged} turns lost"
    return _judged(words, good=result.lost == 0)


def _kept_snapshots(result: Rollback) -> Text:
    words = f"{result.left} of {result.taken} snapshots left"
    return _judged(words, good=result.left == result.taken)
