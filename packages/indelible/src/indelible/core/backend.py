"""What a backend is: whoever performs the steps of the waist, blocking or awaited."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeVar

from indelible.core.plan import Operation
from indelible.model import Claims

R = TypeVar("R")


class Backend(Protocol):
    """Performs the steps of the waist, blocking. Making one reaches no server."""

    def prepare(self) -> None:
        """Reach the engine, and refuse one that cannot keep what was demanded."""
        ...

    def perform(self, op: Operation[R]) -> R:
        """Do one step, atomically."""
        ...

    def claims(self) -> Claims:
        """What is promised on the engine as it is configured right now."""
        ...

    def owns(self, path: Path) -> bool:
        """Whether a file is part of the store itself, and must not be written by anyone else."""
        ...

    def close(self) -> None:
        """Let go of the engine. Again is fine."""
        ...


class AsyncBackend(Protocol):
    """Performs the steps of the waist, awaited. Making one reaches no server."""

    async def prepare(self) -> None:
        """Reach the engine, and refuse one that cannot keep what was demanded."""
        ...

    async def perform(self, op: Operation[R]) -> R:
        """Do one step, atomically."""
        ...

    async def claims(self) -> Claims:
        """What is promised on the engine as it is configured right now."""
        ...

    def owns(self, path: Path) -> bool:
        """Whether a file is part of the store itself, and must not be written by anyone else."""
        ...

    async def close(self) -> None:
        """Let go of the engine. Again is fine."""
        ...
