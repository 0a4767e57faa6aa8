"""The store that a command line names: its URL, and how it is opened."""

from __future__ import annotations

import getpass
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import indelible
from indelible.cli.suggestions import suggest_command
from indelible.connect import (
    ENGINES,
    KNOWN,
    Storage,
    describe_targets,
    find_file,
    refuse_ambiguous,
)
from indelible.core.audit import KEY_VARIABLE
from indelible.core.limits import TIMEOUT_S
from indelible.errors import UnavailableError, UsageError

IN_MEMORY = ("memory:", "memory", ":memory:")
# Not proposed: a store in memory ends with the command.
KNOWN_FILES = describe_targets(
    tuple(engine for engine in ENGINES if engine.storage is not Storage.MEMORY)
).replace("a file name", "a file")


@dataclass(frozen=True, kw_only=True, slots=True)
class Location:
    """The store that a command line names."""

    # A URL may hold a password.
    url: str = field(repr=False)
    namespace: str = ""
    busy_timeout_s: float = 0.0
    timeout_s: float = TIMEOUT_S
    # What the command line calls the argument that names it; None if it has the option --url.
    argument: str | None = field(default=None, compare=False)

    def check(self, *, creates: bool) -> None:
        """Raise if the store does not exist, unless the command may create it."""
        if not self.url:
            if self.argument is not None:
                raise UsageError(f"{self.argument} names no store: give a file name, or a URL")
            raise UsageError("no store was named: give --url FILE, or set INDELIBLE_URL")
        refuse_ambiguous(self.url)
        if self.url in IN_MEMORY:
            raise UsageError(f"{self.url} ends with this command; name a file", value=self.url)
        if not creates and not self.exists():
            named = self.argument or "--url"
            raise UnavailableError(
                f"{self.describe_missing()}. Check {named}, or begin a store with"
                f" `{suggest_command('append', 'SESSION', 'user', 'TEXT')}` or"
                f" `{suggest_command('import', 'FILE')}`"
            )

    def open(self, *, creates: bool = False, rehearses: bool = False) -> indelible.MemoryStore:
        """Check and open the store; a rehearsal on a missing one opens a store in memory."""
        self.check(creates=creates)
        if rehearses and not self.exists():
            return indelible.open("memory:")
        try:
            return indelible.open(self.url, **self.options)
        except UsageError as error:
            raise type(error)(error.message.replace(KNOWN, KNOWN_FILES), **error.details) from None

    @property
    def options(self) -> dict[str, Any]:
        """Options of `open`. Changes are audited if the environment has the audit key."""
        audited = bool(os.environ.get(KEY_VARIABLE))
        return {
            "namespace": self.namespace,
            "busy_timeout_s": self.busy_timeout_s,
            "timeout_s": self.timeout_s,
            "audit": audited,
            "actor": _find_user() if audited else "",
        }

    def exists(self) -> bool:
        """Return whether the store exists, as far as that is known without opening it.

        An empty file is not a store yet.
        """
        path = _find_file(self.url)
        try:
            if path is None or not path.is_file():
                return path is None or path.exists()
            return path.stat().st_size > 0
        except OSError:
            # No permission to look: opening it reports why.
            return True

    def describe_missing(self) -> str:
        """Describe what is there instead of a store."""
        path = _find_file(self.url)
        if path is not None and path.exists():
            return f"the file {path} is empty, and was left so"
        return f"there is no file {path}, and none was made"


def _find_file(url: str) -> Path | None:
    """Return the file that a URL names; None if it names none.

    None also for a misspelled URL: opening it raises an error with the right spelling.
    """
    try:
        return find_file(url)
    except UsageError:
        return None


def _find_user() -> str:
    """Return the name of the user, or the user id if the system has no name for it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
