"""Requests: what plans yield, and what is known of one that failed. Nothing here does I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from redis import exceptions as theirs

from indelible.backends.redis.errors import (
    AUDIT_MOVED,
    Next,
    UnconfirmedError,
    build_cluster_error,
    build_refused_error,
    build_unknown_error,
    build_unreachable_error,
    choose_next,
    is_ask,
    parse_code,
)
from indelible.backends.redis.keys import SessionKeys, build_keys, parse_session
from indelible.backends.redis.options import RedisOptions, is_cluster, is_simulated
from indelible.backends.redis.scripts import LuaScript, load_script
from indelible.core.backend import Handlers
from indelible.core.clock import read_clock_ms
from indelible.core.deadline import Deadline
from indelible.core.plan import Operation
from indelible.errors import MemoryStoreBackendError, MemoryStoreError
from indelible.model import Durability

Argument = str | bytes | int
Command = tuple[Argument, ...]

# The engine frees the keys of a session this long after its deadline. The scripts decide by the
# deadline itself; if the engine came first, a session would lose its entries before its end.
EXPIRY_MARGIN_MS = 1000
# With a clock of its own a test moves days in a moment, and the engine's time does not follow.
TEST_MARGIN_MS = 24 * 3600 * 1000
# Sessions whose keys are cached.
KEYS_CACHED_MAX = 10_000


@dataclass(slots=True)
class Wait(Operation[None]):
    """Let some time pass."""

    seconds: float


@dataclass(slots=True)
class CountServers(Operation[int]):
    """Count the primaries of a cluster; a single server is one."""

    deadline: Deadline


@dataclass(slots=True)
class SendCommands(Operation[list[Any]]):
    """Send commands that change nothing when they are repeated; returns all replies.

    If the first is refused with what passes by itself, all are sent again. Another error is a reply
    like any other, since a server may refuse to answer some.
    """

    # The key whose server is meant, or the number of a server.
    to: str | int
    deadline: Deadline
    commands: tuple[Command, ...]
    # Why the attempt before failed: a cluster's client learns from it where the keys are.
    failed: BaseException | None = None

    write: ClassVar = False
    is_append: ClassVar = False
    size: ClassVar = 0

    def build_commands(self) -> tuple[Command, ...]:
        """Return the commands as they are sent."""
        return self.commands


@dataclass(slots=True)
class ScriptCall(Operation[Any]):
    """One call of a script on the keys of one session; returns its answer."""

    script: LuaScript
    keys: SessionKeys
    # The caller's time and the margin, with which the arguments of every script begin.
    time: tuple[bytes, bytes]
    arguments: list[Argument]
    deadline: Deadline
    write: bool = False
    # Whether sending it again after a lost reply does what sending it once would have done.
    repeatable: bool = True
    # Appends that wait at the same time share one call of the script.
    is_append: bool = False
    # About how many bytes it brings, if these are many.
    size: int = 0
    # Why the outcome of an earlier attempt is unknown, if it is.
    lost: BaseException | None = None
    # Whether the next attempt sends the text of the script.
    by_text: bool = False
    # Why the attempt before failed: a cluster's client learns from it where the keys are.
    failed: BaseException | None = None
    # What an audited script takes at the end of its arguments.
    stamp: tuple[Argument, ...] = ()

    @property
    def to(self) -> str:
        """Return the key whose server is meant."""
        return self.keys.head

    @property
    def session(self) -> str:
        """Return the session that it is about."""
        return parse_session(self.keys.names[0]) or ""

    def build_commands(self) -> tuple[Command, ...]:
        """Return the call as it is sent if it is not shared."""
        if self.is_append:
            command = build_append([self])
        else:
            start = self.script.start(by_text=self.by_text)
            names = (*self.keys.names, self.keys.audit)
            command = (*start, len(names), *names, *self.time, *self.arguments, *self.stamp)
        # A slot on the move is asked for by a command of its own.
        return (("ASKING",), command) if is_ask(self.failed) else (command,)


CommandRequest = SendCommands | ScriptCall
Request = CommandRequest | CountServers
# Where the arguments of an append say how its key is looked up.
_LOOKUP_AT = 3


def build_append(calls: Sequence[ScriptCall]) -> Command:
    """Build the one command for all these appends, or an audited one. It answers in this order."""
    keys: list[Argument] = []
    arguments: list[Argument] = []
    # Where the keys of each session begin, counted from 1.
    begins: dict[str, int] = {}
    by_text = False
    for call in calls:
        head = call.keys.head
        begin = begins.get(head)
        if begin is None:
            begin = begins[head] = len(keys) + 1
            keys += call.keys.names
        arguments.append(begin)
        arguments += call.arguments
        by_text = by_text or call.by_text
    first = calls[0]
    if first.stamp:
        keys.append(first.keys.audit)
        arguments += first.stamp
    return (*first.script.start(by_text=by_text), len(keys), *keys, *first.time, *arguments)


class RedisContext:
    """The options of a store, and the keys of its sessions, for all handlers."""

    def __init__(self, options: RedisOptions) -> None:
        self.namespace = options.namespace
        self.clock = options.clock
        self.demanded = options.durability
        self.shown = options.shown
        self.timeout_s = options.timeout_s
        # Whether the clients are ours, and not the application's.
        self.owned = isinstance(options.target, str)
        self.simulated = is_simulated(options.target)
        self.is_cluster = is_cluster(options.target)
        # Whether replicas are asked for what is on their disks, and not just in their memory.
        self.waits_for_disks = False
        self.cursor_key: bytes | None = None
        # A write is followed by WAIT, on the connection that it was sent on. A retry that finds its
        # work done must write, too, or WAIT would answer for nothing.
        self.confirms = options.durability is Durability.REPLICATED
        # How scripts look keys up.
        self.lookup = b"touch" if self.confirms else b"read"
        self._margin = b"%d" % (EXPIRY_MARGIN_MS if self.clock is None else TEST_MARGIN_MS)
        self._keys: dict[str, SessionKeys] = {}
        # What a line of the audit is written with, in the copy that performs an audited change, and
        # the deadline of all its requests.
        self.stamp: tuple[Argument, ...] = ()
        self.deadline: Deadline | None = None

    def copy_with(self, stamp: tuple[Argument, ...], deadline: Deadline | None = None) -> Self:
        """Return a copy whose changes are audited, with this stamp."""
        twin = copy(self)
        twin.stamp, twin.deadline = stamp, deadline
        return twin

    def start_deadline(self) -> Deadline:
        """Return the deadline of a request: its own, unless its call has one."""
        return self.deadline or Deadline(self.timeout_s)

    def time(self) -> tuple[bytes, bytes]:
        """Return the caller's time, empty for the server's own, and the margin."""
        now = b"" if self.clock is None else b"%d" % read_clock_ms(self.clock)
        return now, self._margin

    def keys(self, session: str) -> SessionKeys:
        """Return the keys of a session."""
        keys = self._keys.get(session)
        if keys is None:
            if len(self._keys) >= KEYS_CACHED_MAX:
                self._keys.clear()
            keys = self._keys[session] = build_keys(self.namespace, session)
        return keys

    def read(self, name: str, session: str, *arguments: Argument) -> ScriptCall:
        """Build a call that changes nothing."""
        return ScriptCall(
            load_script(name),
            self.keys(session),
            self.time(),
            list(arguments),
            self.start_deadline(),
        )

    def write(
        self, name: str, session: str, *arguments: Argument, repeatable: bool = True
    ) -> ScriptCall:
        """Build a call that may change something."""
        call = self.read(name, session, *arguments)
        call.write, call.repeatable = True, repeatable
        return call

    def change(
        self, name: str, session: str, *arguments: Argument, repeatable: bool = True
    ) -> ScriptCall:
        """Build a call that completes a change, which may have a line in the session's audit."""
        call = self.write(name, session, *arguments, repeatable=repeatable)
        if self.stamp:
            call.script, call.stamp = load_script(name, audited=True), self.stamp
        return call

    def send(self, to: str | int, *commands: Command) -> SendCommands:
        """Build a request of commands to the server of a key, or to a server by its number."""
        return SendCommands(to, self.start_deadline(), commands)

    def count_servers(self) -> CountServers:
        """Build a request for the number of servers."""
        return CountServers(self.start_deadline())


