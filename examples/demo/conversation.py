"""What is said in the demo, and how to recognise it when it is read back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Turn(NamedTuple):
    """A question and its answer: what a store must keep together."""

    human: str
    ai: str


class Line(NamedTuple):
    """One entry as a store reads it back."""

    position: int
    role: str
    text: str


def make_conversation(*, speaker: int, turns: int) -> list[Turn]:
    """One speaker's part. No two turns are alike, so that each can be looked for by itself."""
    return [
        Turn(f"Where is order {speaker}-{n}?", f"Order {speaker}-{n} arrives on day {n % 7 + 1}.")
        for n in range(1, turns + 1)
    ]


def find_whole_turns(lines: Sequence[Line], said: Collection[Turn]) -> tuple[list[Turn], int]:
    """The turns that stand there question first and answer next, and how many lines fit none."""
    known = set(said)
    found: list[Turn] = []
    torn = at = 0
    while at < len(lines):
        pair = lines[at : at + 2]
        turn = Turn(pair[0].text, pair[-1].text)
        if [line.role for line in pair] == ["user", "assistant"] and turn in known:
            found.append(turn)
            at += 2
        else:
            torn += 1
            at += 1
    return found, torn


def are_positions_dense(lines: Sequence[Line]) -> bool:
    """Whether the lines are numbered 0, 1, 2 and so on, without a gap or a double."""
    return [line.position for line in lines] == list(range(len(lines)))
