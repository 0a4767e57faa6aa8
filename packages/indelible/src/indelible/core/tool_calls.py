"""Pairs tool calls with their answers, by call id and order.

Models may use an id again, so the id is not enough. An answer belongs to the oldest unanswered call
with its id before it. An answer without such a call is an orphan, and a call without an answer is
dangling.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple


class CallPair(NamedTuple):
    """A call and its answer, as indexes of entries; None where one is missing."""

    call_id: str
    call: int | None
    answer: int | None


def pair_calls(links: Iterable[tuple[Iterable[str], Iterable[str]]]) -> list[CallPair]:
    """Pair calls with answers, in the order of the calls; orphans come last.

    Each link has the ids of the calls that one entry makes, and of those that it answers.
    """
    calls: list[tuple[str, int]] = []
    answer_of: dict[int, int] = {}
    orphans: list[CallPair] = []
    waiting: dict[str, deque[int]] = {}
    for index, (opens, answers) in enumerate(links):
        for call_id in answers:
            if waiting.get(call_id):
                answer_of[waiting[call_id].popleft()] = index
            else:
                orphans.append(CallPair(call_id, None, index))
        for call_id in opens:
            waiting.setdefault(call_id, deque()).append(len(calls))
            calls.append((call_id, index))
    pairs = [
        CallPair(call_id, index, answer_of.get(number))
        for number, (call_id, index) in enumerate(calls)
    ]
    return pairs + orphans