HANDLERS: Handlers[RedisContext] = Handlers()


class LostError(Exception):
    """The connection failed before every reply had come; `sent` if anything may have arrived."""

    def __init__(self, error: BaseException, *, sent: bool = False) -> None:
        super().__init__(error)
        self.error = error
        self.sent = sent


class AuditMovedError(MemoryStoreBackendError):
    """Another line was written first. An earlier attempt of this call may have done that."""

    def __init__(self, lost: BaseException | None) -> None:
        super().__init__("another line was written first")
        self.lost = lost


def note_lost(context: RedisContext, request: Request, lost: LostError) -> MemoryStoreError:
    """Return the error to end with if there is no time left for another attempt."""
    error = lost.error
    problem = build_unreachable_error(error, shown=context.shown)
    if isinstance(request, CountServers):
        return problem
    request.failed = error
    if isinstance(request, SendCommands):
        return problem
    request.by_text = False
    # redis-py takes it for a broken connection when a server says that it is loading its file.
    if lost.sent and request.write and not isinstance(error, theirs.BusyLoadingError):
        _mark_lost(context, request, error)
    return choose_error(context, request, problem)


def find_problem(
    context: RedisContext, request: Request, replies: list[Any]
) -> MemoryStoreError | None:
    """Look for a refusal that may pass: the error to end with if there is no time left.

    Raises what will not pass.
    """
    reply = replies[0 if isinstance(request, SendCommands) else -1]
    if not isinstance(reply, Exception):
        return None
    then = choose_next(reply)
    if isinstance(request, ScriptCall):
        return _note_refused(context, request, reply, then)
    assert isinstance(request, SendCommands)
    by_key = isinstance(request.to, str)
    if then is not Next.WAIT and not (by_key and then is Next.MOVE):
        return None
    _refuse_cluster(context, reply)
    request.failed = reply if by_key else None
    return build_refused_error(reply, shown=context.shown)


