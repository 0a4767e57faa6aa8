"""Parcels: commands on their way to one server, and what became of them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from redis.exceptions import ReadOnlyError, ResponseError

from indelible.backends.redis.errors import UnconfirmedError, WaitedError, code_of
from indelible.backends.redis.protocol import packed
from indelible.backends.redis.router import REPLICAS_WAITED, WAIT_SHARE, Replies, SendCommands
from indelible.backends.redis.shortcut import alone, together
from indelible.core.leases import Lease, Queued, fill

# Calls that share one round trip: long enough to pay, short enough to be fair.
GROUP_MAX = 256
# Bytes of a group: a server takes them into memory before it answers the first.
GROUP_BYTES_MAX = 4 * 1024 * 1024
# A connection that nobody used for this long may have been closed by the server meanwhile.
IDLE_S_MAX = 0.05


class PendingRequest(Queued):
    """Commands that wait for a connection, and what became of them."""

    __slots__ = ("carried", "carry", "settle")

    def __init__(self, carry: SendCommands, settle: Any = None) -> None:
        super().__init__()
        self.carry = carry
        self.carried: Replies | None = None
        # Which task to tell, if one waits.
        self.settle = settle

    def outcome(self) -> Replies:
        """What became of it; if whoever carried it was interrupted, it may have been sent."""
        if self.carried is None:
            return Replies([], WaitedError("the one who sent it was interrupted"), sent=True)
        return self.carried


def confirming(wait_ms: int, *, disks: bool) -> list[bytes]:
    """What asks replicas whether they have what was written on this connection.

    WAIT comes before WAITAOF though the second says all: a replica that syncs answers the first
    when it has synced, and only then knows what to answer to the second. Without the first, its
    answer would come with its next report, once a second.
    """
    if not disks:
        return [packed("WAIT", REPLICAS_WAITED, wait_ms)]
    half_ms = max(1, wait_ms // 2)
    return [
        packed("WAIT", REPLICAS_WAITED, half_ms),
        packed("WAITAOF", 1, REPLICAS_WAITED, half_ms),
    ]


def longest_s(group: Sequence[PendingRequest]) -> float:
    """How long somebody of the group can wait."""
    return max(parcel.carry.patience.left_s() for parcel in group)


def take(group: list[PendingRequest], waiting: deque[PendingRequest], lease: Lease) -> None:
    """The next group: what may go together, in the order in which it came."""
    fill(
        group,
        waiting,
        lease,
        size_of=lambda parcel: size_of(parcel.carry),
        jobs_max=GROUP_MAX,
        bytes_max=GROUP_BYTES_MAX,
    )


def size_of(carry: SendCommands) -> int:
    """About how many bytes are sent for it."""
    return len(carry.part.entry) if carry.part else sum(map(len, carry.commands))


class RequestBatch:
    """A group on its way: what is sent for it, and replies given to whom they belong to."""

    def __init__(self, group: Sequence[PendingRequest]) -> None:
        self._group = group
        self._replies: list[Any] = []
        self._confirms = any(parcel.carry.confirmed for parcel in group)
        # Those who share one command, in the order of its answers. It is sent last.
        self._together: list[PendingRequest] = []

    def commands(self, *, disks: bool) -> list[bytes]:
        """All commands of the group, and what has replicas confirm them."""
        parts = [parcel for parcel in self._group if parcel.carry.part is not None]
        shared: list[bytes] = []
        if len(parts) == 1:
            carry = parts[0].carry
            assert carry.part is not None
            carry.commands = (alone(carry.part),)
        elif parts:
            command, order = together([each.carry.part for each in parts if each.carry.part])
            self._together = [parts[number] for number in order]
            shared = [command]
        commands = [command for parcel in self._group for command in parcel.carry.commands]
        commands += shared
        if self._confirms:
            wait_ms = max(1, int(longest_s(self._group) * WAIT_SHARE * 1000))
            commands += confirming(wait_ms, disks=disks)
        return commands

    def take(self, reply: Any) -> None:
        """Keep one reply; an error of the server is one, too."""
        self._replies.append(reply)

    def settle(self) -> None:
        """Every reply came."""
        confirmed = not self._confirms or is_confirmed(self._replies[-1])
        at = 0
        for parcel in self._group:
            count = len(parcel.carry.commands)
            if not count:
                continue
            replies = self._replies[at : at + count]
            at += count
            last = replies[-1]
            if parcel.carry.confirmed and not confirmed and not isinstance(last, Exception):
                replies[-1] = UnconfirmedError("too few replicas answered in time")
            parcel.carried = Replies(replies)
        if self._together:
            reply = self._replies[at]
            answers = reply if isinstance(reply, list) else [reply] * len(self._together)
            for parcel, answer in zip(self._together, answers, strict=True):
                parcel.carried = Replies([answer])

    def met_a_replica(self) -> bool:
        """Whether the server takes no writes: then another is the primary, and we must look."""
        return any(is_read_only(reply) for reply in self._replies)

    def lose(self, error: BaseException, *, sent: bool) -> None:
        """The connection broke; those whose replies came all the same have them."""
        at = 0
        for parcel in self._group:
            count = len(parcel.carry.commands)
            replies = self._replies[at : at + count]
            at += count
            # A write that is to be confirmed is not done with its reply.
            if not count:
                parcel.carried = Replies([], error, sent)
            elif len(replies) == count and not parcel.carry.confirmed:
                parcel.carried = Replies(replies)
            else:
                refused = len(replies) == count and isinstance(replies[-1], ResponseError)
                parcel.carried = Replies(replies) if refused else Replies([], error, sent)


def is_read_only(reply: Any) -> bool:
    """Whether a reply says that its server is no primary any more."""
    return isinstance(reply, ResponseError) and (
        isinstance(reply, ReadOnlyError) or code_of(reply) == "READONLY"
    )


def is_confirmed(reply: Any) -> bool:
    """Whether enough replicas said that they have it; WAITAOF also says how many disks here."""
    if isinstance(reply, (list, tuple)):
        return len(reply) == 2 and reply[0] >= 1 and reply[1] >= REPLICAS_WAITED
    return isinstance(reply, int) and reply >= REPLICAS_WAITED


class ConnectionSlot:
    """A connection that is kept for one group after the other."""

    __slots__ = ("box", "busy", "timeout_s", "used_at")

    def __init__(self) -> None:
        # The connection, if there is one.
        self.box: list[Any] = []
        # Whether a call is under way. Where it still says so when nobody has the lane, that call
        # was interrupted: its replies are on the way, and the connection is not used again.
        self.busy = False
        self.used_at = 0.0
        # What the connection's socket waits for at most; None if nobody set it yet.
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
        return connection

    @property
    def rested(self) -> bool:
        """Whether the connection was idle for so long that it should be looked at first."""
        return time.monotonic() - self.used_at > IDLE_S_MAX

    def waits_for(self, left_s: float) -> bool:
        """Whether the socket waits about as long as a call may take, which is mostly all its time.

        Then it need not be told.
        """
        set_s = self.timeout_s
        return set_s is not None and 0.95 * set_s < left_s < 1.05 * set_s
