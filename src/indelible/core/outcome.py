"""Cancelling a caller does not hide what became of its write."""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


async def run_to_outcome(work: asyncio.Future[T]) -> T:
    """Wait for work that is under way; a cancelled caller is released when its outcome is there."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not work.cancelled():
            work.exception()
        raise cancelled
    return work.result()
