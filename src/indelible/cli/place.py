"""Where the store is, and how a command opens it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import indelible
from indelible.errors import UnavailableError, UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """The store that a command line names."""

    url: str
    namespace: str = ""
    busy_timeout_s: float = 0.0

    def check(self, *, creates: bool) -> None:
        """Refuse a store that is not there, unless the command is one that may begin it."""
        if not self.url:
            raise UsageError("no store was named: give --url FILE, or set INDELIBLE_URL")
        if not self.exists() and not creates:
            raise UnavailableError(
                f"there is no file {file_of(self.url)}, and none was made. Check --url, or begin a"
                " store with `indelible append` or `indelible import`"
            )

    def opened(self, *, creates: bool = False) -> indelible.MemoryStore:
        """The open store."""
        self.check(creates=creates)
        return indelible.open(
            self.url, namespace=self.namespace, busy_timeout_s=self.busy_timeout_s
        )

    def exists(self) -> bool:
        """Whether the store is there to be opened, as far as that can be told without opening."""
        path = file_of(self.url)
        try:
            return path is None or path.exists()
        except OSError:
            # Nobody may look: opening it says why, in the words of every other trouble.
            return True


def file_of(url: str) -> Path | None:
    """The file that a URL names, spelled in either way; None if it names none."""
    scheme, separator, rest = url.partition("://")
    if url == "memory:" or (separator and scheme != "sqlite"):
        return None
    try:
        return Path(rest[1:] if separator else url).expanduser()
    except RuntimeError as error:
        raise UsageError(f"cannot open {url!r}: {error}") from None
