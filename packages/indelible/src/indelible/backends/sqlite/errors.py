"""Translates SQLite's errors, by result code and never by message text."""

from __future__ import annotations

import apsw

from indelible.errors import (
    BusyError,
    FormatError,
    MemoryStoreBackendError,
    MemoryStoreError,
    OutcomeUnknownError,
    UnavailableError,
)


def translate_error(error: Exception, *, path: str, committing: bool = False) -> MemoryStoreError:
    """Return our error for what SQLite raised; the original is its cause.

    A commit that fails while writing or syncing may be found and recovered after a crash, or not:
    only then is the outcome unknown. Everything before the commit is rolled back.
    """
    translated = _choose_error(error, path, committing)
    translated.__cause__ = error
    return translated


def _choose_error(  # noqa: PLR0911 (a table of codes, one return for each meaning)
    error: Exception, path: str, committing: bool
) -> MemoryStoreError:
    # A text column with bytes that are not UTF-8: the row was damaged.
    if isinstance(error, UnicodeDecodeError):
        return FormatError(f"{path} holds text that cannot be read; it was left as it is")
    code = getattr(error, "result", None)
    extended = getattr(error, "extendedresult", None)
    details = {"path": path, "code": extended if extended is not None else code}
    if code in (apsw.SQLITE_BUSY, apsw.SQLITE_LOCKED, apsw.SQLITE_PROTOCOL):
        return BusyError(
            f"another writer held {path} for longer than the wait allowed; nothing was written,"
            " so it is safe to try again",
            **details,
        )
    if code in (apsw.SQLITE_NOTADB, apsw.SQLITE_CORRUPT):
        what = (
            "is not a SQLite database; it was left as it is"
            if code == apsw.SQLITE_NOTADB
            else "is damaged; it was left as it is. Restore a backup; `indelible copy` saves the"
            " sessions that can still be read"
        )
        return FormatError(f"{path} {what}", **details)
    if code == apsw.SQLITE_ERROR:
        # Our statements do not change: the tables that they name did.
        return FormatError(
            f"the schema of {path} is not as indelible made it ({error}); nothing was written."
            " verify says what differs.",
            **details,
        )
    if code == apsw.SQLITE_TOOBIG:
        return FormatError(
            f"{path} holds a value that is longer than any entry may be; it was left as it is."
            " Restore the file from a backup, or forget the session that holds it.",
            **details,
        )
    if code == apsw.SQLITE_FULL:
        return UnavailableError(
            f"the disk of {path} is full; nothing was written. Free some space, then try again",
            **details,
        )
    if code in (apsw.SQLITE_IOERR, apsw.SQLITE_INTERRUPT, apsw.SQLITE_NOMEM) and committing:
        return OutcomeUnknownError(
            f"the commit to {path} failed half-way: it may have landed. The same call with the"
            " same key lands it exactly once",
            **details,
        )
    if code in (apsw.SQLITE_IOERR, apsw.SQLITE_NOMEM):
        return UnavailableError(f"{path} cannot be used: {error}; nothing was written", **details)
    if code in (apsw.SQLITE_CANTOPEN, apsw.SQLITE_READONLY, apsw.SQLITE_PERM, apsw.SQLITE_AUTH):
        return UnavailableError(
            f"{path} cannot be used: {error}; nothing was written. The file and its folder must be"
            " writable also to be read; a copy elsewhere can be opened",
            **details,
        )
    return MemoryStoreBackendError(f"SQLite refused: {error}; nothing was written", **details)
