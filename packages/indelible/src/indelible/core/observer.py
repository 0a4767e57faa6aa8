"""Reports retries and batches of a running call to telemetry: its caller does not see them.

A context variable holds the observer of the store, in the thread or task of the call and in a
sender that the call started. Without telemetry there is none, and nothing is counted.
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
    """Defaults of options of `open` that a process can change."""

    # Set by the instrumentor that OpenTelemetry calls when a process begins.
    telemetry = False
