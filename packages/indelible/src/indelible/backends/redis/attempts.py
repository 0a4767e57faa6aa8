"""One call, from its first attempt to its outcome: what is known of it, and what to send next."""

from __future__ import annotations

from redis import exceptions as theirs

from indelible.backends.redis.calls import Call
from indelible.backends.redis.cluster import Address
from indelible.backends.redis.errors import (
    Next,
    UnconfirmedError,
    next_of,
    refused,
    unknown,
    unreachable,
)
from indelible.backends.redis.protocol import packed
from indelible.errors import MemoryStoreError


class Attempts:
    """Remembers whether an attempt may have landed: then no later refusal says that none did."""

    __slots__ = ("_by_text", "_call", "_lost", "_shown", "asking")

    def __init__(self, call: Call, *, shown: str, lost: BaseException | None = None) -> None:
        self._call = call
        self._shown = shown
        self._lost = lost
        self._by_text = False
        # Where a slot that is on the move is to be asked for, once.
        self.asking: Address | None = None

    def commands(self) -> tuple[bytes, ...]:
        """What the next attempt sends."""
        command = self._call.command(by_text=self._by_text)
        asking, self.asking = self.asking, None
        return (command,) if asking is None else (packed("ASKING"), command)

    def outcome(self, error: MemoryStoreError) -> MemoryStoreError:
        """The error to end with: what was sent before may have landed, whatever is said now."""
        if self._lost is None:
            return error
        return unknown(self._lost, shown=self._shown)

    def lost(self, error: BaseException, *, sent: bool) -> MemoryStoreError:
        """The connection failed; gives the error to end with if there is no time left."""
        if sent and self._call.write and next_of_lost(error) is None:
            self._maybe_landed(error)
        return self.outcome(unreachable(error, shown=self._shown))

    def refused(self, reply: Exception) -> MemoryStoreError | None:
        """The server said no; None if the next attempt can go at once."""
        if isinstance(reply, UnconfirmedError):
            self._maybe_landed(reply)
            return self.outcome(unknown(reply, shown=self._shown))
        then = next_of(reply)
        if then is Next.SEND_TEXT and not self._by_text:
            self._by_text = True
            return None
        self._by_text = False
        problem = self.outcome(refused(reply, shown=self._shown, session=self._call.session))
        if then is Next.ASK:
            assert isinstance(reply, theirs.AskError)
            self.asking = Address(reply.host, reply.port)
        elif then is Next.RAISE:
            raise problem
        return problem

    def _maybe_landed(self, error: BaseException) -> None:
        if not isinstance(self._lost, UnconfirmedError):
            self._lost = error
        self._call.sent_before()
        if not self._call.again:
            raise unknown(error, shown=self._shown)


def next_of_lost(error: BaseException) -> Next | None:
    """What a server said that redis-py takes for a broken connection; None if it is one."""
    return Next.WAIT if isinstance(error, theirs.BusyLoadingError) else None
