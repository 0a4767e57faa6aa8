"""Translates redis-py's errors: by class and code, never by message text."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import NamedTuple

from redis import exceptions as theirs

from indelible.errors import (
    BusyError,
    ClosedError,
    FormatError,
    MemoryStoreBackendError,
    MemoryStoreError,
    OutcomeUnknownError,
    UnavailableError,
    UnsupportedError,
)


class Next(Enum):
    """What to do about an attempt that failed."""

    RAISE = auto()
    # It will pass: try again a little later.
    WAIT = auto()
    # Another server has the keys, or will have them soon.
    MOVE = auto()
    # The server does not know the script: send its text.
    SEND_TEXT = auto()


class LostError(Exception):
    """The connection failed before every reply had come; `sent` if anything may have arrived."""

    def __init__(self, error: BaseException, *, sent: bool = False) -> None:
        super().__init__(error)
        self.error = error
        self.sent = sent


class UnconfirmedError(Exception):
    """Too few replicas confirmed a write in time."""


class PartlyWrittenError(Exception):
    """An earlier call of the same operation has written a part of it."""


class Failure(NamedTuple):
    """What is known of an attempt that failed."""

    # The error to end with, unless an earlier attempt may have landed.
    problem: MemoryStoreError
    cause: BaseException
    then: Next
    # Whether it may have been performed all the same.
    landed: bool = False


_BY_CLASS: dict[type[Exception], Next] = {
    # MovedError descends from it. It is not followed: the other server would refuse a call on
    # several keys until all of them have arrived.
    theirs.AskError: Next.MOVE,
    theirs.TryAgainError: Next.WAIT,
    theirs.ClusterDownError: Next.WAIT,
    theirs.MasterDownError: Next.WAIT,
    theirs.BusyLoadingError: Next.WAIT,
    # A primary that became a replica. The new primary is found within the deadline.
    theirs.ReadOnlyError: Next.WAIT,
    # It was restarted, or told to forget its scripts.
    theirs.NoScriptError: Next.SEND_TEXT,
}
# The first word of an error is its code. These have no class, or lose it inside a script.
_BY_CODE = dict.fromkeys(("BUSY", "UNBLOCKED", "NOREPLICAS", "READONLY", "MASTERDOWN"), Next.WAIT)
# Redis 6.2 puts the place in the script before the code.
_CODE = re.compile(r"(?:@user_script: ?\d+: ?)?-?([A-Z]+)\b")
# Trying again cannot help.
_DENIED = (theirs.AuthenticationError, theirs.NoPermissionError)


def parse_code(error: Exception) -> str:
    """Return the code at the beginning of an error's text."""
    found = _CODE.match(str(error))
    return found[1] if found else ""


def classify_failure(error: Exception, *, shown: str, session: str | None) -> Failure:
    """Say what follows from the error of an attempt."""
    if isinstance(error, LostError):
        cause = error.error
        then = Next.RAISE if isinstance(cause, _DENIED) else Next.WAIT
        return Failure(build_unreachable_error(cause, shown=shown), cause, then, error.sent)
    if isinstance(error, UnconfirmedError):
        return Failure(build_unknown_error(error, shown=shown), error, Next.WAIT, landed=True)
    if isinstance(error, ClosedError):
        return Failure(error, error, Next.RAISE)
    refused = build_refused_error(error, shown=shown, session=session)
    return Failure(refused, error, choose_next(error))


def choose_next(error: Exception) -> Next:
    """Choose what to do about a refusal. Nothing was written."""
    for kind, then in _BY_CLASS.items():
        if isinstance(error, kind):
            return then
    return _BY_CODE.get(parse_code(error), Next.RAISE)


# The code with which scripts refuse a damaged session.
DAMAGED = "DAMAGED"
# The code with which audited scripts refuse a line that does not follow the newest one.
AUDIT_MOVED = "AUDIT"


def build_damaged_error(session: str, what: str) -> FormatError:
    """Build the error for a damaged session."""
    return FormatError(
        f"session {session!r} is damaged: {what}; nothing was changed. The server dropped keys"
        " (doctor says whether it may), another program changed them, or a copy was restored in"
        " part. Restore the server's data, or forget the session and import an export of it",
        session=session,
    )


