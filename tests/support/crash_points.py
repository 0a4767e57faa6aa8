"""Every place at which a process can die: before and after each call that passes a seam."""

from __future__ import annotations

import functools
import inspect
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

When = Literal["before", "after"]


@dataclass
class CrashPoints:
    """Counts the calls that pass the seams, and kills its own process at one of them.

    A seam is the name of a method, `package.module:Class.method`, blocking or awaited. Nothing
    in the product knows of this: it stands before the method, in one process, for as long as that
    lives.
    """

    seams: tuple[str, ...]
    # The call to die at, counted from one, and on which side of it; 0 is never.
    at: int = 0
    when: When = "before"
    _passed: int = field(default=0, init=False)

    def install(self) -> None:
        """Stand before every seam."""
        for seam in self.seams:
            module, _, path = seam.partition(":")
            owner, _, method = path.rpartition(".")
            holder = functools.reduce(getattr, owner.split("."), import_module(module))
            setattr(holder, method, self._standing_before(getattr(holder, method)))

    def arm(self, at: int, when: When) -> None:
        """Die at a call, counted from now on."""
        self.at, self.when, self._passed = at, when, 0

    def passed(self) -> int:
        """How many calls passed since it was armed."""
        return self._passed

    def _standing_before(self, method: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(method):

            @functools.wraps(method)
            async def awaited(*arguments: Any, **options: Any) -> Any:
                here = self._arrive()
                answer = await method(*arguments, **options)
                self._leave(here)
                return answer

            return awaited

        @functools.wraps(method)
        def called(*arguments: Any, **options: Any) -> Any:
            here = self._arrive()
            answer = method(*arguments, **options)
            self._leave(here)
            return answer

        return called

    def _arrive(self) -> int:
        self._passed += 1
        if self._passed == self.at and self.when == "before":
            _die()
        return self._passed

    def _leave(self, number: int) -> None:
        if number == self.at and self.when == "after":
            _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
