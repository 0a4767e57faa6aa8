"""The errors. `landed` says whether the data of a failed call may have been written.

MemoryStoreError                     .landed: no | maybe      .retryable
├── UsageError                       the call was wrong; nothing was written
│   ├── LimitError                   a limit was exceeded; nothing was written
│   └── ClosedError                  the store was closed; nothing was written
├── SessionNotFoundError             nothing was written
├── SnapshotNotFoundError            nothing was written
├── ConflictError                    the state is not the expected one; nothing was written
├── MemoryStoreBackendError          the engine; the driver's exception is __cause__
│   ├── UnavailableError             nothing was written; safe to retry
│   │   └── BusyError                another writer held the lock too long
│   └── OutcomeUnknownError          sent, no answer: it may have been written
├── CorruptEntryError                a stored entry is damaged; it was not changed
├── FormatError                      the store is damaged, foreign or too new; it was not changed
└── UnsupportedError                 the engine does not support it; nothing was written
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Self


class Landed(StrEnum):
    """Whether the data of a failed call may be in the store."""

    NO = "no"
    MAYBE = "maybe"


class MemoryStoreError(Exception):
    """Nothing was written, unless `landed` says otherwise. The base of all errors."""

    landed = Landed.NO
    retryable = False
    # Details that read as None if they are missing.
    optional: tuple[str, ...] = ()

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __getattr__(self, name: str) -> Any:
        """Read a detail as an attribute: `error.session`, `error.position`, `error.key`."""
        details = self.__dict__.get("details", {})
        if name in details or name in self.optional:
            return details.get(name)
        raise AttributeError(name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error with its details."""
        return _rebuild, (type(self), self.message, self.details)

    def copy(self, **more: Any) -> Self:
        """Copy the error, with more details, so that each caller has its own traceback."""
        twin = type(self)(self.message, **{**self.details, **more})
        twin.__cause__ = self.__cause__
        return twin


def _rebuild(
    kind: type[MemoryStoreError], message: str, details: dict[str, Any]
) -> MemoryStoreError:
    return kind(message, **details)


class UsageError(MemoryStoreError):
    """Nothing was written: the call was wrong. The message shows the offending value."""


class LimitError(UsageError):
    """Nothing was written: a limit was exceeded. Carries `limit` and `actual`."""


class ClosedError(UsageError):
    """Nothing was written: the store was closed before the call."""


class SessionNotFoundError(MemoryStoreError):
    """Nothing was written: the session does not exist. Carries `session`."""


class SnapshotNotFoundError(MemoryStoreError):
    """Nothing was written: the session has no such snapshot. Carries `session` and `snapshot`."""


class ConflictError(MemoryStoreError):
    """Nothing was written: the state is not the expected one. Carries `reason`, and maybe more.

    `reason` is "version" (the session changed since `expected` was read), "key" (the key was used
    for something else), "hidden" (the key was used for the same entries, which were hidden since),
    "item" (the memory changed since `expected` was read), "view" (others kept changing the view),
    "exists" (the target session exists), "audit" (an import brings other audit lines than those
    that are there), "gone" (the state of a cursor has expired or was vacuumed) or "thread" (a
    thread of LangGraph has a newer checkpoint). `expected` and `actual` are None where they do not
    apply.
    """

    optional = ("expected", "actual")


class MemoryStoreBackendError(MemoryStoreError):
    """Nothing was written: the engine failed. The driver's exception is `__cause__`."""


class UnavailableError(MemoryStoreBackendError):
    """Nothing was written: the engine could not be reached, or refused the write. Safe to retry."""

    retryable = True


class BusyError(UnavailableError):
    """Nothing was written: another writer held the lock until the deadline. Safe to retry."""


class OutcomeUnknownError(MemoryStoreBackendError):
    """The write was sent and no answer came: it may have been written.

    Carries `key`: repeating the call with `key=error.key` writes it exactly once. The key is None
    for verbs that can be repeated without harm.
    """

    landed = Landed.MAYBE
    retryable = True
    optional = ("key",)


class CorruptEntryError(MemoryStoreError):
    """A stored entry is damaged; it was not changed. Carries `session` and `position`."""


class FormatError(MemoryStoreError):
    """The store was not changed: it is damaged, foreign, or of a newer version."""


class UnsupportedError(MemoryStoreError):
    """Nothing was written: the engine, as it is configured, does not support this."""
