"""Every error answers one question first, whether the data is there.

MemoryStoreError                     .landed: no | maybe      .retryable
├── UsageError                       the call was wrong; nothing was written
│   ├── LimitError                   a named limit was passed; nothing was written
│   └── ClosedError                  the store was closed; nothing was written
├── SessionNotFoundError             nothing was written
├── SnapshotNotFoundError            nothing was written
├── ConflictError                    someone else moved first; nothing was written
├── MemoryStoreBackendError          the engine; the driver's exception is __cause__
│   ├── UnavailableError             nothing was written; safe to retry
│   │   └── BusyError                another writer held the lock too long
│   └── OutcomeUnknownError          sent, no answer: it may have landed
├── CorruptEntryError                stored bytes are wrong; they were left as they are
├── FormatError                      the store is damaged, foreign or too new; left as it is
└── UnsupportedError                 this engine does not claim that; nothing was written
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Self


class Landed(StrEnum):
    """Whether the data of a failed call may be in the store."""

    NO = "no"
    MAYBE = "maybe"


class MemoryStoreError(Exception):
    """Nothing was written, unless `landed` says otherwise. The root of every error raised here."""

    landed = Landed.NO
    retryable = False
    # Details that are None where they were not given.
    optional: tuple[str, ...] = ()

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __getattr__(self, name: str) -> Any:
        """The details read as attributes: `error.session`, `error.position`, `error.key`."""
        details = self.__dict__.get("details", {})
        if name in details or name in self.optional:
            return details.get(name)
        raise AttributeError(name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors cross process borders with all that they know."""
        return _rebuild, (type(self), self.message, self.details)

    def copy(self, **more: Any) -> Self:
        """The same error for one more caller, each with a traceback of its own."""
        twin = type(self)(self.message, **{**self.details, **more})
        twin.__cause__ = self.__cause__
        return twin


def _rebuild(
    kind: type[MemoryStoreError], message: str, details: dict[str, Any]
) -> MemoryStoreError:
    return kind(message, **details)


class UsageError(MemoryStoreError):
    """Nothing was written: the call itself was wrong, and the message shows the offending value."""


class LimitError(UsageError):
    """Nothing was written: a named limit was passed. Carries `limit` and `actual`."""


class ClosedError(UsageError):
    """Nothing was written: the store was closed before the call."""


class SessionNotFoundError(MemoryStoreError):
    """Nothing was written: there is no such session to work on. Carries `session`."""


class SnapshotNotFoundError(MemoryStoreError):
    """Nothing was written: the session has no such snapshot. Carries `session` and `snapshot`."""


class ConflictError(MemoryStoreError):
    """Nothing was written: someone else came first. Carries `reason`, `expected` and `actual`.

    `reason` is "version" (the session moved since `expected` was read), "key" (the key was used
    for something else), "hidden" (the key was used for the same entries, which were hidden since),
    "view" (others kept changing what the session shows), "exists" (the target session is there
    already) or "gone" (what a cursor points into expired or was vacuumed away).
    """

    optional = ("expected", "actual")


class MemoryStoreBackendError(MemoryStoreError):
    """Nothing was written; the engine failed. The driver's own exception is `__cause__`."""


class UnavailableError(MemoryStoreBackendError):
    """Nothing was written: the engine could not be reached, or could not take the write."""

    retryable = True


class BusyError(UnavailableError):
    """Nothing was written: another writer held the store for longer than the wait allowed."""


class OutcomeUnknownError(MemoryStoreBackendError):
    """The write was sent and no answer came: it may have landed.

    Carries `key`: the same call again with `key=error.key` lands it exactly once. It is None where
    the verb takes no key, because doing it twice does no harm.
    """

    landed = Landed.MAYBE
    retryable = True
    optional = ("key",)


class CorruptEntryError(MemoryStoreError):
    """Stored bytes are wrong and were left as they are. Carries `session` and `position`."""


class FormatError(MemoryStoreError):
    """The store was left as it is: it is damaged, not indelible's, or made by a newer one."""


class UnsupportedError(MemoryStoreError):
    """Nothing was written: this engine, as it is configured, does not claim that."""
