"""How a server is reached and what is asked of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from indelible.core.clock import Clock
from indelible.model import Durability


@dataclass(frozen=True, kw_only=True, slots=True)
class RedisOptions:
    """How a server is opened."""

    # A URL, perhaps with a password, or a client that the application has already.
    target: Any = field(repr=False)
    # The target as messages show it.
    shown: str
    namespace: str
    # What was demanded; None for whatever the server gives.
    durability: Durability | None
    timeout_s: float
    # Only tests bring a clock of their own; None for the server's.
    clock: Clock | None = None

    def __repr__(self) -> str:
        # The target may hold a password.
        return f"RedisOptions({self.shown!r}, namespace={self.namespace!r})"
