"""Requests to servers: what is sent, what comes back, and how often it is tried.

Everything here is a plan whose operations are `SendCommands`, `CountServers` and `Wait`; the two
drivers perform these. Nothing here does I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from redis import exceptions as theirs

from indelible.backends.redis.attempts import Attempts
from indelible.backends.redis.calls import Command, RedisContext, ScriptCall
from indelible.backends.redis.errors import (
    Next,
    build_cluster_error,
    build_refused_error,
    build_unknown_error,
    build_unreachable_error,
    choose_next,
    is_final,
)
from indelible.core.deadline import Deadline
from indelible.core.plan import Operation, Plan
from indelible.errors import MemoryStoreError
from indelible.model import Durability


@dataclass(slots=True)
class Replies:
    """What came back: replies, errors of the server among them; or how it was lost."""

    replies: list[Any]
    lost: BaseException | None = None
    # Whether anything may have reached the server before it was lost.
    sent: bool = False


@dataclass(slots=True)
class SendCommands(Operation[Replies]):
    """Send commands to a server and return their replies."""

    # The key whose server is meant, or the number of a server.
    to: str | int
    deadline: Deadline
    commands: tuple[Command, ...] = ()
    # A script call in place of commands; an append may share its command with others.
    call: ScriptCall | None = None
    by_text: bool = False
    write: bool = False
    # Whether replicas must confirm the write, on the connection that it was sent on.
    confirmed: bool = False
    # Why the attempt before this one failed: a cluster's client learns from it where the keys are.
    failed: BaseException | None = None

    @property
    def is_asking(self) -> bool:
        """Whether it follows an ASK: a slot on the move is asked for by commands of their own."""
        return isinstance(self.failed, theirs.AskError)

    def build_commands(self) -> tuple[Command, ...]:
        """The commands as they are sent if none is shared with other requests."""
        commands = self.commands
        if self.call is not None:
            commands = (self.call.build_command(by_text=self.by_text),)
        return (("ASKING",), *commands) if self.is_asking else commands


@dataclass(slots=True)
class Wait(Operation[None]):
    """Let some time pass."""

    seconds: float


@dataclass(slots=True)
class CountServers(Operation[int | BaseException]):
    """Count the servers that share the keys; or return why they are not known."""


def call_script(context: RedisContext, call: ScriptCall) -> Plan[Any]:
    """Call a script until its outcome is known, or the time is up."""
    deadline = call.deadline or Deadline(context.timeout_s)
    if call.lost is not None and not deadline.left_s():
        raise build_unknown_error(call.lost, shown=context.shown)
    attempts: Attempts | None = None
    confirmed = call.write and context.demanded is Durability.REPLICATED
    failed: BaseException | None = None
    while True:
        sent: Replies = yield SendCommands(
            call.sessions[0].head,
            deadline,
            (),
            call,
            attempts is not None and attempts.by_text,
            call.write,
            confirmed,
            failed,
        )
        before, failed = failed, sent.lost
        if failed is None and not isinstance(sent.replies[-1], Exception):
            return sent.replies[-1]
        attempts = attempts or Attempts(call, shown=context.shown)
        if failed is not None:
            problem = attempts.note_lost(failed, sent=sent.sent)
        else:
            refused: Exception = sent.replies[-1]
            refusal = attempts.note_refused(refused)
            if refusal is None:
                # The text goes where the digest went.
                failed = before
                continue
            problem, failed = refusal, refused
            _refuse_cluster(context, refused)
        yield from _pause(deadline, problem)


def ask_server(
    context: RedisContext, server: int, commands: tuple[Command, ...]
) -> Plan[list[Any]]:
    """Send commands that only read to one of the servers, and return all replies.

    A reply that is an error is returned as a value: what a server refuses to say is no failure.
    """
    deadline = Deadline(context.timeout_s)
    failed: BaseException | None = None
    if not commands:
        return []
    while True:
        sent: Replies = yield SendCommands(server, deadline, commands, failed=failed)
        failed = sent.lost
        if failed is not None:
            yield from _pause(deadline, build_unreachable_error(failed, shown=context.shown))
            continue
        first = sent.replies[0]
        if not isinstance(first, Exception) or choose_next(first) is not Next.WAIT:
            return sent.replies
        yield from _pause(deadline, build_refused_error(first, shown=context.shown))


def count_servers(context: RedisContext) -> Plan[int]:
    """Count the primaries of a cluster; a single server is one."""
    deadline = Deadline(context.timeout_s)
    while True:
        counted: int | BaseException = yield CountServers()
        if isinstance(counted, int):
            return counted
        yield from _pause(deadline, build_unreachable_error(counted, shown=context.shown))


def exchange(context: RedisContext, key: str, commands: tuple[Command, ...]) -> Plan[list[Any]]:
    """Send commands on one key that do no harm when they are sent twice; return all replies."""
    deadline = Deadline(context.timeout_s)
    failed: BaseException | None = None
    while True:
        sent: Replies = yield SendCommands(key, deadline, commands, failed=failed)
        failed = sent.lost
        if failed is not None:
            yield from _pause(deadline, build_unreachable_error(failed, shown=context.shown))
            continue
        errors = [reply for reply in sent.replies if isinstance(reply, Exception)]
        if not errors:
            return sent.replies
        failed = errors[0]
        _refuse_cluster(context, failed)
        problem = build_refused_error(failed, shown=context.shown)
        if choose_next(failed) not in (Next.WAIT, Next.MOVE):
            raise problem
        yield from _pause(deadline, problem)


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
