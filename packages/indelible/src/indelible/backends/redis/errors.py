"""The only place where redis-py's errors become ours: by class and code, never by message text."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import TypeGuard

from redis import exceptions as theirs

from indelible.errors import (
    BusyError,
    FormatError,
    MemoryStoreBackendError,
    MemoryStoreError,
    OutcomeUnknownError,
    UnavailableError,
    UnsupportedError,
)


class Next(Enum):
    """The reaction to a server's refusal."""

    RAISE = auto()
    # It will pass: ask again a little later.
    WAIT = auto()
    # Another server has the keys, for good or for this request.
    MOVE = auto()


class UnconfirmedError(Exception):
    """Too few replicas confirmed a write in time."""


_BY_CLASS: dict[type[Exception], Next] = {
    # MovedError descends from it.
    theirs.AskError: Next.MOVE,
    theirs.TryAgainError: Next.WAIT,
    theirs.ClusterDownError: Next.WAIT,
    theirs.MasterDownError: Next.WAIT,
    theirs.BusyLoadingError: Next.WAIT,
    # A primary that became a replica: its clients learn of the new one within the deadline.
    theirs.ReadOnlyError: Next.WAIT,
}
# The first word of an error is its code. These have no class, or lose it inside of a script.
_BY_CODE = dict.fromkeys(("BUSY", "UNBLOCKED", "NOREPLICAS", "READONLY", "MASTERDOWN"), Next.WAIT)
# Redis 6.2 puts the place in the script before the code.
_CODE = re.compile(r"(?:@user_script: ?\d+: ?)?-?([A-Z]+)\b")


def parse_code(error: Exception) -> str:
    """Return the code that a server put before its text."""
    found = _CODE.match(str(error))
    return found[1] if found else ""


def choose_next(error: Exception) -> Next:
    """Choose what to do about a refusal; none of them has written anything."""
    for kind, then in _BY_CLASS.items():
        if isinstance(error, kind):
            return then
    return _BY_CODE.get(parse_code(error), Next.RAISE)


def is_ask(error: BaseException | None) -> TypeGuard[theirs.AskError]:
    """Whether a server sent one request to another while a slot moves between them.

    The class of MOVED, which is for good, descends from the class of ASK.
    """
    return isinstance(error, theirs.AskError) and not isinstance(error, theirs.MovedError)


# The code that scripts refuse a damaged session with.
DAMAGED = "DAMAGED"
# The code that audited scripts refuse a line with that does not follow the newest one.
AUDIT_MOVED = "AUDIT"


def build_damaged_error(session: str, what: str) -> FormatError:
    """Build the error for a session that is not as it was written."""
    return FormatError(
        f"session {session!r} is damaged: {what}; nothing was changed. The server dropped keys"
        " (doctor says whether it may), another program changed them, or a copy was restored in"
        " part. Restore the server's data, or forget the session and import an export of it",
        session=session,
    )


def build_refused_error(
    error: Exception, *, shown: str, session: str | None = None
) -> MemoryStoreError:
    """Build the error for a refusal that will not pass by itself, or did not in time."""
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
    if isinstance(error, (theirs.AuthenticationError, theirs.NoPermissionError)):
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
    if isinstance(error, (theirs.AuthenticationError, theirs.NoPermissionError)):
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
    """Return why a server was not reached: by class, since texts may hold more than we know."""
    if isinstance(error, (theirs.TimeoutError, TimeoutError)):
        return "no answer in time"
    return type(error.__cause__ or error).__name__


def build_unknown_error(error: BaseException, *, shown: str) -> OutcomeUnknownError:
    """Build the error for a write that was sent and not answered, or not confirmed.

    `exhausted` says that it was tried until the deadline: to ask again at once would be to wait
    twice as long as the caller allowed.
    """
    if isinstance(error, UnconfirmedError):
        what = f"too few replicas of {shown} confirmed the write in time: it may have landed."
    else:
        what = f"{shown} did not answer in time: the write may have landed."
    ours = OutcomeUnknownError(
        f"{what} The same call with the same key lands it exactly once", exhausted=True
    )
    ours.__cause__ = error
    return ours


def is_final(error: BaseException | None) -> bool:
    """Whether trying again cannot help."""
    return isinstance(error, (theirs.AuthenticationError, theirs.NoPermissionError))
