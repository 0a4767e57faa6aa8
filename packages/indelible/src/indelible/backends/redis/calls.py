"""Calls of scripts, and what all handlers share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from indelible.backends.redis.keys import SessionKeys, build_keys, parse_session
from indelible.backends.redis.scripts import LuaScript, load_script
from indelible.core.backend import Handlers
from indelible.core.clock import Clock, read_clock_ms
from indelible.core.deadline import Deadline
from indelible.model import Durability

Argument = str | bytes | int
Command = tuple[Argument, ...]

# The engine frees the keys of a session this long after its deadline. The scripts decide by the
# deadline itself; if the engine came first, a session would lose its entries before its end.
EXPIRY_MARGIN_MS = 1000
# With a clock of its own a test moves days in a moment, and the engine's time does not follow.
TEST_MARGIN_MS = 24 * 3600 * 1000
# Sessions whose keys are remembered; past it, they are built anew.
KEYS_REMEMBERED_MAX = 10_000


@dataclass(slots=True)
class ScriptCall:
    """One call of a script on the keys of some sessions."""

    script: LuaScript
    sessions: tuple[SessionKeys, ...]
    # The caller's time and the margin, with which the arguments of every script begin.
    time: tuple[bytes, bytes]
    arguments: tuple[Argument, ...]
    write: bool = False
    # Whether sending it again after a lost reply does what sending it once would have done.
    repeatable: bool = True
    deadline: Deadline | None = None
    # Why the outcome of an earlier attempt is unknown, if it is.
    lost: BaseException | None = None

    @property
    def session(self) -> str:
        """The session that it is about, or the first of them."""
        return parse_session(self.sessions[0].names[0]) or ""

    def mark_lost(self, error: BaseException) -> None:
        """An attempt was sent, and nobody knows what became of it."""
        self.lost = error

    def build_command(self, *, by_text: bool) -> Command:
        """The call as it is sent: by the script's digest, or with all its text."""
        keys = [name for session in self.sessions for name in session.names]
        start = self.script.start(by_text=by_text)
        return (*start, len(keys), *keys, *self.time, *self.arguments)


# Where the arguments of an append say that its key is fresh.
_FRESH_AT = 3


@dataclass(slots=True)
class AppendCall(ScriptCall):
    """One append. Those that wait at the same time share one call of the script."""

    def mark_lost(self, error: BaseException) -> None:
        """An attempt may have landed: from now on, the guard looks for its key."""
        self.lost = error
        before, after = self.arguments[:_FRESH_AT], self.arguments[_FRESH_AT + 1 :]
        self.arguments = (*before, b"0", *after)

    def build_command(self, *, by_text: bool) -> Command:
        """The append as a command of its own."""
        return build_append([self], by_text=by_text)


def build_append(calls: Sequence[AppendCall], *, by_text: bool) -> Command:
    """Build the one command for all these appends. It answers them in this order."""
    keys: list[Argument] = []
    arguments: list[Argument] = []
    # Where the keys of each session begin, counted from 1.
    begins: dict[str, int] = {}
    for call in calls:
        session = call.sessions[0]
        begin = begins.get(session.head)
        if begin is None:
            begin = begins[session.head] = len(keys) + 1
            keys += session.names
        arguments.append(begin)
        arguments += call.arguments
    first = calls[0]
    return (*first.script.start(by_text=by_text), len(keys), *keys, *first.time, *arguments)


class RedisContext:
    """What the handlers of one store share."""

    def __init__(
        self,
        *,
        namespace: str,
        clock: Clock | None,
        durability: Durability | None,
        shown: str,
        timeout_s: float,
        simulated: bool,
        is_cluster: bool,
    ) -> None:
        self.namespace = namespace
        self.clock = clock
        self.demanded = durability
        self.shown = shown
        self.timeout_s = timeout_s
        self.simulated = simulated
        self.is_cluster = is_cluster
        # Whether replicas are asked for what is on their disks, and not just in their memory.
        self.waits_for_disks = False
        self.cursor_key: bytes | None = None
        # A retry that finds its work done must write, or WAIT would answer for nothing.
        self.touch = b"1" if durability is Durability.REPLICATED else b"0"
        self._margin = b"%d" % (EXPIRY_MARGIN_MS if clock is None else TEST_MARGIN_MS)
        self._keys: dict[str, SessionKeys] = {}

    def time(self) -> tuple[bytes, bytes]:
        """The time that a script takes, nothing for the server's own, and the margin."""
        now = b"" if self.clock is None else b"%d" % read_clock_ms(self.clock)
        return now, self._margin

    def keys(self, session: str) -> SessionKeys:
        """The keys of a session."""
        keys = self._keys.get(session)
        if keys is None:
            if len(self._keys) >= KEYS_REMEMBERED_MAX:
                self._keys.clear()
            keys = self._keys[session] = build_keys(self.namespace, session)
        return keys

    def read(self, name: str, session: str, *arguments: Argument) -> ScriptCall:
        """A call that changes nothing."""
        return ScriptCall(load_script(name), (self.keys(session),), self.time(), arguments)

    def write(
        self, name: str, session: str, *arguments: Argument, repeatable: bool = True
    ) -> ScriptCall:
        """A call that may change something."""
        return ScriptCall(
            load_script(name), (self.keys(session),), self.time(), arguments, True, repeatable
        )


HANDLERS: Handlers[RedisContext] = Handlers()


def encode_ttl_ms(ttl_s: float | None) -> bytes:
    """A time to live as scripts take it."""
    return b"" if ttl_s is None else b"%d" % math.ceil(ttl_s * 1000)


def to_pairs(flat: Sequence[Any]) -> list[tuple[Any, Any]]:
    """A hash as servers send it, as pairs."""
    return list(zip(flat[::2], flat[1::2], strict=True))
