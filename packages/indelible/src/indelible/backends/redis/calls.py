"""What the plans of this room yield: calls of scripts, and questions to single servers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from indelible.backends.redis.keys import PARTS, SessionKeys, keys_of, session_of
from indelible.backends.redis.protocol import Argument, packed_arguments
from indelible.backends.redis.scripts import (
    EVAL_WORDS,
    READ_BYTES,
    READ_ROWS,
    READ_ROWS_FIRST,
    Script,
    script,
)
from indelible.core.clock import Clock, read_clock_ms
from indelible.core.deadline import Deadline
from indelible.core.plan import Operation
from indelible.model import Durability

# The engine frees the keys of a session this long after its deadline. The scripts decide by the
# deadline itself; if the engine came first, a session would lose its entries before its end.
EXPIRY_MARGIN_MS = 1000
# With a clock of its own a test moves days in a moment, and the engine's time does not follow.
TEST_MARGIN_MS = 24 * 3600 * 1000
# Sessions whose keys are remembered; past it, they are made anew.
KEYS_REMEMBERED_MAX = 10_000


@dataclass(slots=True)
class Call(Operation[Any]):
    """One call of a script on the keys of one session, answered with its reply."""

    script: Script
    keys: SessionKeys
    arguments: tuple[Argument, ...]
    write: bool = False
    # Whether to send it again after a lost reply does what sending it once would have done.
    again: bool = True
    # Which of the arguments says that no earlier attempt can have landed, if one does.
    fresh_at: int | None = None
    # The time that it has, if some of it was spent already.
    patience: Deadline | None = None
    # Whether an attempt was sent whose outcome is unknown.
    resent: bool = False

    @property
    def session(self) -> str:
        """The session that it is about."""
        session = session_of(self.keys.head.encode())
        assert session is not None
        return session

    def sent_before(self) -> None:
        """An attempt was sent, and nobody knows what became of it."""
        self.resent = True
        if self.fresh_at is not None:
            arguments = list(self.arguments)
            arguments[self.fresh_at] = b"0"
            self.arguments = tuple(arguments)

    def command(self, *, by_text: bool = False) -> bytes:
        """The call as it is sent: by its digest, or with all its text."""
        start = self.script.by_text if by_text else self.script.by_digest
        count = EVAL_WORDS + len(PARTS) + len(self.arguments)
        rest = packed_arguments(self.arguments)
        return b"*%d\r\n%b%b%b" % (count, start, self.keys.packed, rest)


@dataclass(slots=True)
class Look(Operation[list[Any] | None]):
    """Commands that only read the keys of one session, in one transaction.

    Answered with the replies to all of them, or with None if the server refused: then a script is
    called in the time that is left.
    """

    keys: SessionKeys
    commands: tuple[bytes, ...]
    patience: Deadline | None = None


@dataclass(slots=True)
class CountServers(Operation[int]):
    """How many servers share the keys: the primaries of a cluster, or one."""


@dataclass(slots=True)
class Ask(Operation[list[Any]]):
    """Commands that only read, to one of the servers, answered with all their replies.

    A reply that is an error is given as a value: what a server refuses to say is no failure.
    """

    server: int
    commands: tuple[tuple[Argument, ...], ...]


class Context:
    """What the plans of one store share."""

    def __init__(
        self, *, namespace: str, clock: Clock | None, durability: Durability | None, shown: str
    ) -> None:
        self.namespace = namespace
        self.clock = clock
        self.demanded = durability
        self.shown = shown
        self.simulated = False
        self.margin = b"%d" % (EXPIRY_MARGIN_MS if clock is None else TEST_MARGIN_MS)
        self._keys: dict[str, SessionKeys] = {}
        # How long the entries of a session are, as far as they were seen.
        self._row_bytes: dict[str, int] = {}
        # Whether servers let us read without a script; what they refuse is not asked for again.
        self.looks = True
        # A retry that finds its work done must write, or WAIT would answer for nothing.
        self.touch = b"1" if durability is Durability.REPLICATED else b"0"

    def now(self) -> bytes:
        """The time that a script takes: nothing for the server's own."""
        return b"" if self.clock is None else b"%d" % read_clock_ms(self.clock)

    def keys(self, session: str) -> SessionKeys:
        """The keys of a session."""
        keys = self._keys.get(session)
        if keys is None:
            if len(self._keys) >= KEYS_REMEMBERED_MAX:
                self._keys.clear()
            keys = self._keys[session] = keys_of(self.namespace, session)
        return keys

    def rows_at_once(self, session: str) -> int:
        """How many entries of a session are some megabytes, by those that were seen last."""
        row_bytes = self._row_bytes.get(session)
        if row_bytes is None:
            return READ_ROWS_FIRST
        return max(1, min(READ_ROWS, READ_BYTES // row_bytes))

    def saw_rows(self, session: str, count: int, size_bytes: int) -> None:
        """So many entries of a session took so many bytes."""
        if len(self._row_bytes) >= KEYS_REMEMBERED_MAX:
            self._row_bytes.clear()
        self._row_bytes[session] = size_bytes // count + 1

    def read(
        self, name: str, session: str, *arguments: Argument, patience: Deadline | None = None
    ) -> Call:
        """A call that changes nothing."""
        every = (self.now(), self.margin, *arguments)
        return Call(script(name), self.keys(session), every, patience=patience)

    def write(
        self,
        name: str,
        session: str,
        *arguments: Argument,
        again: bool = True,
        fresh_at: int | None = None,
    ) -> Call:
        """A call that may change something."""
        every = (self.now(), self.margin, *arguments)
        return Call(script(name), self.keys(session), every, True, again, fresh_at)


def ttl_ms(ttl_s: float | None) -> bytes:
    """A time to live as scripts take it."""
    return b"" if ttl_s is None else b"%d" % math.ceil(ttl_s * 1000)


def pairs(flat: Sequence[Any]) -> list[tuple[Any, Any]]:
    """A hash as servers give it, as pairs."""
    return list(zip(flat[::2], flat[1::2], strict=True))
