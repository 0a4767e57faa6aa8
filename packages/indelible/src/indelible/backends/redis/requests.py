"""Requests, which plans yield, and what to do when one fails. Nothing here does I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from redis import exceptions as theirs

from indelible.backends.redis.errors import (
    AUDIT_MOVED,
    Failure,
    Next,
    UnconfirmedError,
    build_cluster_error,
    build_refused_error,
    build_unknown_error,
    classify_failure,
    parse_code,
)
from indelible.backends.redis.keys import SessionKeys, build_keys
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

# The server frees the keys of a session this long after its deadline. Scripts compare the deadline
# itself; if the server came first, a session would lose its entries before it has expired.
EXPIRY_MARGIN_MS = 1000
# A test with its own clock passes days in a moment, but not for the server.
TEST_MARGIN_MS = 24 * 3600 * 1000
# How many sessions have their keys cached.
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
    """Send commands that may be repeated; returns all replies.

    If the first is refused with an error that will pass, all are sent again. Other errors are
    returned as replies, since a server may refuse some of them.
    """

    # A key of the server, or the number of the server.
    to: str | int
    deadline: Deadline
    commands: tuple[Command, ...]
    # Why the attempt before failed: a cluster's client learns from it where the keys are.
    failed: BaseException | None = None
    # The map of slots that it used.
    slots: Any = None

    write: ClassVar = False
    is_append: ClassVar = False
    size: ClassVar = 0

    def build_commands(self) -> tuple[Command, ...]:
        """Return the commands to send."""
        return self.commands


@dataclass(slots=True)
class ScriptCall(Operation[Any]):
    """One call of a script on the keys of one session; returns its answer."""

    script: LuaScript
    keys: SessionKeys
    # The caller's time and the margin: the first arguments of every script.
    time: tuple[bytes, bytes]
    arguments: list[Argument]
    deadline: Deadline
    write: bool = False
    # Whether it may be sent again after a lost reply, with the same effect.
    repeatable: bool = True
    # Appends that wait at the same time share one call of the script.
    is_append: bool = False
    # About how many bytes it sends, if these are many.
    size: int = 0
    # Why the outcome of an earlier attempt is unknown, if it is.
    lost: BaseException | None = None
    # Whether the next attempt sends the text of the script.
    by_text: bool = False
    # Why the attempt before failed: a cluster's client learns from it where the keys are.
    failed: BaseException | None = None
    # The map of slots that it used.
    slots: Any = None
    # The last arguments of an audited script.
    stamp: tuple[Argument, ...] = ()

    @property
    def to(self) -> str:
        """Return a key of the server that has the session."""
        return self.keys.head

    def build_commands(self) -> tuple[Command, ...]:
        """Return the commands to send if the call is not shared with other appends."""
        if self.is_append:
            return (build_append([self]),)
        start = self.script.start(by_text=self.by_text)
        names = (*self.keys.names, self.keys.audit)
        return ((*start, len(names), *names, *self.time, *self.arguments, *self.stamp),)


CommandRequest = SendCommands | ScriptCall
Request = CommandRequest | CountServers
# The argument of an append that says how its key is looked up.
_LOOKUP_AT = 3


def build_append(calls: Sequence[ScriptCall]) -> Command:
    """Build one command for several appends, or for one audited one. It answers in their order."""
    keys: list[Argument] = []
    arguments: list[Argument] = []
    # The index of each session's first key, counted from 1.
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
        # Whether replicas must confirm that writes are on their disks, and not just in memory.
        self.waits_for_disks = False
        self.cursor_key: bytes | None = None
        # Whether writes are followed by WAIT, on the same connection. A retry that finds the first
        # attempt must write, too, since WAIT concerns what its connection has written.
        self.confirms = options.durability is Durability.REPLICATED
        # How scripts look keys up.
        self.lookup = b"touch" if self.confirms else b"read"
        self._margin = b"%d" % (EXPIRY_MARGIN_MS if self.clock is None else TEST_MARGIN_MS)
        self._keys: dict[str, SessionKeys] = {}
        # In the copy for an audited change: the last arguments of its script, and the deadline of
        # all its requests.
        self.stamp: tuple[Argument, ...] = ()
        self.deadline: Deadline | None = None

    def copy_with(self, stamp: tuple[Argument, ...], deadline: Deadline | None = None) -> Self:
        """Return a copy whose changes are audited with this stamp."""
        twin = copy(self)
        twin.stamp, twin.deadline = stamp, deadline
        return twin

    def start_deadline(self) -> Deadline:
        """Return the deadline of a request: a new one, unless all requests of a call share one."""
        return self.deadline or Deadline(self.timeout_s)

    def time(self) -> tuple[bytes, bytes]:
        """Return the caller's time, empty for the server's time, and the margin."""
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
        """Build a call that completes a change, and adds its line to the audit if there is one."""
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


class AuditMovedError(MemoryStoreBackendError):
    """Another line was written first. An earlier attempt of this call may have done that."""

    def __init__(self, lost: BaseException | None) -> None:
        super().__init__("another line was written first")
        self.lost = lost


def find_problem(
    context: RedisContext, request: Request, replies: list[Any]
) -> MemoryStoreError | None:
    """Return the error to end with if there is no time for another attempt; None if it is done.

    The error of an attempt without replies stands in their place. What another attempt would not
    change is raised. The request learns what its next attempt has to do differently.
    """
    error = replies[0 if isinstance(request, SendCommands) else -1]
    if not isinstance(error, Exception):
        return None
    call = request if isinstance(request, ScriptCall) else None
    session = call.keys.session if call is not None else None
    failure = classify_failure(error, shown=context.shown, session=session)
    problem, then = failure.problem, failure.then
    if isinstance(request, SendCommands) and isinstance(error, theirs.ResponseError):
        can_move = then is Next.MOVE and isinstance(request.to, str)
        if then is not Next.WAIT and not can_move:
            # A reply like any other.
            return None
    if isinstance(error, theirs.MovedError) and not context.is_cluster:
        raise build_cluster_error(error, shown=context.shown)
    if call is not None:
        call.by_text = then is Next.SEND_TEXT and not call.by_text
        if call.by_text:
            return problem
        if parse_code(error) == AUDIT_MOVED:
            raise AuditMovedError(call.lost)
        problem = _note_failure(context, call, failure)
    if then is Next.RAISE:
        raise problem
    if not isinstance(request, CountServers):
        request.failed = failure.cause
    return problem


def _note_failure(context: RedisContext, call: ScriptCall, failure: Failure) -> MemoryStoreError:
    """Note whether an attempt may have landed; return the error to end with."""
    if failure.landed and call.write:
        if not isinstance(call.lost, UnconfirmedError):
            call.lost = failure.cause
        if call.is_append:
            # The guard must look for the key.
            call.arguments[_LOOKUP_AT] = context.lookup
        if not call.repeatable:
            raise build_unknown_error(failure.cause, shown=context.shown)
    if call.lost is None:
        return failure.problem
    # Once an attempt may have landed, no later refusal says that nothing was written.
    return build_unknown_error(call.lost, shown=context.shown)


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
