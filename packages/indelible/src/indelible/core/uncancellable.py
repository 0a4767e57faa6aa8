"""Cancelling a caller does not hide what became of its write."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

T = TypeVar("T")


class UncancellableFuture(asyncio.Future[T]):
    """What becomes of a write that is under way.

    It cannot be cancelled. A task that is cancelled while it waits here goes on waiting until the
    write has landed or failed, and is cancelled then: it never leaves a write behind that may still
    happen, and never a connection in the middle of one.
    """

    def cancel(self, msg: Any | None = None) -> bool:  # noqa: ARG002 (the base class's signature)
        """Refuse; the task that asked remembers that it was cancelled."""
        return False
