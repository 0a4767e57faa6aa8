"""Requests that share a round trip on one connection, and the replies of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import hiredis
from redis.exceptions import ReadOnlyError, ResponseError

from indelible.backends.redis.errors import UnconfirmedError, is_ask, parse_code
from indelible.backends.redis.requests import (
    Command,
    CommandRequest,
    LostError,
    RedisContext,
    ScriptCall,
    build_append,
)
from indelible.core.batcher import Pending

PendingRequest = Pending[CommandRequest, list[Any]]

# In a third of the time that redis-py takes. Its annotation allows commands of one word only.
_pack: Callable[[Command], bytes] = cast(Any, hiredis.pack_command)

# Requests that share one round trip: enough to pay, few enough to be fair.
BATCH_MAX = 256
# Bytes of a batch: a server takes them into memory before it answers the first.
BATCH_BYTES_MAX = 4 * 1024 * 1024
# How many replicas must have a write before it is acknowledged at `replicated`.
REPLICAS_WAITED = 1
# A server that we wait for through WAIT must answer before we stop listening.
WAIT_SHARE = 0.8


class RequestBatch:
    """A batch on its way: the commands that are sent for it, and the replies."""

    def __init__(self, batch: Sequence[PendingRequest], context: RedisContext) -> None:
        self.commands: list[Command] = []
        # An error of the server is a reply, too.
        self.replies: list[Any] = []
        # Whether the server said that it takes no writes: then another one is the primary.
        self.met_replica = False
        # Requests, and how many replies are theirs; several requests share one reply.
        self._shares: list[tuple[list[PendingRequest], int]] = []
        self.left_s = 0.0
        self._confirms = context.confirms and any(each.request.write for each in batch)
        # Appends that share a call; on a cluster the keys of a call must share a slot.
        groups: dict[int, tuple[list[PendingRequest], list[ScriptCall]]] = {}
        for pending in batch:
            request = pending.request
            left_s = pending.deadline.left_s()
            self.left_s = max(self.left_s, left_s)
            if (
                isinstance(request, ScriptCall)
                and request.is_append
                and not request.stamp
                and not is_ask(request.failed)
            ):
                slot = request.keys.slot if context.is_cluster else 0
                owners, calls = groups.setdefault(slot, ([], []))
                owners.append(pending)
                calls.append(request)
            else:
                commands = request.build_commands()
                self.commands += commands
                self._shares.append(([pending], len(commands)))
        for owners, calls in groups.values():
            self.commands.append(build_append(calls))
            self._shares.append((owners, 1))
        if self._confirms:
            wait_ms = max(1, int(self.left_s * WAIT_SHARE * 1000))
            self.commands += _build_waits(wait_ms, context.waits_for_disks)

    def pack(self) -> list[bytes]:
        """Return the commands as they are sent."""
        return [b"".join(map(_pack, self.commands))]

    def settle(self) -> None:
        """Give each request its replies: all have come."""
        confirmed = not self._confirms or _is_confirmed(self.replies[-1])
        for pending, replies in self._split():
            assert replies is not None
            if isinstance(replies[-1], Exception):
                self.met_replica = self.met_replica or _is_read_only(replies[-1])
            elif not confirmed and self._is_confirmable(pending.request, replies[-1]):
                replies[-1] = UnconfirmedError("too few replicas answered in time")
            pending.succeed(replies)

    def lose(self, error: BaseException, *, sent: bool) -> None:
        """Tell each request that the connection broke, unless its replies came all the same."""
        for pending, replies in self._split():
            # A write that is to be confirmed is not done with its reply; a refused one is.
            if replies is None or self._is_confirmable(pending.request, replies[-1]):
                pending.fail(LostError(error, sent=sent))
            else:
                pending.succeed(replies)

    def _is_confirmable(self, request: CommandRequest, reply: Any) -> bool:
        """Whether replicas must have what was written: not of an append that was refused."""
        if not self._confirms or not request.write or isinstance(reply, Exception):
            return False
        if request.is_append and isinstance(reply, list):
            _, used, _ = reply
            return used is not None
        return True

    def _split(self) -> Iterator[tuple[PendingRequest, list[Any] | None]]:
        """Yield each request with its replies; None if they have not come."""
        at = 0
        for owners, count in self._shares:
            replies = self.replies[at : at + count]
            at += count
            if len(replies) < count:
                yield from ((pending, None) for pending in owners)
            elif not owners[0].request.is_append or type(replies[-1]) is not list:
                yield from ((pending, list(replies)) for pending in owners)
            else:
                # Appends have one answer each in their reply. An error has a minus before it.
                for pending, answer in zip(owners, replies[-1], strict=True):
                    if type(answer) is bytes and answer.startswith(b"-"):
                        yield pending, [ResponseError(answer[1:].decode("utf-8", "replace"))]
                    else:
                        yield pending, [answer]


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


def _is_read_only(error: Exception) -> bool:
    """Whether an error says that its server is no primary any more."""
    return isinstance(error, ResponseError) and (
        isinstance(error, ReadOnlyError) or parse_code(error) == "READONLY"
    )
