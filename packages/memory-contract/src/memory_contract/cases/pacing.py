"""Slow stores are asked for less, and the report says so: no case takes minutes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sized
from typing import Final, TypeVar

from memory_contract.case_context import CaseContext

T = TypeVar("T")

# For one part of a case. A store that needs longer has shown by then most of what it can.
FEW_S: Final = 4.0


def paced(
    context: CaseContext,
    items: Iterable[T],
    what: str,
    *,
    count: int | None = None,
    within_s: float = FEW_S,
    least: int = 1,
) -> Iterator[T]:
    """The items, one by one, until the time is over; then a note says how many were left out.

    Where they are made as they are asked for, `count` says how many there would be.
    """
    began = time.monotonic()
    for done, item in enumerate(items):
        if done >= least and time.monotonic() - began > within_s:
            total = len(items) if isinstance(items, Sized) else count
            context.note(f"{what}: {done} of {total} only, since the store is slow")
            return
        yield item