def build_refused_error(
    error: Exception, *, shown: str, session: str | None = None
) -> MemoryStoreError:
    """Build the error for a refusal that will not pass, or did not pass in time."""
    if session is not None and parse_code(error) == DAMAGED:
        return build_damaged_error(session, str(error).partition(f"{DAMAGED} ")[2])
    ours = _build_refused(error, shown)
    ours.__cause__ = error
    return ours


def _build_refused(error: Exception, shown: str) -> MemoryStoreError:
    code = parse_code(error)
    if isinstance(error, theirs.OutOfMemoryError) or code == "OOM":
        return UnavailableError(
            f"the memory of {shown} is full (maxmemory); nothing was written. Give it more, or"
            " vacuum",
            code="OOM",
        )
    if isinstance(error, _DENIED):
        return MemoryStoreBackendError(
            f"{shown} refused the user or the password, or what the user may do; nothing was"
            " written",
            code=code or type(error).__name__,
        )
    if code == "WRONGTYPE":
        return FormatError(f"a key of ours on {shown} holds something else; it was left as it is")
    if choose_next(error) is not Next.RAISE or code in ("MISCONF", "NOREPLICAS"):
        return UnavailableError(
            f"{shown} takes no writes now ({code or type(error).__name__}); nothing was written",
            code=code or type(error).__name__,
        )
    return MemoryStoreBackendError(
        f"{shown} refused ({code or type(error).__name__}); nothing was written", code=code
    )


def build_cluster_error(error: Exception, *, shown: str) -> UnsupportedError:
    """Build the error for a server of a cluster that was opened alone."""
    ours = UnsupportedError(
        f"{shown} is a server of a cluster; nothing was written. Open it with"
        " redis+cluster://host:port, or hand in a RedisCluster"
    )
    ours.__cause__ = error
    return ours


def build_no_cluster_error(error: BaseException, *, shown: str) -> UnsupportedError:
    """Build the error for a single server that was opened as a cluster."""
    ours = UnsupportedError(
        f"{shown} is no cluster; nothing was written. Open it with redis://host:port, or hand in a"
        " Redis client"
    )
    ours.__cause__ = error
    return ours


def build_unreachable_error(error: BaseException, *, shown: str) -> MemoryStoreError:
    """Build the error for a call that never reached the server."""
    ours: MemoryStoreError
    if isinstance(error, _DENIED):
        ours = _build_refused(error, shown)
    elif isinstance(error, (theirs.MaxConnectionsError, BusyError)):
        ours = BusyError(
            f"every connection to {shown} was in use for as long as the call may take: the pool is"
            " exhausted. Nothing was written, so it is safe to try again"
        )
    else:
        ours = UnavailableError(
            f"{shown} could not be reached in time ({type(error).__name__}); nothing was written,"
            " so it is safe to try again"
        )
    ours.__cause__ = error
    return ours


def find_reason(error: BaseException) -> str:
    """Return why a server was not reached: the class, since a text may contain secrets."""
    if isinstance(error, (theirs.TimeoutError, TimeoutError)):
        return "no answer in time"
    return type(error.__cause__ or error).__name__


def build_unknown_error(error: BaseException, *, shown: str) -> OutcomeUnknownError:
    """Build the error for a write that was sent, but not answered or not confirmed.

    `exhausted` says that it was tried until the deadline: trying again at once would take longer
    than the caller allowed.
    """
    what = f"{shown} did not answer in time: the write may have landed."
    then = "The same call with the same key lands it exactly once"
    if isinstance(error, UnconfirmedError):
        what = f"too few replicas of {shown} confirmed the write in time: it may have landed."
    elif isinstance(error, PartlyWrittenError):
        what, then = f"{shown} took a part of the write only.", "The same call completes it"
    ours = OutcomeUnknownError(f"{what} {then}", exhausted=True)
    ours.__cause__ = error
    return ours
