"""The verdicts of the checker: Ok, Violated with evidence, or Undecided with a reason.

The functions at the end write names and numbers, in a proof and in reports.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from typing import Final, Literal

from memory_contract.history import Ids, Operation

Name = Literal[
    "garbage read",
    "cross-session leak",
    "aborted read",
    "future read",
    "duplicate",
    "duplicate after retry",
    "corrupted entry",
    "reordered",
    "real-time reorder",
    "program-order violation",
    "torn batch",
    "interleaved batch",
    "lost append",
    "stale read",
    "read-your-writes",
    "non-monotonic read",
    "resurrected entry",
    "double pop",
    "wrong pop",
    "false empty",
    "lost snapshot",
    "lossy snapshot",
    "leaking snapshot",
    "unstable snapshot",
    "torn snapshot",
    "rollback mismatch",
    "flickering entry",
    "early expiry",
    "zombie entry",
]


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One broken promise: its name in words, the smallest witness found, a sentence of proof.

    `beside` holds operations that prove nothing but help a person see what happened. The checker
    has the names above; what a case noticed by itself, and no history shows, has one of its own and
    is not `proved`.
    """

    name: Name | str
    session: str
    ids: Ids
    witness: tuple[Operation, ...]
    proof: str
    beside: tuple[Operation, ...] = ()
    proved: bool = True


@dataclass(frozen=True, slots=True)
class Scope:
    """The size of the judged history, and when it began."""

    operations: int = 0
    sessions: int = 0
    began_ns: int = 0


@dataclass(frozen=True, slots=True)
class Ok:
    """Nothing in the history breaks the contract's rules."""

    scope: Scope = Scope()


@dataclass(frozen=True, slots=True)
class Violated:
    """No legal execution explains the history; each anomaly stands for itself."""

    anomalies: tuple[Anomaly, ...]
    scope: Scope = Scope()


@dataclass(frozen=True, slots=True)
class Undecided:
    """Neither could be shown, or the record itself cannot be trusted."""

    reason: str
    scope: Scope = Scope()


Verdict = Ok | Violated | Undecided


# In the text of a proof

_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_WIDTH: Final = 40
_IDS_MAX: Final = 8


def quote_name(session: str) -> str:
    """A session's name; one that is empty, odd or long stands in quotes."""
    if _PLAIN.fullmatch(session):
        return session
    text = ascii(session)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 4]}...{text[-1]}"


def format_ids(ids: Sequence[str]) -> str:
    """Ids in a row; of many, the first ones, the last one and their number."""
    if len(ids) <= _IDS_MAX:
        return " ".join(ids)
    return f"{' '.join(ids[:3])} … {ids[-1]} ({len(ids)} entries)"


def format_count(number: int, noun: str) -> str:
    """`1 case`, `12 cases`, `2 412 ops`."""
    return f"{number:,}".replace(",", " ") + f" {noun}{'' if number == 1 else 's'}"


def was(ids: Sized) -> str:
    """`was` for one, `were` for more."""
    return "was" if len(ids) == 1 else "were"


def is_(ids: Sized) -> str:
    """`is` for one, `are` for more."""
    return "is" if len(ids) == 1 else "are"
