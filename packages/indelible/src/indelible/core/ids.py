"""Where ids come from. Tests that must repeat pass a source of their own."""

from __future__ import annotations

import random
from collections.abc import Callable

from indelible.core import fork

# A new id, different from every other: for keys, snapshots and operations.
Ids = Callable[[], str]

# A key that the store generated begins with this; a caller that passes one retries its append.
MADE_PREFIX = "~"

# A generator of our own: an application that seeds Python's shared one must not make two processes
# draw the same ids. It is seeded from the system, again in a forked child; drawing from it saves
# each append a system call.
_random = random.Random()  # noqa: S311 (ids are no secrets)
# Ids drawn in advance: taking one from a list is cheaper than drawing it.
_drawn: list[str] = []
_DRAWN_AT_ONCE = 64
_ID_BITS = 64


def _reseed() -> None:
    """In a forked child: drop the ids that the parent may use too."""
    _drawn.clear()
    _random.seed()


fork.register(after_in_child=_reseed)


def random_ids() -> str:
    """Return 64 random bits: an id is looked up only inside its own session."""
    try:
        return _drawn.pop()
    except IndexError:
        # Threads that come here together each draw their own.
        _drawn.extend([f"{_random.getrandbits(_ID_BITS):016x}" for _ in range(_DRAWN_AT_ONCE)])
        return f"{_random.getrandbits(_ID_BITS):016x}"
