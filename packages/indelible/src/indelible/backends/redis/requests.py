"""Requests to servers: how often they are tried, and what is known of a lost one.

Everything here is a plan whose operations are requests (see `calls`), `CountServers` and `Wait`;
the two drivers perform these. Nothing here does I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from redis import exceptions as theirs

from indelible.backends.redis.calls import (
    Command,
    Lost,
    RedisContext,
    Replies,
    ScriptCall,
    SendCommands,
)
from indelible.backends.redis.errors import (
    AUDIT_MOVED,
    Next,
    UnconfirmedError,
    build_cluster_error,
    build_refused_error,
    build_unknown_error,
    build_unreachable_error,
    choose_next,
    find_reason,
    is_final,
    parse_code,
)
from indelible.core.backend import UnreachedError
from indelible.core.deadline import Deadline
from indelible.core.limits import FIRST_CONTACT_S
from indelible.core.plan import Operation, Plan
from indelible.errors import BusyError, MemoryStoreError, UnavailableError


class AuditMovedError(Exception):
    """Another line was written first. An earlier attempt of this call may have done that."""

    def __init__(self, lost: BaseException | None) -> None:
        super().__init__()
        self.lost = lost


@dataclass(slots=True)
class Wait(Operation[None]):
    """Let some time pass."""

    seconds: float


@dataclass(slots=True)
class CountServers(Operation[int | BaseException]):
    """Count the servers that share the keys; or return why they are not known."""


def call_script(context: RedisContext, call: ScriptCall) -> Plan[Any]:
    """Call a script until its outcome is known, or the time is up."""
    if call.lost is not None and not call.deadline.left_s():
        raise build_unknown_error(call.lost, shown=context.shown)
    while True:
        replies: Replies = yield call
        if type(replies) is list and not isinstance(replies[-1], Exception):
            return replies[-1]
        if isinstance(replies, Lost):
            problem = _note_lost(context, call, replies)
        else:
            reply = replies[-1]
            if choose_next(reply) is Next.SEND_TEXT and not call.by_text:
                # The text goes where the digest went.
                call.by_text = True
                continue
            problem = _note_refused(context, call, reply)
        call.by_text = False
        yield from _pause(call.deadline, problem)


def _note_lost(context: RedisContext, call: ScriptCall, lost: Lost) -> MemoryStoreError:
    """Return the error to end with if there is no time left for another attempt."""
    call.failed = error = lost.error
    # redis-py takes it for a broken connection when a server says that it is loading its file.
    if lost.sent and call.write and not isinstance(error, theirs.BusyLoadingError):
        _mark_lost(context, call, error)
    return _choose_error(context, call, build_unreachable_error(error, shown=context.shown))


def _note_refused(context: RedisContext, call: ScriptCall, reply: Exception) -> MemoryStoreError:
    """Raise what will not pass; else return the error to end with if there is no time left."""
    call.failed = reply
    if parse_code(reply) == AUDIT_MOVED:
        raise AuditMovedError(call.lost)
    if isinstance(reply, UnconfirmedError):
        _mark_lost(context, call, reply)
        return build_unknown_error(reply, shown=context.shown)
    _refuse_cluster(context, reply)
    refused = build_refused_error(reply, shown=context.shown, session=call.session)
    problem = _choose_error(context, call, refused)
    if choose_next(reply) is Next.RAISE:
        raise problem
    return problem


def _mark_lost(context: RedisContext, call: ScriptCall, error: BaseException) -> None:
    call.mark_lost(call.lost if isinstance(call.lost, UnconfirmedError) else error)
    if not call.repeatable:
        raise build_unknown_error(error, shown=context.shown)


def _choose_error(
    context: RedisContext, call: ScriptCall, error: MemoryStoreError
) -> MemoryStoreError:
    """Once an attempt may have landed, no later refusal says that nothing was written."""
    return error if call.lost is None else build_unknown_error(call.lost, shown=context.shown)


def reach_server(context: RedisContext) -> Plan[None]:
    """Make the first contact. What refuses to talk is tried for a short time only.

    A cluster is reached if one of its servers says where the keys are. A server that reads its file
    is reached, too.
    """
    deadline = Deadline(context.timeout_s)
    tried = Deadline(min(context.timeout_s, FIRST_CONTACT_S))
    while True:
        if context.is_cluster:
            counted: int | BaseException = yield CountServers()
            error = counted if isinstance(counted, BaseException) else None
        else:
            replies: Replies = yield SendCommands(0, deadline, (("PING",),))
            error = replies.error if isinstance(replies, Lost) else None
        if error is None or isinstance(error, theirs.BusyLoadingError):
            return
        problem = build_unreachable_error(error, shown=context.shown)
        if isinstance(problem, BusyError):
            # Every connection of the client is in use, so there is a server.
            return
        if not isinstance(problem, UnavailableError):
            raise problem
        wait_s = tried.next_wait_s()
        if wait_s is None:
            raise UnreachedError(find_reason(error)) from error
        yield Wait(wait_s)


def send_commands(
    context: RedisContext, to: str | int, commands: tuple[Command, ...]
) -> Plan[list[Any]]:
    """Send commands that do no harm when they are sent twice, and return all replies.

    They go to the server of a key, or to one of the servers by its number. If the first is refused
    with what passes by itself, all are sent again. Another error is returned as a value, since a
    server may refuse to answer some.
    """
    request = SendCommands(to, context.start_deadline(), commands)
    passing = (Next.WAIT, Next.MOVE, Next.ASK) if isinstance(to, str) else (Next.WAIT,)
    while True:
        replies: Replies = yield request
        if isinstance(replies, Lost):
            request.failed = replies.error
            problem = build_unreachable_error(replies.error, shown=context.shown)
        else:
            first = replies[0]
            if not isinstance(first, Exception) or choose_next(first) not in passing:
                return replies
            _refuse_cluster(context, first)
            request.failed = first if isinstance(to, str) else None
            problem = build_refused_error(first, shown=context.shown)
        yield from _pause(request.deadline, problem)


def require(context: RedisContext, reply: Any) -> Any:
    """Return a reply, or raise if it is an error."""
    if isinstance(reply, Exception):
        raise build_refused_error(reply, shown=context.shown)
    return reply


def count_servers(context: RedisContext) -> Plan[int]:
    """Count the primaries of a cluster; a single server is one."""
    deadline = Deadline(context.timeout_s)
    while True:
        counted: int | BaseException = yield CountServers()
        if isinstance(counted, int):
            return counted
        yield from _pause(deadline, build_unreachable_error(counted, shown=context.shown))


def _pause(deadline: Deadline, error: MemoryStoreError) -> Plan[None]:
    """Wait before the next attempt, or give up with this error."""
    wait_s = deadline.next_wait_s()
    if wait_s is None or (error.__cause__ is not None and is_final(error.__cause__)):
        raise error
    yield Wait(wait_s)


def _refuse_cluster(context: RedisContext, reply: Exception) -> None:
    """Raise if a server sends us to another, but only one was named."""
    if isinstance(reply, theirs.MovedError) and not context.is_cluster:
        raise build_cluster_error(reply, shown=context.shown)
