"""The errors of the kit; each has the exit code that a command ends with."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class KitError(Exception):
    """A command could not do its work."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        # Lines to print after the message, as they are.
        self.hint = hint


class UsageError(KitError):
    """The command was wrong, or names something that cannot be used; nothing was run."""

    exit_code = 2


class UnavailableError(KitError):
    """A store, a server or a file could not be reached."""

    exit_code = 4


class TargetError(UsageError, ValueError):
    """The target names nothing that the kit can drive; `hint` is the factory to write."""


def suggest(name: str, known: Iterable[str]) -> str:
    """Ask whether a known name was meant that is written almost like this one."""
    return "".join(f"; did you mean {each}?" for each in get_close_matches(name, known, 1))
