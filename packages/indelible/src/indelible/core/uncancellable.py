"""A future that a cancelled task keeps waiting for."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

T = TypeVar("T")


class UncancellableFuture(asyncio.Future[T]):
    """The outcome of a write in progress. It cannot be cancelled.

    A task that is cancelled while it awaits this future keeps waiting until the write has succeeded
    or failed, and is cancelled then. So it leaves no write behind that may still happen, and no
    connection in the middle of one.
    """

    def cancel(self, msg: Any | None = None) -> bool:  # noqa: ARG002 (the base class's signature)
        """Refuse. The task remembers its cancellation."""
        return False
