"""What the checker says: Ok, Violated with evidence, or Undecided with a reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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

    `beside` holds operations that prove nothing but help a person see what happened.
    """

    name: Name
    session: str
    ids: Ids
    witness: tuple[Operation, ...]
    proof: str
    beside: tuple[Operation, ...] = ()


@dataclass(frozen=True, slots=True)
class Scope:
    """How much was looked at, and when it began."""

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
