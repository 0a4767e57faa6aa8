"""Delta debugging: leave out as much of a failure as possible, so that it still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from memory_contract.checker import judge
from memory_contract.checker.verdict import Anomaly, Violated
from memory_contract.history import Operation

# Limit on the runs of the checker: a smaller history only helps the reader.
QUESTIONS_MAX: Final = 2_000
# A smaller history is sought only in what the checker judges within milliseconds.
SHRINKABLE_MAX: Final = 2_000

T = TypeVar("T")


def minimize(
    items: Sequence[T], attempt: Callable[[tuple[T, ...]], Sequence[T] | None], *, tries: int
) -> tuple[T, ...]:
    """Leave items out, many at a time and then one by one, until every one that is left is needed.

    `attempt` tries fewer items. It returns those with which it failed, which may be others than
    those that it was given, or None if nothing failed. After so many `tries` the best is returned.
    """
    best, size = tuple(items), len(items)
    while best and tries:
        place, before = 0, len(best)
        while place < len(best) and tries:
            tries -= 1
            found = attempt(best[:place] + best[place + size :])
            if found is not None and len(found) < len(best):
                best = tuple(found)
            else:
                place += size
        if size == 1 and len(best) == before:
            break
        size = max(1, min(size // 2, len(best)))
    return best


def minimal(history: Iterable[Operation], anomaly: Anomaly) -> list[Operation]:
    """The operations that are needed to show this anomaly, in the order of the history.

    They are left as they were recorded: a read keeps all that it saw, and so the appends of that
    stay too.
    """
    operations = list(history)
    witness = {id(op) for op in anomaly.witness}
    seen = {id_ for op in anomaly.witness for id_ in op.value or ()}
    guesses = [
        [op for op in operations if id(op) in witness or op in anomaly.witness],
        [op for op in operations if op in anomaly.witness or not seen.isdisjoint(op.ids)],
        [op for op in operations if op.session == anomaly.session],
    ]
    smaller = next((guess for guess in guesses if is_shown(guess, anomaly)), operations)
    return list(
        minimize(
            smaller,
            lambda fewer: fewer if is_shown(fewer, anomaly) else None,
            tries=QUESTIONS_MAX,
        )
    )


def is_shown(history: Sequence[Operation], anomaly: Anomaly) -> bool:
    """Whether a history shows the anomaly: the same name, session and, if it has any, an id."""
    # Removing operations must not turn a seen entry into one that nobody appended, and so on: the
    # same name may have another reason only if it is about the same entry.
    verdict = judge(history, flicker=anomaly.name == "flickering entry")
    return isinstance(verdict, Violated) and any(
        found.name == anomaly.name
        and found.session == anomaly.session
        and (not anomaly.ids or bool(set(found.ids) & set(anomaly.ids)))
        for found in verdict.anomalies
    )
