"""A schedule, written down: where it left the plain order, and for whom."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

_FORM: Final = re.compile(r"(?P<task>.+)#(?P<number>\d+)(?:\.(?P<asked>\d+))?>(?P<taken>.+)")


class ScheduleError(ValueError):
    """What was given is no schedule."""


@dataclass(frozen=True, slots=True)
class Switch:
    """One place where a task could have gone on, in the plain order, and another was taken.

    The place is named by the task itself, so that it stays the same when other switches are
    left out.
    """

    task: str
    number: int
    taken: str
    # How many times it had been this step's turn before.
    asked: int = 0

    def __str__(self) -> str:
        again = f".{self.asked}" if self.asked else ""
        return f"{self.task}#{self.number}{again}>{self.taken}"


# In the plain order a task goes on as long as it can; then comes who was stopped last.
Schedule = tuple[Switch, ...]


def format_schedule(schedule: Iterable[Switch]) -> str:
    """A schedule as text: `w1#7>w0`, one after the other; `plain` if it has no switches."""
    return " ".join(map(str, schedule)) or "plain"


def parse_schedule(text: str) -> Schedule:
    """The schedule that a text stands for."""
    return () if text == "plain" else tuple(map(_parse_switch, text.split()))


def _parse_switch(text: str) -> Switch:
    found = _FORM.fullmatch(text)
    if found is None:
        raise ScheduleError(f"not a switch: {text!r}; one looks like w1#7>w0")
    return Switch(found["task"], int(found["number"]), found["taken"], int(found["asked"] or 0))


def renumber_switches(switches: Iterable[Switch]) -> Schedule:
    """Count the switches at each step of a task anew, after some were left out."""
    seen: Counter[tuple[str, int]] = Counter()
    kept = []
    for switch in switches:
        step = (switch.task, switch.number)
        kept.append(replace(switch, asked=seen[step]))
        seen[step] += 1
    return tuple(kept)
