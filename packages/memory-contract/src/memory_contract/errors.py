"""Errors of the kit's own commands; each has the exit code that the command ends with."""

from __future__ import annotations


class KitError(Exception):
    """A command could not do its work."""

    exit_code = 1


class UsageError(KitError):
    """The command was wrong, or names something that cannot be used; nothing was run."""

    exit_code = 2


class UnavailableError(KitError):
    """A store, a server or a file could not be reached."""

    exit_code = 4
