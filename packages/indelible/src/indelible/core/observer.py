"""What telemetry wants to know of a running call, beyond what its caller sees.

The thread or task of a call has the observer of its store, and so has the sender of a batch that
the call started. Without telemetry there is none, and nothing is counted.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, Protocol


class Observer(Protocol):
    """Counts what happens between a store and its engine."""

    def count_retry(self) -> None:
        """Count one more attempt of an operation."""

    def record_batch(self, requests: int, waiting: int) -> None:
        """Record how many requests a batch holds, and how many wait behind it."""


OBSERVER: Final[ContextVar[Observer | None]] = ContextVar("indelible_observer", default=None)


class Defaults:
    """What `open` does if it is not told."""

    # Set by the instrumentor that OpenTelemetry calls when a process begins.
    telemetry = False
