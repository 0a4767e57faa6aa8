"""Where ids come from. Tests that must repeat pass a source of their own."""

from __future__ import annotations

import os
from collections.abc import Callable

# A new id, different from every other: for keys, snapshots and operations.
Ids = Callable[[], str]

# A key that the store generated begins with this; a caller that passes one retries its append.
MADE_PREFIX = "~"


def random_ids() -> str:
    """Return 64 random bits: an id is looked up only inside its own session.

    They come from the operating system, so that no seed and no fork makes two processes draw alike.
    """
    return os.urandom(8).hex()
