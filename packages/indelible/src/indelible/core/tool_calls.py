"""Which answer belongs to which tool call: pure, by call id and by order.

Models may use an id again, so an id alone does not tie two entries. An answer belongs to the oldest
call of its id before it that has none yet; an answer with no such call is an orphan, and a call
that no answer came to is dangling.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple


class CallPair(NamedTuple):
    """A call and its answer, as indexes into what was paired; None where one is missing."""

    call_id: str
    call: int | None
    answer: int | None


def pair_calls(links: Iterable[tuple[Iterable[str], Iterable[str]]]) -> list[CallPair]:
    """Pair the calls that entries open with the answers that entries give, in order of the calls.

    Each link holds the ids that one entry opens, and those that it answers. Orphans come last.
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
