"""How tasks wait, and how threads wait: the names that differ between generated twins."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from typing import TypeVar

from indelible.core.leases import Lease, Leased, Slots
from indelible.core.limits import LOOK_AGAIN_S

__all__ = ["AsyncSlots", "Slots", "limit_time", "limit_time_async", "sleep", "sleep_async"]

T = TypeVar("T")

sleep = time.sleep
sleep_async = asyncio.sleep
limit_time_async = asyncio.timeout


def limit_time(_seconds: float) -> nullcontext[None]:
    """Do nothing: unlike a task, a thread cannot be stopped."""
    return nullcontext()


class AsyncSlots(Leased[T]):
    """Things that tasks wait for, one by one, in the order in which they came."""

    def __init__(self, things: Iterable[T]) -> None:
        super().__init__(things)
        self._waiting: deque[asyncio.Future[None]] = deque()

    def try_take(self, lease: Lease) -> T | None:
        """A free slot, which is the lease's from now on; None if there is none."""
        with self._lock:
            return self._free(lease)

    async def take(self, lease: Lease, left_s: Callable[[], float]) -> T | None:
        """Wait for a free slot; None if there is none before the time is up."""
        thing = None if self._waiting else self.try_take(lease)
        while thing is None and (left := left_s()) > 0:
            await self._wait(left)
            thing = self.try_take(lease)
        return thing

    async def _wait(self, seconds: float) -> None:
        """Wait until a slot may be free."""
        woken = asyncio.get_running_loop().create_future()
        try:
            self._waiting.append(woken)
            async with asyncio.timeout(min(seconds, LOOK_AGAIN_S)):
                await woken
        except TimeoutError:
            pass
        except BaseException:
            # The slot that it was woken for is the next one's.
            if woken.done():
                self.wake()
            raise
        finally:
            with suppress(ValueError):
                self._waiting.remove(woken)

    def wake(self) -> None:
        """Tell one task that waits that a slot was given back."""
        while self._waiting:
            woken = self._waiting.popleft()
            if not woken.done():
                woken.set_result(None)
                break

    def wake_all(self) -> None:
        """Tell every task that waits to look again."""
        for woken in list(self._waiting):
            if not woken.done():
                woken.set_result(None)
