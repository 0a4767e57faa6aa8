"""A schedule in words: who stops where, who goes on meanwhile, and with what."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from memory_contract.explorer.loop import StepTaken
from memory_contract.history import Operation

# More than this nobody reads; the schedule itself is complete.
_SENTENCES_MAX: Final = 12
_CALLS_MAX: Final = 3
_DOES: Final = {
    "append": "appends",
    "read": "reads",
    "pop": "pops",
    "trim": "trims",
    "clear": "clears",
    "snapshot": "takes a snapshot of",
    "rollback": "rolls back",
    "fork": "forks",
    "undo": "takes back the last change of",
}


def describe_schedule(taken: Sequence[StepTaken], history: Sequence[Operation]) -> str:
    """`w1 stops in its append of w1e3 to c-1; w0 appends w0e2 to c-1; w1 goes on`."""
    sentences = list(_ScheduleText(taken, history).sentences())
    more = len(sentences) - _SENTENCES_MAX
    if more > 0:
        sentences[_SENTENCES_MAX:] = [f"and so on ({more} more)"]
    return "; ".join(sentences)


class _ScheduleText:
    def __init__(self, taken: Sequence[StepTaken], history: Sequence[Operation]) -> None:
        self._taken = taken
        self._worker = map_workers(taken, history)
        ours = set(self._worker.values())
        self._calls = sorted(
            (op for op in history if op.worker in ours), key=lambda op: op.complete_ns or 0
        )
        self._told_ns = 0

    def sentences(self) -> Iterator[str]:
        stopped: set[str] = set()
        for step in self._taken:
            goes_on = step.task in stopped
            if step.switch is None and not goes_on:
                continue
            if stopped:
                yield from self._describe_meanwhile(step.began_ns)
            self._told_ns = step.began_ns
            if step.switch is not None:
                stopped.add(step.switch.task)
                yield self._describe_stop(step.switch.task, step.began_ns, step.place)
            if goes_on:
                stopped.discard(step.task)
                yield f"{self._name(step.task)} goes on"

    def _name(self, task: str) -> str:
        return self._worker.get(task, task)

    def _describe_stop(self, task: str, now_ns: int, place: str) -> str:
        name = self._name(task)
        at = f" at {place}" if place else ""
        theirs = [op for op in self._calls if op.worker == name]
        for op in theirs:
            if op.invoke_ns <= now_ns and (op.complete_ns is None or now_ns <= op.complete_ns):
                return f"{name} stops in its {op.op}{_describe_object(op)}{at}"
        before = not any(op.invoke_ns <= now_ns for op in theirs)
        return f"{name} stops{' before its first call' if before and theirs else at}"

    def _describe_meanwhile(self, now_ns: int) -> Iterator[str]:
        """What was completed since the last sentence."""
        done: dict[str, list[Operation]] = defaultdict(list)
        for op in self._calls:
            if op.complete_ns is not None and self._told_ns < op.complete_ns <= now_ns:
                done[op.worker].append(op)
        for worker, calls in done.items():
            said = [
                f"{_DOES.get(op.op, op.op)}{_describe_object(op, doing=True)}"
                for op in calls[:_CALLS_MAX]
            ]
            if len(calls) > _CALLS_MAX:
                said.append(f"makes {len(calls) - _CALLS_MAX} more calls")
            yield f"{worker} {', '.join(said)}"


def _describe_object(op: Operation, *, doing: bool = False) -> str:
    ids = " ".join(op.ids)
    if op.op == "append":
        return f" {ids} to {op.session}" if doing else f" of {ids} to {op.session}"
    return f" {op.session}" if doing else f" of {op.session}"


def map_workers(taken: Sequence[StepTaken], history: Sequence[Operation]) -> dict[str, str]:
    """Which worker each task was: the one whose calls began in its steps."""
    calls = sorted(history, key=lambda op: op.invoke_ns)
    found: dict[str, Counter[str]] = defaultdict(Counter)
    place = 0
    for step in taken:
        while place < len(calls) and calls[place].invoke_ns < step.began_ns:
            place += 1
        while place < len(calls) and calls[place].invoke_ns <= step.ended_ns:
            found[step.task][calls[place].worker] += 1
            place += 1
    return {task: counted.most_common(1)[0][0] for task, counted in found.items()}
