"""What of a turn's processor time a saver takes, by its methods, in whatever threads they run."""

from __future__ import annotations

import time
from collections import Counter
from functools import wraps
from typing import Any

METHODS = ("get_tuple", "put", "put_writes")


class SaverClock:
    """Adds up the processor time of the methods of one saver."""

    def __init__(self, saver: Any) -> None:
        self._taken: Counter[str] = Counter()
        for name in METHODS:
            setattr(saver, name, self._measure(name, getattr(saver, name)))

    def _measure(self, name: str, method: Any) -> Any:
        @wraps(method)
        def measured(*arguments: Any, **options: Any) -> Any:
            began = time.thread_time()
            try:
                return method(*arguments, **options)
            finally:
                self._taken[name] += time.thread_time() - began  # type: ignore[assignment]

        return measured

    def take(self) -> dict[str, float]:
        """Return the seconds of each method since the last call."""
        taken = {name: float(self._taken[name]) for name in METHODS}
        self._taken.clear()
        return taken
