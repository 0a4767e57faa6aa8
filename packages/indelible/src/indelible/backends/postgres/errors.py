"""Translates PostgreSQL's errors: by SQLSTATE, never by message text."""

from __future__ import annotations

import psycopg

from indelible.errors import (
    BusyError,
    FormatError,
    MemoryStoreBackendError,
    MemoryStoreError,
    OutcomeUnknownError,
    UnavailableError,
)

# Another transaction held a lock or won a conflict. This one was rolled back.
_BUSY = {
    "40001",  # serialization_failure
    "40P01",  # deadlock_detected
    "55P03",  # lock_not_available: lock_timeout
    "57014",  # query_canceled: statement_timeout
}
# The server stops, starts, is full or is read-only. Whole codes or classes (two characters).
_AWAY = {
    "08",  # connection_exception
    "53",  # insufficient_resources: disk, memory, connections
    "57",  # operator_intervention: shutdown, start
    "58",  # system_error
    "25006",  # read_only_sql_transaction: this server is not the primary, or no longer
    "25P03",  # idle_in_transaction_session_timeout
    # A prepared statement is gone, has another text, or its function was replaced: a new
    # connection prepares it again.
    "26000",
    "42P05",
    "0A000",
}
# Sent by a server that shuts down, or whose transaction_timeout is over (25P04). The statement may
# have been committed just before.
_LAST_WORDS = {"57P01", "57P02", "57P04", "57P05", "25P04"}
_DAMAGED = {"XX001", "XX002"}
UNIQUE_VIOLATION = "23505"
# After these, the transaction is rolled back and the connection can be used again.
_STAYS = {"22", "23", "40", "42", "55P03", "57014"}


class TimeLimitError(Exception):
    """No answer came before the deadline. The connection was closed."""


class KeyUsedError(MemoryStoreBackendError):
    """Nothing was written: the key, or the name, is in the unique index already."""


def translate_error(
    error: psycopg.Error | TimeLimitError, *, place: str, committing: bool
) -> MemoryStoreError:
    """Build our error for one of the driver, which becomes its cause.

    `committing` says that the statement may have committed. If no answer came, its outcome is
    unknown; an answer with a code says that the transaction was rolled back.
    """
    ours = _translate(error, place, committing)
    ours.__cause__ = error
    return ours


def _translate(  # noqa: PLR0911 (a table of codes, one return for each meaning)
    error: psycopg.Error | TimeLimitError, place: str, committing: bool
) -> MemoryStoreError:
    code = getattr(error, "sqlstate", None)
    details = {"place": place, "code": code}
    if code is None or code in _LAST_WORDS:
        what = "did not answer in time" if isinstance(error, TimeLimitError) else "went away"
        if committing:
            return OutcomeUnknownError(
                f"{place} {what} after the write was sent: it may have landed. The same call with"
                " the same key lands it exactly once",
                **details,
            )
        return UnavailableError(f"{place} {what}; nothing was written", **details)
    said = _format_reason(error)
    if code == UNIQUE_VIOLATION:
        return KeyUsedError(f"{place} knows it already ({said}); nothing was written", **details)
    if code in _BUSY:
        return BusyError(
            f"other writers were in the way at {place} for too long ({said}); nothing was written,"
            " so it is safe to try again",
            **details,
        )
    if code in _AWAY or code[:2] in _AWAY:
        return UnavailableError(
            f"{place} cannot take it now ({said}); nothing was written", **details
        )
    if code in _DAMAGED:
        return FormatError(f"{place} is damaged ({said}); it was left as it is", **details)
    return MemoryStoreBackendError(f"{place} refused ({said}); nothing was written", **details)


def _format_reason(error: Exception) -> str:
    """Return the server's message without its details, which may contain stored values."""
    diag = getattr(error, "diag", None)
    return getattr(diag, "message_primary", None) or type(error).__name__


def build_unreachable_error(
    error: psycopg.Error, *, place: str, answered: bool = False
) -> UnavailableError:
    """Build the error for a connection that failed; `answered` if there is a server nevertheless.

    The driver's error object holds the password, so the cause is a copy of its text.
    """
    said = str(error).splitlines()[0] if str(error) else type(error).__name__
    ours = UnavailableError(
        f"{place} cannot be reached ({said}); nothing was written",
        place=place,
        answered=answered,
        reason=said,
    )
    ours.__cause__ = psycopg.OperationalError(str(error))
    return ours


def build_refused_error(error: psycopg.Error, *, place: str) -> MemoryStoreBackendError:
    """Build the error for a server that is up and refuses the connection."""
    said = str(error).splitlines()[0] if str(error) else type(error).__name__
    ours = MemoryStoreBackendError(
        f"{place} is there, and refuses the connection ({said}); nothing was written. Check the"
        " user, the password and the database, and how many clients it lets in",
        place=place,
    )
    ours.__cause__ = psycopg.OperationalError(str(error))
    return ours


def build_exhausted_error(count: int, *, place: str) -> BusyError:
    """Build the error for a pool whose connections all stayed in use."""
    return BusyError(
        f"all {count} connections to {place} stayed in use: the pool is exhausted; nothing was"
        " written, so it is safe to try again",
        place=place,
        connections=count,
    )


def build_none_to_spare_error(count: int, *, place: str) -> BusyError:
    """Build the error for a pool of the application that had no connection, for unknown reasons."""
    return BusyError(
        f"the given pool of at most {count} connections had none to spare: it is exhausted, or"
        f" {place} cannot be reached; nothing was written, so it is safe to try again",
        place=place,
        connections=count,
    )


def is_usable_after(error: BaseException) -> bool:
    """Return whether a connection can be used after this error and a rollback."""
    cause = error.__cause__ if isinstance(error, MemoryStoreError) else error
    if isinstance(cause, (psycopg.Error, TimeLimitError)):
        code = getattr(cause, "sqlstate", None)
        return code is not None and code not in _AWAY and bool({code, code[:2]} & _STAYS)
    # An exception of a handler comes between two statements; Ctrl-C may come in the middle of one.
    return isinstance(error, Exception)


def find_interrupt(error: BaseException) -> BaseException | None:
    """Find the Ctrl-C that an error of the driver has replaced.

    The driver cleans up when it is interrupted. If that fails, its error is raised instead.
    """
    behind: BaseException | None = error
    while behind is not None and isinstance(behind, Exception):
        # An error that was raised `from` another on purpose, such as a timeout, replaces none.
        behind = None if behind.__suppress_context__ else behind.__context__
    return behind


def build_not_replicated_error(place: str) -> OutcomeUnknownError:
    """Build the error for a commit that did not wait for the standby."""
    return OutcomeUnknownError(
        f"{place} warned at the commit: it landed there, but may not be as durable as it should."
        " The same call with the same key makes sure",
        place=place,
    )