def _note_refused(
    context: RedisContext, call: ScriptCall, reply: Exception, then: Next
) -> MemoryStoreError:
    # A server that was restarted, or told to forget its scripts, is sent the text.
    call.by_text = isinstance(reply, theirs.NoScriptError) and not call.by_text
    if call.by_text:
        return build_refused_error(reply, shown=context.shown)
    call.failed = reply
    if parse_code(reply) == AUDIT_MOVED:
        raise AuditMovedError(call.lost)
    if isinstance(reply, UnconfirmedError):
        _mark_lost(context, call, reply)
        return build_unknown_error(reply, shown=context.shown)
    _refuse_cluster(context, reply)
    refused = build_refused_error(reply, shown=context.shown, session=call.session)
    problem = choose_error(context, call, refused)
    if then is Next.RAISE:
        raise problem
    return problem


def _mark_lost(context: RedisContext, call: ScriptCall, error: BaseException) -> None:
    """Note that an attempt may have landed: the guard of an append must look for its key."""
    call.lost = call.lost if isinstance(call.lost, UnconfirmedError) else error
    if call.is_append:
        call.arguments[_LOOKUP_AT] = context.lookup
    if not call.repeatable:
        raise build_unknown_error(error, shown=context.shown)


def choose_error(
    context: RedisContext, request: Request, error: MemoryStoreError
) -> MemoryStoreError:
    """Once an attempt may have landed, no later refusal says that nothing was written."""
    if not isinstance(request, ScriptCall) or request.lost is None:
        return error
    return build_unknown_error(request.lost, shown=context.shown)


def _refuse_cluster(context: RedisContext, reply: Exception) -> None:
    """Raise if a server sends us to another, but only one was named."""
    if isinstance(reply, theirs.MovedError) and not context.is_cluster:
        raise build_cluster_error(reply, shown=context.shown)


def require(context: RedisContext, reply: Any) -> Any:
    """Return a reply, or raise if it is an error."""
    if isinstance(reply, Exception):
        raise build_refused_error(reply, shown=context.shown)
    return reply


def encode_ttl_ms(ttl_s: float | None) -> bytes:
    """Encode a time to live as scripts take it."""
    return b"" if ttl_s is None else b"%d" % math.ceil(ttl_s * 1000)


def to_pairs(flat: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Split a flat list into pairs."""
    return list(zip(flat[::2], flat[1::2], strict=True))
