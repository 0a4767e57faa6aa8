"""Requests that share a round trip on one connection, and their replies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import hiredis
from redis.exceptions import ReadOnlyError, ResponseError

from indelible.backends.redis.errors import LostError, UnconfirmedError, parse_code
from indelible.backends.redis.requests import (
    Command,
    CommandRequest,
    RedisContext,
    ScriptCall,
    build_append,
)
from indelible.core.batcher import Pending
from indelible.core.deadline import Deadline

PendingRequest = Pending[CommandRequest, list[Any]]

# Takes a third of redis-py's time. Its annotation only allows commands of one word.
_pack: Callable[[Command], bytes] = cast(Any, hiredis.pack_command)

# Requests that share one round trip. With more, the first would wait noticeably for the last.
BATCH_MAX = 256
# Bytes of a batch, which a server may have to buffer before it answers the first request.
BATCH_BYTES_MAX = 4 * 1024 * 1024
# How many replicas must have a write before it is acknowledged at `replicated`.
REPLICAS_WAITED = 1
# How scripts begin the answer to a write that they refused.
REFUSALS = (b"audit", b"changed", b"exists", b"moved")
# The share of its time that a batch waits for replicas: WAIT must end before the batch does.
WAIT_SHARE = 0.8


class RequestBatch:
    """A batch in flight: its commands, and their replies."""

    def __init__(self, batch: Sequence[PendingRequest], context: RedisContext) -> None:
        self.commands: list[Command] = []
        # Errors of the server are replies, too.
        self.replies: list[Any] = []
        # Whether the server refused writes, because another one is the primary.
        self.met_replica = False
        # Requests, and the number of their replies; several requests may share one reply.
        self._shares: list[tuple[list[PendingRequest], int]] = []
        # The latest: a request that is late must not fail all others.
        self._deadline = max((each.deadline for each in batch), key=Deadline.left_s)
        self._confirms = context.confirms and any(each.request.write for each in batch)
        # Appends that share a call. On a cluster, the keys of a call must share a slot.
        groups: dict[int, tuple[list[PendingRequest], list[ScriptCall]]] = {}
        for pending in batch:
            request = pending.request
            if isinstance(request, ScriptCall) and request.is_append and not request.stamp:
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

    @property
    def left_s(self) -> float:
        """Return the time left for what the batch has not done yet, to connect for example."""
        return self._deadline.left_s()

    def pack(self) -> list[bytes]:
        """Encode the commands."""
        return [b"".join(map(_pack, self.commands))]

    def settle(self) -> None:
        """Give each request its replies, after all have arrived."""
        confirmed = not self._confirms or _is_confirmed(self.replies[-1])
        for pending, replies in self._split():
            assert replies is not None
            reply = replies[-1]
            if isinstance(reply, ResponseError):
                if isinstance(reply, ReadOnlyError) or parse_code(reply) == "READONLY":
                    self.met_replica = True
            elif not confirmed and self._is_confirmable(pending.request, reply):
                replies[-1] = UnconfirmedError("too few replicas answered in time")
            pending.succeed(replies)

    def lose(self, error: BaseException, *, sent: bool) -> None:
        """Fail each request whose replies did not arrive before the connection failed."""
        for pending, replies in self._split():
            # A write that replicas must confirm is not done yet when it has its reply.
            if replies is None or self._is_confirmable(pending.request, replies[-1]):
                pending.fail(LostError(error, sent=sent))
            else:
                pending.succeed(replies)

    def _is_confirmable(self, request: CommandRequest, reply: Any) -> bool:
        """Return whether replicas must confirm a write. Those that were refused wrote nothing."""
        if not self._confirms or not request.write or isinstance(reply, Exception):
            return False
        return not _is_refusal(reply)

    def _split(self) -> Iterator[tuple[PendingRequest, list[Any] | None]]:
        """Yield each request with its replies; None if they have not arrived."""
        at = 0
        for owners, count in self._shares:
            replies = self.replies[at : at + count]
            at += count
            if len(replies) < count:
                yield from ((pending, None) for pending in owners)
            elif not owners[0].request.is_append or type(replies[-1]) is not list:
                yield from ((pending, list(replies)) for pending in owners)
            else:
                # The reply has one answer for each append. Errors begin with a minus.
                for pending, answer in zip(owners, replies[-1], strict=True):
                    if type(answer) is bytes and answer.startswith(b"-"):
                        yield pending, [ResponseError(answer[1:].decode("utf-8", "replace"))]
                    else:
                        yield pending, [answer]


def _build_waits(wait_ms: int, disks: bool) -> list[Command]:
    """Build the commands that wait until replicas have what this connection wrote.

    WAIT is sent before WAITAOF, although WAITAOF alone would be enough: it would wait for the next
    report of the replica, which is sent once a second. WAIT asks for a report, which a replica
    sends when it has synced.
    """
    if not disks:
        return [("WAIT", REPLICAS_WAITED, wait_ms)]
    half_ms = max(1, wait_ms // 2)
    return [("WAIT", REPLICAS_WAITED, half_ms), ("WAITAOF", 1, REPLICAS_WAITED, half_ms)]


def _is_refusal(answer: Any) -> bool:
    """Return whether a script answered that it wrote nothing."""
    if not isinstance(answer, list):
        return type(answer) is int and answer == 0
    # Either with a word, or with the session, and nothing that an earlier attempt has written.
    return answer[0] in REFUSALS or (isinstance(answer[0], list) and answer[1] is None)


def _is_confirmed(reply: Any) -> bool:
    """Return whether enough replicas confirmed; WAITAOF also counts the disk of the primary."""
    if isinstance(reply, (list, tuple)):
        return len(reply) == 2 and reply[0] >= 1 and reply[1] >= REPLICAS_WAITED
    return isinstance(reply, int) and reply >= REPLICAS_WAITED
