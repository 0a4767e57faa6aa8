"""Requests that share a round trip on one connection, and the replies of each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import hiredis
from redis.exceptions import ReadOnlyError, ResponseError

from indelible.backends.redis.calls import AppendCall, Command, RedisContext, build_append
from indelible.backends.redis.errors import UnconfirmedError, parse_code
from indelible.backends.redis.requests import Replies, SendCommands
from indelible.core.batcher import Pending

PendingRequest = Pending[SendCommands, Replies]

# Requests that share one round trip: enough to pay, few enough to be fair.
BATCH_MAX = 256
# Bytes of a batch: a server takes them into memory before it answers the first.
BATCH_BYTES_MAX = 4 * 1024 * 1024
# How many replicas must have a write before it is acknowledged at `replicated`.
REPLICAS_WAITED = 1
# A server that we wait for through WAIT must answer before we stop listening.
WAIT_SHARE = 0.8
# A connection that nobody used for this long may have been closed by the server meanwhile.
IDLE_S_MAX = 0.05


def compute_size(request: SendCommands) -> int:
    """About how many bytes are sent for a request."""
    words = () if request.call is None else request.call.arguments
    return sum([len(word) for word in words if type(word) is bytes])


class _Share(NamedTuple):
    """Which of the replies belong to whom."""

    owners: list[PendingRequest]
    replies: int
    # Whether the last reply is that of appends: a list with an answer for each owner.
    is_append: bool


class RequestBatch:
    """A batch on its way: the commands that are sent for it, and who gets which reply."""

    def __init__(self, batch: Sequence[PendingRequest], context: RedisContext) -> None:
        self.left_s = 0.0
        self.commands: list[Command] = []
        # An error of the server is a reply, too.
        self.replies: list[Any] = []
        self._shares: list[_Share] = []
        self._confirms = False
        # Appends that share a call; on a cluster the keys of a call must share a slot.
        groups: dict[int, list[PendingRequest]] = {}
        for pending in batch:
            request = pending.request
            self.left_s = max(self.left_s, request.deadline.left_s())
            self._confirms = self._confirms or request.confirmed
            call = request.call
            if isinstance(call, AppendCall) and not request.is_asking:
                slot = call.sessions[0].slot if context.is_cluster else 0
                groups.setdefault(slot, []).append(pending)
            else:
                commands = request.build_commands()
                self.commands += commands
                self._shares.append(_Share([pending], len(commands), isinstance(call, AppendCall)))
        for group in groups.values():
            self._add_group(group)
        if self._confirms:
            wait_ms = max(1, int(self.left_s * WAIT_SHARE * 1000))
            self.commands += _build_waits(wait_ms, context.waits_for_disks)

    def _add_group(self, group: list[PendingRequest]) -> None:
        """Add appends that share one command."""
        requests = [pending.request for pending in group]
        by_text = any(request.by_text for request in requests)
        calls = [request.call for request in requests]
        self.commands.append(build_append(cast(list[AppendCall], calls), by_text=by_text))
        self._shares.append(_Share(group, 1, is_append=True))

    def pack(self) -> list[bytes]:
        """The commands as they are sent."""
        return [b"".join([hiredis.pack_command(cast(Any, each)) for each in self.commands])]

    def settle(self) -> None:
        """Every reply came: give each request its own."""
        confirmed = not self._confirms or _is_confirmed(self.replies[-1])
        at = 0
        for share in self._shares:
            replies = self.replies[at : at + share.replies]
            at += share.replies
            for pending, own in zip(share.owners, _split(share, replies), strict=True):
                if not confirmed and pending.request.confirmed and _wrote(own[-1]):
                    own[-1] = UnconfirmedError("too few replicas answered in time")
                pending.succeed(Replies(own))

    def lose(self, error: BaseException, *, sent: bool) -> None:
        """The connection broke; requests whose replies came all the same have them."""
        at = 0
        for share in self._shares:
            replies = self.replies[at : at + share.replies]
            at += share.replies
            every = _split(share, replies) if len(replies) == share.replies else None
            for number, pending in enumerate(share.owners):
                # A write that is to be confirmed is not done with its reply.
                if every is None or (pending.request.confirmed and _wrote(every[number][-1])):
                    pending.succeed(Replies([], error, sent))
                else:
                    pending.succeed(Replies(every[number]))

    def met_replica(self) -> bool:
        """Whether the server takes no writes: then another is the primary, and we must look."""
        return any(map(_is_read_only, self.replies))


def _split(share: _Share, replies: list[Any]) -> list[list[Any]]:
    """The replies of each owner. What was refused to one append of several is behind a minus."""
    if not share.is_append:
        return [replies]
    reply = replies[-1]
    if type(reply) is not list:
        return [[reply] for _ in share.owners]
    return [
        [ResponseError(answer[1:].decode("utf-8", "replace"))]
        if type(answer) is bytes and answer.startswith(b"-")
        else [answer]
        for answer in reply
    ]


def _wrote(reply: Any) -> bool:
    """Whether something may have been written: not by an append whose guard did not hold."""
    return reply != 0 and not isinstance(reply, Exception)


def _build_waits(wait_ms: int, disks: bool) -> list[Command]:
    """Build what asks replicas whether they have what was written on this connection.

    WAIT comes before WAITAOF though the second says all: a replica that syncs answers the first
    when it has synced, and only then knows what to answer to the second. Without the first, its
    answer would come with its next report, once a second.
    """
    if not disks:
        return [("WAIT", REPLICAS_WAITED, wait_ms)]
    half_ms = max(1, wait_ms // 2)
    return [("WAIT", REPLICAS_WAITED, half_ms), ("WAITAOF", 1, REPLICAS_WAITED, half_ms)]


def _is_confirmed(reply: Any) -> bool:
    """Whether enough replicas said that they have it; WAITAOF also says how many disks here."""
    if isinstance(reply, (list, tuple)):
        return len(reply) == 2 and reply[0] >= 1 and reply[1] >= REPLICAS_WAITED
    return isinstance(reply, int) and reply >= REPLICAS_WAITED


def _is_read_only(reply: Any) -> bool:
    """Whether a reply, or an answer in it, says that its server is no primary any more."""
    if isinstance(reply, list):
        return any(type(each) is bytes and each.startswith(b"-READONLY") for each in reply)
    return isinstance(reply, ResponseError) and (
        isinstance(reply, ReadOnlyError) or parse_code(reply) == "READONLY"
    )


class ConnectionSlot:
    """A connection that is kept for one batch after the other."""

    __slots__ = ("box", "busy", "timeout_s", "used_at")

    def __init__(self) -> None:
        # The connection, if there is one.
        self.box: list[Any] = []
        # Whether a batch is under way. Where it still says so when nobody has the slot, that batch
        # was interrupted: its replies are on the way, and the connection is not used again.
        self.busy = False
        self.used_at = 0.0
        # How long its socket waits; None if nobody set that yet.
        self.timeout_s: float | None = None

    @property
    def connection(self) -> Any:
        """The connection; None if it has none."""
        return self.box[0] if self.box else None

    def clear(self) -> Any:
        """Give away the connection, if there is one."""
        connection = self.connection
        self.box = []
        self.busy = False
        self.timeout_s = None
        return connection

    def waits_about(self, left_s: float) -> bool:
        """Whether its socket waits about this long already, so that it need not be told."""
        timeout_s = self.timeout_s
        return timeout_s is not None and 0.95 * timeout_s < left_s < 1.05 * timeout_s

    @property
    def is_stale(self) -> bool:
        """Whether the connection was idle for so long that it should be checked first."""
        return time.monotonic() - self.used_at > IDLE_S_MAX
